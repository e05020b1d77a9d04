"""Bundled configurations are found by name in a checkout and in a wheel."""

import shutil
from pathlib import Path

import pytest

from jaxatr import bundled, runs, training

ROOT = Path(__file__).parents[1]


def test_the_checkout_has_them_at_its_top():
    assert bundled.folder() == ROOT / "configs"
    assert bundled.names() == ["cbc", "detect", "distill", "quadruplet", "track"]


def test_a_wheel_has_them_inside(tmp_path, monkeypatch):
    package = tmp_path / "jaxatr"
    (package / "configs").mkdir(parents=True)
    monkeypatch.setattr(bundled, "__file__", str(package / "bundled.py"))
    assert bundled.folder() == tmp_path / "configs"  # of a checkout: there are no files inside
    (package / "configs" / "cbc.py").touch()
    assert bundled.folder() == package / "configs"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cbc", f"{ROOT}/configs/cbc.py"),
        ("cbc:smoke", f"{ROOT}/configs/cbc.py:smoke"),
        (f"{ROOT}/configs/track.py:smoke", f"{ROOT}/configs/track.py:smoke"),
    ],
)
def test_a_configuration_is_found(text, found):
    assert bundled.locate(text) == found


def test_a_file_comes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cbc").write_text("")
    assert bundled.locate("cbc:smoke") == "cbc:smoke"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cbd:smoke", "got 'cbd', wanted a file or one of cbc, .*; did you mean 'cbc'"),
        ("configs/cbc.py:smoke", "there is no file 'configs/cbc.py'; .* --config=cbc:smoke$"),
        ("mine/own.py", "there is no file 'mine/own.py'$"),
    ],
)
def test_missing_entries_are_named(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        bundled.locate(text)


@pytest.mark.parametrize(
    ("content", "variant", "message"),
    [
        ("", "", "own.py has no function get_config$"),
        ("def get_config(): return {}", ":small", "own.py has no variants, got 'small'$"),
        ("def get_config(): return {}", "", "own.py: get_config returned {}, wanted a ConfigDict$"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path, content, variant, message):
    (tmp_path / "own.py").write_text(content)
    with pytest.raises(ValueError, match=message):
        bundled.load(f"{tmp_path / 'own.py'}{variant}")


def test_a_file_may_define_a_dataclass(tmp_path):
    (tmp_path / "own.py").write_text(
        "from __future__ import annotations\nimport dataclasses\nimport ml_collections\n\n\n"
        "@dataclasses.dataclass\nclass Size:\n    rows: int = 3\n\n\n"
        "def get_config():\n    return ml_collections.ConfigDict({'rows': Size().rows})\n"
    )
    assert bundled.load(str(tmp_path / "own.py")).rows == 3


def test_the_listed_variants_exist():
    for name, summary, variants in bundled.described():
        assert summary.endswith(".") and variants[0] == "default"
        for variant in variants:
            assert bundled.load(f"{name}:{variant}").task
    assert bundled.load("cbc") == bundled.load("cbc:default")


def test_a_training_takes_a_name(tmp_path, monkeypatch):
    seen = []

    def check(workdir, config, free):
        seen.append(config)
        raise ValueError("enough")

    monkeypatch.setattr(training, "check_config", check)
    with pytest.raises(ValueError, match="enough"):
        runs.train_run("cbc:smoke", tmp_path)
    assert seen == [bundled.load("cbc:smoke")]


@pytest.mark.parametrize("name", bundled.names())
def test_a_users_copy_in_an_empty_folder_is_the_same(tmp_path, monkeypatch, name):
    shutil.copy(ROOT / "configs" / f"{name}.py", tmp_path / "mine.py")
    monkeypatch.chdir(tmp_path)
    for variant in ("default", "smoke"):
        mine = bundled.load(f"mine.py:{variant}")
        assert mine.to_json() == bundled.load(f"{name}:{variant}").to_json()


def test_the_recipes_on_simulated_vehicles_share_their_data():
    """A surrogate and its target have the same data: chips, classes and boxes."""
    target, surrogate = bundled.load("cbc"), bundled.load("distill")
    assert target.data.options.to_dict() == surrogate.data.options.to_dict()
    assert target.data.options.turns == 2 and target.data.center_crop == 64
    assert target.open_set.split == surrogate.open_set.split == "random-5/3"
    tracks, embedding = bundled.load("track").data, bundled.load("quadruplet").data
    assert tracks.name == "simulated_tracks" and tracks.options.surround == 12
    assert "surround" not in embedding.options and embedding.center_crop == 0
