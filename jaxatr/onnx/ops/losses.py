"""Loss operators, and the optimiser steps of ``ai.onnx.preview.training``."""

import jax
import jax.numpy as jnp

from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, first_results


def _reduced(losses: Value, weights: Value, reduction: str) -> Value:
    if reduction == "none":
        return losses
    if reduction == "sum":
        return jnp.sum(losses)
    if reduction != "mean":
        raise ValueError(f"reduction: got {reduction!r}, wanted none, sum or mean")
    return jnp.sum(losses) / jnp.sum(weights)


@register("NegativeLogLikelihoodLoss", settings=("weights",))
def negative_log_likelihood_loss(
    log_probabilities: Value,
    target: Value,
    weight: Value | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Value:
    """Returns the negative log-likelihood of ``target`` (ONNX NegativeLogLikelihoodLoss-22).

    Args:
      log_probabilities: ``[b, k, …]``.
      target: class indices ``[b, …]``.
      weight: class weights ``[k]``; the mean is weighted.
      ignore_index: class index of targets to ignore.
      reduction: none, sum or mean.
    """
    counted = jnp.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    at = jnp.where(counted, target, 0)
    chosen = jnp.take_along_axis(log_probabilities, jnp.expand_dims(at, 1), 1)[:, 0]
    weights = jnp.ones((), chosen.dtype) if weight is None else jnp.asarray(weight)[at]
    weights = jnp.where(counted, weights, 0).astype(chosen.dtype)
    return _reduced(jnp.where(counted, -chosen * weights, 0), weights, reduction)


@register("SoftmaxCrossEntropyLoss", settings=("weights",))
def softmax_cross_entropy_loss(
    scores: Value,
    labels: Value,
    weights: Value | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    outputs: int = 1,
) -> Value | tuple[Value, Value]:
    """Returns the cross entropy of logits (ONNX SoftmaxCrossEntropyLoss-13).

    Args:
      scores: logits ``[b, k, …]``.
      labels: class indices ``[b, …]``.
      weights: class weights ``[k]``; the mean is weighted.
      ignore_index: class index of labels to ignore.
      reduction: none, sum or mean.
      outputs: 1 for the loss alone, 2 for the loss and the log-probabilities.
    """
    logs = jax.nn.log_softmax(scores, axis=1)
    loss = negative_log_likelihood_loss(
        logs, labels, weights, ignore_index=ignore_index, reduction=reduction
    )
    return first_results((loss, logs), outputs)


def _grouped(values: tuple[Value, ...], groups: int) -> list[tuple[Value, ...]]:
    """Returns the operands of each optimised tensor, one from every group."""
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
    """Returns the parameters and sums of squares after one Adagrad step (preview Adagrad-1).

    Args:
      rate: learning rate.
      count: number of steps so far.
      *values: all parameters, then all gradients, then all sums of squares.
      decay_factor: decay of the learning rate per step.
      epsilon: number added to the denominator.
      norm_coefficient: coefficient of the L2 penalty.
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
    """Returns the parameters and both moments after one Adam step (preview Adam-1).

    Args:
      rate: learning rate.
      count: number of steps so far.
      *values: all parameters, then all gradients, all first moments, all second moments.
      alpha: decay rate of the first moment.
      beta: decay rate of the second moment.
      epsilon: number added to the denominator.
      norm_coefficient: coefficient of the L2 penalty.
      norm_coefficient_post: coefficient of the weight decay applied after the step.
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
    """Returns the parameters and momenta after one gradient step (preview Momentum-1).

    Args:
      rate: learning rate.
      count: number of steps so far.
      *values: all parameters, then all gradients, then all momenta.
      alpha: decay rate of the momentum.
      beta: factor of the gradient in the momentum, except in the first step, where it is 1.
      mode: standard or nesterov.
      norm_coefficient: coefficient of the L2 penalty.
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
