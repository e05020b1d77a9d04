"""The protocol between the training loop and a thing to train, complete: the loop knows no other.

A *kind* of run (open-set recognition, embedding …) is a subclass of :class:`Task`, which
``config.task`` names by its dotted path and ``record.json`` repeats. The instance trains and
evaluates; the class methods and class attributes say what becomes of a finished run: what predicts
with it, what it exports, how its results are shown. A kind outside of the package is one module.
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
from jaxatr.training.networks import Exportable, Surrogate, Target
from jaxatr.typing import ArrayLike, Batch, Config, Network, PyTree


class LossOutput(flax.struct.PyTreeNode):
    """The contribution of one device's share of a batch; the loop reduces it over all devices.

    Sums and counts, never means: a mean of the devices' means is wrong as soon as a mask selects
    different numbers of examples on each.

    Attributes:
      total: scalar, the loss summed over the selected examples; the loop differentiates it.
      count: scalar, how many examples were selected.
      sums: name to ``(sum, count)`` scalars of further metrics to record.
      model_state: the new non-trained variables (batch statistics), already equal on all devices.
    """

    # No arrays to a type checker: JAX rebuilds the node with tracers, shapes and plain numbers.
    total: Any
    count: Any
    sums: Any
    model_state: Any


class Phase(NamedTuple):
    """One stage of training: its loss, the part of the parameters that it trains, and its length.

    Attributes:
      name: used in metric names and for the phase's optimiser state.
      loss: ``(params, model_state, batch, key, step) -> LossOutput`` on one device, under the axis
        name ``jaxatr.parallel.AXIS``. ``key`` is the same on every device and at every step: draws
        are made from it by folding in ``batch["id"]`` and ``batch["epoch"]``, so that they belong
        to the example and not to the device that happens to hold it.
      optimizer: optax transformation for the trainable part.
      steps: how many optimiser steps.
      trainable: takes a parameter's path (``("backbone", "stem", "kernel")``) and says whether this
        phase trains it; ``None`` trains everything.
    """

    name: str
    loss: Callable[[PyTree, PyTree, Batch, jax.Array, jax.Array], LossOutput]
    optimizer: optax.GradientTransformation
    steps: int
    trainable: Callable[[tuple[str, ...]], bool] | None = None


class Hook(NamedTuple):
    """Work between steps that decides what is read next (re-embedding for global mining).

    It runs before the first step and every so many steps after; its state is in the checkpoint.

    Attributes:
      every: steps between two runs.
      run: ``(step, params, model_state, progress) -> state``, a dictionary of NumPy arrays; the
        same in every process, and a function of its first three arguments alone. ``progress`` says
        whether to show how far it is.
      batches: ``(phase, state) -> iterator``, in place of the task's own ``batches``: called anew
        after each run.
    """

    every: int
    run: Callable[[int, PyTree, PyTree, bool], dict[str, Any]]
    batches: Callable[[Phase, dict[str, Any]], BatchIterator]


class Task(abc.ABC):
    """A kind of run; an instance is one run of it, ready to be trained or evaluated.

    A task is made from a full configuration alone, ``Kind(config)``. The loop needs ``phases``,
    ``init``, ``batches`` and ``evaluate``; a run made by :func:`jaxatr.runs.train_run` needs
    ``steps_per_epoch`` too. Everything else has a default.

    Attributes:
      phases: run in order; the whole sequence is repeated ``cycles`` times (a GAN alternates two
        phases of a step each, distillation runs two long ones once).
      cycles: how often the sequence of phases runs.
      best: name of the evaluation metric that decides which checkpoint is the best; higher wins.
      hook: work between steps, or ``None``.
      steps_per_epoch: optimiser steps that see the training examples once.
    """

    #: Fields of the configuration that may change when a run is continued, by dotted name.
    free_fields: ClassVar[tuple[str, ...]] = ()
    #: The command that uses a finished run, and its arguments.
    usage: ClassVar[str] = "predict --workdir={workdir} IMAGE..."
    #: Dotted path of the kind's ``Predictor``; empty for a kind that predicts nothing.
    predictor: ClassVar[str] = ""
    #: Figures of an evaluation that the next one at the same checkpoint keeps, where it does not
    #: measure them anew: dotted names, in which ``*`` is any name, outer ones first.
    kept: ClassVar[tuple[str, ...]] = ()
    #: Dotted path of the :class:`jaxatr.reporting.Report` that shows results of this kind.
    report: ClassVar[str] = "jaxatr.reporting.plain:REPORT"

    phases: Sequence[Phase]
    cycles: int = 1
    best: str
    hook: Hook | None = None
    steps_per_epoch: int

    def __init__(self, config: Config):
        """Opens the data and describes the training.

        Args:
          config: a full configuration.

        Raises:
          ValueError: the data is missing or does not fit the configuration, or a field is wrong.
        """
        self.config = config

    @abc.abstractmethod
    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Draws ``(params, model_state)``, nested dictionaries; traced by ``jit``."""

    @abc.abstractmethod
    def batches(self, phase: Phase) -> BatchIterator:
        """Opens this process's endless iterator of batches for a phase, such as one of grain's.

        A batch is a mapping of ``[b, ...]`` arrays with ``b`` a multiple of the local devices. Its
        ``epoch``, if it has one, goes into the records.
        """

    @abc.abstractmethod
    def evaluate(self, params: PyTree, model_state: PyTree) -> Mapping[str, float]:
        """Measures the network on the validation data; the same in every process.

        Args:
          params: parameters for one device, as from :meth:`init`.
          model_state: the other variables, likewise.

        Returns:
          Metrics, ``best`` among them; none where there is no validation data: then no checkpoint
          is the best.
        """

    @property
    def record(self) -> dict[str, Any]:
        """Facts that a use of the run needs beside the parameters, as JSON values."""
        return {}

    def check_continues(self, workdir: str | os.PathLike, recorded: Mapping[str, Any]) -> None:
        """Refuses to go on with a run that began with other data.

        Args:
          workdir: the run's folder.
          recorded: the content of its ``record.json``.

        Raises:
          ValueError: :attr:`record` differs from it in a way that matters.
        """
        before, now = recorded.get("dataset"), self.record.get("dataset")
        if before is not None and before != now:
            raise ValueError(f"{workdir} holds a run on other data: recorded {before}, now {now}")

    def test(
        self, variables: PyTree, **options: Any
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Measures the network on the test data.

        Args:
          variables: parameters and other variables, for one device.
          **options: the kind's own keyword arguments (``scores``, ``methods``). ``workdir``, the
            run's folder, ``step``, of the checkpoint, and ``progress`` are given to a kind that
            takes them.

        Returns:
          ``(measured, arrays)``: the content of ``evaluation.json`` and the arrays that its figures
          came from.
        """
        del variables
        return {}, {}

    def finished(self, variables: PyTree, workdir: Path, step: int) -> dict[str, Any]:
        """Prepares the use of a training that has come to its end.

        Args:
          variables: parameters and other variables, for one device.
          workdir: the run's folder.
          step: of the last checkpoint.

        Returns:
          Fields for ``record.json``.
        """
        del variables, workdir, step
        return {}

    def thumbnails(
        self, measured: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Makes small pictures of the test examples that a report shows.

        Args:
          measured: from :meth:`test`.
          arrays: from :meth:`test`.

        Returns:
          ``id`` int32 ``[n]``; ``class`` ``[n]``, names; ``image`` uint8 ``[n, h, w, c]``. Empty
          where there is nothing to show.
        """
        del measured, arrays
        return {}

    def files(
        self, arrays: dict[str, np.ndarray], step: int
    ) -> dict[str, Mapping[str, np.ndarray]]:
        """Sorts the arrays of an evaluation into further files of the run's folder.

        Args:
          arrays: from :meth:`test`; those that go elsewhere are taken out.
          step: of the evaluated checkpoint.

        Returns:
          File name to its arrays; the arrays that are left go into ``scores.npz``.
        """
        del arrays, step
        return {}

    def evaluated(self, measured: Mapping[str, Any], step: int) -> dict[str, Any]:
        """Picks what an evaluation adds to ``record.json`` (a fitted threshold)."""
        del measured, step
        return {}

    def beside(self, config: Config) -> Mapping[str, Config]:
        """Lists further trainings that :meth:`finished` needs, in folders of their own.

        Args:
          config: the run's, as it was given.

        Returns:
          Path of a folder in the run's folder to its configuration.
        """
        del config
        return {}

    @classmethod
    def fields(cls) -> Fields:
        """Declares the kind's own configuration fields, by dotted name."""
        return {}

    @classmethod
    def of_config(cls, config: Config) -> type["Task"]:
        """Finds the task of a configuration that names this one: itself, or a special case."""
        del config
        return cls

    @classmethod
    def network(cls, config: Config, record: Mapping[str, Any]) -> Network:
        """Builds the network of a finished run; its variables are in a checkpoint.

        Args:
          config: the run's.
          record: the content of its ``record.json``.

        Raises:
          ValueError: the kind has no network to use.
        """
        raise ValueError(f"{cls.__name__} has no network that is used by itself")

    @classmethod
    def exportable(cls, run: "TrainedRun") -> Exportable:
        """Prepares a run's network for ONNX.

        Raises:
          ValueError: the kind has no form there.
        """
        raise ValueError(f"{run.workdir}: a run of {cls.__name__} has no ONNX form")

    @classmethod
    def classifier(cls, run: "TrainedRun") -> Target:
        """Takes out the classifier of known classes, to be explained.

        Raises:
          ValueError: the kind has none.
        """
        raise ValueError(f"{run.workdir}: wanted the run of a classifier (configs/cbc.py)")

    @classmethod
    def explains(cls, record: Mapping[str, Any], source: Mapping[str, Any]) -> bool:
        """Says whether a run is the surrogate of a network.

        Args:
          record: the content of the run's ``record.json``.
          source: of the network (:attr:`Target.source`); where it lies does not count.
        """
        del record, source
        return False

    @classmethod
    def surrogate(cls, run: "TrainedRun") -> Surrogate | None:
        """Takes out the surrogate and its target; ``None`` where the kind explains nothing.

        Raises:
          ValueError: the network that it explains is missing, or another one now.
        """
        del run
        return None


class TrainedRun(NamedTuple):
    """A run at one of its checkpoints, with everything that a use of its network needs.

    Attributes:
      workdir: the run's folder.
      task: the kind of run.
      config: its configuration.
      record: the content of ``record.json``.
      step: of the checkpoint.
      variables: parameters and other variables, for one device, on the host.
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
        """From images to the chips that the network takes."""
        return Intake.of_run(self.config, self.record)

    @property
    def mean(self) -> np.ndarray:
        """Mean of the training images by channel, ``[c]``, in their raw units."""
        return np.asarray(self.record["normalization"]["mean"])

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of the training images by channel, ``[c]``."""
        return np.asarray(self.record["normalization"]["std"])

    def normalize(self, images: ArrayLike) -> jax.Array:
        """Brings raw images ``[..., c]`` to the scale that the network was trained on."""
        return normalize(images, self.mean, self.std)
