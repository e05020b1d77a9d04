"""An exponential moving average of the trained parameters, which is evaluated in their place.

It lies in the train state beside the optimisers' states, so that it is saved and continued as they
are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import flax.traverse_util
import jax.numpy as jnp

from jaxatr.training.task import Phase
from jaxatr.typing import PyTree

AVERAGE = "average"
"""Its name among the optimisers' states, which no phase can have."""


def start_average(params: PyTree, phases: Sequence[Phase]) -> dict[str, Any]:
    """Returns the average before the first step: a copy of all parameters that a phase trains."""
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
    """Returns the average after a step of a phase.

    Each parameter's average is ``kept * old + (1 - kept) * parameter``. For those that the phase
    trains, ``kept`` is ``min(decay, (1 + t) / (10 + t))`` at its step t, from 0, so that random
    beginnings are soon forgotten (as TensorFlow's ``ExponentialMovingAverage`` does). For those of
    other phases it is ``decay``: where they have come to rest, so does their average, on them.

    Args:
      average: from :func:`start_average` or the step before.
      params: all parameters, after the step.
      phase: whose step it was.
      decay: in (0, 1).
    """
    flat = flax.traverse_util.flatten_dict(params)
    step = average["steps"][phase.name]
    begun = jnp.minimum(decay, (1 + step) / (10 + step))

    def moved(path: tuple[str, ...], old: Any) -> Any:
        kept = begun if phase.trainable is None or phase.trainable(path) else decay
        now = flat[path]  # in this form the average of what is at rest is that to the bit
        return (now + kept * (old - now)).astype(old.dtype)

    old = flax.traverse_util.flatten_dict(average["params"])
    new = {path: moved(path, leaf) for path, leaf in old.items()}
    return {
        "params": flax.traverse_util.unflatten_dict(new),
        "steps": {**average["steps"], phase.name: step + 1},
    }


def evaluated_params(params: PyTree, opt_state: Mapping[str, Any]) -> PyTree:
    """Returns the parameters to evaluate and use: their average where the run keeps one.

    Args:
      params: all parameters.
      opt_state: the optimisers' states, of the same moment.
    """
    if AVERAGE not in opt_state:
        return params
    average = opt_state[AVERAGE]["params"]
    flat = flax.traverse_util.flatten_dict(params) | flax.traverse_util.flatten_dict(average)
    return flax.traverse_util.unflatten_dict(flat)
