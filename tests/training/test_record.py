"""config.json and record.json."""

import json
import subprocess
import threading
import time

import pytest
from ml_collections import ConfigDict

import jaxatr
from jaxatr import bundled, files
from jaxatr.training import (
    ConfigMismatch,
    check_config,
    load_config,
    load_evaluation,
    read_record,
    record_config,
    task_of,
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
    recorded = files.read_fields(tmp_path / "run" / "config.json")
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


def test_two_writers_keep_what_the_other_wrote(tmp_path, monkeypatch):
    def slowly(workdir):
        found = read_record(workdir)
        time.sleep(0.02)  # in which the other one would read the same
        return found

    monkeypatch.setattr("jaxatr.training.record.read_record", slowly)

    def write(name):
        for number in range(3):
            update_record(tmp_path, **{f"{name}{number}": number})

    writers = [threading.Thread(target=write, args=name) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(read_record(tmp_path)) == ["a0", "a1", "a2", "b0", "b1", "b2"]


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
    for content in (b"", b'{"a": 1', b"\xff\xfe", b"[]", b"null", b'"a"'):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"^{tmp_path / name} is damaged: [^\n]+$"):
            read(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "record.json"])
def test_a_change_is_refused_until_it_is_accepted(tmp_path, name):
    record_config(tmp_path, config())
    update_record(tmp_path, normalization={"mean": [108.0]}, split={"known": ["a", "b"]})
    text = (tmp_path / name).read_text()
    read = load_config if name == "config.json" else read_record
    before, after = ("20", "21") if name == "config.json" else ("108.0", "708.0")
    (tmp_path / name).write_text(text.replace(before, after))
    with pytest.raises(ValueError, match=f'{name} was changed after it was written: .*"digest"'):
        read(tmp_path)
    with pytest.raises(ValueError, match=f"{name} was changed"):
        record_config(tmp_path, config()) if name == "config.json" else update_record(tmp_path)
    lines = (tmp_path / name).read_text().splitlines()
    (tmp_path / name).write_text("\n".join(line for line in lines if '"digest"' not in line))
    read(tmp_path)  # also as in earlier versions, which wrote no digest
    update_record(tmp_path, a=1)
    assert read_record(tmp_path)["a"] == 1


def test_a_missing_field_of_a_record_and_one_of_a_wrong_type_are_named(tmp_path):
    update_record(tmp_path, split={"unknown": ["c"]})
    path = tmp_path / "record.json"
    with pytest.raises(ValueError, match=f"{path}: split: the field 'known' is missing"):
        read_record(tmp_path)["split"]["known"]
    with pytest.raises(ValueError, match=f"{path}: the field 'image_shape' is missing"):
        read_record(tmp_path)["image_shape"]
    for fields, message in (
        ({"split": None}, "split: got null, wanted an object"),
        ({"split": {"known": "a"}}, 'split.known: got "a", wanted a list'),
        ({"normalization": {"mean": 1}}, "normalization.mean: got 1, wanted a list"),
        ({"normalization": {"mean": [float("nan")]}}, r"normalization.mean: got \[NaN\], wanted a"),
        ({"normalization": {"std": [True, "1"]}}, "normalization.std: .* list of finite numbers"),
        ({"normalization": {"std": []}}, r"normalization.std: got \[\], wanted a list of finite"),
        ({"split": {"known": [1, "a"]}}, r'split.known: got \[1, "a"\], wanted a list of strings'),
        ({"image_shape": [8, 8]}, r"image_shape: got \[8, 8\], wanted a list of height, width"),
        ({"detection": []}, r"detection: got \[\], wanted an object"),
        ({"detection": {"gamma": True}}, "detection.gamma: got true, wanted a probability"),
        ({"channels": None}, "channels: got null, wanted a positive integer"),
        ({"code": "x"}, 'code: got "x", wanted an object with a commit or null'),
        ({"code": {"commit": 1}}, r'code: got {"commit": 1}, wanted an object with a commit'),
        ({"dataset": {"fingerprint": 5}}, "dataset.fingerprint: got 5, wanted a string"),
        ({"decision": {"guarantees": 1}}, "decision.guarantees: got 1, wanted a list"),
        ({"image_dtype": "x"}, 'image_dtype: got "x", wanted the name of a data type'),
    ):
        files.write_fields(path, fields)
        with pytest.raises(ValueError, match=f"{path}: {message}"):
            read_record(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task": 1}, "task: got 1, wanted a string"),
        ({"train": []}, r"train: got \[\], wanted an object"),
        ({"data": {"size": "big"}}, "data.size: got 'big', wanted a value such as 0"),
        ({"data": {"size": 2.5}}, "data.size: got 2.5, wanted a value such as 0"),
        ({"seed": float("inf")}, "seed: got inf, wanted a value such as 0"),
        ({"optimizer": {"momentum": float("nan")}}, "optimizer.momentum: got nan, wanted a value"),
        ({"data": {"square": 1}}, "data.square: got 1, wanted a value such as False"),
        ({"model": {"backbone": None}}, "model.backbone: got None, wanted a value such as 'resnet"),
    ],
)
def test_a_field_of_a_configuration_of_a_wrong_type_is_named(tmp_path, fields, message):
    files.write_fields(tmp_path / "config.json", fields)
    with pytest.raises(ValueError, match=f"{tmp_path / 'config.json'}: {message}"):
        load_config(tmp_path)


def test_other_devices_than_before_are_reported(tmp_path):
    start_record(tmp_path, "abc")
    device = read_record(tmp_path)["device"]
    start_record(tmp_path, "abc")  # the same: no warning, which would be an error
    update_record(tmp_path, device=device | {"count": device["count"] + 3})
    told = rf"continues on {device['count']} × .*, and was trained on {device['count'] + 3} × "
    with pytest.warns(UserWarning, match=told):
        start_record(tmp_path, "abc")


def test_the_recorded_version_is_that_of_the_code_that_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(jaxatr, "__version__", "0.0.1")  # a checkout beside an installed package
    start_record(tmp_path, "abc")
    assert read_record(tmp_path)["versions"]["jaxatr"] == "0.0.1"


def test_a_run_whose_configuration_lacks_its_task_is_named(tmp_path):
    files.write_fields(tmp_path / "config.json", {"seed": 1})
    update_record(tmp_path, task="jaxatr.tasks.open_set:OpenSet")
    with pytest.raises(ValueError, match=f"^{tmp_path / 'config.json'}: it lacks 'task', or "):
        task_of(tmp_path)


@pytest.mark.parametrize(
    ("group", "name"), [("data", "source"), ("open_set", "enrolled"), ("data", "corrections")]
)
def test_a_file_in_the_runs_folder_is_found_where_the_folder_was_moved(tmp_path, group, name):
    asked = bundled.load("cbc:smoke")
    asked[group][name] = str(tmp_path / "before" / "own.npz")
    record_config(tmp_path / "now" / "seed-0", asked)
    assert load_config(tmp_path / "now" / "seed-0")[group][name] == asked[group][name]
    written = name != "corrections"  # by the training, into its folder
    for folder in (tmp_path / "now", tmp_path / "now" / "seed-0"):  # of several runs, of the run
        (folder / "own.npz").write_bytes(b"")
        found = load_config(tmp_path / "now" / "seed-0")[group][name]
        assert found == (str(folder / "own.npz") if written else asked[group][name])
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "own.npz").write_bytes(b"")
    assert load_config(tmp_path / "now" / "seed-0")[group][name] == asked[group][name]
