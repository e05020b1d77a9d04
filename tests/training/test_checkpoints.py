"""Checkpoints: only intact ones of the same run are read, and a failed save loses none."""

import os
import resource
import shutil
import subprocess
import sys
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

from jaxatr.training import (
    CheckpointError,
    Snapshot,
    checkpoints,
    load_snapshot,
    saved_steps,
    update_record,
)
from jaxatr.training.checkpoints import SET_ASIDE, Checkpoints
from jaxatr.training.state import flatten


def snapshot(step, score=None, size=64):
    rng = np.random.default_rng(step)
    state = {
        "params": {"stem": {"kernel": rng.normal(size=(size, size)).astype(np.float32)}},
        "opt_state": {"train": {"0": {"count": np.int32(step)}, "1": {}}},
        "key": np.arange(2, dtype=np.uint32),
    }
    hook = {"order": rng.permutation(7)}
    return Snapshot(step, state, hook, {"data": [{"next": step}]}, {"accuracy": 0.5}, score)


def assert_equal(found, expected):
    assert found[3:] == expected[3:] and found.step == expected.step
    for got, wanted in ((found.state, expected.state), (found.hook, expected.hook)):
        got, wanted = flatten(got), flatten(wanted)
        assert set(got) == set(wanted)
        for name, leaf in wanted.items():
            np.testing.assert_array_equal(got[name], leaf)
            assert got[name].dtype == leaf.dtype


def open_run(workdir, fingerprint="run", keep=3):
    update_record(workdir, fingerprint=fingerprint)
    return Checkpoints(workdir, fingerprint=fingerprint, keep=keep)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with checkpoints of steps 1 and 2."""
    workdir = tmp_path_factory.mktemp("saved")
    with open_run(workdir) as checkpoints:
        checkpoints.save(snapshot(1, score=0.5))
        checkpoints.save(snapshot(2, score=0.4))
    return workdir


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


def test_a_saved_state_is_read_back(copy):
    with open_run(copy) as checkpoints:
        assert_equal(checkpoints.restore(), snapshot(2, score=0.4))
    assert_equal(load_snapshot(copy, "best"), snapshot(1, score=0.5))
    assert_equal(load_snapshot(copy, 1), snapshot(1, score=0.5))


def test_the_steps_that_are_saved(copy, tmp_path):
    (copy / "checkpoints" / "7.orbax-checkpoint-tmp").mkdir()  # an interrupted save
    assert saved_steps(copy) == [1, 2]
    assert saved_steps(tmp_path) == []


def test_a_run_may_have_no_checkpoint(tmp_path):
    with open_run(tmp_path) as checkpoints:
        assert checkpoints.restore() is None


def test_orbax_is_imported_only_once_there_is_something_to_save_or_to_read(tmp_path):
    program = (
        "import sys\n"
        "from jaxatr.training.checkpoints import Checkpoints\n"
        "with Checkpoints(sys.argv[1], fingerprint='a', keep=1) as checkpoints:\n"
        "    assert checkpoints.restore() is None\n"
        "print('orbax' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
    assert (tmp_path / "checkpoints").is_dir()


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


DAMAGES = {"cut": truncate, "flipped": flip, "gone": lambda path: path.unlink()}


def largest(folder):
    return max((path for path in folder.rglob("*") if path.is_file()), key=os.path.getsize)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("item", ["state", "record"])
def test_a_damaged_checkpoint_is_named_and_passed_over(copy, damage, item):
    DAMAGES[damage](largest(copy / "checkpoints" / "2" / item))
    with pytest.warns(UserWarning, match="checkpoint 2 is not used: "):
        assert load_snapshot(copy, "latest").step == 1
    with open_run(copy) as checkpoints:
        with pytest.warns(UserWarning, match="checkpoint 2 is not used: "):
            assert_equal(checkpoints.restore(), snapshot(1, score=0.5))
        checkpoints.save(snapshot(2))  # its place is free again
    assert (copy / "checkpoints_set_aside" / "2.0").is_dir()
    assert_equal(load_snapshot(copy, "latest"), snapshot(2))


@pytest.mark.slow
def test_any_damage_to_any_file_is_harmless_or_noticed(saved, tmp_path):
    folder = saved / "checkpoints" / "2"
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        for name, damage in DAMAGES.items():
            copy = shutil.copytree(saved, tmp_path / "copy")
            damage(copy / path.relative_to(saved))
            with open_run(copy) as checkpoints, warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                found = checkpoints.restore()
            assert found.step == (1 if told else 2), (path, name)
            assert_equal(found, snapshot(1, 0.5) if told else snapshot(2, 0.4))
            shutil.rmtree(copy)


def test_another_runs_checkpoint_is_named(copy):
    shutil.copytree(copy / "checkpoints" / "1", copy / "checkpoints" / "9")
    with pytest.warns(UserWarning, match="checkpoint 9 .* from step 1 of run run"):
        assert load_snapshot(copy, "latest").step == 2
    with (
        open_run(copy, fingerprint="other") as checkpoints,
        pytest.warns(UserWarning, match="of run run, wanted step . of run other"),
        pytest.raises(CheckpointError, match=r"none of the checkpoints \[9, 2, 1\]"),
    ):
        checkpoints.restore()


def test_a_run_is_never_silently_begun_anew(copy):
    for step in ("1", "2"):
        truncate(largest(copy / "checkpoints" / step))
    with pytest.warns(UserWarning), pytest.raises(CheckpointError, match="2, 1. are corrupt"):
        load_snapshot(copy, "latest")
    with open_run(copy) as checkpoints, pytest.warns(UserWarning):
        with pytest.raises(CheckpointError, match="use another workdir"):
            checkpoints.restore()
    for folder in (copy / "checkpoints", copy / SET_ASIDE):  # the next start, and a wish to
        with open_run(copy) as checkpoints:
            with pytest.raises(CheckpointError, match=r"none of .* \[2, 1\] .* to begin anew"):
                checkpoints.restore()
        shutil.rmtree(folder)
    with open_run(copy) as checkpoints:
        assert checkpoints.restore() is None


@pytest.mark.parametrize("which", ["latest", "best"])
def test_a_checkpoint_that_the_training_replaces_meanwhile_is_not_corrupt(copy, monkeypatch, which):
    read = checkpoints.read_snapshot

    def late(manager, number, fingerprint):
        if number < 3 and saved_steps(copy) == [1, 2]:
            with open_run(copy, keep=1) as written:
                written.save(snapshot(3, score=0.9))
        return read(manager, number, fingerprint)

    monkeypatch.setattr(checkpoints, "read_snapshot", late)
    assert_equal(load_snapshot(copy, which), snapshot(3, score=0.9))


def test_a_missing_step_or_folder_is_named(copy, tmp_path):
    with pytest.raises(ValueError, match=r"got 7, wanted one of the steps \[2, 1\]"):
        load_snapshot(copy, 7)
    with pytest.raises(ValueError, match="wanted the folder of a training run"):
        load_snapshot(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="keep: got 0"):
        open_run(copy, keep=0)
    shutil.rmtree(copy / "checkpoints")
    for _ in range(2):
        with pytest.raises(ValueError, match="its training has saved no checkpoint yet"):
            load_snapshot(copy)
        (copy / "checkpoints").mkdir(exist_ok=True)


def test_the_newest_and_the_best_are_kept_across_a_restart(tmp_path):
    with open_run(tmp_path, keep=2) as checkpoints:
        for step, score in enumerate([0.1, 0.7, 0.7, float("nan")], start=1):
            checkpoints.save(snapshot(step, score))
    with open_run(tmp_path, keep=2) as checkpoints:
        for step in range(5, 8):
            checkpoints.save(snapshot(step))
    kept = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert kept == [3, 6, 7]


@contextmanager
def no_file_above(size):
    """Makes writes fail in the middle of a file, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_save_that_fails_is_reported_and_costs_nothing(tmp_path):
    with open_run(tmp_path, keep=1) as checkpoints:
        checkpoints.save(snapshot(1))
        checkpoints.wait()
        with no_file_above(100_000):
            with pytest.raises(CheckpointError, match=r"existing checkpoints.*: \[1\]"):
                checkpoints.save(snapshot(2, size=512))
                checkpoints.wait()
    assert_equal(load_snapshot(tmp_path, "latest"), snapshot(1))


def test_a_save_that_fails_last_of_all_is_reported(tmp_path):
    with pytest.raises(CheckpointError, match="could not be saved"), no_file_above(100_000):
        with open_run(tmp_path) as checkpoints:
            checkpoints.save(snapshot(1, size=512))


def test_a_save_that_fails_hides_no_other_error(tmp_path):
    with pytest.warns(UserWarning, match="could not be saved"), no_file_above(100_000):
        with pytest.raises(KeyError, match="another"), open_run(tmp_path) as checkpoints:
            checkpoints.save(snapshot(1, size=512))
            raise KeyError("another")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_a_full_disk(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine does not let root mount a small file system")
    try:
        with open_run(tmp_path, keep=1) as checkpoints:
            checkpoints.save(snapshot(1, size=512))
            with pytest.raises(
                CheckpointError, match=r"(?s)[Nn]o space left.*existing checkpoints.*: \[1\]"
            ):
                checkpoints.save(snapshot(2, size=1024))
                checkpoints.wait()
        assert_equal(load_snapshot(tmp_path, "latest"), snapshot(1, size=512))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
