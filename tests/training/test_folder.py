"""The lock of a run's folder."""

import json
import subprocess
import sys

import pytest

from jaxatr import training

HOLDER = """
import os, sys
from jaxatr import training
with training.training_alone(sys.argv[1]):
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


def test_one_process_trains_in_a_folder_and_a_killed_one_leaves_it_free(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    command = [sys.executable, "-c", HOLDER, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as other:
        pid = int(other.stdout.readline())
        with pytest.raises(ValueError, match=f"{folder}: process {pid} on .* is training in this"):
            with training.training_alone(folder):
                raise AssertionError("it was let in")
        other.kill()
    left = json.loads((folder / ".training.json").read_text())
    assert left["process"] == pid
    with training.training_alone(folder), training.training_alone(folder):
        assert json.loads((folder / ".training.json").read_text())["process"] != pid
    assert not (folder / ".training.json").exists()


def test_a_training_that_fails_before_it_begins_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="no data"), training.training_alone(tmp_path / "a" / "b"):
        raise ValueError("no data")
    assert not (tmp_path / "a" / "b").exists()
