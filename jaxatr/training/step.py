"""The optimiser step of a phase, mapped over devices, and the schedule of phases."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import optax

from jaxatr import parallel
from jaxatr.kernels.ops.channels import totals_p
from jaxatr.kernels.ops.convolution.primitive import convolution_p
from jaxatr.kernels.ops.recurrent.primitive import layer_p
from jaxatr.training.average import AVERAGE, next_average
from jaxatr.training.state import TrainState, merge, split
from jaxatr.training.task import LossOutput, Phase
from jaxatr.typing import Batch


@runtime_checkable  # the tests check annotations at run time
class Step(Protocol):
    """A jitted step; ``lower`` takes the same arguments and returns the lowered program."""

    lower: Callable[..., Any]

    def __call__(
        self, state: TrainState, batch: Batch, stop: Any
    ) -> tuple[TrainState, dict[str, tuple[Any, Any]]]:
        """Does one step."""
        ...


_KEPT = frozenset(
    {primitive.name for primitive in (convolution_p, layer_p, totals_p)}
    | {"conv_general_dilated", "dot_general"}
    | {"reduce_sum", "reduce_max", "reduce_min", "argmax", "argmin"}
)
"""Primitives whose results are small or take long: the backward pass does not compute them again.

The others, such as normalisations, activations and residual sums, take little time and much
memory.
"""


def keep_less(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function whose gradient needs less memory (rematerialisation).

    Its backward pass keeps only the results of convolutions, matrix products and reductions, and
    computes the operations between them again.
    """
    return jax.checkpoint(loss, policy=lambda primitive, *_, **__: primitive.name in _KEPT)


def make_step(
    phase: Phase,
    devices: Sequence[parallel.Device] | None,
    *,
    ema: float = 0.0,
    remat: bool = False,
) -> Step:
    """Returns the step ``(state, batch, stop) -> (state, sums)`` of a phase, mapped over devices.

    The state is replicated and donated, the batch is sharded, and ``stop`` has a number for each
    device. ``sums`` maps the name of each metric, including ``"loss"`` and ``"stop"``, to ``(sum,
    count)`` over all devices of all processes. With ``ema``, the step also updates the average of
    the parameters. With ``remat``, the loss is that of :func:`keep_less`.
    """

    def step(state: TrainState, batch: Batch, stop: Any):
        trained, frozen = split(state.params, phase.trainable)

        def loss(trained) -> tuple[jax.Array, LossOutput]:
            params = merge(trained, frozen)
            output = phase.loss(params, state.model_state, batch, state.key, state.step)
            return output.total, output

        lean = keep_less(loss) if remat else loss
        gradients, output = jax.grad(lean, has_aux=True)(trained)
        # Sum over the devices before dividing by the global count: in a mean of the devices' means,
        # an example's weight would depend on how many examples its device selected.
        gradients, sums = parallel.psum(
            (gradients, dict(output.sums) | {"loss": (output.total, output.count)})
        )
        count = sums["loss"][1]
        count = jnp.where(count > 0, count, 1)  # a sum of weights may be below 1
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
    """Averages running statistics over devices, including those of layers without an axis name."""

    def mean(leaf: jax.Array) -> jax.Array:
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jax.lax.pmean(leaf, parallel.AXIS) if floating else leaf

    return jax.tree.map(mean, model_state)


class Schedule:
    """The sequence of phases, repeated ``cycles`` times; without phases, nothing is trained."""

    def __init__(self, phases: Sequence[Phase], cycles: int):
        """Creates a schedule of a task's phases.

        Raises:
          ValueError: a phase has no steps, two phases share a name, or one has the reserved name
            of evaluation records or of the average of the parameters.
        """
        names = [phase.name for phase in phases]
        if len(set(names)) < len(names) or {"evaluate", AVERAGE} & set(names):
            raise ValueError(
                f"phases: got {names}, wanted distinct names other than 'evaluate' and {AVERAGE!r}"
            )
        steps = {phase.name: phase.steps for phase in phases}
        if min([cycles, *steps.values()]) < 1:
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
