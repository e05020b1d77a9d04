"""Stochastic gradient descent and its schedules, as the papers use them."""

from typing import Any

import jax
import optax

from jaxatr.kernels import outlined
from jaxatr.typing import Config


def build_optimizer(
    config: Config, steps: int, steps_per_epoch: int
) -> optax.GradientTransformation:
    """Returns SGD with momentum, and weight decay added to the gradient (as PyTorch does).

    Args:
      config: ``learning_rate``, ``momentum``, ``nesterov``, ``weight_decay``, ``schedule``
        (``"constant"``, ``"cosine"``, to zero, or ``"steps"``: times ``factor`` after each of the
        epochs in ``boundaries``) and ``warmup_epochs`` (linear, from the rate divided by the
        warm-up's steps; the schedule begins after it, the boundaries count from the start).
      steps: length of the training.
      steps_per_epoch: for the warm-up and the boundaries.

    Raises:
      ValueError: an unknown schedule.
    """
    return optax.chain(
        optax.add_decayed_weights(config.weight_decay),
        _momentum(config.momentum, config.nesterov),
        optax.scale_by_learning_rate(_schedule(config, steps, steps_per_epoch)),
    )


def _momentum(decay: float, nesterov: bool) -> optax.GradientTransformation:
    """Returns ``optax.trace``, with the new average computed once on CPU.

    XLA:CPU would compute it again in the update of the parameters, from the old average and the old
    parameters, and copy both because their buffers are donated: a quarter of a small step's time.
    """

    @outlined
    def average(gradient, old):
        return gradient + decay * old

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        new = jax.tree.map(average, updates, state.trace)
        ahead = jax.tree.map(lambda gradient, m: gradient + decay * m, updates, new)
        return ahead if nesterov else new, optax.TraceState(new)

    return optax.GradientTransformation(optax.trace(decay).init, update)


def _schedule(config: Config, steps: int, steps_per_epoch: int) -> optax.Schedule:
    warmup = min(round(config.warmup_epochs * steps_per_epoch), steps // 2)
    if config.schedule == "constant":
        after = optax.constant_schedule(config.learning_rate)
    elif config.schedule == "cosine":
        after = optax.cosine_decay_schedule(config.learning_rate, max(1, steps - warmup))
    elif config.schedule == "steps":
        falls = {
            max(0, round(epoch * steps_per_epoch) - warmup): config.factor
            for epoch in config.boundaries
        }
        after = optax.piecewise_constant_schedule(config.learning_rate, falls)
    else:
        raise ValueError(
            f"optimizer.schedule: got {config.schedule!r}, wanted 'constant', 'cosine' or 'steps'"
        )
    if not warmup:
        return after
    rise = optax.linear_schedule(config.learning_rate / warmup, config.learning_rate, warmup)
    return optax.join_schedules([rise, after], [warmup])
