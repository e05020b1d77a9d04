"""Lowering of graphs to programs: names, functions, subgraphs and malformed models."""

import numpy as np
import pytest

from jaxatr import onnx as importer
from jaxatr.onnx.reader import lowering

onnx = pytest.importorskip("onnx")
node, function = onnx.helper.make_node, onnx.helper.make_function
OWN = [onnx.helper.make_opsetid("", 18)]


def branch(name, *nodes, output):
    result = onnx.helper.make_value_info(output, onnx.TypeProto())
    return onnx.helper.make_graph(nodes, name, [], [result])


def test_a_function_of_the_model_and_its_attributes(built):
    twice = function(
        "own",
        "Leaky",
        ["p"],
        ["q"],
        [node("LeakyRelu", ["p"], ["r"]), node("Add", ["r", "r"], ["q"])],
        OWN,
        ["slope"],
    )
    twice.node[0].attribute.append(
        onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    )
    nodes = [
        node("Leaky", ["x"], ["r"], "f", domain="own", slope=0.5),
        node("Leaky", ["r"], ["y"], "g", domain="own", slope=0.25),
    ]
    model = importer.load(built(nodes, {"x": [2]}, "y", domains=["own"], functions=[twice]))
    np.testing.assert_allclose(model.apply({}, np.float32([1, -4])), [4, -2])
    # The graph's names are kept; those inside of a function give way.
    names = [call.outputs[0] for call in model.program.calls]
    assert names == ["f/r", "r", "g/r", "y"]


def test_a_function_that_only_the_schema_defines(built, onnxruntime):
    assert importer.ops.registry.find("SwiGLU", "", 28) is None
    nodes = [node("SwiGLU", ["x", "z"], ["y"], alpha=0.5)]
    model = importer.load(built(nodes, {"x": [3], "z": [3]}, "y", opset=28))
    x, z = np.float32([1, -2, 3]), np.float32([2, 1, -1])
    np.testing.assert_allclose(model.apply({}, x, z), x / (1 + np.exp(-0.5 * x)) * z, rtol=1e-6)


def test_branches_read_the_values_around_them(built):
    nodes = [
        node("Neg", ["x"], ["n"]),
        node(
            "If",
            ["c"],
            ["y"],
            then_branch=branch("t", node("Add", ["x", "n"], ["z"]), output="z"),
            else_branch=branch("e", node("Mul", ["n", "w"], ["z"]), output="z"),
        ),
    ]
    model = importer.load(
        built(nodes, {"x": [2], "c": ("bool", [])}, "y", {"w": np.float32([3, 4])})
    )
    assert set(model.variables["params"]) == {"w"}
    x = np.float32([1, 2])
    np.testing.assert_allclose(model.apply(model.variables, x, np.array(True)), [0, 0])
    np.testing.assert_allclose(model.apply(model.variables, x, np.array(False)), [-3, -8])


def test_both_branches_under_jit(built):
    import jax

    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node(
            "If",
            ["c"],
            ["y"],
            then_branch=branch("t", node("Neg", ["x"], ["z"]), output="z"),
            else_branch=branch("e", node("Abs", ["x"], ["z"]), output="z"),
        ),
    ]
    model = importer.load(built(nodes, {"x": [2]}, "y", {"zero": np.float32(0)}))
    apply = jax.jit(model.apply)
    for x in ([1, 2], [-3, 1]):
        x = np.float32(x)
        np.testing.assert_allclose(apply(model.variables, x), -x if x.sum() > 0 else np.abs(x))
    jacobian = jax.jit(jax.jacobian(lambda x: model.apply(model.variables, x)))
    np.testing.assert_allclose(jacobian(np.float32([-3, 1])), [[-1, 0], [0, 1]])


def test_initializers_may_be_listed_as_inputs(network):
    for tensor in network.graph.initializer:
        network.graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    assert [i.name for i in importer.load(network).inputs] == ["x"]


def refused(built, message, nodes, **more):
    with pytest.raises(ValueError, match=message):
        importer.load(built(nodes, {"x": [2]}, "y", **more))


def test_cycles_and_missing_values(built):
    cycle = [
        node("Add", ["x", "b"], ["a"], "one"),
        node("Neg", ["a"], ["b"]),
        node("Neg", ["b"], ["y"]),
    ]
    refused(built, r"node 'one' \(Add\): nothing before it computes its input 'b'", cycle)
    refused(built, "nothing computes its output 'y'", [node("Neg", ["x"], ["z"])])


def test_a_name_that_is_defined_twice(built):
    refused(
        built, "output 'y' is defined twice", [node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])]
    )
    refused(built, "output 'x' is defined twice", [node("Neg", ["x"], ["x"])])


def test_functions_without_an_end(built):
    endless = function(
        "own",
        "F",
        ["p"],
        ["q"],
        [node("F", ["p"], ["q"], domain="own")],
        [*OWN, onnx.helper.make_opsetid("own", 1)],
    )
    refused(
        built,
        "more than 32 deep",
        [node("F", ["x"], ["y"], "n", domain="own")],
        domains=["own"],
        functions=[endless],
    )


def test_functions_that_grow_without_measure(built, monkeypatch):
    monkeypatch.setattr(lowering, "MOST", 500)
    versions = [*OWN, onnx.helper.make_opsetid("own", 1)]
    grown = [
        function(
            "own",
            f"F{i}",
            ["p"],
            ["q"],
            [
                node(f"F{i + 1}", ["p"], ["r"], domain="own"),
                node(f"F{i + 1}", ["r"], ["q"], domain="own"),
            ],
            versions,
        )
        for i in range(25)
    ]
    grown.append(function("own", "F25", ["p"], ["q"], [node("Neg", ["p"], ["q"])], versions))
    refused(
        built,
        "more than 500 nodes",
        [node("F0", ["x"], ["y"], domain="own")],
        domains=["own"],
        functions=grown,
    )


def test_an_impossible_opset(network):
    network.opset_import[0].version = 0
    with pytest.raises(ValueError, match="opset_import: got version 0"):
        importer.load(network)


def test_the_shortest_number_of_an_attribute(built):
    model = importer.load(built([node("LeakyRelu", ["x"], ["y"], alpha=0.1)], {"x": [1]}, "y"))
    assert model.program.calls[0].attributes == {"alpha": 0.1}
    model = importer.load(built([node("LeakyRelu", ["x"], ["y"], alpha=0.01)], {"x": [1]}, "y"))
    assert model.program.calls[0].attributes == {}


def test_inputs_and_attributes_that_cannot_be_missing(built):
    refused(built, r"node 'n' \(Add\): it lacks the input 'b'", [node("Add", ["x"], ["y"], "n")])
    refused(
        built, r"node 'n' \(Add\): it lacks the input 'a'", [node("Add", ["", "x"], ["y"], "n")]
    )
    refused(
        built,
        r"node 'n' \(Einsum\): it lacks the attribute 'equation'",
        [node("Einsum", ["x"], ["y"], "n")],
    )


def test_an_attribute_that_is_there_twice(built):
    twice = node("LeakyRelu", ["x"], ["y"], "n", alpha=0.5)
    twice.attribute.add().CopyFrom(onnx.helper.make_attribute("alpha", 0.1))
    refused(built, r"node 'n' \(LeakyRelu\): two attributes are named 'alpha'", [twice])


def test_names_of_missing_operators_are_cleaned(built):
    nodes = [node("Odd\x1b[2J", ["x"], ["y"], "n\n\x07", domain="own")]
    with pytest.raises(ValueError, match="without an implementation") as error:
        importer.load(built(nodes, {"x": [2]}, "y", domains=["own"]))
    assert str(error.value).splitlines()[1] == "  own.Odd\ufffd[2J: n\ufffd\ufffd"


@pytest.mark.parametrize("version", [3, 8])
def test_a_domain_that_is_not_imported_has_version_1(built, version):
    """ONNX's checker treats files that are older than imports in the same way."""
    nodes = [
        node("ReduceSum", ["x"], ["r"], "sum", axes=[0], keepdims=0),  # an input since 13
        node("Own", ["r"], ["y"], "own", domain="own"),
    ]
    with importer.ops.registry.restored():
        importer.register("Own", "own", since=1)(lambda x: x + 1)
        importer.register("Own", "own", since=2)(lambda x: x + 2)
        model = built(nodes, {"x": [2]}, "y")
        del model.opset_import[:]
        model.ir_version = version
        assert all(layer.supported for layer in importer.layers(model))
        loaded = importer.load(model)
    assert [call.opset for call in loaded.program.calls] == [1, 1]
    np.testing.assert_allclose(loaded.apply({}, np.float32([1, 2])), 4)


def test_a_newer_operator_than_version_1_is_missing_to_both(built):
    model = built([node("Own", ["x"], ["y"], "n", domain="own")], {"x": [2]}, "y")
    with importer.ops.registry.restored():
        importer.register("Own", "own", since=2)(lambda x: x)
        assert [layer.supported for layer in importer.layers(model)] == [False]
        with pytest.raises(ValueError, match="without an implementation .*\n  own.Own: n"):
            importer.load(model)


def test_nodes_out_of_order_are_sorted(built):
    choice = branch("then", node("Add", ["a", "x"], ["t"]), output="t")
    other = branch("else", node("Sub", ["a", "x"], ["e"]), output="e")
    nodes = [
        node("If", ["c"], ["y"], then_branch=choice, else_branch=other),  # reads a, from outside
        node("Neg", ["b"], ["a"]),
        node("Abs", ["x"], ["b"]),
    ]
    model = importer.load(built(nodes, {"x": [2], "c": ("bool", [])}, "y"))
    assert model(np.float32([1, -2]), np.array(True)).tolist() == [0, -4]
    body = function(
        "own", "F", ["p"], ["q"], [node("Neg", ["r"], ["q"]), node("Abs", "p", "r")], OWN
    )
    nodes = [node("F", ["x"], ["y"], domain="own")]
    model = importer.load(built(nodes, {"x": [2]}, "y", domains=["own"], functions=[body]))
    assert model(np.float32([1, -2])).tolist() == [-1, -2]
