"""The layers of a model, listed without its weights."""

import numpy as np
import pytest

from jaxatr import onnx as importer
from jaxatr.onnx.reader.weightless import without_weights

onnx = pytest.importorskip("onnx")
node = onnx.helper.make_node


def test_the_layers_of_a_network(network, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(network, path)
    found = importer.layers(path)
    assert [(layer.name, layer.operator) for layer in found] == [
        (n.name or n.output[0], n.op_type) for n in network.graph.node
    ]
    conv, norm, *_, dense = found
    assert conv.attributes == {"pads": (1, 1, 1, 1)} and conv.domain == "" and conv.supported
    assert [i.shape for i in conv.inputs] == [("n", 3, 8, 8), (4, 3, 3, 3)]
    assert [o.shape for o in conv.outputs] == [("n", 4, 8, 8)]
    assert (conv.parameters, norm.parameters, dense.parameters) == (108, 16, 320)
    assert importer.layers(path.read_bytes()) == importer.layers(network) == found


def test_the_reason_is_given_for_each_unsupported_node(built):
    body = onnx.helper.make_function(
        "own",
        "F",
        ["p"],
        ["q"],
        [node("Missing", ["p"], ["q"])],
        [onnx.helper.make_opsetid("", 18)],
    )
    inner = onnx.helper.make_graph(
        [node("Absent", ["x"], ["z"], "inside")],
        "branch",
        [],
        [onnx.helper.make_value_info("z", onnx.TypeProto())],
    )
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("F", ["a"], ["b"], "f", domain="own"),
        node("If", ["c"], ["y"], "if", then_branch=inner, else_branch=inner),
    ]
    proto = built(nodes, {"x": [1], "c": ("bool", [])}, "y", domains=["own"], functions=[body])
    found = {layer.name: layer.supported for layer in importer.layers(proto)}
    assert found == {"a": True, "f": False, "if": True, "inside": False}


def test_weights_are_neither_read_nor_needed(built, tmp_path):
    weight = np.random.default_rng(0).normal(size=(500, 500)).astype(np.float32)
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Reshape", ["a", "s"], ["y"])]
    proto = built(nodes, {"x": [2, 500]}, "y", {"w": weight, "s": np.array([10, 100])})
    short = without_weights(proto.SerializeToString())
    assert len(short) < 1000
    again = onnx.load_from_string(short)
    assert again.graph.node == proto.graph.node
    assert list(again.graph.initializer[0].dims) == [500, 500]
    assert onnx.numpy_helper.to_array(again.graph.initializer[1]).tolist() == [10, 100]
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights", size_threshold=1000)
    (tmp_path / "weights").unlink()
    product, view = importer.layers(path)
    assert product.parameters == 250_000 and view.outputs[0].shape == (10, 100)


@pytest.mark.parametrize(
    "raw", [b"\x3a\x05abc", b"\x80", b"\x0f", b"\x80" * 20, b"\x3a\x02\x0a\x05"]
)
def test_bytes_that_are_not_a_model(raw):
    with pytest.raises(ValueError, match="model: "):
        importer.layers(raw)


def test_messages_in_messages_without_end():
    raw = b""
    for _ in range(100):
        for tag in (b"\x32", b"\x2a", b"\x0a"):  # a graph in an attribute in a node
            length, size = len(raw), b""
            while length > 127:
                size += bytes([length & 127 | 128])
                length >>= 7
            raw = tag + size + bytes([length]) + raw
    with pytest.raises(ValueError, match="messages nested more than"):
        without_weights(b"\x3a" + bytes([len(raw) & 127 | 128, len(raw) >> 7]) + raw)


def test_a_file_that_ends_within_a_node_says_so(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\x3a\x04\x0a\x02\x0a\x7f")  # a text of 127 bytes
    with pytest.raises(ValueError, match="the bytes end within a field"):
        importer.layers(tmp_path / "bad.onnx")
