"""Arithmetic operators: elementwise (with NumPy broadcasting), cumulative, matrix products."""

from collections.abc import Callable
from functools import reduce
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.dtypes import is_float
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, axis_of, is_known, known_int, library


def broadcasting(*values: Value) -> Any:
    """Returns the library (NumPy or jax.numpy) for an operation that broadcasts the values."""
    if not is_known(*values):  # their shapes may be symbolic
        return library(*values)
    return library(*values, shape=np.broadcast_shapes(*(np.shape(value) for value in values)))


def aligned(a: Value, b: Value, broadcast: int, axis: int | None) -> Value:
    """Appends to ``b`` the trailing axes of size 1 that are implicit before opset 7."""
    if not broadcast or axis is None or b.ndim == 0:
        return b
    axis = axis + a.ndim if axis < 0 else axis
    return b.reshape(b.shape + (1,) * (a.ndim - axis - b.ndim))


def register_along(operator: str, function: Callable[..., Value], **facts: Any) -> None:
    """Registers an operator's version before opset 7, which aligns ``b`` with an axis of ``a``."""

    def along(a: Value, b: Value, *, broadcast: int = 0, axis: int | None = None) -> Value:
        return function(a, aligned(a, b, broadcast, axis))

    along.__name__ = along.__qualname__ = f"{function.__name__}_along"
    along.__doc__ = f"Applies :func:`{function.__name__}` with ``b`` aligned to ``axis`` of ``a``."
    register(operator, since=1, folds=True, **facts)(along)


@register("Add", since=7, folds=True, layout="any")
def add(a: Value, b: Value) -> Value:
    """Returns the sum (ONNX Add-14)."""
    return broadcasting(a, b).add(a, b)


@register("Sub", since=7, folds=True, layout="any")
def sub(a: Value, b: Value) -> Value:
    """Returns the difference (ONNX Sub-14)."""
    return broadcasting(a, b).subtract(a, b)


@register("Mul", since=7, folds=True, layout="any")
def mul(a: Value, b: Value) -> Value:
    """Returns the product (ONNX Mul-14)."""
    return broadcasting(a, b).multiply(a, b)


@register("Div", since=7, folds=True, layout="any")
def div(a: Value, b: Value) -> Value:
    """Returns the quotient; integers are rounded towards zero (ONNX Div-14)."""
    lib = broadcasting(a, b)
    if a.dtype.kind not in "iu":
        if lib is jnp and is_known(b) and _misses_whole_quotients(b):
            shape = jnp.broadcast_shapes(np.shape(a), np.shape(b))
            b = jax.lax.optimization_barrier(jnp.broadcast_to(b, shape))
        return lib.divide(a, b)
    floor = lib.floor_divide(a, b)
    if a.dtype.kind == "u":
        return floor
    inexact = (floor * b != a) & ((a < 0) != (b < 0))
    return floor + inexact.astype(floor.dtype)


def _misses_whole_quotients(divisor: Value) -> bool:
    """Whether multiples of a whole divisor are no longer whole after a division by XLA.

    XLA multiplies by the reciprocal of a broadcast divisor, and 41 times the rounded 1/41 is less
    than 1, so that a following Floor or Cast would give 0. Most numbers, such as 255, do not need
    the array in full, which prevents it.
    """
    whole = np.asarray(divisor)
    whole = whole[(whole == np.rint(whole)) & (whole != 0) & (np.abs(whole) < np.inf)]
    return bool(np.any(whole * (whole.dtype.type(1) / whole) != 1))


@register("Pow", since=7, settings=("y",), folds=True)
def power(x: Value, y: Value) -> Value:
    """Returns ``x`` to the power ``y``, in the type of ``x`` (ONNX Pow-15)."""
    lib = broadcasting(x, y)
    if x.dtype.kind in "iu" and is_float(y.dtype):
        # jax.numpy would compute in float32, which is not exact beyond 2²⁴.
        exact = jax.dtypes.canonicalize_dtype(np.float64) if lib is jnp else np.float64
        return lib.power(x.astype(exact), y).astype(x.dtype)
    return lib.power(x, y).astype(x.dtype)


for _operator, _function in {"Add": add, "Sub": sub, "Mul": mul, "Div": div}.items():
    register_along(_operator, _function, ignored=("consumed_inputs",))
register_along("Pow", power, settings=("b",))


@register("Mod", settings=("b",), folds=True)
def mod(a: Value, b: Value, *, fmod: int = 0) -> Value:
    """Returns the remainder with the sign of ``b``, or of ``a`` with ``fmod`` (ONNX Mod-13)."""
    lib = broadcasting(a, b)
    return lib.fmod(a, b) if fmod else lib.mod(a, b)


@register("Neg", folds=True, ignored=("consumed_inputs",), layout="any")
def neg(x: Value) -> Value:
    """Returns −x (ONNX Neg-13)."""
    return library(x).negative(x)


@register("Abs", folds=True, ignored=("consumed_inputs",), layout="any")
def absolute(x: Value) -> Value:
    """Returns \\|x\\| (ONNX Abs-13)."""
    return library(x).abs(x)


@register("Sign", folds=True)
def sign(x: Value) -> Value:
    """Returns −1, 0 or 1 (ONNX Sign-13)."""
    return library(x).sign(x)


@register("Reciprocal", folds=True, ignored=("consumed_inputs",))
def reciprocal(x: Value) -> Value:
    """Returns 1 / x (ONNX Reciprocal-13)."""
    return (1 / x).astype(x.dtype)


@register("Sqrt", folds=True, ignored=("consumed_inputs",))
def sqrt(x: Value) -> Value:
    """Returns the square root (ONNX Sqrt-13)."""
    return library(x).sqrt(x)


@register("Floor", folds=True, ignored=("consumed_inputs",))
def floor(x: Value) -> Value:
    """Returns the largest integer not above x (ONNX Floor-13)."""
    return library(x).floor(x)


@register("Ceil", folds=True, ignored=("consumed_inputs",))
def ceil(x: Value) -> Value:
    """Returns the smallest integer not below x (ONNX Ceil-13)."""
    return library(x).ceil(x)


@register("Round", folds=True)
def round_even(x: Value) -> Value:
    """Returns the nearest integer, with halves rounded to even (ONNX Round-22)."""
    return library(x).round(x)


@register("Sum", ignored=("consumed_inputs",), layout="any")
def total(*values: Value) -> Value:
    """Returns the sum of all operands (ONNX Sum-13)."""
    return reduce(add, values)


@register("Mean", ignored=("consumed_inputs",))
def mean(*values: Value) -> Value:
    """Returns the mean of all operands (ONNX Mean-13)."""
    return total(*values) / len(values)


@register("Max", folds=True, ignored=("consumed_inputs",), layout="any")
def maximum(*values: Value) -> Value:
    """Returns the elementwise maximum, or NaN if an operand is NaN (ONNX Max-13)."""
    return reduce(lambda a, b: broadcasting(a, b).maximum(a, b), values)


@register("Min", folds=True, ignored=("consumed_inputs",), layout="any")
def minimum(*values: Value) -> Value:
    """Returns the elementwise minimum, or NaN if an operand is NaN (ONNX Min-13)."""
    return reduce(lambda a, b: broadcasting(a, b).minimum(a, b), values)


@register("Clip", settings=("min", "max"), folds=True, ignored=("consumed_inputs",), layout="any")
def clip(x: Value, min: Value | float | None = None, max: Value | float | None = None) -> Value:
    """Clips x to [``min``, ``max``] (ONNX Clip-13, and Clip-6 with attributes).

    The derivative at a bound is 1, as in PyTorch's ``clamp``.
    """
    lib = library(x, min, max)
    least, most = (np.maximum, np.minimum) if lib is np else (_at_least, _at_most)
    for bound, limit in ((min, least), (max, most)):
        if bound is not None:
            x = limit(x, lib.asarray(bound, x.dtype))
    return x


def _limit(
    limited: Callable[..., jax.Array], beyond: Callable[..., jax.Array]
) -> Callable[[Value, Value], jax.Array]:
    """Makes a maximum or minimum whose derivative at a tie is that of the number, not of the bound.

    oneDNN can compute it, but not a selection, as part of the call of a preceding convolution.
    """

    @jax.custom_jvp
    def limit(x: Value, bound: Value) -> jax.Array:
        return limited(x, bound)

    @limit.defjvp
    def derivative(primals: Any, tangents: Any) -> Any:
        return limit(*primals), jnp.where(beyond(*primals), *tangents[::-1])

    return limit


_at_least, _at_most = _limit(jnp.maximum, jnp.less), _limit(jnp.minimum, jnp.greater)


@register("BitShift")
def bit_shift(x: Value, y: Value, *, direction: Literal["LEFT", "RIGHT"]) -> Value:
    """Shifts the bits of ``x`` by ``y`` (ONNX BitShift-28).

    Raises:
      ValueError: ``direction`` is neither LEFT nor RIGHT.
    """
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"direction: got {direction!r}, wanted 'LEFT' or 'RIGHT'")
    return jnp.left_shift(x, y) if direction == "LEFT" else jnp.right_shift(x, y)


@register("BitwiseAnd")
def bitwise_and(a: Value, b: Value) -> Value:
    """Returns the bitwise and (ONNX BitwiseAnd-18)."""
    return jnp.bitwise_and(a, b)


@register("BitwiseOr")
def bitwise_or(a: Value, b: Value) -> Value:
    """Returns the bitwise or (ONNX BitwiseOr-18)."""
    return jnp.bitwise_or(a, b)


@register("BitwiseXor")
def bitwise_xor(a: Value, b: Value) -> Value:
    """Returns the bitwise exclusive or (ONNX BitwiseXor-18)."""
    return jnp.bitwise_xor(a, b)


@register("BitwiseNot")
def bitwise_not(x: Value) -> Value:
    """Returns the bitwise complement (ONNX BitwiseNot-18)."""
    return jnp.bitwise_not(x)


@register("CumSum", static=("axis",))
def cumsum(x: Value, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Value:
    """Returns the cumulative sum along an axis (ONNX CumSum-14)."""
    return _cumulative(jnp.cumsum, 0, x, axis, exclusive, reverse)


@register("CumProd", static=("axis",))
def cumprod(x: Value, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Value:
    """Returns the cumulative product along an axis (ONNX CumProd-26)."""
    return _cumulative(jnp.cumprod, 1, x, axis, exclusive, reverse)


def _cumulative(function, initial: int, x: Value, axis, exclusive: int, reverse: int) -> Value:
    axis = axis_of(known_int("axis", axis), x.ndim)
    x = jnp.flip(x, axis) if reverse else jnp.asarray(x)
    result = function(x, axis=axis, dtype=x.dtype)
    if exclusive and x.shape[axis]:
        kept = jax.lax.slice_in_dim(result, 0, x.shape[axis] - 1, axis=axis)
        widths = [(int(i == axis), 0) for i in range(x.ndim)]
        result = jnp.pad(kept, widths, constant_values=initial)
    return jnp.flip(result, axis) if reverse else result


@register("MatMul", weights=("b",))
def matmul(a: Value, b: Value) -> Value:
    """Returns the matrix product, batched over leading axes (ONNX MatMul-13)."""
    return jnp.matmul(a, b)


@register("Gemm", weights=("b", "c"), ignored=("broadcast",))
def gemm(
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    """Returns ``alpha · a b + beta · c``, with ``a`` and ``b`` optionally transposed (Gemm-13)."""
    product = jnp.matmul(a.T if transA else a, b.T if transB else b)
    product = product if alpha == 1 else (alpha * product).astype(product.dtype)
    if c is None or beta == 0:
        return product
    return product + (c if beta == 1 else (beta * c).astype(c.dtype))


@register("Einsum")
def einsum(*values: Value, equation: str) -> Value:
    """Returns the sum of products in Einstein notation (ONNX Einsum-12)."""
    return jnp.einsum(equation, *values)


@register("Det")
def det(x: Value) -> Value:
    """Returns the determinant of each matrix (ONNX Det-22)."""
    return jnp.linalg.det(x)
