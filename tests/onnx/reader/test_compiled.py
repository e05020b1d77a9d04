"""A loaded model as a callable: compiled once for each shape, with batch norms folded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import onnx as importer
from jaxatr.kernels import compiled as compiling
from jaxatr.kernels import onednn
from jaxatr.onnx.ops import registry
from jaxatr.onnx.reader.folding import fold_batch_norms

onnx = pytest.importorskip("onnx")
node = onnx.helper.make_node
RNG = np.random.default_rng(1)
X = RNG.normal(size=(6, 3, 8, 8)).astype("float32")


def operators(program):
    return [call.operator.name for call in program.calls]


def norm(name, features):
    """A batch norm from ``name`` to ``name_n``, and its arrays."""
    arrays = {
        "scale": RNG.uniform(0.5, 1.5, features),
        "bias": RNG.normal(size=features),
        "mean": RNG.normal(size=features),
        "var": RNG.uniform(0.5, 1.5, features),
    }
    named = {f"{name}.{key}": value.astype("float32") for key, value in arrays.items()}
    return node("BatchNormalization", [name, *named], [f"{name}_n"], f"{name}_norm"), named


def drawn(*shape):
    return (RNG.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype("float32")


@pytest.fixture
def layers(built):
    """Convolutions with and without groups and bias, and norms that stay: one reads what another
    node reads too, one reads no convolution."""
    nodes, arrays, last = [], {"b": drawn(6)}, "x"
    for name, op, kernel, bias, more in (
        ("c1", "Conv", (8, 3, 3, 3), [], {"pads": [1, 1, 1, 1]}),
        ("c2", "Conv", (6, 4, 3, 3), ["b"], {"group": 2, "pads": [1, 1, 1, 1]}),
        ("c3", "ConvTranspose", (6, 2, 2, 2), [], {"group": 3, "strides": [2, 2]}),
    ):
        arrays[f"{name}.w"] = drawn(*kernel)
        nodes.append(node(op, [last, f"{name}.w", *bias], [name], name, **more))
        features = kernel[1] * 3 if op == "ConvTranspose" else kernel[0]
        one, own = norm(name, features)
        arrays |= own
        nodes += [one, node("Relu", [f"{name}_n"], [f"{name}_r"])]
        last = f"{name}_r"
    arrays["c4.w"] = drawn(4, 6, 1, 1)
    one, own = norm("c4", 4)
    other, others = norm("s", 4)
    nodes += [node("Conv", [last, "c4.w"], ["c4"]), one, node("Add", ["c4", "c4_n"], ["s"]), other]
    return built(nodes, {"x": [None, 3, 8, 8]}, ["s_n"], arrays | own | others)


def test_the_norms_that_alone_read_a_convolution_are_folded(layers):
    model = importer.load(layers)
    arrays = {k: v for group in model.variables.values() for k, v in group.items()} | model.known
    program, made = fold_batch_norms(model.program, arrays)
    assert operators(model.program).count("BatchNormalization") == 5
    assert operators(program).count("BatchNormalization") == 2
    assert len(made) == 2 * 3 and len(program.calls) == len(model.program.calls) - 3
    found, wanted = model(X), model(X, eager=True)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_it_answers_as_onnxruntime_and_keeps_its_variables(network, onnxruntime):
    model = importer.load(network)
    session = onnxruntime.InferenceSession(network.SerializeToString())
    for batch in (1, 6):
        (wanted,) = session.run(None, {"x": X[:batch]})
        np.testing.assert_allclose(model(X[:batch]), wanted, atol=1e-4)
    assert "bn.scale" in model.variables["params"]
    np.testing.assert_allclose(
        model.apply(model.variables, X), model(X), atol=1e-5 * np.abs(wanted).max()
    )


def test_a_node_without_inputs_is_no_norm(built):
    nodes = [
        node("RandomNormal", [], ["noise"], shape=[2], seed=1.0),
        node("Add", ["x", "noise"], ["y"]),
    ]
    model = importer.load(built(nodes, {"x": [2]}, "y"))
    assert np.isfinite(model(np.zeros(2, np.float32))).all()


def test_a_shape_is_compiled_once(built):
    traced = []
    with registry.restored():

        @importer.register("Traced", domain="my")
        def noted(x):
            traced.append(x.shape)
            return 2 * x

        proto = built(
            [node("Traced", ["x"], ["y"], domain="my")], {"x": [None]}, "y", domains=["my"]
        )
        model = importer.load(proto)
        for values in (np.ones(2), np.zeros(2), jnp.ones(2), np.ones(3), np.ones(2)):
            np.testing.assert_array_equal(model(values.astype("float32")), 2 * values)
    assert traced == [(2,), (3,)]


@pytest.mark.parametrize("eager", [False, True])
def test_the_caller_may_fill_the_input_anew(built, eager, read_in_place):
    nodes, last = [], "x"
    for number in range(10):  # computed for longer than a call takes to return
        nodes += [node("MatMul", [last, "x"], [f"m{number}"])]
        nodes += [node("Tanh", [f"m{number}"], [f"t{number}"])]
        last = f"t{number}"
    model = importer.load(built(nodes, {"x": [None, None]}, [last]))
    image = np.eye(600, dtype=np.float32)
    wanted, buffer = np.array(model(image, eager=eager)), read_in_place(image)
    for _ in range(3):
        buffer[...] = image
        found = model(buffer, eager=eager)
        buffer[...] = 0
        np.testing.assert_array_equal(found, wanted)


def test_weights_are_constants_up_to_a_limit(network, monkeypatch):
    def arguments(model):
        _, compiled, _ = model._inference
        return len(jax.tree.leaves(compiled.lower(X).in_avals))

    small = importer.load(network)
    wanted = small(X)
    monkeypatch.setattr(compiling, "CONSTANTS", 100)
    large = importer.load(network)
    np.testing.assert_allclose(large(X), wanted, rtol=1e-5, atol=1e-5)
    assert arguments(small) == 1 and arguments(large) > 1


@pytest.mark.skipif(
    not onednn.options(), reason="this jaxlib has no oneDNN for XLA:CPU: 0.11 and later have it"
)
def test_onednn_runs_the_folded_convolutions(layers, monkeypatch):
    monkeypatch.setenv(onednn.VARIABLE, "always")
    model = importer.load(layers)
    assert model.forms == {}
    found, wanted = model(X), model(X, eager=True)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert {shape: form.name for shape, form in model.forms.items()} == {
        "float32[6,3,8,8]": "onednn"
    }


@pytest.mark.parametrize("groups", [1, 8])
def test_onednn_computes_a_convolution_with_its_norm_and_clip_in_one_call(built, groups):
    first, own = norm("c", 8)
    arrays = {"w": drawn(8, 8 // groups, 3, 3), "low": np.float32(0), "high": np.float32(6)} | own
    nodes = [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], group=groups), first]
    nodes += [node("Clip", ["c_n", "low", "high"], ["y"])]
    model = importer.load(built(nodes, {"x": [2, 8, 16, 16]}, ["y"], arrays))
    leaves, tree = jax.tree.flatten(model.variables)
    traceable = jax.jit(lambda given, x: model.apply(tree.unflatten(given), x))
    images = RNG.normal(size=(2, 8, 16, 16)).astype("float32")
    plan = onednn.Specialised(traceable.trace(leaves, images), leaves)
    assert plan.joined == 3
    found, wanted = jax.jit(plan.function())(images), traceable(leaves, images)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    if onednn.options():
        compiled = jax.jit(plan.function(), compiler_options=dict(onednn.options()))
        text = compiled.lower(images).compile().as_text()
        assert text.count("__onednn$convolution") == 1 and '"BIAS","RELU6"' in text


def test_it_can_be_traced_by_jax(network):
    model = importer.load(network)
    found = jax.jit(lambda x: model(x).sum())(X)
    np.testing.assert_allclose(found, np.sum(model(X)), rtol=1e-5)
    gradient = jax.grad(lambda x: model(x).sum())(jnp.asarray(X))
    wanted = jax.grad(lambda x: model.apply(model.variables, x).sum())(jnp.asarray(X))
    np.testing.assert_allclose(gradient, wanted, atol=1e-5 * np.abs(wanted).max())


def test_64_bits_are_kept(built):
    proto = built([node("Add", ["x", "x"], ["y"])], {"x": ("int64", [None])}, ["y"])
    found = importer.load(proto)(np.array([2**40]))
    assert found.dtype == np.int64 and np.asarray(found)[0] == 2**41
    assert jnp.arange(2).dtype == np.int32


def test_a_model_that_cannot_be_compiled_says_how_it_is_computed(built):
    model = importer.load(built([node("NonZero", ["x"], ["y"], "nz")], {"x": [3]}, ["y"]))
    x = np.array([0, 1, 2], np.float32)
    with pytest.raises(ValueError, match=r"node 'nz'.*eager=True"):
        model(x)
    np.testing.assert_array_equal(model(x, eager=True), [[1, 2]])
    texts = importer.load(
        built([node("StringConcat", ["x", "x"], ["y"])], {"x": ("str", [1])}, ["y"], opset=20)
    )
    with pytest.raises(ValueError, match=r"'x'.*eager=True"):
        texts(["a"])


def test_inputs_that_do_not_fit_are_named(network):
    model = importer.load(network)
    with pytest.raises(ValueError, match="'x'"):
        model(X[:, :2])
    with pytest.raises(ValueError, match="got 2, wanted 1"):
        model(X, X)
