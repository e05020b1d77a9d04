"""The interface of ONNX's own suite, and a tenth of the suite."""

import importlib

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
backend = importlib.import_module("jaxatr.onnx.backend")
node = onnx.helper.make_node


def test_a_node_by_itself():
    x = np.float32([-1, 2])
    (y,) = backend.run_node(node("LeakyRelu", ["x"], ["y"], alpha=0.5), [x])
    np.testing.assert_allclose(y, [-0.5, 2])
    (y,) = backend.run_node(node("Clip", ["x", "", "high"], ["y"]), [x, np.float32(1)])
    np.testing.assert_allclose(y, [-1, 1])
    (y,) = backend.run_node(node("Softmax", ["x"], ["y"]), [np.zeros((2, 2), np.float32)], opset=11)
    np.testing.assert_allclose(y, 0.5)


def test_a_model_by_position_and_by_name(network):
    x = np.float32(np.random.default_rng(0).normal(size=(2, 3, 8, 8)))
    (one,) = backend.run_model(network, [x])
    (other,) = backend.prepare(network).run({"x": x})
    assert isinstance(one, np.ndarray)
    np.testing.assert_array_equal(one, other)


def test_devices(network):
    import jax

    assert backend.supports_device("CPU") == (jax.default_backend() == "cpu")
    assert not backend.supports_device("TPU9000")
    with pytest.raises(ValueError, match="device: got 'nowhere'"):
        backend.prepare(network, "nowhere")
