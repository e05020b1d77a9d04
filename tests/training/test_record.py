"""config.json and record.json."""

import json
import subprocess

import pytest
from ml_collections import ConfigDict

import jaxatr
from jaxatr.training import (
    ConfigMismatch,
    check_config,
    load_config,
    load_evaluation,
    read_record,
    record_config,
    update_record,
)
from jaxatr.training.record import _code, start_record


def config(**train):
    return ConfigDict(
        {
            "train": {"steps": 20, "log_every": 5} | train,
            "data": {"name": "x", "sizes": (1, 2), "data_dir": "a"},
        }
    )


def test_a_configuration_is_recorded_and_matches_itself(tmp_path):
    fingerprint = record_config(tmp_path / "run", config())
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())
    assert recorded["data"] == {"name": "x", "sizes": [1, 2], "data_dir": "a"}
    assert record_config(tmp_path / "run", config()) == fingerprint
    assert list((tmp_path / "run").iterdir()) == [tmp_path / "run" / "config.json"]


def test_free_fields_may_change_and_are_brought_up_to_date(tmp_path):
    fingerprint = record_config(tmp_path, config(), free=["data.name"])
    changed = config(log_every=7)
    changed.data.data_dir = "b"
    changed.data.name = "y"
    assert record_config(tmp_path, changed, free=["data.name"]) == fingerprint
    assert json.loads((tmp_path / "config.json").read_text())["data"]["name"] == "y"


def test_every_other_difference_is_listed(tmp_path):
    record_config(tmp_path, config(rate=0.1))
    changed = config(steps=40, rate=None)
    del changed.data
    with pytest.raises(ConfigMismatch) as caught:
        record_config(tmp_path, changed)
    assert str(caught.value).splitlines()[1:] == [
        '  data.name: recorded "x", now nothing',
        "  data.sizes: recorded [1, 2], now nothing",
        "  train.rate: recorded 0.1, now null",
        "  train.steps: recorded 20, now 40",
    ]
    assert json.loads((tmp_path / "config.json").read_text())["train"]["steps"] == 20


def test_fingerprints_tell_runs_apart(tmp_path):
    prints = {record_config(tmp_path / str(n), config(steps=n)) for n in range(3)}
    assert len(prints) == 3


def test_the_record_names_versions_and_device(tmp_path):
    update_record(tmp_path, classes=["a", "b"])
    start_record(tmp_path, "abc")
    record = read_record(tmp_path)
    assert record["classes"] == ["a", "b"]
    assert {"python", "jaxatr", "jax", "jaxlib", "flax", "optax", "numpy"} <= set(
        record["versions"]
    )
    assert record["device"]["count"] >= 1
    started = record["started"]
    update_record(tmp_path, started="yesterday")
    start_record(tmp_path, "abc")
    assert read_record(tmp_path)["started"] == "yesterday"
    assert read_record(tmp_path)["last_started"] >= started


def test_the_commit_is_that_of_the_checkout_the_code_lies_in(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True)

    assert _code(tmp_path) is None
    (tmp_path / "__init__.py").write_text("")
    git("init", "-q")
    assert _code(tmp_path) is None  # a checkout, and the code is no part of it
    git("add", ".")
    git("commit", "-qm", "first")
    assert _code(tmp_path)["dirty"] is False
    assert len(_code(tmp_path)["commit"]) == 40
    (tmp_path / "__init__.py").write_text("1")
    assert _code(tmp_path)["dirty"] is True


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    path = tmp_path / "run"
    path.write_text("")
    with pytest.raises(ValueError, match="run is a file, wanted a folder for the run"):
        check_config(path, ConfigDict({"seed": 1}))


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("config.json", load_config),
        ("config.json", lambda folder: check_config(folder, config())),
        ("record.json", read_record),
        ("evaluation.json", load_evaluation),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, read):
    for content in (b"", b'{"a": 1', b"\xff\xfe"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"^{tmp_path / name} is damaged: [^\n]+$"):
            read(tmp_path)


def test_the_recorded_version_is_that_of_the_code_that_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(jaxatr, "__version__", "0.0.1")  # a checkout beside an installed package
    start_record(tmp_path, "abc")
    assert read_record(tmp_path)["versions"]["jaxatr"] == "0.0.1"
