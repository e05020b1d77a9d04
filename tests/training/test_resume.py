"""A run that is killed and started again is bit-identical to an uninterrupted one."""

import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest

from jaxatr import training


def wait_for(condition, process):
    """Waits for a condition, and returns whether it became true before the process ended."""
    while not condition():
        if process.poll() is not None:
            return False
        time.sleep(0.001)
    return True


def kill(process):
    process.kill()
    process.communicate()


def kill_while_saving(start, workdir, step):
    """Kills a run while it writes a checkpoint of ``step`` or later, and returns the leftovers."""
    folder = workdir / "checkpoints"

    def unfinished():
        names = [path.name for path in folder.glob("*tmp*")]
        return [name for name in names if int(name.split(".")[0]) >= step]

    process = start(workdir, pause=0.05)
    wait_for(unfinished, process)
    kill(process)
    return unfinished()


def check(workdir, unbroken, records):
    final = np.load(workdir / "final.npz")
    assert set(final) == set(unbroken.final)
    for name, leaf in unbroken.final.items():
        np.testing.assert_array_equal(final[name], leaf, err_msg=name)
    assert records(workdir) == unbroken.records


@pytest.mark.slow
def test_killed_while_saving(start, finish, unbroken_program, records, tmp_path):
    for _ in range(5):  # the save is so short that the kill may come just after it
        if left := kill_while_saving(start, tmp_path, 10):
            break
    assert left
    finish(start(tmp_path))
    check(tmp_path, unbroken_program, records)


@pytest.mark.slow
def test_killed_again_and_again(start, finish, unbroken_program, records, tmp_path):
    rng = np.random.default_rng(0)
    for attempt in range(8):
        if attempt % 2:
            kill_while_saving(start, tmp_path, 5)
        else:
            process = start(tmp_path, pause=0.05)
            lines = rng.integers(0, 6)
            path = tmp_path / "metrics.jsonl"
            wait_for(lambda: path.exists() and path.read_text().count("\n") >= lines, process)  # noqa: B023
            time.sleep(rng.uniform(0, 0.3))
            kill(process)
    finish(start(tmp_path))
    check(tmp_path, unbroken_program, records)


@pytest.mark.slow
def test_told_to_stop(start, finish, unbroken_program, records, tmp_path):
    process = start(tmp_path, pause=0.1)
    path = tmp_path / "metrics.jsonl"
    assert wait_for(lambda: path.exists() and path.read_text().count("\n") >= 2, process)
    process.send_signal(signal.SIGTERM)
    assert "stopped on request" in finish(process, code=75)
    finish(start(tmp_path))
    check(tmp_path, unbroken_program, records)


@pytest.mark.slow
def test_killed_with_kernels_that_were_found(start, finish, records, tmp_path):
    def environment(name):
        return {"JAXATR_CACHE": str(tmp_path / name)}

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(start(whole, environment("cache"), find=1))
    chosen = training.read_record(whole)["kernels"]
    assert len(chosen["train"]) == 2  # the images have no gradient
    for attempt in range(4):  # found once; then the database is another, which must not matter
        cache = environment("cache" if attempt == 0 else f"cache{attempt}")
        process = start(broken, cache, find=1, pause=0.05)
        path = broken / "metrics.jsonl"
        lines = 2 + 4 * attempt
        wait_for(lambda: path.exists() and path.read_text().count("\n") >= lines, process)  # noqa: B023
        kill(process)
    finish(start(broken, environment("none"), find=1))
    assert training.read_record(broken)["kernels"] == chosen
    unbroken = SimpleNamespace(final=dict(np.load(whole / "final.npz")), records=records(whole))
    check(broken, unbroken, records)
