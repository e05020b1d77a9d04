"""The training loop: errors, stopping, and exact continuation."""

import dataclasses
import shutil
import signal
from typing import Any

import flax.traverse_util
import grain
import jax
import numpy as np
import optax
import pytest

from jaxatr import memory, training
from jaxatr.training import loop
from jaxatr.training.checkpoints import Checkpoints
from jaxatr.training.state import trace_state
from jaxatr.training.task import Hook, Phase


def same(tree, other):
    """Returns whether two trees are bit-identical."""
    return jax.tree.all(jax.tree.map(np.array_equal, tree, other))


def test_it_learns_and_records_every_window(unbroken):
    train = [record for record in unbroken.records if record["phase"] == "train"]
    assert [record["step"] for record in train] == [3, 6, 9, 12, 15, 18, 20]
    assert train[-1]["loss"] < 0.6 * train[0]["loss"]
    assert unbroken.result.step == 20
    assert unbroken.records[-1] == {"step": 20, "phase": "evaluate", **unbroken.result.metrics}


def test_a_finished_run_is_not_trained_again(toy, unbroken):
    before = (unbroken.workdir / "metrics.jsonl").read_bytes()
    again = toy.run(unbroken.workdir)
    assert same(again.params, unbroken.result.params)
    assert again.metrics == unbroken.result.metrics
    assert (unbroken.workdir / "metrics.jsonl").read_bytes() == before


def test_each_program_of_a_run_is_lowered_once(toy, tmp_path):
    lowered: list[Any] = []

    def listen(event: str, duration_secs: float, **facts: Any):
        if event.endswith("jaxpr_to_mlir_module_duration"):
            lowered.append(facts.get("fun_name"))

    task = toy.make()
    task.evaluate = lambda params, model_state: {"accuracy": 0.5}
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        toy.run(tmp_path, task)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert lowered.count("jit(create)") == 1
    assert lowered.count("jit(_fun)") == 1  # the step, which pmap calls so


def test_a_resumed_run_creates_no_state(toy, unbroken, tmp_path, monkeypatch):
    def trace(*arguments, **options):
        return trace_state(*arguments, **options)[0], lambda: pytest.fail("a state was created")

    monkeypatch.setattr(loop, "trace_state", trace)
    workdir = shutil.copytree(unbroken.workdir, tmp_path / "copy")
    result = toy.run(workdir)
    assert result.step == 20


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_same_command_goes_on(toy, unbroken, records, tmp_path, number):
    def raise_at_seven(batch):
        if batch["label"] is not None and next(count) == 7:
            signal.raise_signal(number)
        return batch

    count = iter(range(1000))
    before = signal.getsignal(number)
    task = toy.make()
    batches = task.batches
    interrupted = Interrupted(task, lambda phase: Tapped(batches(phase), raise_at_seven))
    with pytest.raises(training.Preempted, match="saved") as caught:
        toy.run(tmp_path, interrupted, checkpoint_every=None)
    assert caught.value.exit_code == training.EXIT_PREEMPTED == 75
    assert 7 <= caught.value.step <= 11
    assert signal.getsignal(number) is before
    result = toy.run(tmp_path)
    assert same(result.params, unbroken.result.params)
    assert same(result.model_state, unbroken.result.model_state)
    assert records(tmp_path) == unbroken.records


def test_a_signal_is_heard_although_the_evaluation_ends_the_training(toy, tmp_path):
    def ended(*_):
        signal.raise_signal(signal.SIGTERM)
        raise LookupError("others were better")

    with pytest.raises(training.Preempted, match="step 20") as caught:
        toy.run(tmp_path, evaluated=ended)
    assert isinstance(caught.value.__cause__, LookupError)


class Interrupted(training.Task):
    """A task with other batches."""

    def __init__(self, task, batches):
        self.phases, self.cycles, self.best, self.hook = (
            task.phases, task.cycles, task.best, task.hook
        )  # fmt: skip
        self._task, self._batches = task, batches

    def init(self, key):
        return self._task.init(key)

    def batches(self, phase):
        return self._batches(phase)

    def evaluate(self, params, model_state):
        return self._task.evaluate(params, model_state)


class Tapped:
    """An iterator that passes its elements to a function."""

    def __init__(self, iterator, see):
        self._iterator, self._see = iterator, see

    def __iter__(self):
        return self

    def __next__(self):
        return self._see(next(self._iterator))

    def get_state(self):
        return self._iterator.get_state()

    def set_state(self, state):
        self._iterator.set_state(state)


def test_a_loss_that_is_not_a_number_stops_the_run_at_its_step(toy, tmp_path):
    with pytest.raises(training.NonFiniteLoss, match="loss of step 13 .* is nan"):
        toy.run(tmp_path, toy.make(nan_at=12))
    snapshot = training.load_snapshot(tmp_path, "latest")
    assert snapshot.step == 10
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(snapshot.state))


def test_a_parameter_that_is_not_finite_is_never_saved(toy, tmp_path):
    task = toy.make()
    phase = task.phases[0]._replace(optimizer=optax.sgd(lambda step: (step == 7) * 1e38 * 10 + 0.1))
    with pytest.raises(training.NonFiniteLoss):
        toy.run(tmp_path, dataclasses.replace(task, phases=(phase,)), checkpoint_every=8)
    with pytest.raises(ValueError, match="has saved no checkpoint yet"):
        training.load_snapshot(tmp_path, "latest")


def test_another_configuration_is_refused_by_field(toy, unbroken):
    other = toy.config(train={"steps": 20, "lr": 0.2}, data={"data_dir": "elsewhere"}, extra=1)
    with pytest.raises(training.ConfigMismatch) as caught:
        toy.run(unbroken.workdir, config=other)
    assert "train.lr: recorded 0.1, now 0.2" in str(caught.value)
    assert "extra: recorded nothing, now 1" in str(caught.value)
    assert "data_dir" not in str(caught.value)


def test_a_checkpoint_of_another_network_is_named(toy, unbroken):
    task = toy.make()
    phase = task.phases[0]._replace(optimizer=optax.adam(0.1))
    with pytest.raises(training.CheckpointError, match="20 does not fit the task: opt_state/"):
        toy.run(unbroken.workdir, dataclasses.replace(task, phases=(phase,)))


def test_the_number_of_processes_must_stay(toy, unbroken, tmp_path):
    workdir = shutil.copytree(unbroken.workdir, tmp_path / "copy")
    snapshot = training.load_snapshot(workdir, 20)
    progress = snapshot.progress | {"data": snapshot.progress["data"] * 2}
    fingerprint = training.read_record(workdir)["fingerprint"]
    with Checkpoints(workdir, fingerprint=fingerprint, keep=9) as checkpoints:
        checkpoints.save(snapshot._replace(step=21, progress=progress))
    with pytest.raises(
        training.CheckpointError, match="checkpoint 21 was saved by 2 processes.* got 1"
    ):
        toy.run(workdir)


def test_the_best_metric_must_exist(toy, tmp_path):
    with pytest.raises(ValueError, match="task.best: got 'auroc', wanted one of .'accuracy'"):
        toy.run(tmp_path, toy.make(steps=1, best="auroc"))


def two_phases(toy, hook=None):
    """A task that alternates between three steps of the head and two steps of the rest."""

    def is_head(path):
        return path[0] == "head"

    head = Phase("head", toy.loss, optax.adam(0.05), 3, is_head)
    rest = Phase("rest", toy.loss, optax.sgd(0.1, 0.9), 2, lambda path: not is_head(path))
    return dataclasses.replace(toy.make(), phases=(head, rest), cycles=2, hook=hook)


def test_phases_take_turns_and_leave_the_frozen_part_alone(toy, tmp_path, records):
    toy.run(tmp_path, two_phases(toy), checkpoint_every=1, log_every=1, keep=20)
    steps = {step: training.load_snapshot(tmp_path, step).state for step in range(1, 11)}
    for step in range(2, 11):
        now, before = steps[step]["params"], steps[step - 1]["params"]
        in_head = (step - 1) % 5 < 3
        assert same(now["head"], before["head"]) is not in_head
        assert same(now["conv"], before["conv"]) is in_head
    paths = {path[:2] for path in flax.traverse_util.flatten_dict(steps[10]["opt_state"])}
    assert {path[0] for path in paths} == {"head", "rest"}
    moments = flax.traverse_util.flatten_dict(steps[10]["opt_state"]["head"])
    assert {path[2] for path in moments if "mu" in path} == {"head"}
    phases = [record["phase"] for record in records(tmp_path)][:10]
    assert phases == ["head"] * 3 + ["rest"] * 2 + ["head"] * 3 + ["rest"] * 2


def test_memory_is_reserved_before_the_first_step_of_each_phase(toy, tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(memory, "reserve", sizes.append)
    toy.run(tmp_path, two_phases(toy))
    assert len(sizes) == 2 and all(sizes)  # of ten steps


@pytest.mark.slow
def test_the_hooks_state_decides_the_batches_and_survives_a_stop(toy, tmp_path):
    calls = []

    def run(step, params, model_state, progress):
        calls.append(step)
        weight = np.abs(params["head"]["kernel"]).sum()
        return {"order": np.random.default_rng(int(weight * 1e6)).permutation(toy.EXAMPLES)}

    def batches(phase, state):
        source = grain.MapDataset.source(state["order"]).repeat()
        return iter(source.map(toy.example).batch(16).to_iter_dataset())

    task = two_phases(toy, Hook(4, run, batches))
    whole = toy.run(tmp_path / "whole", task)
    assert calls == [0, 4, 8]

    def nothing(phase):
        raise AssertionError("the task's own batches are not used")

    hooked = dataclasses.replace(task, hook=Hook(4, stop_at(run, 8), batches))
    stopping = Interrupted(hooked, nothing)
    with pytest.raises(KeyboardInterrupt):
        toy.run(tmp_path / "cut", stopping, checkpoint_every=3)
    assert training.load_snapshot(tmp_path / "cut", "latest").step == 6
    del calls[:]
    resumed = toy.run(tmp_path / "cut", task)
    assert calls == [8]
    assert same(resumed.params, whole.params)


def stop_at(run, last):
    """Returns the hook's function, which fails at a step."""

    def wrapped(step, *variables):
        if step == last:
            raise KeyboardInterrupt
        return run(step, *variables)

    return wrapped


def test_the_checkpoint_with_the_best_evaluation_is_kept(toy, tmp_path):
    class Scored(Interrupted):
        scores = iter([0.1, 0.9, 0.3, 0.9, 0.2, 0.1, 0.1])

        def evaluate(self, params, model_state):
            return {"accuracy": next(self.scores)}

    task = toy.make(steps=14)
    toy.run(tmp_path, Scored(task, task.batches), evaluate_every=2, keep=2, checkpoint_every=None)
    kept = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert kept == [8, 12, 14]
    assert training.load_snapshot(tmp_path, "best").step == 8
    assert training.load_snapshot(tmp_path, "latest").step == 14


@pytest.mark.parametrize("phases, match", [((), "wanted at least one"), (2, "distinct names")])
def test_phases_must_have_names_of_their_own(toy, tmp_path, phases, match):
    task = toy.make()
    with pytest.raises(ValueError, match=match):
        toy.run(tmp_path, dataclasses.replace(task, phases=task.phases * 2 if phases else ()))


def test_a_training_that_would_be_shorter_than_it_was_begun_is_refused(toy, tmp_path):
    toy.run(tmp_path, toy.make(steps=6), checkpoint_every=3)
    shutil.rmtree(tmp_path / "checkpoints" / "6")
    with pytest.raises(training.CheckpointError, match="of 6 steps, has done 3, .* have 4 now"):
        toy.run(tmp_path, toy.make(steps=4))
    assert toy.run(tmp_path, toy.make(steps=6)).step == 6
    assert toy.run(tmp_path, toy.make(steps=4)).step == 6  # it is finished
