"""An exponential moving average of the trained parameters, evaluated in their place.

The average is part of the train state, next to the optimisers' states, so that checkpoints include
it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import flax.traverse_util
import jax.numpy as jnp

from jaxatr.training.task import Phase
from jaxatr.typing import PyTree

AVERAGE = "average"
"""Key of the average among the optimisers' states, reserved: no phase can have this name."""


def start_average(params: PyTree, phases: Sequence[Phase]) -> dict[str, Any]:
    """Returns the initial average: a copy of all parameters that are trained by any phase."""
    flat: dict[tuple[str, ...], Any] = dict(flax.traverse_util.flatten_dict(params))
    trained = {
        path: jnp.copy(leaf)
        for path, leaf in flat.items()
        if any(phase.trainable is None or phase.trainable(path) for phase in phases)
    }
    steps = {phase.name: jnp.zeros((), jnp.int32) for phase in phases}
    return {"params": flax.traverse_util.unflatten_dict(trained), "steps": steps}


def next_average(
    average: Mapping[str, Any], params: PyTree, phase: Phase, decay: float
) -> dict[str, Any]:
    """Updates the average after a step of a phase.

    The new average is ``kept * old + (1 - kept) * parameter``. For parameters that the phase
    trains, ``kept`` is ``min(decay, (1 + t) / (10 + t))`` at step t of the phase, counted from 0,
    so that random initial values are forgotten quickly, as in TensorFlow's
    ``ExponentialMovingAverage``. For the parameters of other phases it is ``decay``, so that their
    average converges to them while they do not change.

    Args:
      average: the previous average, from :func:`start_average` or this function.
      params: all parameters, after the step.
      phase: the phase of the step.
      decay: in (0, 1).
    """
    flat = flax.traverse_util.flatten_dict(params)
    step = average["steps"][phase.name]
    ramped = jnp.minimum(decay, (1 + step) / (10 + step))

    def updated(path: tuple[str, ...], old: Any) -> Any:
        kept = ramped if phase.trainable is None or phase.trainable(path) else decay
        now = flat[path]
        # In this form, the average of a constant parameter equals it exactly.
        return (now + kept * (old - now)).astype(old.dtype)

    old = flax.traverse_util.flatten_dict(average["params"])
    new = {path: updated(path, leaf) for path, leaf in old.items()}
    return {
        "params": flax.traverse_util.unflatten_dict(new),
        "steps": {**average["steps"], phase.name: step + 1},
    }
