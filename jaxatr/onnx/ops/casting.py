"""Operators that convert element types."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxatr.onnx.ops.dtypes import BITS, dtype_of, is_float, is_text, name_of
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, known, library

FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")


@register("Cast", dtypes=("to",), folds=True)
def cast(x: Value, *, to: str, saturate: int = 1, round_mode: str = "up") -> Value:
    """Converts values to another type (ONNX Cast-25).

    Floats are truncated towards zero to integers. Strings are parsed as numbers, and numbers are
    formatted as strings.

    Args:
      x: array of any shape.
      to: name of the type.
      saturate: whether values out of range of a float8 type are clipped to it; otherwise they
        become infinity or NaN.
      round_mode: up, down or nearest; only for float8_e8m0.
    """
    dtype = dtype_of(to)
    if is_text(x.dtype) or is_text(dtype):
        return _cast_text(known("x", x), dtype)
    x = library(x).asarray(x)
    if to == "float8_e8m0fnu":
        return _to_exponent(x, round_mode, bool(saturate))
    if to in FLOAT8 and is_float(x.dtype):
        return _to_float8(x, dtype, bool(saturate))
    if to == "bool":
        return x != library(x).zeros((), x.dtype)
    if to in BITS and to != "float4_e2m1fn":
        return _wrapped(x, to)
    if library(x) is np:
        with np.errstate(all="ignore"):
            return x.astype(dtype)
    return x.astype(dtype)


def _wrapped(x: Value, to: str) -> Value:
    """Converts to an integer type smaller than a byte by keeping the low bits, like a C cast."""
    lib, bits = library(x), BITS[to]
    wide = (lib.trunc(x.astype("float32")) if is_float(x.dtype) else x).astype("int32")
    low = wide & (2**bits - 1)
    if not to.startswith("u"):
        low = lib.where(low >= 2 ** (bits - 1), low - 2**bits, low)
    return low.astype("int8").astype(dtype_of(to))


def _to_float8(x: Value, dtype: np.dtype, saturate: bool) -> Value:
    """Converts floats to a float8 type, clipped to its range if ``saturate``."""
    # Narrower floats go through float32. This is exact, so the result is rounded only once.
    wide = x if x.dtype == np.float64 else x.astype("float32")
    if saturate:
        highest = float(ml_dtypes.finfo(dtype).max)
        wide = library(x).clip(wide, -highest, highest)
    with np.errstate(all="ignore"):
        return wide.astype(dtype)


def _to_exponent(x: Value, round_mode: str, saturate: bool) -> Value:
    """Converts to float8_e8m0, which stores only the exponent bits of a float32.

    Numbers beyond its range become the largest one if ``saturate``, otherwise NaN.
    """
    lib = library(x)
    wide = x.astype("float32")
    bits = wide.view("uint32") if lib is np else jax.lax.bitcast_convert_type(wide, jnp.uint32)
    exponent = (bits >> 23) & 255
    rest = bits & 0x7FFFFF
    if round_mode == "up":
        exponent = exponent + (rest > 0)
    elif round_mode == "nearest":
        exponent = exponent + (rest >= 0x400000)
    elif round_mode != "down":
        raise ValueError(f"round_mode: got {round_mode!r}, wanted up, down or nearest")
    highest = lib.where(lib.isnan(wide), 255, 254 if saturate else 255)
    exponent = lib.minimum(exponent, highest).astype("uint8")
    if lib is np:
        return exponent.view(ml_dtypes.float8_e8m0fnu)
    return jax.lax.bitcast_convert_type(exponent, jnp.float8_e8m0fnu)


def _cast_text(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if is_text(dtype):
        if is_text(x.dtype):
            return x
        wide = x.astype("float32") if is_float(x.dtype) and x.dtype.itemsize < 4 else x
        text = [str(number) for number in wide.reshape(-1)]
        made = np.empty(x.size, object)
        made[:] = text
        return made.reshape(x.shape)
    kind = float if is_float(dtype) else int
    flat = [kind(v) for v in x.reshape(-1)]
    return np.array(flat, np.float64 if kind is float else None).astype(dtype).reshape(x.shape)


@register("CastLike", folds=True)
def cast_like(x: Value, target_type: Value, *, saturate: int = 1, round_mode: str = "up") -> Value:
    """Converts values to the type of the second operand (ONNX CastLike-25)."""
    return cast(x, to=name_of(target_type.dtype), saturate=saturate, round_mode=round_mode)


@register("BitCast", dtypes=("to",))
def bit_cast(x: Value, *, to: str) -> Value:
    """Reinterprets the bits as another type of the same width (ONNX BitCast-26)."""
    dtype = dtype_of(to)
    if x.dtype == bool:
        x = jnp.asarray(x).astype("uint8")
    if to == "bool":
        return jax.lax.bitcast_convert_type(jnp.asarray(x), jnp.uint8).astype(bool)
    return jax.lax.bitcast_convert_type(jnp.asarray(x), dtype)
