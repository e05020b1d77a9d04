import pytest

onnx = pytest.importorskip("onnx")

from jaxatr.onnx import load  # noqa: E402
from jaxatr.onnx.codegen.blocks import blocks_of, fold  # noqa: E402
from jaxatr.onnx.codegen.steps import graph_of  # noqa: E402

node = onnx.helper.make_node


def chain(built, kinds):
    """Returns a folded chain of operators."""
    nodes = [node(kind, [f"v{i}"], [f"v{i + 1}"]) for i, kind in enumerate(kinds)]
    model = load(built(nodes, {"v0": [2]}, [f"v{len(kinds)}"]))
    return fold(graph_of(model.program, model.known, model.variables))


def functions(body):
    return [row.steps[0].function for row in body.rows]


def test_repeated_layers_are_one_class(built):
    unit = ["Relu", "Exp", "Sigmoid", "Tanh"]
    model = chain(built, ["Abs", *unit, *unit, *unit, *unit, "Neg"])
    (block,) = blocks_of(model)
    assert functions(block) == ["ops.relu", "ops.exp", "ops.sigmoid", "ops.tanh"]
    assert len(block.outputs) == 4
    assert functions(model) == ["ops.absolute", *["block 1"] * 4, "ops.neg"]


def test_each_instance_keeps_its_values(built):
    unit = ["Relu", "Exp", "Sigmoid", "Tanh"]
    model = chain(built, ["Abs", *unit, "Sqrt", *unit, "Neg", *unit])
    (block,) = blocks_of(model)
    assert block.inputs == [("v1",), ("v6",), ("v11",)]
    assert [output.name for (output,) in block.outputs] == ["v5", "v10", "v15"]


@pytest.mark.parametrize(
    "kinds",
    [
        ["Relu"] * 20,  # one step is no block, and several times the same is none
        ["Relu", "Exp"] * 10,
        ["Relu", "Exp", "Abs", "Neg", "Sqrt", "Relu", "Exp"],  # too little is spared
    ],
)
def test_sequences_that_are_not_a_block(built, kinds):
    assert list(blocks_of(chain(built, kinds))) == []


def test_a_sequence_whose_inner_values_are_read_outside_is_not_a_block(built):
    """Both results of a window are used after it."""
    nodes = []
    for i in range(4):
        x = f"a{i}"
        nodes += [node("Relu", [x], [f"b{i}"]), node("Exp", [f"b{i}"], [f"c{i}"])]
        nodes += [node("Tanh", [f"c{i}"], [f"d{i}"]), node("Abs", [f"d{i}"], [f"a{i + 1}"])]
    every = [f"{letter}{i}" for letter in "abcd" for i in range(1, 4)]
    nodes.append(node("Sum", every, ["y"]))
    model = load(built(nodes, {"a0": [2]}, ["y"]))
    assert list(blocks_of(fold(graph_of(model.program, model.known, model.variables)))) == []
