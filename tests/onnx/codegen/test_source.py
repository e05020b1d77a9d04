import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx")

from jaxatr.onnx.codegen.source import (  # noqa: E402
    Group,
    call,
    filled,
    flat,
    lines,
    literal,
)
from jaxatr.onnx.nn import array  # noqa: E402

NAMES = "float16 float32 float64 int8 int64 uint64 bool complex64".split()


def value_of(text):
    return eval(text, {"array": array})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,), (1, 0, 2), (1, 1, 1)])
def test_an_array_is_stated_exactly(name, shape):
    rng = np.random.default_rng(0)
    value = (rng.normal(size=shape) * 100).astype("int8").astype(name)
    if np.dtype(name).kind in "fc":
        value = rng.normal(size=shape).astype(name)
    found = value_of(flat(literal(value)))
    np.testing.assert_array_equal(found, value)
    assert found.dtype == value.dtype and np.shape(found) == shape


@pytest.mark.parametrize("name", ["bfloat16", "int4", "float8_e4m3fn", "float4_e2m1fn"])
def test_an_array_of_another_type_is_stated_exactly(name):
    value = np.array([0, 1, -1.5, 3]).astype(getattr(ml_dtypes, name))
    found = value_of(flat(literal(value)))
    assert found.dtype == value.dtype and np.array_equal(found, value)


def test_strings_and_values_that_are_not_finite():
    words = np.array(["a'b", 'say "no"'], object)
    assert value_of(flat(literal(words))).tolist() == words.tolist()
    odd = np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)
    found = value_of(flat(literal(odd)))
    np.testing.assert_array_equal(found, odd)
    assert np.signbit(found[3])


def test_a_long_array_fills_its_lines():
    value = np.arange(200, dtype=np.int64).reshape(2, 100)
    text = filled("LONG", value)
    scope = {"array": array}
    exec("\n".join(text), scope)
    assert np.array_equal(scope["LONG"], value)
    assert len(text) < 16 and max(map(len, text)) <= 100


def test_a_value_that_has_no_source():
    with pytest.raises(ValueError, match="got dict, which has no literal"):
        literal({})


def test_lines_break_where_a_formatter_breaks_them():
    short = call("f", "a" * 40, "b" * 40)
    assert lines("x = ", short, 0) == [f"x = f({'a' * 40}, {'b' * 40})"]
    longer = call("f", "a" * 46, "b" * 46)
    assert lines("x = ", longer, 0) == ["x = f(", f"    {'a' * 46}, {'b' * 46}", ")"]
    longest = call("f", "a" * 60, "b" * 60)
    assert lines("x = ", longest, 0) == ["x = f(", f"    {'a' * 60},", f"    {'b' * 60},", ")"]
    pair = Group("", ("a" * 50, "b" * 50))
    assert lines("return ", pair, 0) == ["return (", f"    {'a' * 50},", f"    {'b' * 50},", ")"]


def test_of_a_layer_and_its_operands_the_layer_breaks_first():
    layer = call("Conv", "a" * 50, "b" * 50)
    made = lines("x = ", Group(layer, ("x",)), 0)
    assert made == ["x = Conv(", f"    {'a' * 50},", f"    {'b' * 50},", ")(x)"] or len(made) == 3
    assert made[-1] == ")(x)"
