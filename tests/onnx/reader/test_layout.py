"""Channels-last storage of images gives the same results and leaves no transposition."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import onnx as importer

onnx = pytest.importorskip("onnx")
node = onnx.helper.make_node
X = np.float32(np.random.default_rng(1).normal(size=(2, 3, 6, 5)))


def draw(*shape):
    return np.float32(np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape))


@pytest.fixture
def network(built):
    """Image layers, elementwise operators, and others."""
    norm = ["scale", "shift", "mean", "variance"]
    nodes = [
        node("Conv", ["x", "w", "bias"], ["a"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", *norm], ["b"]),
        node("Clip", ["b", "low", "high"], ["c"], "cut"),
        node("Conv", ["c", "depthwise"], ["d"], pads=[1, 1, 1, 1], group=4),
        node("Add", ["d", "c"], ["e"]),
        node("Mul", ["e", "factor"], ["f"]),
        node("Concat", ["f", "c"], ["g"], axis=1),
        node("MaxPool", ["g"], ["h"], kernel_shape=[2, 2]),
        node("Sigmoid", ["h"], ["i"]),
        node("ReduceMean", ["i", "space"], ["y"], keepdims=0),
    ]
    weights = {
        **{name: draw(4) for name in (*norm, "bias")},
        "w": draw(4, 3, 3, 3) - 1,
        "depthwise": draw(4, 1, 3, 3) - 1,
        "factor": draw(4, 1, 1),
        "low": np.float32(0),
        "high": np.float32(6),
        "space": np.array([2, 3]),
    }
    return built(nodes, {"x": [2, 3, 6, 5]}, ["y"], weights)


def test_traced_equals_operator_by_operator(network):
    model = importer.load(network)
    eager = model.apply(model.variables, X)
    np.testing.assert_allclose(jax.jit(model.apply)(model.variables, X), eager, rtol=1e-5)


@pytest.mark.slow  # to compile each operator; test_peers.py has the gradients of a network
def test_the_gradient_is_that_of_operator_by_operator(network):
    model = importer.load(network)

    def loss(params, x):
        out, _ = model.apply({"params": params}, x, training=True)
        return jnp.sum(jnp.sin(out))

    gradients = jax.grad(loss, (0, 1))
    with jax.disable_jit():
        expected = gradients(model.variables["params"], X)
    got = jax.jit(gradients)(model.variables["params"], X)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_between_layers_nothing_is_transposed(built):
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "v"], ["c"]),
        node("Add", ["c", "b"], ["d"]),
        node("Conv", ["d", "w"], ["y"]),
    ]
    weights = {"w": draw(3, 3, 1, 1), "v": draw(3, 3, 1, 1)}
    model = importer.load(built(nodes, {"x": [2, 3, 6, 5]}, ["y"], weights))
    params = model.variables["params"]
    step = jax.jit(jax.grad(lambda p, x: jnp.sum(model.apply({"params": p}, x) ** 2)))
    turned = re.findall(
        r"2,\d+,\d+,\d+\]\S* transpose\(", step.lower(params, X).compile().as_text()
    )
    assert len(turned) <= 1  # the images that come in


def test_each_call_is_shown_with_channels_first(network):
    model, seen = importer.load(network), {}

    def each(call, results):
        seen[call.outputs[0]] = results[0].shape
        return tuple(2 * r if call.outputs[0] == "b" else r for r in results)

    run = jax.jit(lambda v, x: model.apply(v, x, each=each))
    changed = run(model.variables, X)
    assert seen["b"] == seen["e"] == (2, 4, 6, 5) and seen["g"] == (2, 8, 6, 5)
    np.testing.assert_allclose(changed, model.apply(model.variables, X, each=each), rtol=1e-5)
    assert not np.allclose(changed, jax.jit(model.apply)(model.variables, X))


def test_bounds_are_not_weights(network):
    params = importer.load(network).variables["params"]
    assert set(params) == {"w", "bias", "depthwise", "scale", "shift", "factor"}
