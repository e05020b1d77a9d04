"""Weights of a model file exchanged for others."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402

from jaxatr.onnx import export, replace_weights  # noqa: E402


@pytest.fixture
def source():
    """A model with two weights: x @ conv.weight + bias."""
    shapes = {"x": ["n", 3], "y": ["n", 2]}
    values = {
        name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    }
    weights = {"conv.weight": np.ones((3, 2), np.float32), "bias": np.zeros(2, np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "conv.weight"], ["product"], "first"),
            helper.make_node("Add", ["product", "bias"], ["y"], "second"),
        ],
        "source",
        [values["x"]],
        [values["y"]],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_values_change_and_the_graph_does_not(source, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "new.onnx"
    w, x = (rng.normal(size=size).astype(np.float32) for size in ((3, 2), (4, 3)))
    before = source.SerializeToString()
    replace_weights(source, {"params": {"conv.weight": w}}, path)
    (found,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    np.testing.assert_allclose(found, x @ w, rtol=1e-5)
    assert source.SerializeToString() == before
    written = onnx.load(path)
    assert written.graph.node == source.graph.node
    names = [tensor.name for tensor in written.graph.initializer]
    assert names == ["conv.weight", "bias"]


def test_names_with_their_collection(source, tmp_path):
    source.graph.initializer[1].name = source.graph.node[1].input[1] = "params/dense/bias"
    bias = np.float32([1, 2])
    replace_weights(source, {"params": {"dense": {"bias": bias}}}, tmp_path / "new.onnx")
    found = onnx.load(tmp_path / "new.onnx").graph.initializer[1]
    np.testing.assert_array_equal(numpy_helper.to_array(found), bias)


def test_all_that_does_not_fit_is_named(source, tmp_path):
    wrong = {"params": {"conv.weight": np.ones((2, 3), np.float32), "bias": np.zeros(2), "b": 1}}
    with pytest.raises(ValueError, match="variables do not fit the model") as error:
        replace_weights(source, wrong, tmp_path / "new.onnx")
    assert sorted(str(error.value).splitlines()[1:]) == [
        "  params/b: the model has nothing of this name",
        "  params/bias: got float64 (2,), wanted float32 (2,)",
        "  params/conv.weight: got float32 (2, 3), wanted float32 (3, 2)",
    ]
    assert not list(tmp_path.iterdir())


def test_a_constant_node_holds_a_weight_too(source, tmp_path):
    bias = source.graph.initializer.pop()
    node = helper.make_node("Constant", [], ["bias"], value=bias)
    source.graph.node.insert(0, node)
    replace_weights(source, {"params": {"bias": np.float32([3, 4])}}, tmp_path / "new.onnx")
    found = onnx.load(tmp_path / "new.onnx").graph.node[0].attribute[0].t
    np.testing.assert_array_equal(numpy_helper.to_array(found), [3, 4])


def test_a_model_that_was_read_is_written_as_it_was(source, tmp_path):
    class Read:
        proto = source

    w = np.full((3, 2), 2, np.float32)
    export(Read(), {"params": {"conv.weight": w}}, (), tmp_path / "new.onnx")
    written = onnx.load(tmp_path / "new.onnx")
    assert written.graph.node == source.graph.node
    np.testing.assert_array_equal(numpy_helper.to_array(written.graph.initializer[0]), w)
