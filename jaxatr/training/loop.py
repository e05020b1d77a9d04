"""The training loop of all tasks."""

import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr import kernels, parallel
from jaxatr.data.pipeline import BatchIterator
from jaxatr.training.checkpoints import CheckpointError, Checkpoints
from jaxatr.training.kernels import KernelChoices
from jaxatr.training.meter import Meter, NonFiniteLoss
from jaxatr.training.pace import Pace
from jaxatr.training.progress import Progress
from jaxatr.training.record import read_record, record_config, start_record, update_record
from jaxatr.training.snapshot import Snapshot, rank
from jaxatr.training.state import (
    TrainState,
    evaluated_params,
    flatten,
    from_arrays,
    to_arrays,
    trace_state,
)
from jaxatr.training.step import Schedule, make_step
from jaxatr.training.stop import Preempted, StopRequest
from jaxatr.training.task import Phase, Task
from jaxatr.training.trackers import Tracker
from jaxatr.training.writers import MetricWriter
from jaxatr.typing import Config, PyTree

_NOTHING_EVALUATED = (
    "train.end_with_best: there is no validation data, so the run ends with its last step, even if "
    "it is worse than the initial parameters: set data.validation"
)
_NOTHING_LEARNED = (
    "train.end_with_best: no evaluation was as good as the one before the first step, so the run "
    "ends with its initial parameters: lower optimizer.learning_rate or optimizer.backbone_factor, "
    "or set model.freeze"
)


class TrainResult(NamedTuple):
    """The final state of a run.

    Attributes:
      params: final parameters, NumPy; their average, if the run keeps one.
      model_state: the model's other variables, NumPy.
      step: number of steps.
      metrics: metrics of the last evaluation.
    """

    params: PyTree
    model_state: PyTree
    step: int
    metrics: dict[str, float]

    @property
    def variables(self) -> PyTree:
        """The variables for a network's ``apply``."""
        return {"params": self.params, **self.model_state}


def train(
    task: Task,
    *,
    workdir: str | os.PathLike,
    config: Config,
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
    log_every: int = 10,
    keep: int = 3,
    seed: int = 0,
    progress: bool = True,
    devices: Sequence[parallel.Device] | None = None,
    free_fields: Collection[str] = (),
    find_kernels: bool = False,
    ema: float = 0.0,
    remat: bool = False,
    end_with_best: bool = False,
    evaluated: Callable[[int, float, Mapping[str, float]], None] | None = None,
    trackers: Sequence[Tracker] | None = None,
) -> TrainResult:
    """Trains ``task``, continuing from the latest checkpoint in ``workdir`` if there is one.

    If a run is killed at any time and called again with the same arguments, on the same devices,
    its result is bit-identical to that of an uninterrupted run.

    Args:
      task: the task to train.
      workdir: the run's folder.
      config: recorded as ``config.json``; a run of another configuration is not continued.
      evaluate_every: steps between evaluations; by default, only at the end. Each evaluation is
        followed by a checkpoint, as is the last step.
      checkpoint_every: steps between additional checkpoints.
      log_every: steps over which logged training metrics are averaged.
      keep: number of latest checkpoints to keep, in addition to the best.
      seed: random seed of the parameters and of all random draws of the losses.
      progress: show progress on standard error.
      devices: the local devices to use; all by default. Multiple processes always use all.
      free_fields: fields of ``config`` that may differ on resuming (see ``record_config``).
      find_kernels: measure the kernels of a new run whose problems are not in the database (see
        :func:`jaxatr.kernels.find`). A resumed run keeps its kernels.
      ema: decay of an average of the trained parameters (see
        :func:`jaxatr.training.average.next_average`), which is part of the checkpoints and
        evaluated in their place; 0 for none. Hooks get the parameters themselves.
      remat: keep less for the backward pass (see :func:`jaxatr.training.step.keep_less`).
      end_with_best: evaluate before the first step too, and end with the state of the best
        evaluation if the last one is worse. The last checkpoint then has that state, and
        ``record.json`` its step as ``kept_step``.
      evaluated: called after each evaluation, once its checkpoint is saved, with the step, the
        metric that selects the best checkpoint, and all metrics. What it raises ends the training;
        if the process was asked to stop, it is the cause of ``Preempted``.
      trackers: where the records are shown (:func:`jaxatr.training.trackers.trackers_of`); None for
        TensorBoard.

    Raises:
      ConfigMismatch: ``workdir`` contains a run of another configuration.
      CheckpointError: saving failed (for example, a full disk), no checkpoint is usable, or the
        training is shorter than it was begun.
      NonFiniteLoss: a loss is infinite or NaN; the last good checkpoint is kept.
      Preempted: stopped by SIGTERM or Ctrl-C, after saving the state.
    """
    schedule = Schedule(task.phases, task.cycles)
    fingerprint = record_config(workdir, config, free=free_fields)
    with Checkpoints(workdir, fingerprint=fingerprint, keep=keep) as checkpoints:
        chosen = KernelChoices(workdir, find=find_kernels, progress=progress)
        run = _Run(
            task, checkpoints, seed, devices, chosen, progress=progress, ema=ema, remat=remat
        )
        begun = read_record(workdir).get("steps", 0)
        if run.restored and max(run.step, schedule.steps) < begun:
            raise CheckpointError(
                f"{workdir} was begun as a training of {begun} steps, has done {run.step}, and "
                f"would have {schedule.steps} now: go on with the version of jaxatr that began it, "
                "or train another run"
            )
        # A finished run keeps the record of its training.
        if run.step < schedule.steps or not run.restored:
            start_record(workdir, fingerprint)
            update_record(workdir, steps=schedule.steps)
        with (
            MetricWriter(
                workdir, step=run.step if run.restored else -1, trackers=trackers
            ) as writer,
            Progress(schedule.steps, step=run.step, enabled=progress) as bar,
            StopRequest() as request,
        ):
            meter = Meter(log_every, schedule.steps, writer.write)
            run.continue_meter(meter)

            def evaluate_now() -> dict[str, float]:
                if metrics := run.evaluate():
                    writer.write({"step": run.step, "phase": "evaluate", **metrics})
                    bar.note(f"step {run.step}, validation: {_listing(metrics)}")
                return metrics

            if not schedule.steps and not run.restored:
                run.save(meter, evaluated=False)
            elif end_with_best and not run.restored:
                if not evaluate_now():
                    warnings.warn(_NOTHING_EVALUATED, stacklevel=2)
                writer.sync()
                run.save(meter, evaluated=True)
            while run.step < schedule.steps:
                run.advance(schedule.phase(run.step), meter, stop=request.heard)
                bar.update(run.step, meter.loss, meter.images_per_second)
                last = run.step == schedule.steps
                evaluate = last or _due(run.step, evaluate_every)
                if not (evaluate or meter.stop or _due(run.step, checkpoint_every)):
                    continue
                meter.drain()
                with meter.paused():
                    if evaluate:
                        evaluate_now()
                    if last and end_with_best:
                        _return_to_best(run, workdir, bar)
                    writer.sync()
                    run.save(meter, evaluated=evaluate)
                if evaluate and run.metrics and evaluated is not None:
                    checkpoints.wait()
                    try:
                        evaluated(run.step, run.metrics[task.best], run.metrics)
                    except Exception as error:
                        if request.heard:
                            raise Preempted(run.step) from error
                        raise
                if meter.stop and not last:
                    checkpoints.wait()
                    raise Preempted(run.step)
            checkpoints.wait()
            # After a request during the last step or its evaluation, nothing follows the training.
            if any(parallel.gather_json(request.heard)):
                raise Preempted(run.step)
    return run.result()


def _return_to_best(run: "_Run", workdir: str | os.PathLike, bar: Progress) -> None:
    """Puts the state of the best evaluation in the place of the last one, if that is worse."""
    if (kept := run.take_best()) is None:
        return
    update_record(workdir, kept_step=kept)
    bar.note(f"step {kept} was the best: the run ends with its parameters")
    if not kept:
        warnings.warn(_NOTHING_LEARNED, stacklevel=3)


class _Run:
    """The state of a run in memory: train state, data iterators, hook."""

    def __init__(
        self,
        task: Task,
        checkpoints: Checkpoints,
        seed: int,
        devices: Sequence[parallel.Device] | None,
        chosen: KernelChoices,
        *,
        progress: bool,
        ema: float,
        remat: bool,
    ):
        self._task, self._checkpoints, self._progress = task, checkpoints, progress
        self._devices = jax.local_devices() if devices is None else list(devices)
        on = None if devices is None else self._devices
        self._steps = {
            phase.name: make_step(phase, on, ema=ema, remat=remat) for phase in task.phases
        }
        self._pace = Pace()
        self._data: dict[str, BatchIterator] = {}
        self._positions: dict[str, Any] = {}
        self._hook_state: dict[str, Any] = {}
        self._windows: dict[str, Any] | None = None
        self._metrics: dict[str, float] = {}
        self._chosen, self._choices = chosen, kernels.Choices({})
        with kernels.choices(self._choices):
            shapes, compute = trace_state(task, jax.random.key(seed), ema=ema)
        saved = checkpoints.restore()
        self.restored, self.step = saved is not None, 0
        if saved is not None:
            state = self._continue(shapes, saved)
            self.step = int(state.step)
            compute = lambda: state  # noqa: E731
        chosen.resumed = self.step > 0
        self._shapes = parallel.replicated_shapes(shapes, self._devices)
        self._created: Future[TrainState] | None = parallel.replicate_in_background(
            compute, self._devices
        )

    @property
    def _state(self) -> TrainState:
        """The train state; at first, another thread compiles and computes it."""
        if self._created is not None:
            self._current, self._created = self._created.result(), None
        return self._current

    @_state.setter
    def _state(self, state: TrainState) -> None:
        self._current, self._created = state, None

    def _continue(self, shapes: TrainState, saved: Snapshot) -> TrainState:
        positions = saved.progress["data"]
        if len(positions) != jax.process_count():
            raise CheckpointError(
                f"checkpoint {saved.step} was saved by {len(positions)} processes, each with its "
                f"part of the data: wanted the same number, got {jax.process_count()}"
            )
        self._positions = positions[jax.process_index()]
        self._windows = saved.progress["meter"]
        self._hook_state, self._metrics = saved.hook, saved.metrics
        try:
            return from_arrays(shapes, saved.state)
        except ValueError as error:
            raise CheckpointError(
                f"checkpoint {saved.step} does not fit the task: {error}"
            ) from error

    def continue_meter(self, meter: Meter) -> None:
        if self._windows is not None:
            meter.set_state(self._windows)

    def advance(self, phase: Phase, meter: Meter, *, stop: bool) -> None:
        """Dispatches one step; returns before the devices have completed it."""
        self._run_hook()
        batch = next(self._iterator(phase))
        passes = batch.get("pass", batch.get("epoch"))
        epoch = None if passes is None else int(np.min(passes))
        size = len(next(iter(batch.values())))
        count = len(self._devices)
        step = self._steps[phase.name]
        inputs = parallel.shard(batch, count), np.full(count, stop, np.int32)
        inputs = parallel.arrived(inputs, self._devices)
        # While the state is created, its shapes do; pmap of several processes wants arrays.
        state = self._shapes if jax.process_count() == 1 else self._state
        lower = partial(step.lower, state, *inputs)
        self._choices = self._chosen.of(phase.name, lower)
        with kernels.choices(self._choices):
            if self._created is not None:
                lower()  # before the state is awaited; jax does not lower the program again
            self._state, sums = self._pace.dispatch(phase.name, step, self._state, *inputs)
        self.step += 1
        meter.push(self.step, phase.name, sums, size * jax.process_count(), epoch)

    def _run_hook(self) -> None:
        hook = self._task.hook
        if hook is not None and self.step % hook.every == 0:
            with kernels.choices({}):  # a hook may run between phases, so no phase's choices apply
                self._hook_state = hook.run(self.step, *self._variables(), self._progress)
            self._data, self._positions = {}, {}  # from now on, the hook determines the data

    def _iterator(self, phase: Phase) -> BatchIterator:
        if phase.name not in self._data:
            hook = self._task.hook
            iterator = (
                self._task.batches(phase) if hook is None else hook.batches(phase, self._hook_state)
            )
            if phase.name in self._positions:
                iterator.set_state(self._positions[phase.name])
            self._data[phase.name] = iterator
        return self._data[phase.name]

    def _variables(self) -> tuple[PyTree, PyTree]:
        return parallel.unreplicate((self._state.params, self._state.model_state))

    def _evaluated(self) -> tuple[PyTree, PyTree]:
        params = evaluated_params(self._state.params, self._state.opt_state)
        return parallel.unreplicate((params, self._state.model_state))

    def evaluate(self) -> dict[str, float]:
        with kernels.choices(self._choices):
            metrics = self._task.evaluate(*self._evaluated())
        if metrics and self._task.best not in metrics:
            raise ValueError(f"task.best: got {self._task.best!r}, wanted one of {list(metrics)}")
        self._metrics = {name: float(value) for name, value in metrics.items()}
        return self._metrics

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics of the last evaluation."""
        return self._metrics

    def take_best(self) -> int | None:
        """Restores the state of the best evaluation if it is better than the current state.

        Returns:
          The step of the restored state; ``None`` if the current state is as good, or if there were
          no evaluations.
        """
        best = self._checkpoints.best()
        if best is None or rank(self._metrics.get(self._task.best)) >= rank(best.score):
            return None
        template = parallel.unreplicate(self._state)
        state = from_arrays(template, best.state).replace(step=template.step)
        self._state = parallel.replicate(state, self._devices)
        self._metrics = best.metrics
        return best.step

    def save(self, meter: Meter, *, evaluated: bool) -> None:
        arrays = to_arrays(parallel.unreplicate(self._state))
        for name, leaf in flatten(arrays).items():
            if not np.all(np.isfinite(leaf)):
                raise NonFiniteLoss(f"{name} is not finite after step {self.step}: not saved")
        positions = self._positions | {
            name: iterator.get_state() for name, iterator in self._data.items()
        }
        progress = {"data": parallel.gather_json(positions), "meter": meter.get_state()}
        score = self._metrics.get(self._task.best) if evaluated else None
        self._checkpoints.save(
            Snapshot(self.step, arrays, self._hook_state, progress, self._metrics, score)
        )

    def result(self) -> TrainResult:
        params, model_state = jax.device_get(self._evaluated())
        return TrainResult(params, model_state, self.step, self._metrics)


def _due(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0


def _listing(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
