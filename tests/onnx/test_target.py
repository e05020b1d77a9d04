"""A network from an ONNX file as the target of explanations."""

import json

import jax
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from jaxatr import config as configuration  # noqa: E402
from jaxatr import runs  # noqa: E402 (what needs the package comes after it)
from jaxatr.explain import METHODS, Explainer, load_target  # noqa: E402
from jaxatr.explain.methods.grad_cam import grad_cam  # noqa: E402
from jaxatr.explain.two_parts import in_two_parts  # noqa: E402


def a_classifier(classes, *, channels=1, extra=()):
    """Returns a small classifier of gray images with its classes in the metadata."""
    rng, node = np.random.default_rng(0), onnx.helper.make_node
    weights = {
        "conv": rng.normal(size=(6, channels, 3, 3)) / 100,
        "dense": rng.normal(size=(6, len(classes) if classes else 3)),
    }
    nodes = [
        node("Conv", ["x", "conv"], ["a"], "conv", strides=[2, 2]),
        node("Relu", ["a"], ["map"], "relu"),
        node("GlobalAveragePool", ["map"], ["pooled"], "pool"),
        node("Flatten", ["pooled"], ["flat"], "flatten"),
        node("MatMul", ["flat", "dense"], ["logits"], "dense"),
    ]
    tensors = [
        onnx.numpy_helper.from_array(value.astype(np.float32), name)
        for name, value in weights.items()
    ]
    info, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    inputs = [info("x", kind, ["n", channels, "h", "w"])]
    outputs = [info(name, kind, None) for name in (*extra, "logits")]
    graph = onnx.helper.make_graph(nodes, "small", inputs, outputs, tensors)
    opsets = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    if classes:
        onnx.helper.set_model_props(model, {"classes": json.dumps(list(classes))})
    return model, weights


@pytest.fixture
def images():
    return np.random.default_rng(1).integers(0, 255, (3, 24, 24, 1)).astype(np.float32)


@pytest.mark.parametrize("extra", [(), ("flat",)])
def test_its_logits(images, tmp_path, extra):
    model, weights = a_classifier("abc", extra=extra)
    onnx.save(model, tmp_path / "small.onnx")
    target = load_target(tmp_path / "small.onnx")
    assert target.classes == ("a", "b", "c") and target.source["output"] == "logits"
    kernel = weights["conv"][:, 0]
    patches = np.lib.stride_tricks.sliding_window_view(images[..., 0], (3, 3), (1, 2))[:, ::2, ::2]
    maps = np.maximum(np.einsum("byxij,fij->bfyx", patches, kernel), 0)
    wanted = maps.mean((2, 3)) @ weights["dense"]
    np.testing.assert_allclose(target.logits(target.variables, images), wanted, rtol=1e-4)
    jitted = jax.jit(target.logits)
    np.testing.assert_allclose(jitted(target.variables, images), wanted, rtol=1e-4)


@pytest.mark.parametrize("name", ["grad_cam", "integrated_gradients"])
def test_methods_explain_it(images, tmp_path, name):
    model, weights = a_classifier("abc")
    onnx.save(model, tmp_path / "small.onnx")
    target = load_target(tmp_path / "small.onnx")
    predict = jax.tree_util.Partial(target.logits, target.variables)
    options = {} if name == "grad_cam" else {"steps": 4}
    method = METHODS[name]
    maps = method.scaled(method.bind(predict, np.zeros(1), **options)(images))
    assert maps.shape == (3, 24, 24) and maps.max() <= 1 and np.all(maps.max((1, 2)) > 0)


def test_grad_cam_of_it_is_equation_1_and_2(images, tmp_path):
    model, weights = a_classifier("abc")
    onnx.save(model, tmp_path / "small.onnx")
    target = load_target(tmp_path / "small.onnx")
    parts = in_two_parts(jax.tree_util.Partial(target.logits, target.variables), images)
    assert parts.layer == ("relu",)
    maps = np.asarray(parts.features(images))
    assert maps.shape == (3, 11, 11, 6)
    wanted = target.logits(target.variables, images)
    np.testing.assert_allclose(parts.head(maps), wanted, rtol=1e-4)
    found = grad_cam(parts.features, parts.head, images, raw=True, targets=np.full(3, 1))
    small = np.maximum((maps * weights["dense"][:, 1] / 121).sum(-1), 0)
    resized = jax.image.resize(small, (3, 24, 24), "bilinear")
    np.testing.assert_allclose(found, resized, rtol=1e-3, atol=1e-6)


def test_a_student_cannot_start_from_its_weights(small_config, tmp_path, monkeypatch):
    from jaxatr.tasks.examples import Examples

    config = configuration.retasked(small_config, "jaxatr.tasks.distillation:Distillation")
    onnx.save(a_classifier(Examples(config).split.known)[0], tmp_path / "small.onnx")
    config.distillation.target, config.model.pretrained = "small.onnx", str(tmp_path / "small.onnx")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"small.onnx, the target, .*--config.model.pretrained= "):
        runs.make_task(config, tmp_path)


@pytest.mark.slow  # to compile
def test_a_surrogate_of_it_is_trained_and_explains(small_config, tmp_path):
    from jaxatr.tasks.examples import Examples

    config = configuration.retasked(small_config, "jaxatr.tasks.distillation:Distillation")
    model, _ = a_classifier(Examples(config).split.known)
    onnx.save(model, tmp_path / "small.onnx")
    config.distillation.target, config.distillation.judged = str(tmp_path / "small.onnx"), 4
    config.model.backbone, config.model.width, config.model.stem = "resnet18", 4, "3x3"
    config.model.args = {"stage_sizes": (1, 1, 1, 1)}  # half as much to compile
    config.surrogate.width = 4
    config.train.steps, config.explanation.steps = 1, 1
    config.train.evaluate_every = 100.0
    runs.train_run(config, tmp_path / "run", progress=False)
    explainer = Explainer.load(tmp_path / "run")
    (explanation,) = explainer([np.zeros((24, 24, 1), np.uint8)])
    assert explanation.saliency.shape == (24, 24) and explanation.label in explainer.classes


def test_unsuitable_targets_are_refused(tmp_path):
    model, _ = a_classifier(())
    onnx.save(model, tmp_path / "unnamed.onnx")
    with pytest.raises(ValueError, match="class names as a JSON list"):
        load_target(tmp_path / "unnamed.onnx")
    for odd in ({"classes": '"abc"'}, {"layout": '"nhwc"'}, {"layout": "NCHW"}):
        model, _ = a_classifier("abc")
        onnx.helper.set_model_props(model, {"classes": '["a", "b", "c"]'} | odd)
        onnx.save(model, tmp_path / "odd.onnx")
        with pytest.raises(ValueError, match="class names as a JSON list"):
            load_target(tmp_path / "odd.onnx")
    model, _ = a_classifier("abc", extra=("flat",))
    del model.graph.output[1]
    model.graph.output.append(onnx.helper.make_value_info("pooled", onnx.TypeProto()))
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(ValueError, match="got inputs x and outputs flat, pooled"):
        load_target(tmp_path / "other.onnx")
    with pytest.raises(ValueError, match="none.onnx"):
        load_target(tmp_path / "none.onnx")
