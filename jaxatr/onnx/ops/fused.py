"""Operators of ``com.microsoft`` that ONNX Runtime's optimiser for transformers writes.

Each does at once what a group of the standard's operators does, in floats.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from jaxatr.onnx.ops.arithmetic import gemm
from jaxatr.onnx.ops.convolution import conv
from jaxatr.onnx.ops.dtypes import widened
from jaxatr.onnx.ops.functions import (
    elu,
    hard_sigmoid,
    leaky_relu,
    relu,
    sigmoid,
    softplus,
    softsign,
    swish,
    tanh,
    thresholded_relu,
)
from jaxatr.onnx.ops.microsoft import MICROSOFT
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, first_results

_ACTIVATIONS: dict[str, tuple[Callable[..., Value], tuple[str, ...]]] = {
    "Relu": (relu, ()),
    "Tanh": (tanh, ()),
    "Sigmoid": (sigmoid, ()),
    "Softplus": (softplus, ()),
    "Softsign": (softsign, ()),
    "LeakyRelu": (leaky_relu, ("alpha",)),
    "ThresholdedRelu": (thresholded_relu, ("alpha",)),
    "Elu": (elu, ("alpha",)),
    "HardSigmoid": (hard_sigmoid, ("alpha", "beta")),
    "Clip": (jnp.clip, ("min", "max")),
}
"""Activations of fused operators with the names of their parameters."""


@register("Gelu", domain=MICROSOFT)
def gelu_exact(x: Value) -> Value:
    """Returns x Φ(x), with Φ the normal CDF (com.microsoft Gelu-1)."""
    return jax.nn.gelu(x, approximate=False)


@register("BiasGelu", domain=MICROSOFT, weights=("bias",))
def bias_gelu(x: Value, bias: Value) -> Value:
    """Returns y Φ(y) of y = x + ``bias`` ``[c]``, with Φ the normal CDF (BiasGelu-1)."""
    return gelu_exact(x + bias)


@register("FastGelu", domain=MICROSOFT, weights=("bias",))
def fast_gelu(x: Value, bias: Value | None = None) -> Value:
    """Returns y Φ(y) of y = x + ``bias`` ``[c]``, with Φ approximated by tanh (FastGelu-1)."""
    return jax.nn.gelu(x if bias is None else x + bias, approximate=True)


@register("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Value, *, alpha: float = 1.702) -> Value:
    """Returns x σ(``alpha`` x) (QuickGelu-1)."""
    return swish(x, alpha=alpha)


def _total(input: Value, skip: Value, bias: Value | None) -> Value:
    """Returns the sum in at least float32, as ONNX Runtime takes it."""
    total = widened(input) + skip
    return total if bias is None else total + bias


def _normalised(x: Value, epsilon: float) -> tuple[Value, Value, Value]:
    """Returns the mean, the reciprocal deviation and the normalised values of the last axis."""
    mean = jnp.mean(x, -1, keepdims=True)
    inverse = jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + epsilon)
    return mean, inverse, (x - mean) * inverse


@register(
    "SkipLayerNormalization",
    domain=MICROSOFT,
    weights=("gamma", "beta", "bias"),
    optional=("beta",),
)
def skip_layer_normalization(
    input: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: int = 1,
) -> Any:
    """Returns the layer norm of a sum (SkipLayerNormalization-1).

    Args:
      input: ``[b, t, c]`` or ``[t, c]``.
      skip: added to ``input``; ``[b, t, c]``, ``[1, t, c]`` or ``[t, c]``.
      gamma: scale ``[c]``.
      beta: shift ``[c]``.
      bias: added to the sum, ``[c]``.
      epsilon: added to the variance.
      outputs: up to 4 for mean, reciprocal deviation and sum as well.
    """
    total = _total(input, skip, bias)
    mean, inverse, values = _normalised(total, epsilon)
    values = values * gamma if beta is None else values * gamma + beta
    values, total = values.astype(input.dtype), total.astype(input.dtype)
    return first_results((values, mean, inverse, total), outputs)


@register("SkipSimplifiedLayerNormalization", domain=MICROSOFT, weights=("gamma", "bias"))
def skip_simplified_layer_normalization(
    input: Value,
    skip: Value,
    gamma: Value,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: int = 1,
) -> Any:
    """Returns the RMS norm of a sum (SkipSimplifiedLayerNormalization-1).

    Args and results are those of :func:`skip_layer_normalization`, without a shift; the mean is
    not available.
    """
    total = _total(input, skip, bias)
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(total), -1, keepdims=True) + epsilon)
    values = (total * inverse * gamma).astype(input.dtype)
    return first_results((values, None, inverse, total.astype(input.dtype)), outputs)


@register(
    "EmbedLayerNormalization",
    domain=MICROSOFT,
    weights=("word_embedding", "position_embedding", "segment_embedding", "gamma", "beta"),
    optional=("segment_ids", "segment_embedding", "mask"),
    ignored=("mask_index_type",),
)
def embed_layer_normalization(
    input_ids: Value,
    segment_ids: Value | None,
    word_embedding: Value,
    position_embedding: Value,
    segment_embedding: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None = None,
    position_ids: Value | None = None,
    *,
    epsilon: float = 1e-12,
    outputs: int = 1,
) -> Any:
    """Returns the layer norm of a sum of embeddings (EmbedLayerNormalization-1).

    Args:
      input_ids: words ``[b, t]``.
      segment_ids: segments ``[b, t]``.
      word_embedding: ``[words, c]``.
      position_embedding: ``[positions, c]``.
      segment_embedding: ``[segments, c]``.
      gamma: scale ``[c]``.
      beta: shift ``[c]``.
      mask: 0 for words that are masked, ``[b, t]``.
      position_ids: ``[b, t]`` or ``[1, t]``; 0, 1, … by default.
      epsilon: added to the variance.
      outputs: up to 3 for the number of words of each example, ``[b]``, and the sum as well.
    """
    ids = jnp.asarray(input_ids)
    places = jnp.arange(ids.shape[1])[None] if position_ids is None else jnp.asarray(position_ids)
    total = widened(jnp.asarray(word_embedding)[ids]) + jnp.asarray(position_embedding)[places]
    if segment_embedding is not None and segment_ids is not None:
        total = total + jnp.asarray(segment_embedding)[jnp.asarray(segment_ids)]
    counts = jnp.zeros(ids.shape[0], "int32")
    if mask is not None:
        counts = jnp.sum(jnp.asarray(mask) == 1, 1).astype("int32")
    values = _normalised(total, epsilon)[2] * gamma + beta
    values, total = (v.astype(word_embedding.dtype) for v in (values, total))
    return first_results((values, counts, total), outputs)


@register("FusedMatMul", domain=MICROSOFT, weights=("b",))
def fused_matmul(
    a: Value,
    b: Value,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Value:
    """Returns ``alpha a b`` (FusedMatMul-1).

    Args:
      a: ``[…, m, k]``.
      b: ``[…, k, n]``.
      alpha: factor of the product.
      transA: whether the last two axes of ``a`` are swapped.
      transB: whether the last two axes of ``b`` are swapped.
      transBatchA: whether the first axis of ``a`` comes before its last one.
      transBatchB: whether the first axis of ``b`` comes before its last one.
    """

    def turned(x: Value, last: int, first: int) -> Value:
        x = jnp.moveaxis(x, 0, -2) if first and x.ndim > 1 else jnp.asarray(x)
        return jnp.swapaxes(x, -1, -2) if last and x.ndim > 1 else x

    return alpha * jnp.matmul(turned(a, transA, transBatchA), turned(b, transB, transBatchB))


def _activated(x: Value, activation: str, parameters: Iterable[float | None]) -> Value:
    """Applies an activation by its name; without one, nothing."""
    if not activation:
        return x
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation: got {activation!r}, wanted one of {', '.join(_ACTIVATIONS)}")
    function, names = _ACTIVATIONS[activation]
    given = zip(names, parameters, strict=False)
    return function(x, **{name: value for name, value in given if value is not None})


@register("FusedGemm", domain=MICROSOFT, weights=("b", "c"), attributes_of=gemm)
def fused_gemm(
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    **attributes: Any,
) -> Value:
    """Returns the activation of ``alpha a b + beta c`` (FusedGemm-1)."""
    parameters = activation_alpha, activation_beta
    return _activated(gemm(a, b, c, **attributes), activation, parameters)


@register("FusedConv", domain=MICROSOFT, weights=("w", "b"), optional=("b",), attributes_of=conv)
def fused_conv(
    x: Value,
    w: Value,
    b: Value | None = None,
    z: Value | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    **attributes: Any,
) -> Value:
    """Returns the activation of a convolution, to which ``z`` is added before (FusedConv-1)."""
    result = conv(x, w, b, **attributes)
    return _activated(result if z is None else result + z, activation, activation_params)
