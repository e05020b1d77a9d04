"""Losses and the optimisers' steps that ONNX defines."""

import jax
import jax.numpy as jnp

from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value


def _reduced(losses: Value, weights: Value, reduction: str) -> Value:
    if reduction == "none":
        return losses
    if reduction == "sum":
        return jnp.sum(losses)
    if reduction != "mean":
        raise ValueError(f"reduction: got {reduction!r}, wanted none, sum or mean")
    return jnp.sum(losses) / jnp.sum(weights)


@register("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    log_probabilities: Value,
    target: Value,
    weight: Value | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Value:
    """Returns minus the targets' log-probabilities (ONNX NegativeLogLikelihoodLoss-22).

    Args:
      log_probabilities: ``[b, k, …]``.
      target: ``[b, …]``, classes.
      weight: ``[k]``; the mean is over the weights of the targets.
      ignore_index: a class that does not count.
      reduction: none, sum or mean.
    """
    counted = jnp.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    at = jnp.where(counted, target, 0)
    chosen = jnp.take_along_axis(log_probabilities, jnp.expand_dims(at, 1), 1)[:, 0]
    weights = jnp.ones((), chosen.dtype) if weight is None else jnp.asarray(weight)[at]
    weights = jnp.where(counted, weights, 0).astype(chosen.dtype)
    return _reduced(jnp.where(counted, -chosen * weights, 0), weights, reduction)


@register("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    scores: Value,
    labels: Value,
    weights: Value | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    outputs: int = 1,
) -> Value | tuple[Value, Value]:
    """Returns the cross entropy, and on demand the log-probabilities (-13).

    The operands are as in :func:`negative_log_likelihood_loss`, with scores for log-probabilities.
    """
    logs = jax.nn.log_softmax(scores, axis=1)
    loss = negative_log_likelihood_loss(
        logs, labels, weights, ignore_index=ignore_index, reduction=reduction
    )
    return loss if outputs == 1 else (loss, logs)


def _grouped(values: tuple[Value, ...], groups: int) -> list[tuple[Value, ...]]:
    """Returns the operands of each tensor that is optimised: the i-th of every group."""
    count = len(values) // groups
    return [values[i::count] for i in range(count)]


TRAINING = "ai.onnx.preview.training"


@register("Adagrad", domain=TRAINING)
def adagrad(
    rate: Value,
    count: Value,
    *values: Value,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Value, ...]:
    """Returns parameters and sums of squares after a step of Adagrad (preview Adagrad-1).

    Args:
      rate: the learning rate.
      count: steps taken so far.
      *values: all parameters, all gradients, all sums.
      decay_factor: of the rate.
      epsilon: added to the root.
      norm_coefficient: of the L2 penalty.
    """
    rate = rate / (1 + count * decay_factor)
    parameters, sums = [], []
    for x, g, h in _grouped(values, 3):
        g = g + norm_coefficient * x
        h = h + g * g
        parameters.append((x - rate * g / (jnp.sqrt(h) + epsilon)).astype(x.dtype))
        sums.append(h)
    return (*parameters, *sums)


@register("Adam", domain=TRAINING)
def adam(
    rate: Value,
    count: Value,
    *values: Value,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Value, ...]:
    """Returns parameters and both moments after a step of Adam (preview Adam-1).

    Args:
      rate: the learning rate.
      count: steps taken so far.
      *values: all parameters, all gradients, all first moments, all second moments.
      alpha: what the first moment keeps.
      beta: what the second moment keeps.
      epsilon: added to the root.
      norm_coefficient: of the L2 penalty.
      norm_coefficient_post: of the decay after the step.
    """
    t = jnp.asarray(count).astype("float32")
    corrected = rate * jnp.sqrt(1 - beta**t) / (1 - alpha**t)
    rate = jnp.where(t > 0, corrected, rate)
    columns = ([], [], [])
    for x, g, v, h in _grouped(values, 4):
        g = g + norm_coefficient * x
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        x = (1 - norm_coefficient_post) * (x - rate * v / (jnp.sqrt(h) + epsilon))
        for column, value in zip(columns, (x, v, h), strict=True):
            column.append(jnp.asarray(value).astype(g.dtype))
    return tuple(value for column in columns for value in column)


@register("Momentum", domain=TRAINING)
def momentum(
    rate: Value,
    count: Value,
    *values: Value,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Value, ...]:
    """Returns parameters and momenta after a step (preview Momentum-1).

    Args:
      rate: the learning rate.
      count: steps taken so far; the first takes the whole gradient.
      *values: all parameters, all gradients, all momenta.
      alpha: what a momentum keeps.
      beta: what it takes of a gradient.
      mode: standard or nesterov.
      norm_coefficient: of the L2 penalty.
    """
    if mode not in ("standard", "nesterov"):
        raise ValueError(f"mode: got {mode!r}, wanted standard or nesterov")
    share = jnp.where(jnp.asarray(count) > 0, beta, 1.0)
    parameters, momenta = [], []
    for x, g, v in _grouped(values, 3):
        g = g + norm_coefficient * x
        v = (alpha * v + share * g).astype(x.dtype)
        step = v if mode == "standard" else g + alpha * v
        parameters.append((x - rate * step).astype(x.dtype))
        momenta.append(v)
    return (*parameters, *momenta)
