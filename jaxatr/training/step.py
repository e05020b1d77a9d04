"""One optimiser step of a phase, per device, and the schedule that says whose step is next."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import optax

from jaxatr import parallel
from jaxatr.training.average import AVERAGE, next_average
from jaxatr.training.state import TrainState, merge, split
from jaxatr.training.task import LossOutput, Phase
from jaxatr.typing import Batch


@runtime_checkable  # the tests check annotations as they run
class Step(Protocol):
    """A compiled step; ``lower`` takes the same arguments and returns the program before that."""

    lower: Callable[..., Any]

    def __call__(
        self, state: TrainState, batch: Batch, stop: Any
    ) -> tuple[TrainState, dict[str, tuple[Any, Any]]]:
        """Takes one step."""
        ...


def make_step(phase: Phase, devices: Sequence[parallel.Device] | None, *, ema: float = 0.0) -> Step:
    """Returns ``(state, batch, stop) -> (state, sums)``, mapped over the devices.

    The state is replicated and donated, the batch sharded, ``stop`` one number per device. ``sums``
    maps each metric's name to ``(sum, count)`` over all devices of all processes, ``"loss"`` and
    ``"stop"`` among them. With ``ema`` the state's average of the parameters follows them.
    """

    def step(state: TrainState, batch: Batch, stop: Any):
        trained, frozen = split(state.params, phase.trainable)

        def loss(trained) -> tuple[jax.Array, LossOutput]:
            params = merge(trained, frozen)
            output = phase.loss(params, state.model_state, batch, state.key, state.step)
            return output.total, output

        gradients, output = jax.grad(loss, has_aux=True)(trained)
        # Summed over the devices first and divided by the global count after: a mean of the
        # devices' means would weigh examples by how many others their device selected.
        gradients, sums = parallel.psum(
            (gradients, dict(output.sums) | {"loss": (output.total, output.count)})
        )
        count = jnp.maximum(sums["loss"][1], 1)
        gradients = jax.tree.map(lambda leaf: leaf / count, gradients)
        updates, opt_state = phase.optimizer.update(gradients, state.opt_state[phase.name], trained)
        params = merge(optax.apply_updates(trained, updates), frozen)
        opt_state = state.opt_state | {phase.name: opt_state}
        if ema:
            opt_state[AVERAGE] = next_average(opt_state[AVERAGE], params, phase, ema)
        return state.replace(
            step=state.step + 1,
            params=params,
            model_state=_mean_over_devices(output.model_state),
            opt_state=opt_state,
        ), sums | {"stop": (jax.lax.psum(stop, parallel.AXIS), 1)}

    return jax.pmap(step, axis_name=parallel.AXIS, devices=devices, donate_argnums=0)


def _mean_over_devices(model_state: Any) -> Any:
    """Makes running statistics equal on all devices, also those of a layer without an axis name."""

    def mean(leaf: jax.Array) -> jax.Array:
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jax.lax.pmean(leaf, parallel.AXIS) if floating else leaf

    return jax.tree.map(mean, model_state)


class Schedule:
    """Phases in order, the whole sequence ``cycles`` times."""

    def __init__(self, phases: Sequence[Phase], cycles: int):
        """Takes a task's phases.

        Raises:
          ValueError: there is no phase, two share a name, one is called as evaluation records or
            the average of the parameters are, or there is no step to take.
        """
        names = [phase.name for phase in phases]
        if not names or len(set(names)) < len(names) or {"evaluate", AVERAGE} & set(names):
            raise ValueError(
                f"phases: got {names}, wanted distinct names other than 'evaluate' and {AVERAGE!r}"
            )
        steps = {phase.name: phase.steps for phase in phases}
        if min(cycles, *steps.values()) < 1:
            raise ValueError(f"got cycles={cycles}, steps={steps}, wanted at least 1 of each")
        self._phases = list(phases)
        self._cycle = sum(phase.steps for phase in phases)
        self.steps = self._cycle * cycles

    def phase(self, step: int) -> Phase:
        """Returns the phase that step number ``step`` (from 0) belongs to."""
        left = step % self._cycle
        for phase in self._phases:
            if left < phase.steps:
                return phase
            left -= phase.steps
        raise IndexError(step)
