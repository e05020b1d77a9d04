import ast
import keyword

import pytest

pytest.importorskip("onnx")

from jaxatr.onnx.codegen.names import LONGEST, Names, identifier, quoted  # noqa: E402

ODD = ["", "'", '"', "\\", "\\'", "\\\\'\"", "a\nb", '"""', "'\"\\x22", "\u202e", "\udc80", "变量"]


@pytest.mark.parametrize("text", ODD)
def test_a_quoted_string_is_the_string(text):
    assert ast.literal_eval(quoted(text)) == text
    assert quoted(text).startswith('"')
    assert "\n" not in quoted(text)


@pytest.mark.parametrize(
    "name", [*ODD, *keyword.kwlist, "__class__", "9" * 99, "x" * 999, "ﬁ", "ª"]
)
def test_a_taken_name_is_an_identifier(name):
    made = Names().take(identifier(name))
    assert made.isidentifier() and made.isascii()
    assert not keyword.iskeyword(made) and not made.startswith("_")
    assert len(made) <= LONGEST + 10


def test_no_name_is_taken_twice():
    names = Names(["a"])
    assert [names.take("a"), names.take("a"), names.take("b")] == ["a_2", "a_3", "b"]


@pytest.mark.parametrize("name", ["ops", "np", "Conv", "self", "print", "apply", "class", "match"])
def test_names_with_a_meaning_are_left_alone(name):
    assert Names().take(name) == f"{name}_2"
