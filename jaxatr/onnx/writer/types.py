"""The types that operators take, of those that onnxruntime computes on a CPU.

ONNX's definitions of the operators allow more types than onnxruntime has kernels for, and jax more
than ONNX. Numbers of other types are converted to a wider type, and the results back, which wraps
integers as jax does and rounds bfloat16 once for each operator.
"""

import jax.numpy as jnp
import numpy as np


class Unsupported(Exception):
    """An operation has no equivalent in ONNX; the message gives the reason."""


_BOOL, _BFLOAT16 = np.dtype(np.bool_), np.dtype(jnp.bfloat16)
_FLOATS = frozenset(map(np.dtype, ("float16", "float32", "float64")))
_NUMBERS = _FLOATS | set(map(np.dtype, ("int32", "int64")))
_UNSIGNED = frozenset(map(np.dtype, ("uint32", "uint64")))
_BYTES = frozenset(map(np.dtype, ("int8", "uint8")))
_SHORT = frozenset(map(np.dtype, ("int16", "uint16")))

_TAKEN = {
    "Equal": _NUMBERS | _UNSIGNED | _BYTES | _SHORT | {_BOOL},
    "Erfc": _FLOATS | {_BFLOAT16},  # not in ONNX: replaced in the module ``tails``
    "IsInf": _FLOATS - {np.dtype(np.float16)},
    "Pad": _NUMBERS | _UNSIGNED | _BYTES | {_BOOL},
    "ReduceSum": _NUMBERS - {np.dtype(np.int32)},  # it saturates, where int64 wraps back
    "ScatterND": (_NUMBERS - {np.dtype(np.float16)}) | _UNSIGNED | _BYTES | _SHORT | {_BOOL},
    "Sign": _NUMBERS - {np.dtype(np.float16)},  # its sign of a float16 NaN is 0
    "Where": _NUMBERS | {np.dtype(np.uint8)},
}
for _types, _operators in (
    (_NUMBERS | _UNSIGNED | _BYTES | _SHORT | {_BOOL}, "Expand Tile"),
    (
        _NUMBERS | _UNSIGNED,
        "Abs Add Clip Div Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Sub",
    ),
    (
        _NUMBERS,
        "ArgMax ArgMin CumSum Einsum MatMul Neg Pow ReduceMax ReduceMean ReduceMin ReduceProd TopK",
    ),
    (
        _FLOATS,
        "Ceil Cos Exp Floor IsNaN Log MaxPool Reciprocal ReduceL1 Relu Round Sigmoid Sin Sqrt Tanh",
    ),
    (
        _FLOATS - {np.dtype("float64")},
        "Acos Acosh Asin Asinh Atan Atanh AveragePool Conv ConvTranspose Cosh Erf Sinh Tan",
    ),
):
    _TAKEN |= dict.fromkeys(_operators.split(), _types)

_WIDER = {
    **dict.fromkeys((_BOOL, *_BYTES, *_SHORT), ("int32", "int64")),
    **dict.fromkeys(map(np.dtype, ("int32", "uint32")), ("int64",)),
    **dict.fromkeys((np.dtype(np.float16), _BFLOAT16), ("float32",)),
}


def computed_in(op: str, dtype: np.dtype) -> np.dtype:
    """Returns the type in which an operator computes numbers of a type.

    Raises:
      Unsupported: the operator takes neither the type nor a wider one.

    >>> computed_in("Add", np.dtype("int8"))
    dtype('int32')
    """
    taken = _TAKEN.get(op)
    if taken is None or dtype in taken:
        return dtype
    for wider in map(np.dtype, _WIDER.get(dtype, ())):
        if wider in taken:
            return wider
    raise Unsupported(f"needs ONNX's {op} of {dtype}, which runtimes do not have")
