"""The backend interface of ONNX's test suite."""

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
    (y,) = backend.run_node(node("Softmax", ["x"], ["y"]), [np.zeros((2, 2), np.float32)])
    np.testing.assert_allclose(y, 0.5)


def test_a_node_in_the_version_that_onnxs_interface_names():
    x = np.float32(np.random.default_rng(0).normal(size=(2, 3, 4)))
    softmax = node("Softmax", ["x"], ["y"], axis=1)
    flat = np.exp(x.reshape(2, 12))
    (old,) = backend.run_node(softmax, [x], "CPU", [(np.float32, x.shape)], opset_version=11)
    np.testing.assert_allclose(old.reshape(2, 12), flat / flat.sum(1, keepdims=True), rtol=1e-5)
    (new,) = backend.run_node(softmax, [x])
    np.testing.assert_allclose(new, np.exp(x) / np.exp(x).sum(1, keepdims=True), rtol=1e-5)


def test_a_model_by_position_and_by_name(network):
    x = np.float32(np.random.default_rng(0).normal(size=(2, 3, 8, 8)))
    (one,) = backend.run_model(network, [x])
    (other,) = backend.prepare(network).run({"x": x})
    assert isinstance(one, np.ndarray)
    np.testing.assert_array_equal(one, other)


def test_devices(network):
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    assert not backend.supports_device("CPU:4096") and not backend.supports_device("CPU:x")
    assert not backend.supports_device("TPU9000")
    with pytest.raises(ValueError, match="device: got 'nowhere'"):
        backend.prepare(network, "nowhere")


def test_the_cpu_serves_where_another_device_is_the_default(network, monkeypatch):
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    x = np.zeros((1, 3, 8, 8), np.float32)
    prepared = backend.prepare(network)
    with jax.default_device(jax.devices("cpu")[0]):
        (expected,) = backend.run_model(network, [x])
    np.testing.assert_array_equal(prepared.run([x])[0], expected)
    assert prepared.device.platform == "cpu"
    assert {v.device for v in prepared.model.variables["params"].values()} == {prepared.device}
