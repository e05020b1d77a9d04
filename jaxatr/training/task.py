"""What a thing to train gives to the one training loop."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import flax.struct
import jax
import optax

from jaxatr.typing import Batch, PyTree


class LossOutput(flax.struct.PyTreeNode):
    """What one device's share of a batch contributes; the loop reduces it over all devices.

    Sums and counts, never means: a mean of the devices' means is wrong as soon as a mask selects
    different numbers of examples on each.

    Attributes:
      total: scalar, the loss summed over the selected examples; the loop differentiates it.
      count: scalar, how many examples were selected.
      sums: name to ``(sum, count)`` scalars of further metrics to record.
      model_state: the new non-trained variables (batch statistics), already equal on all devices.
    """

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
    batches: Callable[[Phase, dict[str, Any]], Any]


@runtime_checkable  # the tests check annotations as they run
class Task(Protocol):
    """A thing to train. The loop knows nothing else about models and data.

    Attributes:
      phases: run in order; the whole sequence is repeated ``cycles`` times (a GAN alternates two
        phases of a step each, distillation runs two long ones once).
      cycles: how often the sequence of phases runs.
      best: name of the evaluation metric that decides which checkpoint is the best; higher wins.
      hook: work between steps, or ``None``.
    """

    phases: Sequence[Phase]
    cycles: int
    best: str
    hook: Hook | None

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Returns ``(params, model_state)``, nested dictionaries; traced by ``jit``."""
        ...

    def batches(self, phase: Phase) -> Any:
        """Returns this process's endless grain ``DatasetIterator`` of batches for a phase.

        A batch is a mapping of ``[b, ...]`` arrays with ``b`` a multiple of the local devices. Its
        ``epoch``, if it has one, goes into the records.
        """
        ...

    def evaluate(self, params: PyTree, model_state: PyTree) -> Mapping[str, float]:
        """Returns metrics on the validation data, ``best`` among them; the same in every process.

        Nothing at all where there is no validation data: then no checkpoint is the best.

        ``params`` and ``model_state`` are as ``init`` returns them, for one device.
        """
        ...
