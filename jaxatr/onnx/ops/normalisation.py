"""Normalisation operators."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import kernels
from jaxatr.onnx.ops.dtypes import dtype_of, is_float, widened
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, at_least_rank, axis_of, first_results

STATISTICS = (("input_mean", 1), ("input_var", 2))


def _channels(v: Value, rank: int) -> Value:
    return jnp.reshape(v, (-1, *(1,) * (rank - 2)))


@register(
    "BatchNormalization",
    weights=("scale", "b"),
    statistics=STATISTICS,
    ignored=("consumed_inputs", "is_test"),
    layout="channels",
)
def batch_normalization(
    x: Value,
    scale: Value,
    b: Value,
    input_mean: Value,
    input_var: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
    training: bool = False,
) -> Value | tuple[Value, Value, Value]:
    """Normalises each channel (ONNX BatchNormalization-15).

    Args:
      x: ``[b, c, …]``.
      scale: ``[c]``.
      b: bias ``[c]``.
      input_mean: running mean ``[c]``.
      input_var: running variance ``[c]``.
      epsilon: number added to the variance.
      momentum: weight of the old running statistics in an update.
      spatial: 0 (only before version 9) normalises every position separately; ``scale``, ``b``,
        ``input_mean`` and ``input_var`` are then ``[c, …]``.
      training_mode: whether the model asks for batch statistics.
      training: whether the caller asks for batch statistics.

    Returns:
      ``[b, c, …]``; with batch statistics also the new running mean and variance.
    """
    at_least_rank("x", x, 2)
    if not spatial:
        flat = (jnp.reshape(v, -1) for v in (scale, b, input_mean, input_var))
        made = batch_normalization(
            jnp.reshape(x, (x.shape[0], math.prod(x.shape[1:]))),
            *flat,
            epsilon=epsilon,
            momentum=momentum,
            training_mode=training_mode,
            training=training,
        )
        if not isinstance(made, tuple):
            return jnp.reshape(made, x.shape)
        y, *running = made
        new_mean, new_var = (jnp.reshape(v, x.shape[1:]) for v in running)
        return jnp.reshape(y, x.shape), new_mean, new_var
    last, mean, var = jnp.moveaxis(jnp.asarray(x), 1, -1), input_mean, input_var
    if training or training_mode:
        mean, var = kernels.batch_statistics(last)
    y = kernels.batch_norm(last, *map(jnp.asarray, (scale, b, mean, var)), epsilon=epsilon)
    y = jnp.moveaxis(y, -1, 1).astype(x.dtype)
    if not (training or training_mode):
        return y
    new_mean = input_mean * momentum + mean * (1 - momentum)
    new_var = input_var * momentum + var * (1 - momentum)
    return y, new_mean.astype(input_mean.dtype), new_var.astype(input_var.dtype)


@register("InstanceNormalization", weights=("scale", "b"), ignored=("consumed_inputs",))
def instance_normalization(x: Value, scale: Value, b: Value, *, epsilon: float = 1e-5) -> Value:
    """Normalises each channel of each example (ONNX InstanceNormalization-22)."""
    axes = tuple(range(2, x.ndim))
    wide = widened(x)
    mean, var = jnp.mean(wide, axes, keepdims=True), jnp.var(wide, axes, keepdims=True)
    normal = (wide - mean) * jax.lax.rsqrt(var + epsilon)
    return (normal * _channels(scale, x.ndim) + _channels(b, x.ndim)).astype(x.dtype)


def _stash(stash_type: int) -> Any:
    """Returns the type in which the statistics are computed."""
    dtype = dtype_of(stash_type)
    if not is_float(dtype):
        raise ValueError(f"stash_type: got {stash_type}, wanted the number of a float type")
    return dtype


@register("LayerNormalization", weights=("scale", "b"))
def layer_normalization(
    x: Value,
    scale: Value,
    b: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> Value | tuple[Value, ...]:
    """Normalises over the axes from ``axis`` on (ONNX LayerNormalization-17).

    With several ``outputs``, it also returns the mean and the inverse standard deviation, in the
    type with the number ``stash_type``.
    """
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    wide = jnp.asarray(x).astype(_stash(stash_type))
    mean = jnp.mean(wide, axes, keepdims=True)
    inverse = jax.lax.rsqrt(jnp.var(wide, axes, keepdims=True) + epsilon)
    y = ((wide - mean) * inverse).astype(x.dtype) * scale
    y = y if b is None else y + b
    return first_results((y, mean, inverse), outputs)


@register("RMSNormalization", weights=("scale",))
def rms_normalization(
    x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    """Divides by the root mean square over the axes from ``axis`` on (RMSNormalization-23)."""
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    wide = jnp.asarray(x).astype(_stash(stash_type))
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(wide), axes, keepdims=True) + epsilon)
    return ((wide * inverse).astype(x.dtype) * scale).astype(scale.dtype)


@register("GroupNormalization", since=21, weights=("scale", "bias"))
def group_normalization(
    x: Value,
    scale: Value,
    bias: Value,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    """Normalises groups of channels, with scale and bias per channel (GroupNormalization-21)."""
    n, c = x.shape[:2]
    if num_groups < 1 or c % num_groups:
        raise ValueError(f"num_groups: got {num_groups}, wanted a divisor of {c} channels")
    each = c // num_groups * math.prod(x.shape[2:])
    wide = jnp.reshape(x, (n, num_groups, each)).astype(_stash(stash_type))
    mean, var = jnp.mean(wide, -1, keepdims=True), jnp.var(wide, -1, keepdims=True)
    normal = ((wide - mean) * jax.lax.rsqrt(var + epsilon)).astype(x.dtype).reshape(x.shape)
    return normal * _channels(scale, x.ndim) + _channels(bias, x.ndim)


@register("GroupNormalization", since=18, weights=("scale", "bias"))
def group_normalization_by_group(
    x: Value,
    scale: Value,
    bias: Value,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    """Normalises groups of channels, with scale and bias per group (GroupNormalization-18)."""
    each = x.shape[1] // num_groups
    return group_normalization(
        x,
        jnp.repeat(scale, each),
        jnp.repeat(bias, each),
        num_groups=num_groups,
        epsilon=epsilon,
        stash_type=stash_type,
    )


@register("MeanVarianceNormalization")
def mean_variance_normalization(x: Value, *, axes: tuple[int, ...] = (0, 2, 3)) -> Value:
    """Normalises over ``axes`` (ONNX MeanVarianceNormalization-13)."""
    wide = widened(x)
    deviation = wide - jnp.mean(wide, axes, keepdims=True)
    root = jnp.sqrt(jnp.mean(jnp.square(deviation), axes, keepdims=True))
    return (deviation / (root + 1e-9)).astype(x.dtype)


@register("LpNormalization")
def lp_normalization(x: Value, *, axis: int = -1, p: int = 2) -> Value:
    """Divides by the 1- or 2-norm along an axis; zeros stay zero (ONNX LpNormalization-22)."""
    if p not in (1, 2):
        raise ValueError(f"p: got {p}, wanted 1 or 2")
    norm = jnp.linalg.norm(widened(x), ord=p, axis=axis, keepdims=True)
    return jnp.where(norm == 0, 0, x / jnp.where(norm == 0, 1, norm)).astype(x.dtype)


@register("LRN")
def lrn(
    x: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Value:
    """Applies local response normalisation over ``size`` neighbouring channels (ONNX LRN-13)."""
    at_least_rank("x", x, 3)
    if size < 1:
        raise ValueError(f"size: got {size}, wanted at least 1")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    rest = (1,) * (x.ndim - 2)
    wide = widened(x)
    squares = jax.lax.reduce_window(
        jnp.square(wide),
        np.array(0, wide.dtype),
        jax.lax.add,
        (1, size, *rest),
        (1,) * x.ndim,
        [(0, 0), (before, after), *((0, 0) for _ in rest)],
    )
    return (wide / jnp.power(bias + alpha / size * squares, beta)).astype(x.dtype)
