"""Replacing the weights of a model file."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402

from jaxatr.onnx import export, load, replace_weights  # noqa: E402


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
        "  params/b: the model has no value of this name",
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


def _unnamed(model):
    model.graph.ClearField("name")


def _output_of_no_shape(model):
    model.graph.output[0].type.tensor_type.ClearField("shape")


def _wrong_shape(model):
    model.graph.output[0].type.tensor_type.shape.dim.pop()


def _initializers_are_no_inputs(model):
    model.ir_version = 3


def _operator_of_a_later_opset(model):
    model.opset_import[0].version, model.graph.node[1].op_type = 14, "LayerNormalization"


@pytest.mark.parametrize(
    "change",
    [
        *(_unnamed, _output_of_no_shape, _wrong_shape),
        *(_initializers_are_no_inputs, _operator_of_a_later_opset),
    ],
)
def test_a_source_that_runtimes_accept_may_have_faults(source, tmp_path, change):
    change(source)
    path, x = tmp_path / "new.onnx", np.eye(3, dtype=np.float32)
    with pytest.raises((onnx.checker.ValidationError, onnx.shape_inference.InferenceError)):
        onnx.checker.check_model(source, full_check=True)
    model = load(source.SerializeToString())
    params = {**model.variables["params"], "conv.weight": np.float32([[1, 2], [3, 5], [4, 7]])}
    export(model, {**model.variables, "params": params}, (), path)
    (found,) = run(path, x)
    np.testing.assert_allclose(found, np.asarray(model.apply({"params": params}, x)), atol=1e-4)
    assert [file.name for file in tmp_path.iterdir()] == ["new.onnx"]


def test_a_fault_of_the_new_arrays_is_refused(source, tmp_path):
    shape = numpy_helper.from_array(np.int64([-1, 2]), "shape")
    source.graph.initializer.append(shape)
    source.graph.node[1].output[0] = "sum"
    source.graph.node.append(helper.make_node("Reshape", ["sum", "shape"], ["y"]))
    with pytest.raises(ValueError, match="would not be valid: .*ShapeInferenceError"):
        replace_weights(source, {"constants": {"shape": np.int64([-1, 7])}}, tmp_path / "new.onnx")
    assert not list(tmp_path.iterdir())


def test_weights_that_are_no_number_are_equal_to_themselves(source, tmp_path):
    values = np.float32([np.nan, 0])
    source.graph.initializer[1].CopyFrom(numpy_helper.from_array(values, "bias"))
    source.graph.node.insert(1, helper.make_node("Identity", ["bias"], ["copy"]))
    source.graph.node[2].input[1] = "copy"
    model = load(source.SerializeToString())
    made = export(model, model.variables, (), tmp_path / "new.onnx")
    assert made.graph.node == source.graph.node


def run(path, *inputs):
    session = onnxruntime.InferenceSession(path)
    return session.run(None, {i.name: x for i, x in zip(session.get_inputs(), inputs, strict=True)})


def written_and_read(model, variables, path, *inputs):
    """Exports a model, compares nodes and outputs, and returns the names of the initializers."""
    made = export(model, variables, (), path)
    assert len(made.graph.node) == len(model.proto.graph.node)
    (found,) = run(path, *inputs)
    np.testing.assert_allclose(found, model.apply(variables, *inputs), rtol=1e-5, atol=1e-6)
    again = load(path)
    for group, arrays in variables.items():
        assert set(again.variables[group]) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(again.variables[group][name], array)
    return [tensor.name for tensor in made.graph.initializer]


@pytest.mark.parametrize("names", [["w"], ["copy"], ["w", "copy"], ["last"], []])
def test_copies_of_a_weight_change_apart(tmp_path, names):
    nodes = [
        helper.make_node("Identity", ["w"], ["copy"]),
        helper.make_node("Identity", ["copy"], ["last"]),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "copy"], ["b"]),
        helper.make_node("MatMul", ["b", "last"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    w, x = (rng.normal(size=(3, 3)).astype(np.float32) for _ in range(2))
    model = load(model_of(nodes, {"w": w}))
    new = {name: w + 1 if name in names else w for name in ("w", "copy", "last")}
    variables = {**model.variables, "params": new}
    assert written_and_read(model, variables, tmp_path / "new.onnx", x) == ["w"]


def model_of(nodes, weights, functions=(), inputs=()):
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3, 3]) for name in ("x", "y")
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [values[0], *inputs],
        values[1:],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)


def test_external_data_go_into_the_new_file(tmp_path):
    rng, folder = np.random.default_rng(0), tmp_path / "source"
    folder.mkdir()
    w, v, x = (rng.normal(size=(3, 3)).astype(np.float32) for _ in range(3))
    constant = helper.make_node("Constant", [], ["v"], value=numpy_helper.from_array(v, "v"))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        constant,
        helper.make_node("MatMul", ["a", "v"], ["y"]),
    ]
    onnx.save(
        model_of(nodes, {"w": w}),
        folder / "m.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
        convert_attribute=True,
    )
    model = load(folder / "m.onnx")
    assert set(model.variables["params"]) == {"w", "v"}
    assert written_and_read(model, model.variables, tmp_path / "same.onnx", x) == ["w"]
    variables = {**model.variables, "params": {"w": w, "v": v + 1}}
    written_and_read(model, variables, tmp_path / "new.onnx", x)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["new.onnx", "same.onnx", "source"]
    (folder / "w.bin").rename(tmp_path / "w.bin")
    (folder / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ValueError, match="'w.bin' is a symbolic link"):
        export(model, model.variables, (), tmp_path / "linked.onnx")


def test_weights_in_branches_and_functions(tmp_path):
    rng = np.random.default_rng(0)
    w, v, c, x = (rng.normal(size=(3, 3)).astype(np.float32) for _ in range(4))
    result = helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [3, 3])
    branches = {
        key: helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["z"])],
            key,
            [],
            [result],
            [numpy_helper.from_array(array, "w")],
        )
        for key, array in (("then_branch", w), ("else_branch", v))
    }
    body = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(c)),
        helper.make_node("MatMul", ["p", "c"], ["q"]),
    ]
    layer = helper.make_function("own", "F", ["p"], ["q"], body, [helper.make_opsetid("", 18)])
    nodes = [
        helper.make_node("If", ["first"], ["a"], "branch", **branches),
        helper.make_node("F", ["a"], ["y"], "f", domain="own"),
    ]
    flag = helper.make_tensor_value_info("first", onnx.TensorProto.BOOL, [])
    source = model_of(nodes, {}, [layer], [flag])
    model = load(source)
    params = model.variables["params"]
    assert len(params) == 3
    new = {**model.variables, "params": {name: array + 1 for name, array in params.items()}}
    for first in (True, False):
        written_and_read(model, new, tmp_path / "new.onnx", x, np.array(first))
    assert not source.functions[0].node[0].doc_string
    assert not onnx.load(tmp_path / "new.onnx").functions[0].node[0].doc_string
    # The function is called twice: its constant is two arrays when loaded, but one in the file.
    source.graph.node[1].output[0] = "b"
    source.graph.node.append(helper.make_node("F", ["b"], ["y"], "g", domain="own"))
    model = load(source)
    one, other = (name for name in model.variables["params"] if name.endswith("c"))
    params = {**model.variables["params"], one: c + 1}
    with pytest.raises(ValueError, match="stores them once, but they differ") as error:
        export(model, {**model.variables, "params": params}, (), tmp_path / "twice.onnx")
    assert one in str(error.value) and other in str(error.value)
    params[other] = c + 1
    new = {**model.variables, "params": params}
    written_and_read(model, new, tmp_path / "twice.onnx", x, np.array(True))
