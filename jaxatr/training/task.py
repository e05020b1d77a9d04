"""The interface between the training loop and tasks.

Each task (open-set recognition, embedding …) is a subclass of :class:`Task`, named in
``config.task`` and ``record.json`` by its dotted path. Its instances train and evaluate. Its class
methods and class attributes define the use of a finished run: its predictor, its ONNX export and
its report. A task outside of the package needs only one module.
"""

import abc
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import flax.struct
import jax
import numpy as np
import optax

from jaxatr.config import Fields
from jaxatr.data.intake import Intake, normalize
from jaxatr.data.pipeline import BatchIterator
from jaxatr.forms import ObjectForm
from jaxatr.training.networks import Exportable, Surrogate, Target
from jaxatr.typing import ArrayLike, Batch, Config, Network, PyTree


def silent(text: str) -> None:
    """Says nothing; stands for a function that tells the user what is being done."""
    del text


class LossOutput(flax.struct.PyTreeNode):
    """The loss and metrics of one device's part of a batch, which the loop sums over all devices.

    They are sums and counts instead of means, because a mean of the devices' means is wrong if
    masks select different numbers of examples on each device.

    Attributes:
      total: scalar, the loss summed over the selected examples; the loop differentiates it.
      count: scalar, the number of selected examples.
      sums: ``(sum, count)`` scalars of further metrics to record, by name.
      model_state: the new non-trained variables (batch statistics), already equal on all devices.
    """

    # Typed as Any because JAX rebuilds the node with tracers, shapes and plain numbers.
    total: Any
    count: Any
    sums: Any
    model_state: Any


class Phase(NamedTuple):
    """One stage of training: its loss, the parameters that it trains, and its length.

    Attributes:
      name: used in metric names and for the phase's optimiser state.
      loss: ``(params, model_state, batch, key, step) -> LossOutput`` on one device, under the axis
        name ``jaxatr.parallel.AXIS``. ``key`` is the same on every device and at every step. Random
        draws should fold in ``batch["id"]`` and ``batch["epoch"]``, so that they depend on the
        example and not on its device.
      optimizer: optax transformation for the trainable parameters.
      steps: number of optimiser steps.
      trainable: returns whether the phase trains a parameter, given its path (``("backbone",
        "stem", "kernel")``); ``None`` trains everything.
    """

    name: str
    loss: Callable[[PyTree, PyTree, Batch, jax.Array, jax.Array], LossOutput]
    optimizer: optax.GradientTransformation
    steps: int
    trainable: Callable[[tuple[str, ...]], bool] | None = None


class Hook(NamedTuple):
    """Work between steps that determines the next batches, such as embedding for global mining.

    It runs before the first step and every ``every`` steps; its state is part of checkpoints.

    Attributes:
      every: steps between two runs.
      run: ``(step, params, model_state, progress) -> state``. Returns a dictionary of NumPy arrays,
        which must be the same in every process and depend only on the first three arguments.
        ``progress`` is whether to show progress.
      batches: ``(phase, state) -> iterator``, used instead of the task's ``batches`` and called
        again after each run.
    """

    every: int
    run: Callable[[int, PyTree, PyTree, bool], dict[str, Any]]
    batches: Callable[[Phase, dict[str, Any]], BatchIterator]


class Task(abc.ABC):
    """A task; an instance is a run that can be trained or evaluated.

    A task is constructed from a full configuration, ``MyTask(config)``. The loop needs ``phases``,
    ``init``, ``batches`` and ``evaluate``; :func:`jaxatr.runs.train_run` also needs
    ``steps_per_epoch``. Everything else has a default.

    Attributes:
      phases: run in order; the whole sequence is repeated ``cycles`` times (a GAN alternates two
        phases of one step each, distillation runs two long ones once). None if nothing is trained:
        the run is then its record.
      cycles: number of repetitions of the sequence of phases.
      best: name of the evaluation metric that selects the best checkpoint; higher is better.
      hook: work between steps, or ``None``.
      steps_per_epoch: optimiser steps of one pass over the data, not always a whole number.
    """

    #: Dotted names of configuration fields that may change when a run is continued.
    free_fields: ClassVar[tuple[str, ...]] = ()
    #: The command to use a finished run, with its arguments.
    usage: ClassVar[str] = "predict --workdir={workdir} IMAGE..."
    #: What a run of the task is for, for messages; by default the class is named.
    title: ClassVar[str] = ""
    #: Dotted path of the task's ``Predictor``; empty if it has none.
    predictor: ClassVar[str] = ""
    #: Results that a later evaluation of the same checkpoint keeps unless it measures them again:
    #: dotted names, where ``*`` matches any name; outer names first.
    kept: ClassVar[tuple[str, ...]] = ()
    #: Dotted path of the :class:`jaxatr.reporting.Report` that shows the task's results.
    report: ClassVar[str] = "jaxatr.reporting.plain:REPORT"

    #: The form of the task's ``evaluation.json``, as far as programs take it apart: where one was
    #: edited by hand, the field is named.
    evaluation_form: ClassVar[ObjectForm] = {}

    phases: Sequence[Phase]
    cycles: int = 1
    best: str
    hook: Hook | None = None
    steps_per_epoch: float

    def __init__(self, config: Config):
        """Opens the data and sets up the training.

        Args:
          config: a full configuration.

        Raises:
          ValueError: the data is missing or does not match the configuration, or a field is
            invalid.
        """
        self.config = config

    @abc.abstractmethod
    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Initialises ``(params, model_state)``, nested dictionaries; traced by ``jit``."""

    @abc.abstractmethod
    def batches(self, phase: Phase) -> BatchIterator:
        """Returns this process's endless iterator of batches for a phase, such as one of grain's.

        A batch is a mapping of ``[b, ...]`` arrays, where ``b`` is a multiple of the number of
        local devices. If it has an ``epoch``, this is recorded with the metrics.
        """

    @abc.abstractmethod
    def evaluate(self, params: PyTree, model_state: PyTree) -> Mapping[str, float]:
        """Evaluates the network on the validation data, with the same result in every process.

        Args:
          params: parameters on one device, with the structure of :meth:`init`.
          model_state: the other variables on one device.

        Returns:
          Metrics, including ``best``; empty if there is no validation data, in which case there is
          no best checkpoint.
        """

    @property
    def record(self) -> dict[str, Any]:
        """Information needed to use the run in addition to its parameters, as JSON values."""
        return {}

    def check_continues(self, workdir: str | os.PathLike, recorded: Mapping[str, Any]) -> None:
        """Checks that a run can be continued with the present data.

        Args:
          workdir: the run's folder.
          recorded: content of the run's ``record.json``.

        Raises:
          ValueError: the run was started on other data.
        """
        before, now = recorded.get("dataset"), self.record.get("dataset") or {}
        if before is not None and before != now:
            changed = [key for key in before | now if before.get(key) != now.get(key)]
            facts = (f"{key} was {before.get(key)}, is {now.get(key)}" for key in sorted(changed))
            raise ValueError(f"{workdir} contains a run on other data: {'; '.join(facts)}")

    def test(
        self, variables: PyTree, **options: Any
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Evaluates the network on the test data.

        Args:
          variables: parameters and other variables, on one device.
          **options: keyword arguments of the task (``scores``, ``methods``). ``workdir``, the run's
            folder, ``step``, that of the checkpoint, and ``progress`` are passed to tasks that
            accept them.

        Returns:
          ``(measured, arrays)``: the content of ``evaluation.json``, and the arrays from which it
          was computed.
        """
        del variables
        return {}, {}

    def finished(
        self,
        variables: PyTree,
        workdir: Path,
        step: int,
        say: Callable[[str], None] = silent,
    ) -> dict[str, Any]:
        """Completes a run after the end of its training.

        Args:
          variables: parameters and other variables, on one device.
          workdir: the run's folder.
          step: step of the last checkpoint.
          say: called with each step that takes time.

        Returns:
          Fields for ``record.json``.
        """
        del variables, workdir, step, say
        return {}

    def thumbnails(
        self, measured: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns small pictures of the test examples that a report shows.

        Args:
          measured: from :meth:`test`.
          arrays: from :meth:`test`.

        Returns:
          ``id`` int32 ``[n]``; ``class`` ``[n]``, names; ``image`` uint8 ``[n, h, w, c]``. Empty
          if there is nothing to show.
        """
        del measured, arrays
        return {}

    def files(
        self, arrays: dict[str, np.ndarray], step: int
    ) -> dict[str, Mapping[str, np.ndarray]]:
        """Moves arrays of an evaluation to additional files of the run's folder.

        Args:
          arrays: from :meth:`test`; arrays for other files are removed from it. The remaining ones
            are written to ``scores.npz``.
          step: step of the evaluated checkpoint.

        Returns:
          The arrays of each additional file, by file name.
        """
        del arrays, step
        return {}

    def evaluated(self, measured: Mapping[str, Any], step: int) -> dict[str, Any]:
        """Returns the fields that an evaluation adds to ``record.json`` (a fitted threshold)."""
        del measured, step
        return {}

    def beside(self, config: Config) -> Mapping[str, Config]:
        """Returns the configurations of additional trainings that :meth:`finished` needs.

        Args:
          config: the run's configuration, as given.

        Returns:
          Configurations by the path of their folder within the run's folder.
        """
        del config
        return {}

    @classmethod
    def fields(cls) -> Fields:
        """Declares the task's own configuration fields, by dotted name."""
        return {}

    @classmethod
    def of_config(cls, config: Config) -> type["Task"]:
        """Returns the task for a configuration that names this one: itself or a special case."""
        del config
        return cls

    @classmethod
    def kind(cls) -> str:
        """Returns the name of this kind of run, for messages."""
        return cls.title or cls.__name__

    @classmethod
    def network(cls, config: Config, record: Mapping[str, Any]) -> Network:
        """Builds the network of a finished run, without its variables.

        Args:
          config: the run's configuration.
          record: content of the run's ``record.json``.

        Raises:
          ValueError: the task has no network that can be used separately.
        """
        raise ValueError(f"{cls.__name__} has no network that can be used separately")

    @classmethod
    def exportable(cls, run: "TrainedRun") -> Exportable:
        """Returns a run's network in a form that can be exported to ONNX.

        Raises:
          ValueError: the task does not support ONNX.
        """
        raise ValueError(f"{run.workdir}: a run of {cls.kind()} cannot be exported to ONNX")

    @classmethod
    def loaded(cls, run: "TrainedRun") -> "TrainedRun":
        """Completes a run that was read from its checkpoint with what else its network needs."""
        return run

    @classmethod
    def classifier(cls, run: "TrainedRun") -> Target:
        """Returns the run's classifier of known classes, for explanations.

        Raises:
          ValueError: the task has no classifier.
        """
        raise ValueError(f"{run.workdir}: wanted the run of a classifier (configs/cbc.py)")

    @classmethod
    def explains(cls, record: Mapping[str, Any], source: Mapping[str, Any]) -> bool:
        """Returns whether a run is the surrogate of a network.

        Args:
          record: content of the run's ``record.json``.
          source: the network's identity (:attr:`Target.source`); its location is ignored.
        """
        del record, source
        return False

    @classmethod
    def surrogate(cls, run: "TrainedRun") -> Surrogate | None:
        """Returns the surrogate and its target; ``None`` if the task is not a surrogate.

        Raises:
          ValueError: the target is missing or has changed.
        """
        del run
        return None


class TrainedRun(NamedTuple):
    """A run at one of its checkpoints, with everything needed to use its network.

    Attributes:
      workdir: the run's folder.
      task: the run's task.
      config: the run's configuration.
      record: content of ``record.json``.
      step: step of the checkpoint.
      variables: parameters and other variables, on the host.
    """

    workdir: Path
    task: type[Task]
    config: Config
    record: Mapping[str, Any]
    step: int
    variables: PyTree

    @property
    def module(self) -> Network:
        """The network, without its variables."""
        return self.task.network(self.config, self.record)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the known classes."""
        return tuple(self.record["split"]["known"])

    @property
    def intake(self) -> Intake:
        """The preprocessing of images to the network's chips."""
        return Intake.of_run(self.config, self.record)

    @property
    def mean(self) -> np.ndarray:
        """Mean of each channel of the training images, ``[c]``, in raw units."""
        return np.asarray(self.record["normalization"]["mean"])

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of each channel of the training images, ``[c]``."""
        return np.asarray(self.record["normalization"]["std"])

    def normalize(self, images: ArrayLike) -> jax.Array:
        """Normalises raw images ``[..., c]`` as in training."""
        return normalize(images, self.mean, self.std)
