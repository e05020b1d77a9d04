"""Functions of one number: exponentials, the circle's, activations."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

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


@register("Sin")
def sin(x: Value) -> Value:
    """Returns the sine (ONNX Sin-22)."""
    return jnp.sin(x)


@register("Cos")
def cos(x: Value) -> Value:
    """Returns the cosine (ONNX Cos-22)."""
    return jnp.cos(x)


@register("Tan")
def tan(x: Value) -> Value:
    """Returns the tangent (ONNX Tan-22)."""
    return jnp.tan(x)


@register("Asin")
def asin(x: Value) -> Value:
    """Returns the arc sine (ONNX Asin-22)."""
    return jnp.arcsin(x)


@register("Acos")
def acos(x: Value) -> Value:
    """Returns the arc cosine (ONNX Acos-22)."""
    return jnp.arccos(x)


@register("Atan")
def atan(x: Value) -> Value:
    """Returns the arc tangent (ONNX Atan-22)."""
    return jnp.arctan(x)


@register("Sinh")
def sinh(x: Value) -> Value:
    """Returns the hyperbolic sine (ONNX Sinh-22)."""
    return jnp.sinh(x)


@register("Cosh")
def cosh(x: Value) -> Value:
    """Returns the hyperbolic cosine (ONNX Cosh-22)."""
    return jnp.cosh(x)


@register("Tanh", ignored=OLD)
def tanh(x: Value) -> Value:
    """Returns the hyperbolic tangent (ONNX Tanh-13)."""
    return jnp.tanh(x)


@register("Asinh")
def asinh(x: Value) -> Value:
    """Returns the inverse of the hyperbolic sine (ONNX Asinh-22)."""
    return jnp.arcsinh(x)


@register("Acosh")
def acosh(x: Value) -> Value:
    """Returns the inverse of the hyperbolic cosine (ONNX Acosh-22)."""
    return jnp.arccosh(x)


@register("Atanh")
def atanh(x: Value) -> Value:
    """Returns the inverse of the hyperbolic tangent (ONNX Atanh-22)."""
    return jnp.arctanh(x)


@register("Erf")
def erf(x: Value) -> Value:
    """Returns the error function (ONNX Erf-13)."""
    return jax.scipy.special.erf(x)


@register("Relu", ignored=OLD)
def relu(x: Value) -> Value:
    """Returns max(x, 0) (ONNX Relu-14); its derivative at 0 is 0, as PyTorch's."""
    return jax.nn.relu(x)


@register("LeakyRelu", ignored=OLD)
def leaky_relu(x: Value, *, alpha: float = 0.01) -> Value:
    """Returns x, times ``alpha`` where negative (ONNX LeakyRelu-16)."""
    return jnp.where(x < 0, alpha * x, x)


@register("PRelu", weights=("slope",), since=7)
def prelu(x: Value, slope: Value) -> Value:
    """Returns x, times ``slope`` where negative (ONNX PRelu-16)."""
    return jnp.where(x < 0, slope * x, x)


@register("PRelu", weights=("slope",), since=1, ignored=OLD)
def prelu_channels(x: Value, slope: Value) -> Value:
    """Returns x, times its channel's ``slope`` where negative (ONNX PRelu-6)."""
    if slope.ndim == 1 and slope.size > 1 and x.ndim > 2:
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return prelu(x, slope)


@register("ThresholdedRelu")
def thresholded_relu(x: Value, *, alpha: float = 1.0) -> Value:
    """Returns x where above ``alpha``, else 0 (ONNX ThresholdedRelu-22)."""
    return jnp.where(x > alpha, x, 0)


@register("Elu", ignored=OLD)
def elu(x: Value, *, alpha: float = 1.0) -> Value:
    """Returns ``alpha`` (eˣ − 1) where negative, else x (ONNX Elu-22)."""
    return jax.nn.elu(x, alpha)


@register("Celu")
def celu(x: Value, *, alpha: float = 1.0) -> Value:
    """Returns ``alpha`` (exp(x / alpha) − 1) where negative, else x (ONNX Celu-12)."""
    return jax.nn.celu(x, alpha)


@register("Selu", ignored=OLD)
def selu(x: Value, *, alpha: float = 1.6732632, gamma: float = 1.050701) -> Value:
    """Returns ``gamma`` times x, or times ``alpha`` (eˣ − 1) where x ≤ 0 (ONNX Selu-22)."""
    return gamma * jax.nn.elu(x, alpha)


@register("Sigmoid", ignored=OLD)
def sigmoid(x: Value) -> Value:
    """Returns 1 / (1 + e⁻ˣ) (ONNX Sigmoid-13)."""
    return jax.nn.sigmoid(x)


@register("HardSigmoid", ignored=OLD)
def hard_sigmoid(x: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """Returns ``alpha`` x + ``beta``, cut to [0, 1] (ONNX HardSigmoid-22)."""
    return jnp.clip(alpha * x + beta, 0, 1)


@register("HardSwish")
def hard_swish(x: Value) -> Value:
    """Returns x times the hard sigmoid with α = 1/6 (ONNX HardSwish-22)."""
    return x * jnp.clip(x / 6 + 0.5, 0, 1)


@register("Swish")
def swish(x: Value, *, alpha: float = 1.0) -> Value:
    """Returns x σ(``alpha`` x) (ONNX Swish-24)."""
    return x * jax.nn.sigmoid(alpha * x)


@register("Mish")
def mish(x: Value) -> Value:
    """Returns x tanh(softplus(x)) (ONNX Mish-22)."""
    return x * jnp.tanh(jax.nn.softplus(x))


@register("Gelu")
def gelu(x: Value, *, approximate: Literal["none", "tanh"] = "none") -> Value:
    """Returns x Φ(x), Φ the normal distribution's, or by its tanh approximation (Gelu-20)."""
    return jax.nn.gelu(x, approximate=approximate == "tanh")


@register("Softplus")
def softplus(x: Value) -> Value:
    """Returns log(1 + eˣ) (ONNX Softplus-22)."""
    return jax.nn.softplus(x)


@register("Softsign")
def softsign(x: Value) -> Value:
    """Returns x / (1 + \\|x\\|) (ONNX Softsign-22)."""
    return jax.nn.soft_sign(x)


@register("Shrink")
def shrink(x: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    """Returns x, ``bias`` nearer to 0, where \\|x\\| > ``lambd``, else 0 (ONNX Shrink-9)."""
    inner = jnp.where(x > lambd, x - bias, jnp.zeros_like(x))
    return jnp.where(x < -lambd, x + bias, inner).astype(x.dtype)


@register("Softmax", since=13)
def softmax(x: Value, *, axis: int = -1) -> Value:
    """Returns exponentials that sum to 1 along ``axis`` (ONNX Softmax-13)."""
    return jax.nn.softmax(x, axis=axis)


@register("LogSoftmax", since=13)
def log_softmax(x: Value, *, axis: int = -1) -> Value:
    """Returns the logarithm of :func:`softmax` (ONNX LogSoftmax-13)."""
    return jax.nn.log_softmax(x, axis=axis)


@register("Hardmax", since=13)
def hardmax(x: Value, *, axis: int = -1) -> Value:
    """Returns 1 at the first maximum along ``axis``, else 0 (ONNX Hardmax-13)."""
    return jax.nn.one_hot(
        first_place(jax.lax.argmax, x, axis), x.shape[axis], axis=axis, dtype=x.dtype
    )


def _flattened(function, x: Value, axis: int) -> Value:
    """Applies a function of rows to the matrix whose columns are all axes from ``axis`` on."""
    axis = axis_of(axis, x.ndim)
    rows = int(np.prod(x.shape[:axis]))
    return function(x.reshape(rows, -1)).reshape(x.shape)


@register("Softmax", since=1)
def softmax_from(x: Value, *, axis: int = 1) -> Value:
    """Returns exponentials that sum to 1 over all axes from ``axis`` on (ONNX Softmax-11)."""
    return _flattened(softmax, x, axis)


@register("LogSoftmax", since=1)
def log_softmax_from(x: Value, *, axis: int = 1) -> Value:
    """Returns the logarithm of :func:`softmax_from` (ONNX LogSoftmax-11)."""
    return _flattened(log_softmax, x, axis)


@register("Hardmax", since=1)
def hardmax_from(x: Value, *, axis: int = 1) -> Value:
    """Returns 1 at the first maximum over all axes from ``axis`` on, else 0 (ONNX Hardmax-11)."""
    return _flattened(hardmax, x, axis)
