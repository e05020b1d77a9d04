"""Registering operators: new ones, versions, and replacements."""

import numpy as np
import pytest

from jaxatr import onnx as importer
from jaxatr.onnx.ops import registry

onnx = pytest.importorskip("onnx")
from jaxatr.onnx.reader.inspection import operator_table  # noqa: E402 (it needs the package)

node = onnx.helper.make_node


@pytest.fixture(autouse=True)
def restored():
    with registry.restored():
        yield


def test_a_users_operator_with_its_attributes(built):
    @importer.register("Scaled", domain="my.domain")
    def scaled(x, bias=None, *, factor=1.0):
        return factor * x + (0 if bias is None else bias)

    nodes = [
        node("Scaled", ["x"], ["a"], domain="my.domain", factor=3.0),
        node("Scaled", ["a", "x"], ["y"], domain="my.domain"),
    ]
    model = importer.load(built(nodes, {"x": [2]}, "y", domains=["my.domain"]))
    np.testing.assert_allclose(model.apply({}, np.float32([1, 2])), [4, 8])


def test_the_newest_version_that_is_not_too_new(built):
    for since in (1, 4, 9):
        importer.register("Age", since=since)(lambda x, since=since: x + since)
    for opset, expected in ((1, 1), (3, 1), (4, 4), (8, 4), (18, 9)):
        model = importer.load(built([node("Age", ["x"], ["y"])], {"x": [1]}, "y", opset=opset))
        assert float(model.apply({}, np.zeros(1, np.float32))[0]) == expected


def test_a_known_operator_is_replaced_and_put_back(built):
    proto = built([node("Relu", ["x"], ["y"])], {"x": [1]}, "y")
    x = np.float32([-2])
    with registry.restored():
        importer.register("Relu", since=14)(lambda x: 7 * x)
        assert float(importer.load(proto).apply({}, x)[0]) == -14
    assert float(importer.load(proto).apply({}, x)[0]) == 0


def test_all_unknown_operators_are_listed_at_once(built):
    nodes = [
        node("Nope", ["x"], ["a"], "first"),
        node("Nope", ["a"], ["b"], "second"),
        node("Never", ["b"], ["y"], domain="other"),
    ]
    with pytest.raises(ValueError) as caught:
        importer.load(built(nodes, {"x": [1]}, "y", domains=["other"]))
    assert str(caught.value).splitlines()[1:] == ["  Nope: first, second", "  other.Never: y"]


def test_an_unknown_attribute_and_too_many_inputs(built):
    with pytest.raises(
        ValueError, match=r"node 'n' \(Relu\): the operator has no attribute 'alpha'"
    ):
        importer.load(built([node("Relu", ["x"], ["y"], "n", alpha=1.0)], {"x": [1]}, "y"))
    with pytest.raises(ValueError, match=r"node 'n' \(Relu\): got 2 inputs, wanted at most 1"):
        importer.load(built([node("Relu", ["x", "x"], ["y"], "n")], {"x": [1]}, "y"))


def test_an_attribute_cannot_take_the_importers_own_keywords(built):
    proto = built([node("Dropout", ["x"], ["y"], "n", training=1)], {"x": [1]}, "y")
    with pytest.raises(ValueError, match="the operator has no attribute 'training'"):
        importer.load(proto)


def test_an_error_of_a_function_names_the_node(built):
    @importer.register("Fails", domain="my.domain")
    def fails(x):
        raise KeyError("inside")

    model = importer.load(
        built(
            [node("Fails", ["x"], ["y"], "n", domain="my.domain")],
            {"x": [1]},
            "y",
            domains=["my.domain"],
        )
    )
    with pytest.raises(ValueError, match=r"node 'n' \(Fails\): 'inside'"):
        model.apply({}, np.zeros(1, np.float32))


def test_every_function_is_public_and_has_its_operators_attributes():
    from jaxatr.onnx import ops

    for operator in registry.operators():
        assert getattr(ops, operator.function.__name__) is operator.function
        assert operator.function.__doc__, operator.name
        for group in (operator.static, operator.weights, [n for n, _ in operator.statistics]):
            assert set(group) <= {*operator.operands, "*"}, operator.name
        domain = operator.domain
        if not onnx.defs.has(operator.name, domain):
            continue
        schema = onnx.defs.get_schema(operator.name, max_inclusive_version=28, domain=domain)
        newest = registry.find(operator.name, domain, 1 << 30)
        if newest is operator and not schema.deprecated and operator.name != "Gradient":
            known = {*operator.keywords, *operator.ignored}
            assert set(schema.attributes) <= known, operator.name


def test_the_table_of_the_command_lists_the_implemented_operators():
    table = operator_table()
    assert "| Conv | 1 | `conv` |" in table and "| ai.onnx.ml.TreeEnsemble |" in table
