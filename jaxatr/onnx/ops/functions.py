"""Elementwise functions of one operand, activations and softmax."""

import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, axis_of, first_place, library

OLD = ("consumed_inputs",)


@register("Exp", folds=True, ignored=OLD)
def exp(x: Value) -> Value:
    """Returns e to the power x (ONNX Exp-13)."""
    return library(x).exp(x)


@register("Log", folds=True, ignored=OLD)
def log(x: Value) -> Value:
    """Returns the natural logarithm (ONNX Log-13)."""
    return library(x).log(x)


def _unary(
    name: str, function: Callable[..., Any], result: str, **facts: Any
) -> Callable[[Value], Value]:
    """Registers a jax function as an operator; ``result`` describes it in the docstring."""

    def computed(x: Value) -> Value:
        return function(x)

    computed.__name__ = computed.__qualname__ = name.lower()
    computed.__doc__ = f"Returns the {result} (ONNX {name})."
    return register(name, **facts)(computed)


sin = _unary("Sin", jnp.sin, "sine")
cos = _unary("Cos", jnp.cos, "cosine")
tan = _unary("Tan", jnp.tan, "tangent")
asin = _unary("Asin", jnp.arcsin, "arc sine")
acos = _unary("Acos", jnp.arccos, "arc cosine")
atan = _unary("Atan", jnp.arctan, "arc tangent")
sinh = _unary("Sinh", jnp.sinh, "hyperbolic sine")
cosh = _unary("Cosh", jnp.cosh, "hyperbolic cosine")
tanh = _unary("Tanh", jnp.tanh, "hyperbolic tangent", ignored=OLD, layout="any")
asinh = _unary("Asinh", jnp.arcsinh, "inverse of the hyperbolic sine")
acosh = _unary("Acosh", jnp.arccosh, "inverse of the hyperbolic cosine")
atanh = _unary("Atanh", jnp.arctanh, "inverse of the hyperbolic tangent")
erf = _unary("Erf", jax.scipy.special.erf, "error function")
sigmoid = _unary(
    "Sigmoid", jax.nn.sigmoid, "logistic function 1 / (1 + e⁻ˣ)", ignored=OLD, layout="any"
)
softplus = _unary("Softplus", jax.nn.softplus, "logarithm of 1 + eˣ")
softsign = _unary("Softsign", jax.nn.soft_sign, "quotient x / (1 + \\|x\\|)")


@register("Relu", ignored=OLD, layout="any")
def relu(x: Value) -> Value:
    """Returns max(x, 0), with derivative 0 at 0 as in PyTorch (ONNX Relu-14)."""
    return jax.nn.relu(x)


@register("LeakyRelu", ignored=OLD, layout="any")
def leaky_relu(x: Value, *, alpha: float = 0.01) -> Value:
    """Returns ``alpha`` x where x is negative, else x (ONNX LeakyRelu-16)."""
    return jnp.where(x < 0, alpha * x, x)


@register("PRelu", weights=("slope",), since=7, layout="any")
def prelu(x: Value, slope: Value) -> Value:
    """Returns ``slope`` x where x is negative, else x (ONNX PRelu-16)."""
    return jnp.where(x < 0, slope * x, x)


@register("PRelu", weights=("slope",), since=1, ignored=OLD)
def prelu_channels(x: Value, slope: Value) -> Value:
    """Returns ``slope`` x where x is negative, else x; one slope per channel (ONNX PRelu-6)."""
    if slope.ndim == 1 and slope.size > 1 and x.ndim > 2:
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return prelu(x, slope)


@register("ThresholdedRelu")
def thresholded_relu(x: Value, *, alpha: float = 1.0) -> Value:
    """Returns x where it exceeds ``alpha``, else 0 (ONNX ThresholdedRelu-22)."""
    return jnp.where(x > alpha, x, 0)


@register("Elu", ignored=OLD, layout="any")
def elu(x: Value, *, alpha: float = 1.0) -> Value:
    """Returns ``alpha`` (eˣ − 1) where x is negative, else x (ONNX Elu-22)."""
    return jax.nn.elu(x, alpha)


@register("Celu")
def celu(x: Value, *, alpha: float = 1.0) -> Value:
    """Returns ``alpha`` (exp(x / alpha) − 1) where x is negative, else x (ONNX Celu-12)."""
    return jax.nn.celu(x, alpha)


@register("Selu", ignored=OLD)
def selu(x: Value, *, alpha: float = 1.6732632, gamma: float = 1.050701) -> Value:
    """Returns ``gamma`` x where x > 0, else ``gamma alpha`` (eˣ − 1) (ONNX Selu-22)."""
    return gamma * jax.nn.elu(x, alpha)


@register("HardSigmoid", ignored=OLD, layout="any")
def hard_sigmoid(x: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """Returns ``alpha`` x + ``beta``, clipped to [0, 1] (ONNX HardSigmoid-22)."""
    return jnp.clip(alpha * x + beta, 0, 1)


@register("HardSwish", layout="any")
def hard_swish(x: Value) -> Value:
    """Returns x times the hard sigmoid with α = 1/6 (ONNX HardSwish-22)."""
    return x * jnp.clip(x / 6 + 0.5, 0, 1)


@register("Swish", layout="any")
def swish(x: Value, *, alpha: float = 1.0) -> Value:
    """Returns x σ(``alpha`` x) (ONNX Swish-24)."""
    return x * jax.nn.sigmoid(alpha * x)


@register("Mish", layout="any")
def mish(x: Value) -> Value:
    """Returns x tanh(softplus(x)) (ONNX Mish-22)."""
    return x * jnp.tanh(jax.nn.softplus(x))


@register("Gelu", layout="any")
def gelu(x: Value, *, approximate: Literal["none", "tanh"] = "none") -> Value:
    """Returns x Φ(x), with Φ the normal CDF or its tanh approximation (ONNX Gelu-20)."""
    return jax.nn.gelu(x, approximate=approximate == "tanh")


@register("Shrink")
def shrink(x: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    """Moves x towards 0 by ``bias`` where \\|x\\| > ``lambd``, else returns 0 (ONNX Shrink-9)."""
    inner = jnp.where(x > lambd, x - bias, jnp.zeros_like(x))
    return jnp.where(x < -lambd, x + bias, inner).astype(x.dtype)


@register("Softmax", since=13)
def softmax(x: Value, *, axis: int = -1) -> Value:
    """Returns the softmax along ``axis`` (ONNX Softmax-13)."""
    return jax.nn.softmax(x, axis=axis)


@register("LogSoftmax", since=13)
def log_softmax(x: Value, *, axis: int = -1) -> Value:
    """Returns the logarithm of the softmax along ``axis`` (ONNX LogSoftmax-13)."""
    return jax.nn.log_softmax(x, axis=axis)


@register("Hardmax", since=13)
def hardmax(x: Value, *, axis: int = -1) -> Value:
    """Returns 1 at the first maximum along ``axis``, else 0 (ONNX Hardmax-13)."""
    return jax.nn.one_hot(
        first_place(jax.lax.argmax, x, axis), x.shape[axis], axis=axis, dtype=x.dtype
    )


def _flattened(function, x: Value, axis: int) -> Value:
    """Applies a function to ``x`` as a matrix, with all axes from ``axis`` on merged into one."""
    axis = axis_of(axis, x.ndim)
    rows, columns = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    return function(x.reshape(rows, columns)).reshape(x.shape)


@register("Softmax", since=1)
def softmax_from(x: Value, *, axis: int = 1) -> Value:
    """Returns the softmax over all axes from ``axis`` on (ONNX Softmax-11)."""
    return _flattened(softmax, x, axis)


@register("LogSoftmax", since=1)
def log_softmax_from(x: Value, *, axis: int = 1) -> Value:
    """Returns the logarithm of the softmax over all axes from ``axis`` on (ONNX LogSoftmax-11)."""
    return _flattened(log_softmax, x, axis)


@register("Hardmax", since=1)
def hardmax_from(x: Value, *, axis: int = 1) -> Value:
    """Returns 1 at the first maximum over all axes from ``axis`` on, else 0 (ONNX Hardmax-11)."""
    return _flattened(hardmax, x, axis)
