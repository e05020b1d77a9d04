"""Loading and applying models: agreement with onnxruntime, jit, grad, training, 64-bit types."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import onnx as importer
from jaxatr.onnx.ops import registry

onnx = pytest.importorskip("onnx")
node = onnx.helper.make_node
X = np.float32(np.random.default_rng(1).normal(size=(6, 3, 8, 8)))


def by_runtime(onnxruntime, proto, *inputs):
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return session.run(None, {i.name: v for i, v in zip(session.get_inputs(), inputs, strict=True)})


def test_a_models_description(network):
    model = importer.load(network)
    assert [(i.name, i.shape, i.dtype) for i in model.inputs] == [("x", ("n", 3, 8, 8), "float32")]
    assert [o.name for o in model.outputs] == ["y"]
    assert set(model.variables["params"]) == {"conv.weight", "bn.scale", "bn.bias", "fc.weight"}
    assert set(model.variables["batch_stats"]) == {"bn.mean", "bn.var"}
    assert model.variables["constants"] == {}


@pytest.mark.parametrize("batch", [1, 6])
def test_onnxruntime_agrees_at_any_batch_size(network, onnxruntime, batch):
    model = importer.load(network)
    (expected,) = by_runtime(onnxruntime, network, X[:batch])
    np.testing.assert_allclose(model.apply(model.variables, X[:batch]), expected, atol=1e-4)
    np.testing.assert_allclose(
        jax.jit(model.apply)(model.variables, X[:batch]), expected, atol=1e-4
    )


def test_a_path_bytes_and_a_proto_are_one_model(network, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(network, path)
    results = []
    for given in (path, str(path), path.read_bytes(), network):
        model = importer.load(given)
        results.append(np.asarray(model.apply(model.variables, X)))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy])
def test_a_model_is_kept_by_pickle_before_and_after_its_first_call(network, copied):
    model = importer.load(network)
    before, wanted = copied(model), model(X)
    for one in (before, copied(model)):
        np.testing.assert_array_equal(one(X), wanted)
        jax.tree.map(np.testing.assert_array_equal, one.variables, model.variables)


def test_operators_are_pickled_as_their_place():
    assert all(pickle.loads(pickle.dumps(one)) is one for one in registry.operators())
    with registry.restored():
        registry.register("Gone", "my.domain")(lambda x: x)
        kept = pickle.dumps(registry.find("Gone", "my.domain", 1))
    with pytest.raises(ValueError, match="operator my.domain.Gone is not registered"):
        pickle.loads(kept)


def by_hand(params, stats):
    """Returns the same network, written by hand."""
    a = jax.lax.conv(X, params["conv.weight"], (1, 1), "SAME")
    per_channel = (params["bn.scale"], params["bn.bias"], stats["bn.mean"], stats["bn.var"])
    scale, bias, mean, var = (v[:, None, None] for v in per_channel)
    b = jnp.maximum((a - mean) / jnp.sqrt(var + 1e-5) * scale + bias, 0)
    window = (1, 1, 2, 2)  # the gradient of jnp.max is NaN where XLA computes b twice, differently
    d = jax.lax.reduce_window(b, -jnp.inf, jax.lax.max, window, window, "VALID")
    return d.reshape(6, -1) @ params["fc.weight"].T


def test_gradients_are_those_of_the_network_written_out(network):
    model = importer.load(network)

    def loss(apply):
        return lambda params: jnp.sum(jnp.square(apply(params)))

    params, stats = model.variables["params"], model.variables["batch_stats"]
    got = jax.jit(jax.grad(loss(lambda p: model.apply({"params": p}, X))))(params)
    expected = jax.jit(jax.grad(loss(lambda p: by_hand(p, stats))))(params)
    assert set(got) == set(params)
    for name, gradient in expected.items():
        np.testing.assert_allclose(got[name], gradient, rtol=1e-3, atol=1e-2)


def test_training_uses_and_updates_the_statistics(network):
    model = importer.load(network)
    variables = model.variables
    outputs, state = jax.jit(lambda v, x: model.apply(v, x, training=True))(variables, X)
    # Plain NumPy on what the convolution gives.
    w = np.asarray(variables["params"]["conv.weight"])
    a = np.asarray(jax.lax.conv(X, w, (1, 1), "SAME"))
    mean, var = a.mean((0, 2, 3)), a.var((0, 2, 3))
    before = variables["batch_stats"]
    np.testing.assert_allclose(
        state["batch_stats"]["bn.mean"], 0.75 * before["bn.mean"] + 0.25 * mean, atol=1e-5
    )
    np.testing.assert_allclose(
        state["batch_stats"]["bn.var"], 0.75 * before["bn.var"] + 0.25 * var, rtol=1e-4
    )
    as_running = {**variables, "batch_stats": {"bn.mean": mean, "bn.var": var}}
    np.testing.assert_allclose(outputs, model.apply(as_running, X), atol=1e-3)


def test_dropout_drops_by_the_key_alone(network):
    model = importer.load(network)
    trained = jax.jit(lambda rngs: model.apply(model.variables, X, training=True, rngs=rngs)[0])
    plain, one = trained(None), trained(jax.random.key(0))
    same, other = trained({"dropout": jax.random.key(0)}), trained(jax.random.key(1))
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, plain) and not np.allclose(one, other)
    applied = jax.jit(lambda rngs: model.apply(model.variables, X, rngs=rngs))
    np.testing.assert_array_equal(applied(None), applied(jax.random.key(0)))


@pytest.mark.parametrize("eager", [False, True])
def test_arrays_of_the_other_byte_order_and_lists_count_as_their_numbers(built, eager):
    model = importer.load(
        built([node("Mul", ["x", "x"], ["y"])], {"x": ("float32", ["n", 2])}, "y")
    )
    given = np.array([[1.0, 2.0], [3.0, 4.0]])
    wide, narrow = given.astype(">f8"), given.astype(">f4")
    # jax takes bytes of an array as they are if one of its shape and type came before.
    for one in (given, wide, given.astype(np.float32), narrow, given.tolist()):
        found = model(one, eager=eager)
        assert found.dtype == jnp.float32
        np.testing.assert_array_equal(found, given**2)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray])
def test_integers_that_the_declared_type_does_not_hold_are_refused(built, eager, convert):
    model = importer.load(built([node("Add", ["x", "x"], ["y"])], {"x": ("uint8", ["n"])}, "y"))
    found = model(convert(np.array([3, 100], np.uint16)), eager=eager)
    np.testing.assert_array_equal(found, np.array([6, 200], np.uint8))
    with pytest.raises(ValueError, match="input 'x': 300 does not fit into uint8"):
        model(convert(np.array([3, 300], np.uint16)), eager=eager)


@pytest.mark.parametrize("jit", [False, True])
def test_64_bits_are_kept_and_nothing_is_switched_on(built, jit):
    big = np.array([2**40 + 1, -(2**50)], np.int64)
    nodes = [node("Add", ["c", "d"], ["y"]), node("Div", ["e", "f"], ["z"])]
    weights = {"d": big, "f": np.array([3.0], np.float64)}
    model = importer.load(built(nodes, {"c": ("int64", [2]), "e": ("float64", [1])}, "yz", weights))
    apply = jax.jit(model.apply) if jit else model.apply
    y, z = apply(model.variables, np.array([1, 2], np.int64), np.array([1.0]))
    assert y.dtype == jnp.int64 and z.dtype == jnp.float64
    np.testing.assert_array_equal(y, big + [1, 2])
    np.testing.assert_allclose(z, 1 / 3, rtol=1e-15)
    assert jnp.arange(2).dtype == jnp.int32 and not jax.config.jax_enable_x64


@pytest.mark.parametrize("call", [lambda model: model(X), lambda m: m.apply(m.variables, X)])
def test_what_may_meet_is_onnx_s_rule_whatever_jax_is_set_to(built, call):
    weights = {"w": X[:2, :, :3, :3], "b": X[0, 0, 0, :2], "c": X[0, 0, 1, :6]}
    nodes = [node("Conv", ["x", "w", "b"], ["h"]), node("Add", ["h", "c"], ["y"])]
    model = importer.load(built(nodes, {"x": ("float32", [6, 3, 8, 8])}, "y", weights))
    convolved = jax.lax.conv(X, weights["w"], (1, 1), "VALID")
    expected = np.asarray(convolved) + weights["b"][:, None, None] + weights["c"]
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        np.testing.assert_allclose(call(model), expected, atol=1e-5)


def test_variables_that_are_left_out_are_the_models(network):
    model = importer.load(network)
    np.testing.assert_array_equal(
        model.apply({"params": model.variables["params"]}, X), model.apply(model.variables, X)
    )


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((), r"inputs: got 0, wanted 1: \['x'\]"),
        ((X[0],), r"input 'x': got shape \(3, 8, 8\), wanted \('n', 3, 8, 8\)"),
        ((X[:, :2],), r"input 'x': got shape \(6, 2, 8, 8\)"),
        ((X.astype(np.int32),), r"input 'x': got int32, wanted float32"),
    ],
)
def test_inputs_that_do_not_fit(network, inputs, message):
    model = importer.load(network)
    with pytest.raises(ValueError, match=message):
        model.apply(model.variables, *inputs)


def test_a_value_that_decides_a_shape_must_be_known_under_jit(built):
    proto = built(
        [node("Reshape", ["x", "s"], ["y"], "view")], {"x": [6], "s": ("int64", [2])}, "y"
    )
    model = importer.load(proto)
    shape = np.array([2, 3], np.int64)
    assert model.apply({}, np.zeros(6, np.float32), shape).shape == (2, 3)
    with pytest.raises(ValueError, match=r"node 'view' \(Reshape\): shape: got"):
        jax.jit(model.apply)({}, np.zeros(6, np.float32), shape)


def test_a_shape_that_is_data_is_computed_without_jit(built):
    model = importer.load(built([node("NonZero", ["x"], ["y"], "places")], {"x": [4]}, "y"))
    x = np.array([0, 3, 0, 1], np.float32)
    np.testing.assert_array_equal(model.apply({}, x), [[1, 3]])
    with pytest.raises(ValueError, match="node 'places'"):
        jax.jit(model.apply)({}, x)


def test_inputs_that_are_not_a_model(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        importer.load(tmp_path / "missing.onnx")
    with pytest.raises(ValueError, match="not an ONNX model|no graph"):
        importer.load(b"\x08\xff\xff\xff")
    with pytest.raises(ValueError, match="got int, wanted a path"):
        importer.load(3)


def test_domains_dimensions_and_places_are_text(built, tmp_path):
    nodes = [node("Own", ["x"], ["a"], domain="domain"), node("Add", ["a", "w"], ["y"])]
    proto = built(nodes, {"x": ["dimension"]}, "y", {"w": np.ones(1)}, domains=["domain"])
    (tensor,) = proto.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="place")
    raw = proto.SerializeToString()
    for text in (b"domain", b"dimension", b"place"):
        (tmp_path / "model.onnx").write_bytes(raw.replace(text, b"\xff" + text[1:]))
        with (
            pytest.raises(ValueError, match="not valid UTF-8"),
            importer.ops.registry.restored(),
        ):
            importer.register("Own", "domain")(lambda x: x)
            importer.load(tmp_path / "model.onnx")


def test_a_split_into_absurdly_many_is_not_shown_to_onnxs_inference(built):
    split = node("Split", ["x"], ["a", "b"], axis=0, num_outputs=1 << 40)
    proto = built([split, node("Add", ["a", "b"], ["y"])], {"x": [6]}, "y")
    first, second = importer.layers(proto)
    assert first.outputs[0].shape is None and second.operator == "Add"
    with pytest.raises(ValueError, match="num_outputs"):
        importer.load(proto).apply({}, np.ones(6, np.float32))


def test_names_are_text(network):
    raw = network.SerializeToString().replace(b"conv.weight", b"conv.\xff\xfeight")
    with pytest.raises(ValueError, match="not valid UTF-8"):
        importer.load(raw)


def test_a_model_that_is_read_where_jax_traces_has_arrays(network):
    read = []

    @jax.jit
    def traced(x):
        read.append(importer.load(network))
        return read[0].apply(read[0].variables, x, keep_64_bit=False)

    x = np.ones((1, 3, 8, 8), np.float32)
    found = traced(x)
    model = read[0]
    np.testing.assert_allclose(model.apply(model.variables, x), found, rtol=1e-4, atol=1e-5)


MOST, LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@pytest.mark.parametrize(
    ("nodes", "weights", "expected"),
    [
        ([node("Clip", ["x", "", "m"], ["y"])], {"m": MOST}, [5, 3, -2, 7]),
        ([node("Clip", ["x", "", "m"], ["y"])], {"m": 2**40}, [5, 3, -2, 7]),
        ([node("Min", ["x", "m"], ["y"])], {"m": MOST}, [5, 3, -2, 7]),
        ([node("Min", ["m", "x"], ["y"])], {"m": 2**32}, [5, 3, -2, 7]),
        ([node("Max", ["x", "m"], ["y"])], {"m": LEAST}, [5, 3, -2, 7]),
        ([node("Less", ["x", "m"], ["y"])], {"m": MOST}, [True] * 4),
        ([node("GreaterOrEqual", ["m", "x"], ["y"])], {"m": 2**33}, [True] * 4),
        ([node("Less", ["x", "z"], ["c"]), node("Where", ["c", "m", "x"], ["w"]),
          node("ReduceMin", ["w"], ["y"], keepdims=0)], {"m": MOST, "z": 0}, 3),
        ([node("Concat", ["x", "m"], ["w"], axis=0), node("ReduceMax", ["w"], ["v"]),
          node("Greater", ["v", "x"], ["y"])], {"m": [MOST]}, [True] * 4),
        ([node("Slice", ["x", "z", "m"], ["y"])], {"z": [0], "m": [MOST]}, [5, 3, -2, 7]),
    ],
)  # fmt: skip
def test_64_bits_are_saturated_where_jax_narrows(built, nodes, weights, expected):
    proto = built(nodes, {"x": ("int64", [4])}, "y", {k: np.array(v) for k, v in weights.items()})
    model, x = importer.load(proto), np.array([5, 3, -2, 7])
    narrow = jax.jit(lambda x: model.apply(model.variables, x, keep_64_bit=False))
    np.testing.assert_array_equal(narrow(x), expected)
    np.testing.assert_array_equal(importer.load(proto)(x), expected)


@pytest.mark.parametrize("most", [MOST, 2**31 + 5, 100])
def test_a_loop_of_more_iterations_than_32_bits_count(built, most):
    make = onnx.helper.make_tensor_value_info
    body = onnx.helper.make_graph(
        [node("Add", ["v", "one"], ["w"]), node("Less", ["w", "ten"], ["more"])],
        "body",
        [make("i", 7, []), make("c", 9, []), make("v", 1, [])],
        [make("more", 9, []), make("w", 1, [])],
    )
    weights = {"m": np.array(most), "one": np.float32(1), "ten": np.float32(10)}
    proto = built([node("Loop", ["m", "", "x"], ["y"], body=body)], {"x": []}, "y", weights)
    model = importer.load(proto)
    narrow = jax.jit(lambda x: model.apply(model.variables, x, keep_64_bit=False))
    assert narrow(np.float32(1.5)) == 10.5


@pytest.mark.parametrize(
    ("made", "value"),
    [
        (node("Add", ["x", "m"], ["y"], "n"), MOST),
        (node("Mul", ["x", "m"], ["y"], "n"), 0x9E3779B9),
        (node("Max", ["x", "m"], ["y"], "n"), 2**40),
        (node("Where", ["c", "m", "x"], ["y"], "n"), 2**40),
        (node("BitwiseAnd", ["x", "m"], ["y"], "n"), 0xFFFFFFFF),
    ],
)
def test_64_bits_are_refused_where_narrow_ones_differ(built, made, value):
    weights = {"m": np.array(value), "c": np.array([True, False, True, False])}
    model = importer.load(built([made], {"x": ("int64", [4])}, "y", weights))
    with pytest.raises(ValueError, match=f"node 'n' .*{value} does not fit into 32 bits.*keep 64"):
        model.apply(model.variables, np.arange(4), keep_64_bit=False)
    with pytest.raises(ValueError, match="input 'x': .* does not fit into 32 bits"):
        model.apply(model.variables, np.arange(4) << 40, keep_64_bit=False)


def text(*values):
    return np.array(values, object)


def one_value(name, operator, *inputs, **attributes):
    result = onnx.helper.make_value_info(f"{name}_y", onnx.TypeProto())
    made = node(operator, inputs, [f"{name}_y"], **attributes)
    return onnx.helper.make_graph([made], name, [], [result])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Cast", ["x"], ["y"], "n", to=8)], r"node 'n' \(Cast\): .*eager=True"),
        ([node("Identity", ["a"], ["y"])], "output 'y': strings cannot be compiled; .*eager=True"),
        ([node("Greater", ["x", "z"], ["c"]), node("Where", ["c", "a", "a"], ["y"], "n")],
         r"node 'n' \(Where\): .*strings.*eager=True"),
        ([node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "z"], ["c"]),
          node("If", ["c"], ["y"], "n", then_branch=one_value("t", "Identity", "x"),
               else_branch=one_value("e", "Identity", "s"))],
         r"node 'n' \(If\): .*same shapes.*\(float32\[2\]\) and \(float32\[\]\).*eager=True"),
        ([node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "z"], ["c"]),
          node("If", ["c"], ["y"], "n", then_branch=one_value("t", "Identity", "a"),
               else_branch=one_value("e", "Identity", "a"))],
         r"node 'n' \(If\): .*strings.*eager=True"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_names_its_operator(built, nodes, message):
    proto = built(nodes, {"x": [2]}, "y", {"z": np.float32(0), "a": text("p", "q")})
    model, x = importer.load(proto), np.float32([1.5, -2])
    with pytest.raises(ValueError, match=message):
        model(x)
    with pytest.raises(ValueError, match=message):
        jax.jit(lambda x: model.apply(model.variables, x, keep_64_bit=False))(x)
    assert np.shape(model(x, eager=True)) in ((), (2,))
