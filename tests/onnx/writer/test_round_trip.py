"""A model that is loaded and exported again is unchanged, also in onnxruntime."""

from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxatr import onnx as importer

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
LIGHT = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("*.onnx"))
FAST = "light_squeezenet"


def outputs(path, given):
    """Returns onnxruntime's outputs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # some of the files have unused initializers
    return onnxruntime.InferenceSession(str(path), options).run(None, given)


def dummy(path):
    """Returns an input of the shape that a file declares."""
    graph = onnx.load(path).graph
    listed = {tensor.name for tensor in graph.initializer}
    (value,) = [value for value in graph.input if value.name not in listed]
    shape = [size.dim_value for size in value.type.tensor_type.shape.dim]
    return {value.name: np.random.default_rng(0).random(shape, np.float32)}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem == FAST else pytest.mark.slow)
        for path in LIGHT
    ],
)
def test_the_light_models(path, tmp_path):
    model = importer.load(path)
    made = importer.export(model, model.variables, (), tmp_path / "model.onnx")
    assert len(made.graph.node) == len(onnx.load(path).graph.node)
    given = dummy(path)
    for one, other in zip(
        outputs(tmp_path / "model.onnx", given), outputs(path, given), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_weight_that_is_computed_is_a_constant_once_it_has_changed(tmp_path):
    (path,) = [path for path in LIGHT if path.stem == FAST]
    model = importer.load(path)
    params = {**model.variables["params"]}
    name = next(name for name, array in params.items() if array.ndim == 4)
    values = np.random.default_rng(1).normal(0, 0.01, params[name].shape)
    params[name] = values.astype(np.float32)
    variables = {**model.variables, "params": params}
    made = importer.export(model, variables, (), tmp_path / "model.onnx")
    assert [node.output[0] for node in made.graph.node if node.op_type == "Constant"] == [name]
    assert len(made.graph.node) == len(onnx.load(path).graph.node)
    (image,) = given = (*dummy(path).values(),)
    wanted = np.asarray(jax.jit(model.apply)(variables, image))
    found = outputs(tmp_path / "model.onnx", dict(zip(dummy(path), given, strict=True)))[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_traced_sum_keeps_the_free_batch(tmp_path):
    value = partial(onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT)
    nodes = [
        onnx.helper.make_node("Relu", ["x"], ["r"]),
        onnx.helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    ends = [value("x", shape=["n", 3])], [value("y", shape=["n", 3])]
    model = importer.load(onnx.helper.make_model(onnx.helper.make_graph(nodes, "sum", *ends)))
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    path = tmp_path / "model.onnx"
    importer.export(lambda v, x: model.apply(v, x), model.variables, x, path)
    given = np.concatenate([x, -x])
    np.testing.assert_allclose(outputs(path, {"x": given})[0], given + np.maximum(given, 0))


def test_a_model_is_exported_after_it_was_called(tmp_path):
    """jax keeps the precision in which a constant was first traced."""
    names = {"x": (onnx.TensorProto.FLOAT, [2, 2]), "y": (onnx.TensorProto.FLOAT, None)}
    values = [onnx.helper.make_tensor_value_info(name, *given) for name, given in names.items()]
    places = onnx.numpy_helper.from_array(np.int64([1, -1]), "i")
    node = onnx.helper.make_node("GatherND", ["x", "i"], ["y"])
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:], [places])
    source = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8
    )
    model, x = importer.load(source), np.float32([[1, 2], [3, 4]])
    assert model(x) == 4

    def function(variables, x):
        return model.apply(variables, x, keep_64_bit=False)

    path = tmp_path / "model.onnx"
    importer.export(function, model.variables, (x,), path, dynamic_batch=False)
    assert onnxruntime.InferenceSession(path).run(None, {"x": x})[0] == 4
    assert jax.jit(function)(model.variables, x) == 4 and model(x) == 4


def test_a_model_keeps_64_bits_after_it_was_traced_in_32():
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [1]) for name in "xy"
    ]
    large = onnx.numpy_helper.from_array(np.int64([2**40]), "c")
    node = onnx.helper.make_node("Add", ["x", "c"], ["y"])
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:], [large])
    model = importer.load(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    )
    x = np.int64([1])
    with pytest.raises(ValueError, match="1099511627776 does not fit into 32 bits"):
        jax.jit(lambda x: model.apply(model.variables, x, keep_64_bit=False))(np.int32([1]))
    assert np.asarray(model(x)) == 2**40 + 1
