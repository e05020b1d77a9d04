"""Rules for elementwise primitives."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxatr.onnx.writer.graph import Unsupported
from jaxatr.onnx.writer.translate import (
    Equation,
    Tensor,
    Translator,
    constant,
    number_like,
    rule,
)

_SAME = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "add": "Add",
    "add_any": "Add",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "log": "Log",
    "logistic": "Sigmoid",
    "neg": "Neg",
    "pow": "Pow",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "sub": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
}
_COMPARED = {
    "eq": "Equal",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "lt": "Less",
}
_LOGICAL = {"and": "And", "not": "Not", "or": "Or", "xor": "Xor"}


def _direct(op: str) -> Callable[[Translator, Equation], Tensor]:
    def translate(t: Translator, equation: Equation) -> Tensor:
        return t.pointwise(op, *equation.inputs, dtype=equation.out_avals[0].dtype)

    return translate


for _primitive, _op in _SAME.items():
    rule(_primitive)(_direct(_op))


@rule("mul")
def _mul(t: Translator, equation: Equation) -> Tensor:
    dtype = equation.out_avals[0].dtype  # may differ from the operands'
    return t.pointwise("Mul", *(t.cast(value, dtype) for value in equation.inputs))


@rule(*_COMPARED)
def _compared(t: Translator, equation: Equation) -> Tensor:
    op, values = _COMPARED[equation.primitive], equation.inputs
    if values[0].dtype == np.bool_ and op != "Equal":  # ONNX does not order booleans
        values = [t.cast(value, np.int32) for value in values]
    return t.pointwise(op, *values, dtype=np.bool_)


@rule("min")
def _min(t: Translator, equation: Equation) -> Tensor:
    x, y = equation.inputs
    return t.pointwise("And" if x.dtype == np.bool_ else "Min", x, y)


@rule("max")
def _max(t: Translator, equation: Equation) -> Tensor:
    x, y = equation.inputs
    if x.dtype == np.bool_:
        return t.pointwise("Or", x, y)
    for value, other in ((x, y), (y, x)):
        if other.array is not None and other.shape == () and not other.array:
            # onnxruntime fails at a Clip of float64 numbers after a Relu.
            if value.dtype in (np.float16, np.float32):
                return t.pointwise("Relu", value)
    return t.pointwise("Max", x, y)


@rule(*_LOGICAL)
def _logical(t: Translator, equation: Equation) -> Tensor:
    op = _LOGICAL[equation.primitive]
    boolean = equation.inputs[0].dtype == np.bool_
    return t.pointwise(op if boolean else f"Bitwise{op}", *equation.inputs)


@rule("ne")
def _ne(t: Translator, equation: Equation) -> Tensor:
    return t.pointwise("Not", t.pointwise("Equal", *equation.inputs, dtype=np.bool_))


@rule("div")
def _div(t: Translator, equation: Equation) -> Tensor:
    x, y = equation.inputs
    if not _may_be(y, 0, -1):
        return t.pointwise("Div", x, y)
    # Runtimes end with an error at 0, and with the process at the least integer by -1.
    zero, safe = _replaced(t, y, 0)
    if np.issubdtype(y.dtype, np.signedinteger):
        opposite, safe = _replaced(t, safe, -1)
        ratio = t.pointwise("Div", x, safe)
        ratio = t.pointwise("Where", opposite, t.pointwise("Neg", x), ratio, dtype=x.dtype)
    else:
        ratio = t.pointwise("Div", x, safe)
    none = constant(np.array(-1).astype(x.dtype))  # XLA's: all bits are set
    return t.pointwise("Where", zero, none, ratio, dtype=x.dtype)


@rule("rem")
def _rem(t: Translator, equation: Equation) -> Tensor:
    x, y = equation.inputs
    if not _may_be(y, 0):
        return t.pointwise("Mod", x, y, fmod=1)  # has the sign of the dividend
    zero, safe = _replaced(t, y, 0)
    rest = t.pointwise("Mod", x, safe, fmod=1)
    return t.pointwise("Where", zero, x, rest, dtype=x.dtype)


def _replaced(t: Translator, value: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Returns where a value is a number, and the value with 1 in these places."""
    there = t.pointwise("Equal", value, number_like(value, number), dtype=np.bool_)
    return there, t.pointwise("Where", there, number_like(value, 1), value, dtype=value.dtype)


def _may_be(value: Tensor, *numbers: int) -> bool:
    """Returns whether integers may be among some numbers, as far as that is known."""
    if not np.issubdtype(value.dtype, np.integer):
        return False
    return value.array is None or bool(np.isin(value.array, numbers).any())


@rule("rsqrt")
def _rsqrt(t: Translator, equation: Equation) -> Tensor:
    return t.pointwise("Reciprocal", t.pointwise("Sqrt", *equation.inputs))


@rule("square")
def _square(t: Translator, equation: Equation) -> Tensor:
    (x,) = equation.inputs
    return t.pointwise("Mul", x, x)


@rule("one_minus_square")
def _one_minus_square(t: Translator, equation: Equation) -> Tensor:
    (x,) = equation.inputs
    return t.pointwise("Sub", number_like(x, 1), t.pointwise("Mul", x, x))


@rule("integer_pow")
def _integer_pow(t: Translator, equation: Equation) -> Tensor:
    (x,), power = equation.inputs, equation.params["y"]
    result, rest = None, abs(power)
    while rest:  # by squaring: ONNX's Pow of integers saturates
        if rest % 2:
            result = x if result is None else t.pointwise("Mul", result, x)
        rest //= 2
        x = t.pointwise("Mul", x, x) if rest else x
    if result is None:
        return number_like(x, 1)
    return t.pointwise("Reciprocal", result) if power < 0 else result


@rule("exp2")
def _exp2(t: Translator, equation: Equation) -> Tensor:
    (x,) = equation.inputs
    return t.pointwise("Pow", number_like(x, 2), x)


@rule("expm1")
def _expm1(t: Translator, equation: Equation) -> Tensor:
    # tanh(x/2) (exp(x) + 1), since exp(x) - 1 loses all digits for small x.
    (x,) = equation.inputs
    half = t.pointwise("Tanh", t.pointwise("Mul", x, number_like(x, 0.5)))
    return t.pointwise("Mul", half, t.pointwise("Add", t.pointwise("Exp", x), number_like(x, 1)))


@rule("log1p")
def _log1p(t: Translator, equation: Equation) -> Tensor:
    # log(u) x / (u - 1) with u = 1 + x, where the rounding errors cancel; x itself if u is 1.
    (x,) = equation.inputs
    one = number_like(x, 1)
    u = t.pointwise("Add", one, x)
    ratio = t.pointwise("Div", x, t.pointwise("Sub", u, one))
    product = t.pointwise("Mul", t.pointwise("Log", u), ratio)
    infinite = t.pointwise("Equal", u, number_like(x, np.inf), dtype=np.bool_)
    same = t.pointwise("Or", t.pointwise("Equal", u, one, dtype=np.bool_), infinite)
    return t.pointwise("Where", same, x, product, dtype=x.dtype)


@rule("erfc")
def _erfc(t: Translator, equation: Equation) -> Tensor:
    (x,) = equation.inputs
    if x.dtype == np.float64:
        raise Unsupported("of float64")
    return t.pointwise("Erfc", x)  # replaced in the module ``tails``


@rule("cbrt")
def _cbrt(t: Translator, equation: Equation) -> Tensor:
    (x,) = equation.inputs
    root = t.pointwise("Pow", t.pointwise("Abs", x), number_like(x, 1 / 3))
    return t.pointwise("Mul", t.pointwise("Sign", x), root)


@rule("is_finite")
def _is_finite(t: Translator, equation: Equation) -> Tensor:
    (x,) = equation.inputs
    odd = [t.pointwise(op, x, dtype=np.bool_) for op in ("IsInf", "IsNaN")]
    return t.pointwise("Not", t.pointwise("Or", *odd))


@rule("round")
def _round(t: Translator, equation: Equation) -> Tensor:
    (x,) = equation.inputs
    even = t.pointwise("Round", x)
    if equation.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN:
        return even
    # One more where x is midway and was rounded towards zero; all differences here are exact.
    sign = t.pointwise("Sign", x)
    missing = t.pointwise("Mul", t.pointwise("Sub", x, even), sign)
    midway = t.pointwise("Equal", missing, number_like(x, 0.5), dtype=np.bool_)
    away = t.pointwise("Add", even, sign)
    return t.pointwise("Where", midway, away, even, dtype=x.dtype)


@rule("clamp")
def _clamp(t: Translator, equation: Equation) -> Tensor:
    least, x, most = equation.inputs
    return t.pointwise("Min", t.pointwise("Max", x, least), most)


@rule("select_n")
def _select_n(t: Translator, equation: Equation) -> Tensor:
    which, *cases = equation.inputs
    chosen = cases[-1]
    for index in reversed(range(len(cases) - 1)):
        if which.dtype == np.bool_:
            return t.pointwise("Where", which, chosen, cases[index], dtype=chosen.dtype)
        here = t.pointwise("Equal", which, number_like(which, index), dtype=np.bool_)
        chosen = t.pointwise("Where", here, cases[index], chosen, dtype=chosen.dtype)
    return chosen


@rule("convert_element_type")
def _convert(t: Translator, equation: Equation) -> Tensor:
    value, dtype = equation.inputs[0], equation.out_avals[0].dtype
    if not (jnp.issubdtype(value.dtype, jnp.floating) and dtype.kind in "iu"):
        return t.cast(value, dtype)
    # jax takes the nearest integer that exists, and 0 for NaN; ONNX leaves both undefined.
    x = value if value.dtype == np.float64 else t.cast(value, np.float32)
    limits, zero = np.iinfo(dtype), number_like(x, 0)
    most = x.dtype.type(limits.max)
    if float(most) > limits.max:  # as Python compares them, exactly
        most = np.nextafter(most, x.dtype.type(0))
    number = t.pointwise("IsNaN", x, dtype=np.bool_)
    number = t.pointwise("Where", number, zero, x, dtype=x.dtype)
    inside = t.pointwise("Clip", number, number_like(x, limits.min), number_like(x, float(most)))
    result = t.cast(inside, dtype)
    if float(most) == limits.max:
        return result
    above = t.pointwise("Greater", number, number_like(x, float(most)), dtype=np.bool_)
    return t.pointwise("Where", above, number_like(result, limits.max), result, dtype=dtype)


@rule("reduce_precision")
def _reduce_precision(t: Translator, equation: Equation) -> Tensor:
    (x,) = equation.inputs
    bits = equation.params["exponent_bits"], equation.params["mantissa_bits"]
    through = {(8, 23): np.float32, (5, 10): np.float16, (8, 7): jnp.bfloat16}.get(bits)
    if through is None:
        raise Unsupported(f"to {bits[0]} bits of exponent and {bits[1]} of mantissa")
    rounded = t.cast(t.cast(x, through), x.dtype)
    if through != np.float16 or x.dtype == np.float16:
        return rounded
    # jax has no subnormal numbers of fewer bits; what is rounded to the least normal one stays.
    small = number_like(x, 2**-14 * (1 - 2**-12))
    below = t.pointwise("Less", t.pointwise("Abs", x), small, dtype=np.bool_)
    zero = t.pointwise("Mul", x, number_like(x, 0))
    return t.pointwise("Where", below, zero, rounded, dtype=x.dtype)


@rule("copy", "copy_p", "optimization_barrier", "pvary", "stop_gradient")
def _same(t: Translator, equation: Equation) -> list[Tensor]:
    del t
    return equation.inputs
