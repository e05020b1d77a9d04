"""A run's network as an ONNX file, by the command and by the library."""

import functools
import json
import shutil
import sys

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from jaxatr import config as configuration
from jaxatr import data, openset, runs
from jaxatr.cli import convert
from jaxatr.explain import Explainer, load_target
from jaxatr.tasks.embedding.predictor import Retriever
from jaxatr.tasks.open_set.predictor import UNKNOWN, Recogniser

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from jaxatr.runs.export import export_run  # noqa: E402

OUTSIDE = """
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxatr.openset import Score


class Box(NamedTuple):
    low: np.ndarray
    high: np.ndarray


def fit(outputs, head):
    features = outputs.more["features"]
    return Box(features.min(axis=0), features.max(axis=0))


def score(model, outputs):
    features = outputs.more["features"]
    beyond = np.maximum(model.low - features, features - model.high)
    return -np.maximum(beyond, 0).sum(axis=1)


def traced(model, outputs):
    features = outputs.more["features"]
    inside = jnp.clip(features, model.low, model.high)
    return -jnp.sum(jnp.abs(features - inside), axis=1)


def bright(model, outputs):
    return outputs.more["image"].mean(axis=(1, 2, 3))


BOX = Score("box", "Box", score, fit, needs=("features",), traced=traced)
BRIGHT = Score("bright", "Brightness", bright, needs=("image",), traced=bright)
"""


@pytest.fixture(scope="module")
def images(chips):
    return [data.read_image(path) for path in sorted((chips / "test").glob("*/00[0-2].png"))]


@pytest.fixture
def flags(flags_of):
    return functools.partial(flags_of, convert)


def answers(path, chips):
    """Returns onnxruntime's outputs by name, of batches of several sizes put together."""
    session = onnxruntime.InferenceSession(path)
    (given,) = session.get_inputs()
    parts = [session.run(None, {given.name: chips[rows]}) for rows in (slice(5), slice(5, None))]
    joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
    return dict(zip([output.name for output in session.get_outputs()], joined, strict=True))


def properties(path):
    model = onnx.load(path)
    return {entry.key: json.loads(entry.value) for entry in model.metadata_props}


def test_a_recogniser_says_the_same(trained_run, images, flags, tmp_path, capsys):
    path = tmp_path / "model.onnx"
    arguments = flags("export", f"--workdir={trained_run}", f"--out={path}", "--score=cbc")
    assert convert.main(arguments) is None
    assert f"{path}: " in capsys.readouterr().out
    recogniser = Recogniser.load(trained_run, score="cbc")
    chips = np.float32([recogniser.chip(image) for image in images])
    found = answers(path, chips)
    assert list(found) == ["logits", "open_logits", "features", "score", "known"]
    for row, prediction in enumerate(recogniser(images, batch_size=5)):
        best = int(found["logits"][row].argmax())
        assert recogniser.classes[best] == prediction.nearest
        assert found["open_logits"][row, best] == pytest.approx(prediction.score, abs=1e-4)
        expected = list(prediction.probabilities.values())
        np.testing.assert_allclose(jax.nn.softmax(found["logits"][row]), expected, atol=1e-4)


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Puts scores of a user's own on the import path, as ``users_traced``."""
    (tmp_path / "users_traced.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("users_traced", None)


TRACED = [name for name, score in openset.SCORES.items() if score.traced]


@pytest.mark.parametrize("score", [*TRACED, "users_traced:BOX"])
def test_the_graph_decides_as_the_recogniser_does(outside, trained_run, images, tmp_path, score):
    run = tmp_path / "run"
    shutil.copytree(trained_run, run)
    record = json.loads((run / "config.json").read_text())
    record["open_set"]["tpr"] = 0.9  # for which there are enough validation examples
    (run / "config.json").write_text(json.dumps(record))
    if score == "vim":  # whose features have too few directions in so small a network
        with pytest.raises(ValueError, match="vim: dimensions"):
            Recogniser.load(run, score=score)
        return
    recogniser = Recogniser.load(run, score=score)
    export_run(run, tmp_path / "model.onnx", score=score)
    chips = np.float32([recogniser.chip(image) for image in images])
    found = answers(tmp_path / "model.onnx", chips)
    predictions = list(recogniser(images, batch_size=5))
    scores = np.array([prediction.score for prediction in predictions])
    np.testing.assert_allclose(found["score"], scores, rtol=1e-3, atol=2e-3)
    threshold = predictions[0].threshold
    clear = np.abs(scores - threshold) > 2e-3 * (1 + abs(threshold))
    accepted = np.array([prediction.label != UNKNOWN for prediction in predictions])
    np.testing.assert_array_equal(found["known"][clear], accepted[clear])
    assert properties(tmp_path / "model.onnx")["decides"] == recogniser.decision.score.name


def test_a_score_that_takes_more_than_the_exported_network_gives(outside, trained_run, tmp_path):
    with pytest.raises(ValueError, match="bright decides in .* needs image, which an exported net"):
        export_run(trained_run, tmp_path / "model.onnx", score="users_traced:BRIGHT")


def test_a_score_without_a_form_in_onnx_is_refused(trained_run, embedding_run, tmp_path):
    with pytest.raises(
        ValueError, match="template decides in .* no form in ONNX: take one of soft"
    ):
        export_run(trained_run, tmp_path / "model.onnx", score="template")
    with pytest.raises(ValueError, match="score: .* is a run of Embedding"):
        export_run(embedding_run, tmp_path / "model.onnx", score="cbc")


def test_the_metadata_is_what_a_reader_needs(trained_run, tmp_path):
    export_run(trained_run, tmp_path / "model.onnx", score="cbc")
    found = properties(tmp_path / "model.onnx")
    assert found["decides"] == "cbc" and found["thresholds"] == pytest.approx([np.log(9)] * 3)
    recogniser = Recogniser.load(trained_run, score="cbc", gamma="fitted")
    assert tuple(found["classes"]) == recogniser.classes
    assert found["image_shape"] == [24, 24, 1] and found["image_dtype"] == "uint8"
    assert found["layout"] == "NHWC" and found["gamma"] == 0.9
    assert found["fitted_gamma"] == recogniser.gamma
    assert len(found["mean"]) == len(found["std"]) == 1 and found["step"] > 0


def test_channels_second(trained_run, images, flags, tmp_path):
    last, second = tmp_path / "last.onnx", tmp_path / "second.onnx"
    export_run(trained_run, last, score="none")
    arguments = [f"--workdir={trained_run}", f"--out={second}", "--layout=NCHW", "--score=none"]
    convert.main(flags("export", *arguments))
    chips = np.float32([Recogniser.load(trained_run).chip(image) for image in images])
    one, other = answers(last, chips), answers(second, chips.transpose(0, 3, 1, 2).copy())
    for name in one:
        np.testing.assert_allclose(other[name], one[name], atol=1e-4)
    assert "Transpose" not in {node.op_type for node in onnx.load(second).graph.node}


def test_an_embedding_embeds_the_same(embedding_run, images, tmp_path):
    export_run(embedding_run, tmp_path / "model.onnx")
    retriever = Retriever.load(embedding_run)
    chips = np.float32([retriever.chip(image) for image in images])
    found = answers(tmp_path / "model.onnx", chips)
    assert list(found) == ["embedding", "coarse_logits", "fine_logits"]
    expected = np.concatenate(list(retriever.embed(images)))
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-4)
    assert "gamma" not in properties(tmp_path / "model.onnx")


@pytest.mark.slow
def test_a_surrogate_explains_the_same(small_config, trained_run, images, tmp_path):
    config = configuration.retasked(small_config, "jaxatr.tasks.distillation:Distillation")
    config.distillation.target, config.distillation.judged = str(trained_run), 4
    config.model.backbone, config.model.width, config.model.stem = "resnet18", 4, "3x3"
    config.model.args = ConfigDict({"stage_sizes": (1, 1, 1, 1)})
    config.surrogate.width = 4
    config.train.steps, config.explanation.steps = 2, 2
    runs.train_run(config, tmp_path / "run", progress=False)
    model = export_run(tmp_path / "run", tmp_path / "model.onnx")
    explainer = Explainer.load(tmp_path / "run")
    chips = np.float32([explainer.chip(image) for image in images])
    found = answers(tmp_path / "model.onnx", chips)
    assert list(found) == ["logits", "saliency"]
    np.testing.assert_allclose(found["saliency"], explainer.saliency(chips), atol=1e-4)
    assert not [t.name for t in model.graph.initializer if "target" in t.name]


@pytest.mark.slow
def test_a_plain_classifier_has_no_binary_ones(small_config, trained_run, images, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.loss.open, config.train.epochs = "none", 1
    runs.train_run(config, tmp_path / "run", progress=False)
    export_run(tmp_path / "run", tmp_path / "model.onnx", score="none")
    target = load_target(tmp_path / "run")
    chips = np.float32([Recogniser.load(trained_run).chip(image) for image in images])
    found = answers(tmp_path / "model.onnx", chips)
    assert list(found) == ["logits", "features"]
    np.testing.assert_allclose(found["logits"], target.logits(target.variables, chips), atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing was given, wanted one of inspect, operators, import, export"),
        (["exprt"], "got 'exprt', wanted one of .* did you mean 'export'"),
        (["export", "more"], "export takes flags alone"),
        (["export", "--workdir=nowhere"], "--out must be given"),
        (["export", "--out=model.onnx"], "--workdir must be given"),
        (["export", "--workdir=nowhere", "--out=x.onnx"], "nowhere is no run folder"),
        (["export", "--workdir=x", "--out=x", "--checkpoint=y"], "--checkpoint: got 'y'"),
    ],
)
def test_wrong_commands_are_refused(arguments, message, flags):
    with pytest.raises(ValueError, match=message):
        convert.main(flags(*arguments))
