"""A run keeps the kernels with which it was started."""

import io
import sys

import jax
import numpy as np
import pytest

from jaxatr import kernels, parallel, training
from jaxatr.kernels import choosing, database
from jaxatr.kernels.device import of_platform
from jaxatr.kernels.entries import Entry
from jaxatr.kernels.ops.convolution import ConvProblem, primitive
from jaxatr.kernels.solver import Choice
from jaxatr.training.kernels import KernelChoices

EDGES = ((1, 1), (1, 1))
FORWARD = ConvProblem("forward", (16, 8, 8, 1), (3, 3, 1, 8), (1, 1), EDGES, (1, 1), 1, "float32")


@pytest.fixture(autouse=True)
def own_database(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXATR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAXATR_FIND", raising=False)


@pytest.fixture
def used(monkeypatch):
    """Returns the algorithms of the forward convolutions, in order."""
    names, function = [], primitive.function

    def noted(problem, choice, device):
        if problem == FORWARD:
            names.append(choice.algorithm)
        return function(problem, choice, device)

    monkeypatch.setattr(primitive, "function", noted)
    return names


def remember(algorithm):
    entry = Entry(Choice(algorithm), 1.0, 1, jax.__version__)
    database.store(of_platform("cpu"), {FORWARD.key: entry})


@pytest.mark.slow
def test_a_resumed_run_keeps_its_choices_when_the_database_says_otherwise(toy, used, tmp_path):
    devices = jax.local_devices()[:1]
    remember("matmul")
    unbroken = toy.run(tmp_path / "unbroken", devices=devices)
    with pytest.raises(training.NonFiniteLoss):
        toy.run(tmp_path / "broken", toy.make(nan_at=12), devices=devices)
    recorded = training.read_record(tmp_path / "broken")["kernels"]
    assert recorded == {"train": {FORWARD.key: {"algorithm": "matmul", "config": {}}}}

    remember("taps")
    used.clear()
    resumed = toy.run(tmp_path / "broken", devices=devices)
    assert "matmul" in used and "taps" not in used
    assert training.read_record(tmp_path / "broken")["kernels"] == recorded
    jax.tree.map(np.testing.assert_array_equal, resumed.params, unbroken.params)


def lower():
    x, w = np.zeros(FORWARD.x_shape, np.float32), np.zeros(FORWARD.w_shape, np.float32)
    jax.jit(lambda x, w: kernels.convolution(x, w, padding=1)).lower(x, w)


@pytest.mark.slow
def test_found_before_the_first_step_and_recorded(tmp_path, capsys):
    chosen = KernelChoices(tmp_path, find=True, progress=True).of("train", lower)
    assert "finding kernels for 1 problems" in capsys.readouterr().err
    assert list(chosen.to_json()) == [FORWARD.key]
    assert training.read_record(tmp_path)["kernels"] == {"train": chosen.to_json()}
    again = KernelChoices(tmp_path, find=True, progress=True).of("train", pytest.fail)
    assert again == chosen and capsys.readouterr().err == ""


def test_nothing_is_lowered_where_there_is_nothing_to_choose_from(tmp_path):
    choices = KernelChoices(tmp_path, find=False, progress=False).of("train", pytest.fail)
    assert choices.to_json() == {} and training.read_record(tmp_path)["kernels"] == {"train": {}}


def test_a_run_of_a_version_without_choices_goes_on_by_the_heuristic(tmp_path):
    remember("matmul")
    choices = KernelChoices(tmp_path, find=True, progress=False)
    choices.resumed = True
    assert choices.of("train", pytest.fail).to_json() == {}


def test_each_phase_is_chosen_before_its_own_first_step(tmp_path):
    remember("matmul")
    choices = KernelChoices(tmp_path, find=False, progress=False)
    choices.of("one", lambda: None)
    choices.resumed = True  # with the record of an earlier phase
    assert list(choices.of("two", lower).to_json()) == [FORWARD.key]
    assert set(training.read_record(tmp_path)["kernels"]) == {"one", "two"}


@pytest.mark.parametrize("resumed", [False, True])
def test_on_another_kind_of_device_the_choices_are_made_anew(tmp_path, resumed):
    """The run was started on a GPU, whose kernels a CPU does not support."""
    of_gpu = {"train": {FORWARD.key: {"algorithm": "hopper", "config": {}}}}
    made_for = {"platform": "gpu", "kind": "NVIDIA H100"}
    training.update_record(tmp_path, kernels=of_gpu, kernels_for=made_for)
    assert training.recorded_choices(tmp_path, "train") == {}  # an evaluation uses the heuristic
    remember("matmul")
    choices = KernelChoices(tmp_path, find=False, progress=False)
    choices.resumed = resumed
    with pytest.warns(UserWarning, match="NVIDIA H100, .* anew for cpu"):
        chosen = choices.of("train", lower).to_json()
    assert chosen == {FORWARD.key: {"algorithm": "matmul", "config": {}}}
    record = training.read_record(tmp_path)
    assert record["kernels"] == {"train": chosen}
    assert record["kernels_for"]["platform"] == "cpu"
    assert training.recorded_choices(tmp_path, "train") == chosen


def test_a_run_that_had_nothing_to_choose_from_chooses_where_it_goes_on(tmp_path, recwarn):
    made_for = {"platform": "gpu", "kind": "NVIDIA H100"}
    training.update_record(tmp_path, kernels={"train": {}}, kernels_for=made_for)
    remember("matmul")
    choices = KernelChoices(tmp_path, find=False, progress=False)
    choices.resumed = True
    assert list(choices.of("train", lower).to_json()) == [FORWARD.key] and not recwarn.list


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar(tmp_path, monkeypatch, unchecked):
    """Without type checks, which would consume the first problem of the bar and end it."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(choosing, "found_choice", lambda problem: Choice("matmul"))
    KernelChoices(tmp_path, find=True, progress=True).of("train", lower)
    assert "finding kernels: 100%" in sys.stderr.getvalue()
    assert "1/1" in sys.stderr.getvalue()


def test_other_processes_take_process_0s(tmp_path, monkeypatch):
    remember("taps")
    mapping = {FORWARD.key: {"algorithm": "matmul", "config": {}}}
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(parallel, "gather_json", lambda own: [mapping, own])
    choices = KernelChoices(tmp_path, find=True, progress=True).of("train", pytest.fail)
    assert choices.to_json() == mapping and not (tmp_path / "record.json").exists()
