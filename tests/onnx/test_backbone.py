"""A network from a file as the backbone that heads are trained on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from jaxatr import config as configuration  # noqa: E402 (what needs the package comes after it)
from jaxatr import models, parallel, runs, training  # noqa: E402
from jaxatr.onnx.backbone import OnnxBackbone, until  # noqa: E402
from jaxatr.onnx.model import load  # noqa: E402
from jaxatr.recogniser import Recogniser  # noqa: E402


def a_model(channels=1, output="map"):
    """Returns convolution, batch norm, ReLU and a global average pool of gray images."""
    rng, node = np.random.default_rng(0), onnx.helper.make_node
    weights = {
        "stem/conv.weight": rng.normal(size=(6, channels, 3, 3)),
        "scale": rng.uniform(0.5, 1.5, 6),
        "bias": rng.normal(size=6),
        "mean": 0.1 * rng.normal(size=6),
        "var": rng.uniform(0.5, 1.5, 6),
        "dense": rng.normal(size=(6, 4)),
    }
    nodes = [
        node("Conv", ["x", "stem/conv.weight"], ["a"], "stem/conv", strides=[2, 2]),
        node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], ["b"], "norm"),
        node("Relu", ["b"], ["map"], "relu"),
        node("GlobalAveragePool", ["map"], ["pooled"], "pool"),
        node("Flatten", ["pooled"], ["flat"], "flatten"),
        node("MatMul", ["flat", "dense"], ["y"], "dense"),
    ]
    tensors = [
        onnx.numpy_helper.from_array(value.astype(np.float32), name)
        for name, value in weights.items()
    ]
    info = onnx.helper.make_tensor_value_info
    inputs = [info("x", onnx.TensorProto.FLOAT, ["n", channels, "h", "w"])]
    outputs = [info("y", onnx.TensorProto.FLOAT, ["n", 4])]
    graph = onnx.helper.make_graph(nodes, "small", inputs, outputs, tensors)
    opsets = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "small.onnx"
    onnx.save(a_model(), path)
    return str(path)


@pytest.fixture
def images():
    return np.random.default_rng(1).normal(size=(3, 24, 24, 1)).astype(np.float32)


def test_a_part_of_a_model(path, images):
    whole = load(path)
    nchw = images.transpose(0, 3, 1, 2)
    by_value, by_node = until(whole, "map"), until(whole, "relu")
    assert set(by_value.variables["params"]) == {"stem/conv.weight", "scale", "bias"}
    maps = by_value.apply(by_value.variables, nchw)
    np.testing.assert_array_equal(by_node.apply(by_node.variables, nchw), maps)
    dense = np.asarray(maps).mean((2, 3)) @ np.asarray(whole.variables["params"]["dense"])
    np.testing.assert_allclose(whole.apply(whole.variables, nchw), dense, atol=1e-5)
    with pytest.raises(ValueError, match="output: got 'mop', .* did you mean 'map'"):
        until(whole, "mop")


@pytest.mark.parametrize("output", ["", "relu"])
def test_features_are_the_models_values(path, images, output):
    backbone = OnnxBackbone(path, output)
    variables = backbone.init(jax.random.key(0), images)
    features = backbone.apply(variables, images)
    model = until(load(path), output) if output else load(path)
    wanted = np.asarray(model.apply(model.variables, images.transpose(0, 3, 1, 2)))
    wanted = wanted.mean((2, 3)) if output else wanted
    np.testing.assert_allclose(features, wanted, atol=1e-5)
    assert features.dtype == jnp.float32


def test_devices_share_their_running_statistics(path):
    images = np.random.default_rng(2).normal(size=(2, 4, 24, 24, 1)).astype(np.float32)
    backbone = OnnxBackbone(path, "relu")
    variables = backbone.init(jax.random.key(0), images[0])

    def step(images):
        _, new = backbone.apply(variables, images, train=True, mutable=["batch_stats"])
        return new["batch_stats"]

    found = jax.vmap(step, axis_name=parallel.AXIS)(images)
    alone = [jax.vmap(step, axis_name=parallel.AXIS)(part[None]) for part in images]
    for name, value in found.items():
        mean = (alone[0][name][0] + alone[1][name][0]) / 2
        np.testing.assert_allclose(value, np.stack([mean, mean]), rtol=1e-5)
        assert np.abs(value[0] - variables["batch_stats"][name]).max() > 1e-3


def test_it_trains_by_the_one_loop_and_is_used(path, small_config, chips, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.model.onnx, config.model.output = path, "relu"
    config.train.steps, config.train.evaluate_every = 12, 100.0
    runs.train_run(config, tmp_path, progress=False)
    state = training.load_snapshot(tmp_path, "latest").state
    trained = state["params"]["backbone"]["weight:stem|conv.weight"]
    begun = load(path).variables["params"]["stem/conv.weight"]
    assert trained.shape == begun.shape and np.abs(trained - begun).max() > 1e-3
    losses = [record["loss"] for record in training.read_metrics(tmp_path) if "loss" in record]
    assert losses[-1] < losses[0]
    recogniser = Recogniser.load(tmp_path)
    (prediction,) = recogniser([np.zeros((24, 24, 1), np.uint8)])
    assert set(prediction.probabilities) == set(recogniser.classes)


def test_what_cannot_be_a_backbone(path, images, tmp_path):
    model = configuration.base().model
    model.output = "relu"
    with pytest.raises(ValueError, match="model.output: got 'relu' without a model.onnx"):
        models.build_open_set(model, 3)
    whole = configuration.base()
    whole.model.onnx = path
    with pytest.raises(ValueError, match="model.onnx: a student has attention"):
        models.build_surrogate(whole, 3)
    two = a_model()
    two.graph.output.append(onnx.helper.make_value_info("flat", onnx.TypeProto()))
    onnx.save(two, tmp_path / "two.onnx")
    with pytest.raises(ValueError, match="model.output: .* gives y, flat: set which"):
        OnnxBackbone(str(tmp_path / "two.onnx")).init(jax.random.key(0), images)
    onnx.save(a_model(channels=3), tmp_path / "colour.onnx")
    with pytest.raises(ValueError, match="input 'x': got shape"):
        OnnxBackbone(str(tmp_path / "colour.onnx")).init(jax.random.key(0), images)
