"""Division of arrays into trained, known and folded ones, and limits on their size."""

import jax
import numpy as np
import pytest

from jaxatr import onnx as importer

onnx = pytest.importorskip("onnx")
node = onnx.helper.make_node


def ints(*values):
    return np.array(values, np.int64)


def test_a_float_that_decides_a_shape_is_not_a_parameter(built):
    nodes = [
        node("Mul", ["two", "half"], ["scales"]),
        node("Resize", ["x", "", "scales"], ["a"]),
        node("Mul", ["a", "w"], ["y"]),
    ]
    weights = {"two": np.float32([2, 4]), "half": np.float32([0.5]), "w": np.full(4, 3, np.float32)}
    model = importer.load(built(nodes, {"x": [2, 2]}, "y", weights))
    assert set(model.variables["params"]) == {"w"}
    assert [call.operator.name for call in model.program.calls] == ["Resize", "Mul"]
    x = np.float32([[1, 2], [3, 4]])
    result = jax.jit(model.apply)(model.variables, x)
    np.testing.assert_allclose(result, 3 * np.repeat(x, 2, 1))


def test_shape_arithmetic_is_folded_and_a_branch_of_it_is_chosen(built):
    nodes = [
        node("Constant", [], ["two"], value_int=2),
        node("Mul", ["two", "three"], ["six"]),
        node("Unsqueeze", ["six", "zero"], ["shape"]),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    model = importer.load(built(nodes, {"x": [2, 3]}, "y", {"three": np.int64(3), "zero": ints(0)}))
    assert [call.operator.name for call in model.program.calls] == ["Reshape"]
    assert model.known["shape"].tolist() == [6] and set(model.known) == {"shape"}


def test_weights_that_are_constants_are_parameters(built):
    nodes = [
        node(
            "Constant", [], ["w"], value=onnx.numpy_helper.from_array(np.ones((3, 2), np.float32))
        ),
        node("ConstantOfShape", ["size"], ["b"]),
        node("Gemm", ["x", "w", "b"], ["a"]),
        node("Constant", [], ["mask"], value=onnx.numpy_helper.from_array(np.ones(2, np.float32))),
        node("Mul", ["a", "mask"], ["y"]),
    ]
    model = importer.load(built(nodes, {"x": [1, 3]}, "y", {"size": ints(2)}))
    assert set(model.variables["params"]) == {"w", "b"}
    assert set(model.known) == {"mask"}


def test_large_tables_of_integers_are_constants_among_the_variables(built):
    table = np.arange(2**30, 2**30 + 2000)
    nodes = [node("Gather", ["table", "i"], ["y"])]
    model = importer.load(built(nodes, {"i": ("int64", [2])}, "y", {"table": table}))
    assert set(model.variables["constants"]) == {"table"}
    result = jax.jit(model.apply)(model.variables, ints(1, -1))
    np.testing.assert_array_equal(result, table[[1, -1]])


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ([node("ConstantOfShape", ["s"], ["y"], "n")], {"s": ints(2**40)}),
        ([node("ConstantOfShape", ["s"], ["y"], "n")], {"s": ints(-1)}),
        ([node("Expand", ["v", "s"], ["y"], "n")], {"v": ints(1), "s": ints(2**20, 2**20)}),
        ([node("Tile", ["v", "s"], ["y"], "n")], {"v": ints(1), "s": ints(2**62)}),
        ([node("Range", ["a", "b", "a"], ["y"], "n")], {"a": np.int64(1), "b": np.int64(2**62)}),
        (
            [node("Gather", ["a", "i"], ["y"], "n")],
            {"a": np.zeros((1, 60000), np.int64), "i": np.zeros(60000, np.int64)},
        ),
        (
            [node("Add", ["a", "b"], ["y"], "n")],
            {"a": np.zeros((1, 60000), np.int64), "b": np.zeros((60000, 1), np.int64)},
        ),
    ],
)
def test_absurd_sizes_name_the_node(built, nodes, weights):
    with pytest.raises(ValueError, match=r"node 'n' .*: (shape|wanted)"):
        importer.load(built(nodes, {"x": [1]}, "y", weights))


def test_large_values_are_computed_when_the_model_runs(built):
    nodes = [node("Add", ["a", "b"], ["c"]), node("ReduceSum", ["c"], ["y"])]
    weights = {"a": np.ones((1, 3000), np.int64), "b": np.ones((3000, 1), np.int64)}
    model = importer.load(built(nodes, {"x": [1]}, "y", weights))
    assert [call.operator.name for call in model.program.calls] == ["Add", "ReduceSum"]
    assert int(model.apply(model.variables, np.zeros(1, np.float32)).item()) == 18_000_000


def test_constants_that_double_without_end(built):
    nodes = [node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0) for i in range(40)]
    model = importer.load(built(nodes, {"x": [1]}, ["v40"], {"v0": ints(1, 2)}))
    (last,) = model.variables["constants"].values()
    assert last.size == 1 << 20  # 8 MB, and as much before it: the budget of a file


def test_weights_made_of_shapes_have_a_limit(built):
    nodes = []
    for i in range(3):
        nodes.append(node("ConstantOfShape", ["s"], [f"w{i}"]))
        nodes.append(node("MatMul", ["x" if i == 0 else f"a{i - 1}", f"w{i}"], [f"a{i}"]))
    with pytest.raises(ValueError, match="out of shapes"):
        importer.load(built(nodes, {"x": [1, 16000]}, ["a2"], {"s": ints(16000, 16000)}))


def test_a_weight_of_a_condition_is_trained_where_the_condition_is_data(built):
    branch = onnx.helper.make_graph(
        [node("Identity", ["x"], ["z"])],
        "same",
        [],
        [onnx.helper.make_value_info("z", onnx.TypeProto())],
    )
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Cast", ["a"], ["c"], to=onnx.TensorProto.BOOL),
        node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
    ]
    model = importer.load(built(nodes, {"x": [1, 1]}, "y", {"w": np.float32([[2]])}))
    assert set(model.variables["params"]) == {"w"}


def test_a_value_that_a_file_declares_constant_is_not_trained(built):
    nodes = [node("Sub", ["x", "mean"], ["a"]), node("Mul", ["a", "w"], ["y"])]
    weights = {"mean": np.float32([1, 2]), "w": np.float32([3, 4])}
    model = built(nodes, {"x": [1, 2]}, "y", weights)
    assert set(importer.load(model).variables["params"]) == {"mean", "w"}
    onnx.helper.set_model_props(model, {"jaxatr.constants": '["mean"]'})
    loaded = importer.load(model)
    assert set(loaded.variables["params"]) == {"w"} and set(loaded.known) == {"mean"}
    onnx.helper.set_model_props(model, {"jaxatr.constants": "mean"})
    with pytest.raises(ValueError, match="'jaxatr.constants': wanted a JSON list of names"):
        importer.load(model)


def test_a_value_that_an_exported_function_closes_over_is_not_trained(tmp_path):
    mean = np.float32([1, 2])
    variables = {"w": np.float32([3, 4])}
    importer.export(
        lambda v, x: (x - mean) * v["w"], variables, np.ones((1, 2)), tmp_path / "m.onnx"
    )
    model = importer.load(tmp_path / "m.onnx")
    assert set(model.variables["params"]) == {"w"}
    np.testing.assert_allclose(model.apply(model.variables, np.float32([[2, 4]])), [[3, 8]])


def merged(built, **more):
    """Returns two layers whose equal scales, shifts and statistics are stored only once."""
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    nodes = [
        node("Identity", ["one.scale"], ["one.var"]),
        node("Identity", ["one.bias"], ["one.mean"]),
        node("Identity", ["one.var"], ["two.var"]),
        node("Identity", ["one.scale"], ["two.scale"], "copy"),
        node("BatchNormalization", ["x", *(f"one.{k}" for k in SLOTS)], ["a"], "one"),
        node(
            "BatchNormalization",
            ["a", "two.scale", "one.bias", "two.mean", "two.var"],
            ["y"],
            "two",
        ),
    ]
    weights = {"one.scale": ones, "one.bias": zeros, "two.mean": zeros + 1}
    return built(nodes, {"x": ["n", 3, 2, 2]}, "y", weights, **more)


SLOTS = ("scale", "bias", "mean", "var")


def test_a_weight_behind_an_identity_is_an_array_of_its_own(built):
    model = importer.load(merged(built))
    assert set(model.variables["params"]) == {"one.scale", "one.bias", "two.scale"}
    statistics = {"one.mean", "one.var", "two.mean", "two.var"}
    assert set(model.variables["batch_stats"]) == statistics
    assert [call.operator.name for call in model.program.calls] == ["BatchNormalization"] * 2
    x = np.random.default_rng(0).normal(size=(4, 3, 2, 2)).astype(np.float32)
    _, state = model.apply(model.variables, x, training=True)
    assert set(state["batch_stats"]) == statistics
    np.testing.assert_allclose(state["batch_stats"]["one.mean"], 0.1 * x.mean((0, 2, 3)), rtol=1e-4)
    np.testing.assert_array_equal(model.variables["batch_stats"]["one.mean"], np.zeros(3))


def test_a_copy_of_an_untrained_value_is_not_trained(built):
    model = merged(built)
    onnx.helper.set_model_props(model, {"jaxatr.constants": '["one.scale"]'})
    assert set(importer.load(model).variables["params"]) == {"one.bias"}


def test_copies_have_a_limit(built, monkeypatch):
    from jaxatr.onnx.reader import variables

    monkeypatch.setattr(variables, "MADE", 47)
    with pytest.raises(ValueError, match="48 bytes .*wanted at most 47"):
        importer.load(merged(built))


def normal(x, y, statistics, name):
    return node("BatchNormalization", [x, "scale", "bias", *statistics], [y], name)


NORM = {"scale": np.ones(2), "bias": np.zeros(2), "mean": np.zeros(2), "var": np.ones(2)}
NORM = {name: value.astype(np.float32) for name, value in NORM.items()}


def test_statistics_of_two_layers_and_computed_ones_stay_as_they_are(built):
    nodes = [
        normal("x", "a", ("mean", "var"), "one"),
        normal("a", "b", ("mean", "var"), "two"),
        node("Mul", ["own", "own"], ["square"]),
        normal("b", "y", ("own", "square"), "three"),
    ]
    weights = {**NORM, "own": np.float32([1, 2])}
    model = importer.load(built(nodes, {"x": [4, 2]}, "y", weights))
    before = {name: np.asarray(value) for name, value in model.variables["batch_stats"].items()}
    x = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    _, state = model.apply(model.variables, x, training=True)
    assert set(state["batch_stats"]) == set(before) >= {"mean", "var"}
    for name, value in before.items():
        np.testing.assert_array_equal(state["batch_stats"][name], value)


def test_a_layer_in_a_branch_trains_under_jit_and_keeps_its_statistics(built):
    result = onnx.helper.make_value_info("z", onnx.TypeProto())
    branches = [
        onnx.helper.make_graph([inner], name, [], [result])
        for name, inner in (
            ("t", normal("x", "z", ("mean", "var"), "n")),
            ("e", node("Neg", ["x"], ["z"])),
        )
    ]
    nodes = [node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])]
    model = importer.load(built(nodes, {"x": [4, 2], "c": ("bool", [])}, "y", NORM))
    x = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    step = jax.jit(lambda v, x, c: model.apply(v, x, c, training=True))
    y, state = step(model.variables, x, np.array(True))
    np.testing.assert_allclose(y, (x - x.mean(0)) / x.std(0), rtol=1e-3)
    assert set(state["batch_stats"]) == {"mean", "var"}
    np.testing.assert_array_equal(state["batch_stats"]["var"], np.ones(2))


def formula(built, *nodes, **arrays):
    """A product with w, and nodes that compute y from it, a."""
    weights = {"w": np.eye(3, dtype=np.float32), **arrays}
    proto = built([node("MatMul", ["x", "w"], ["a"]), *nodes], {"x": [2, 3]}, "y", weights)
    return proto, importer.load(proto)


INFINITE = np.where(np.tri(3, dtype=bool), 0, -np.inf).astype(np.float32)


@pytest.mark.parametrize(
    ("nodes", "arrays"),
    [
        ([node("Mul", ["a", "half"], ["y"])], {"half": np.float32(0.5)}),
        ([node("Add", ["a", "eps"], ["b"]), node("Sqrt", ["b"], ["y"])],
         {"eps": np.float32([1e-5])}),
        ([node("Pow", ["a", "two"], ["y"])], {"two": np.float32(2)}),
        ([node("Pow", ["a", "each"], ["y"])], {"each": np.float32([1, 2, 3])}),
        ([node("Unsqueeze", ["each", "0"], ["e"]), node("Pow", ["a", "e"], ["y"])],
         {"each": np.float32([1, 2, 3]), "0": np.array([0])}),
        ([node("Greater", ["a", "limits"], ["b"]), node("Cast", ["b"], ["y"], to=1)],
         {"limits": np.float32([1, 2, 3])}),
        ([node("Reshape", ["a", "s"], ["b"]), node("Add", ["b", "mask"], ["y"])],
         {"mask": INFINITE, "s": np.array([2, 1, 3])}),
        ([node("Reshape", ["a", "s"], ["b"]), node("Add", ["b", "mask"], ["y"])],
         {"mask": np.nan_to_num(INFINITE, neginf=-1e4), "s": np.array([2, 1, 3])}),
        ([node("Mul", ["a", "mask"], ["y"])], {"mask": np.tri(2, 3, dtype=np.float32)}),
        ([node("QuantizeLinear", ["a", "s"], ["b"]), node("DequantizeLinear", ["b", "t"], ["y"])],
         {"s": np.float32([1, 2, 3]), "t": np.float32([3, 2, 1])}),
        ([node("Expand", ["zero", "s"], ["z"]), node("Sub", ["a", "z"], ["y"])],
         {"zero": np.float32(0), "s": np.array([2, 3])}),
    ],
)  # fmt: skip
def test_constants_of_formulas_are_not_trained(built, nodes, arrays):
    proto, model = formula(built, *nodes, **arrays)
    assert set(model.variables["params"]) == {"w"}
    listed = {name for layer in importer.layers(proto) for name in layer.constants}
    assert listed == {name for name, value in arrays.items() if value.dtype == np.float32}


@pytest.mark.parametrize(
    ("nodes", "trained"),
    [
        ([node("Sub", ["x", "m"], ["c"]), node("Div", ["c", "s"], ["z"])], set()),
        ([node("Sub", ["x", "m"], ["c"]), node("Mul", ["c", "s"], ["z"])], set()),
        ([node("Transpose", ["x"], ["t"]), node("Transpose", ["t"], ["u"]),
          node("Sub", ["u", "m"], ["c"]), node("Div", ["c", "s"], ["z"])], set()),
        # a gain and a bias of the input; prototypes; a mean that is used twice
        ([node("Mul", ["x", "s"], ["c"]), node("Add", ["c", "m"], ["z"])], {"s", "m"}),
        ([node("Sub", ["x", "p"], ["c"]), node("Mul", ["c", "s"], ["z"])], {"p", "s"}),
        ([node("Sub", ["x", "m"], ["c"]), node("Add", ["c", "m"], ["z"])], {"m"}),
    ],
)  # fmt: skip
def test_the_normalisation_of_an_input_is_not_trained(built, nodes, trained):
    """A deviation that training draws at random near 0 destroys a model."""
    arrays = {"w": np.eye(3, dtype=np.float32), "m": np.float32([1, 2, 3])}
    arrays |= {"s": np.float32([4, 5, 6]), "p": np.ones((2, 3), np.float32)}
    read = {name for one in nodes for name in one.input}
    arrays = {name: value for name, value in arrays.items() if name == "w" or name in read}
    proto = built([*nodes, node("MatMul", ["z", "w"], ["y"])], {"x": [2, 3]}, "y", arrays)
    assert set(importer.load(proto).variables["params"]) == {"w", *trained}
    listed = {name for layer in importer.layers(proto) for name in layer.constants}
    assert listed == set(arrays) - {"w", *trained}
    model = importer.load(proto, trainable=[name for name in arrays])
    assert set(model.variables["params"]) == set(arrays)


@pytest.mark.parametrize(
    ("nodes", "arrays"),
    [
        ([node("Add", ["a", "bias"], ["y"])], {"bias": np.float32([1, 2, 3])}),
        ([node("Mul", ["a", "gain"], ["y"])], {"gain": np.float32([1, 2, 3])}),
        ([node("PRelu", ["a", "slope"], ["y"])], {"slope": np.float32([0.25])}),
        # the bias of a layer with one feature
        ([node("MatMul", ["a", "v"], ["b"]), node("Add", ["b", "bias"], ["y"])],
         {"v": np.ones((3, 1), np.float32), "bias": np.float32([1])}),
        ([node("Transpose", ["v"], ["u"], perm=[1, 0]), node("MatMul", ["a", "u"], ["b"]),
          node("Add", ["bias", "b"], ["y"])],
         {"v": np.ones((1, 3), np.float32), "bias": np.float32([1])}),
        ([node("MatMul", ["a", "v"], ["b"]), node("Add", ["b", "bias"], ["y"])],
         {"v": np.ones(3, np.float32), "bias": np.float32(1)}),
        ([node("MatMul", ["a", "v"], ["b"]), node("Flatten", ["b"], ["c"], axis=0),
          node("Add", ["c", "bias"], ["y"])],
         {"v": np.ones((3, 1), np.float32), "bias": np.float32([1])}),
    ],
)  # fmt: skip
def test_weights_are_trained(built, nodes, arrays):
    proto, model = formula(built, *nodes, **arrays)
    assert set(model.variables["params"]) == {"w", *arrays}
    assert not any(layer.constants for layer in importer.layers(proto))


def test_the_user_says_what_is_trained(built):
    pow_, add = node("Pow", ["a", "p"], ["b"]), node("Add", ["b", "table"], ["y"])
    arrays = {"p": np.float32(2), "table": np.float32([1, 2, 3])}
    proto, model = formula(built, pow_, add, **arrays)
    assert set(model.variables["params"]) == {"w", "table"}
    x = -np.ones((2, 3), np.float32)
    grads = jax.grad(lambda p: model.apply({"params": p}, x).sum())(model.variables["params"])
    assert all(np.isfinite(value).all() for value in grads.values())
    chosen = importer.load(proto, trainable=["p"], constant=["ta*"])
    assert set(chosen.variables["params"]) == {"w", "p"}
    for settings, message in (
        ({"trainable": ["q"]}, "trainable: the model has no float initializer 'q'"),
        ({"trainable": "p"}, "trainable: got the string 'p', wanted a list"),
        ({"trainable": ["p"], "constant": ["p"]}, "trainable, constant: both name 'p'"),
    ):
        with pytest.raises(ValueError, match=message):
            importer.load(proto, **settings)
