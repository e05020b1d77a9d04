"""Maps ONNX's element types to NumPy's."""

from typing import Any

import ml_dtypes
import numpy as np

NAMES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "str",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}
"""Name of each ONNX type number (``TensorProto.DataType``)."""

BITS = {"uint4": 4, "int4": 4, "float4_e2m1fn": 4, "uint2": 2, "int2": 2}
"""Number of bits of each type smaller than a byte."""

TRAINABLE = ("float32", "float64", "float16", "bfloat16")
"""Types of trainable weights."""


def dtype_of(name: str | int) -> np.dtype:
    """Returns the NumPy type of a name or an ONNX type number; ``object`` for strings.

    Raises:
      ValueError: there is no such type.

    >>> dtype_of("bfloat16").itemsize
    2
    """
    known = NAMES.get(name) if isinstance(name, int) else name
    if known is None or known not in NAMES.values():
        raise ValueError(f"type: got {name!r}, wanted one of {', '.join(NAMES.values())}")
    if known == "str":
        return np.dtype(object)
    return np.dtype(getattr(ml_dtypes, known, None) or known)


def name_of(dtype: np.dtype) -> str:
    """Returns the name of a type.

    >>> name_of(np.dtype("float32"))
    'float32'
    """
    return "str" if is_text(dtype) else dtype.name


def extremes(dtype: np.dtype) -> tuple[Any, Any]:
    """Returns the least and the greatest value of a type; of floats, infinite ones.

    >>> extremes(np.dtype("int8"))
    (-128, 127)
    """
    if dtype.kind == "b":
        return False, True
    if dtype.kind not in "iu":
        return -np.inf, np.inf
    limits = np.iinfo(dtype)
    return limits.min, limits.max


def is_float(dtype: np.dtype) -> bool:
    """Returns whether a type is a real floating-point type of NumPy or ml_dtypes."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype.name.startswith(("float", "bfloat")))


def widened(x: Any) -> Any:
    """Returns floats in at least float32, in which squares of 16 bits do not overflow."""
    return x.astype(np.promote_types(x.dtype, np.float32)) if is_float(x.dtype) else x


def is_text(dtype: np.dtype) -> bool:
    """Returns whether a type holds strings."""
    return dtype.kind in "OUST"
