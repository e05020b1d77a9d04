"""Exporting a run as an ONNX file, by the command and by the library."""

import functools
import json
import shutil
import sys

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import jaxatr
from jaxatr import config as configuration
from jaxatr import data, files, runs, training
from jaxatr.cli import convert
from jaxatr.explain import Explainer, load_target
from jaxatr.recognition import precision as reduced
from jaxatr.recognition.prediction import UNKNOWN
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks.embedding.predictor import Retriever

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from jaxatr.onnx.backbone import OnnxBackbone  # noqa: E402
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
    """Returns onnxruntime's outputs by name, concatenated over batches of several sizes."""
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
    said = capsys.readouterr().out
    assert f"{path}: " in said and "MB of the decision" in said
    assert "decides: cbc" in said and str(tmp_path / "MODEL_CARD.md") in said
    recogniser = Recogniser.load(trained_run, score="cbc")
    found = answers(path, np.stack(images))
    assert list(found) == [
        *("decision", "nearest", "score", "threshold", "known_probability"),
        *("class_probabilities", "logits", "open_logits", "features"),
    ]
    for row, prediction in enumerate(recogniser(images, batch_size=5)):
        best = int(found["logits"][row].argmax())
        assert recogniser.classes[best] == prediction.nearest
        assert found["open_logits"][row, best] == pytest.approx(prediction.score, abs=1e-4)
        expected = list(prediction.probabilities.values())
        np.testing.assert_allclose(jax.nn.softmax(found["logits"][row]), expected, atol=1e-4)


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Puts user-defined scores on the import path, as ``users_traced``."""
    (tmp_path / "users_traced.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("users_traced", None)


def changed(run, folder, **fields):
    """Copies a run and changes fields of its configuration, such as ``data__size``."""
    shutil.copytree(run, folder)
    record = json.loads((folder / "config.json").read_text())
    for name, value in fields.items():
        section, field = name.split("__")
        record[section][field] = value
    files.write_fields(folder / "config.json", record)
    return folder


def check_equal(recogniser, images, found):
    """Compares onnxruntime's outputs with predictions."""
    numbers = {name: place for place, name in enumerate(recogniser.classes)} | {UNKNOWN: -1}
    predictions = list(recogniser(images, batch_size=5))
    assert found["decision"].tolist() == [numbers[one.label] for one in predictions]
    assert found["nearest"].tolist() == [numbers[one.nearest] for one in predictions]
    for name in ("score", "threshold", "known_probability", "p_value"):
        wanted = [getattr(one, name) for one in predictions]
        assert (wanted[0] is None) == (name not in found), name
        if wanted[0] is not None:
            np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-4, err_msg=name)
    probabilities = [list(one.probabilities.values()) for one in predictions]
    np.testing.assert_allclose(found["class_probabilities"], probabilities, atol=1e-4)


# All scores are compared in tests/openset/test_traced.py; here, what they need of a network.
@pytest.mark.parametrize(
    "score", ["mahalanobis", "odin", "fusion_template", "users_traced:BOX", "users_traced:BRIGHT"]
)
def test_the_graph_decides_as_the_recogniser_does(outside, trained_run, images, tmp_path, score):
    run = changed(trained_run, tmp_path / "run", open_set__tpr=0.9)  # there are enough for that
    recogniser = Recogniser.load(run, score=score)
    export_run(run, tmp_path / "model.onnx", score=score)
    check_equal(recogniser, images, answers(tmp_path / "model.onnx", np.stack(images)))
    told = properties(tmp_path / "model.onnx")
    assert told["decides"] == recogniser.decision.score.name and told["takes"] == "images"
    assert told["provenance"]["dataset"]["name"] == "image_folder"


def test_images_of_any_size_and_colour(trained_run, images, tmp_path):
    run = changed(
        trained_run, tmp_path / "run", data__size=24, data__blank_center=5, data__channels=1
    )
    recogniser, path = Recogniser.load(run, score="cbc"), tmp_path / "model.onnx"
    model = export_run(run, path, score="cbc", channels=3)
    sizes = [size.dim_param for size in model.graph.input[0].type.tensor_type.shape.dim]
    assert sizes == ["batch", "height", "width", ""]
    assert properties(path)["geometry"]["resize"] == 24
    rng = np.random.default_rng(0)
    for shape in ((24, 24), (61, 50), (90, 31), (9, 40)):
        colours = [rng.integers(0, 256, (*shape, 3), np.uint8) for _ in range(6)]
        check_equal(recogniser, colours, answers(path, np.stack(colours)))


def test_images_that_are_padded_to_a_square(trained_run, tmp_path):
    run = changed(trained_run, tmp_path / "run", data__square=True)
    recogniser, path = Recogniser.load(run, score="cbc"), tmp_path / "model.onnx"
    side = recogniser.chip.shape[0]
    export_run(run, path, score="cbc")
    rng = np.random.default_rng(0)
    for shape in ((side, side), (side - 7, side), (side, 5)):
        images = [rng.integers(0, 256, (*shape, 1), np.uint8) for _ in range(6)]
        check_equal(recogniser, images, answers(path, np.stack(images)))


def test_one_size_when_asked_and_flags_that_exclude_the_geometry(trained_run, unchecked, tmp_path):
    run, path = changed(trained_run, tmp_path / "run", data__size=24), tmp_path / "model.onnx"
    model = export_run(run, path, score="cbc", size=(40, 30), batch=2)
    sizes = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
    assert sizes == [2, 40, 30, 1]
    with pytest.raises(ValueError, match="channels: got 2, wanted 1 or 3"):
        export_run(run, path, channels=2)
    with pytest.raises(ValueError, match=r"size: images of \(40, 30\) give chips of"):
        export_run(trained_run, path, score="cbc", size=(40, 30))
    with pytest.raises(ValueError, match="takes: got 'files', wanted 'images' or 'chips'"):
        export_run(run, path, takes="files")
    with pytest.raises(ValueError, match="size, channels: not allowed with takes='chips'"):
        export_run(run, path, takes="chips", channels=1)


def test_a_score_without_a_form_in_onnx_is_refused(trained_run, embedding_run, tmp_path):
    with pytest.raises(ValueError, match="conflabel .* use one of soft.* template"):
        export_run(trained_run, tmp_path / "model.onnx", score="conflabel")
    with pytest.raises(ValueError, match="score: .* is a run of similarity search"):
        export_run(embedding_run, tmp_path / "model.onnx", score="cbc")


def test_a_run_with_negatives_has_no_score_to_decide_by(trained_run):
    run = training.load_run(trained_run)
    run.config.open_set.negatives = "decoys.npz"
    with pytest.raises(ValueError, match="open_set.negatives: it is a plain classifier"):
        run.task.exportable(run, score="mls")
    assert run.task.exportable(run).classes[-1] == "unknown"


def test_the_metadata_has_everything_that_a_reader_needs(trained_run, tmp_path):
    export_run(trained_run, tmp_path / "model.onnx", score="cbc")
    found = properties(tmp_path / "model.onnx")
    assert found["decides"] == "cbc" and found["thresholds"] == pytest.approx([np.log(9)] * 3)
    recogniser = Recogniser.load(trained_run, score="cbc", gamma="fitted")
    assert tuple(found["classes"]) == recogniser.classes
    assert found["image_shape"] == [24, 24, 1] and found["image_dtype"] == "uint8"
    assert found["layout"] == "NHWC" and found["gamma"] == 0.9
    assert found["fitted_gamma"] == recogniser.gamma
    assert len(found["mean"]) == len(found["std"]) == 1 and found["step"] > 0


@pytest.mark.parametrize("precision", ["int8", "float16"])
def test_a_lower_precision_decides_by_thresholds_of_its_own(
    trained_run, images, tmp_path, monkeypatch, precision
):
    plain, path = tmp_path / "plain.onnx", tmp_path / "reduced.onnx"
    export_run(trained_run, plain)
    export_run(trained_run, path, precision=precision)
    assert path.stat().st_size < plain.stat().st_size
    session = onnxruntime.InferenceSession(path)
    facts = json.loads(session.get_modelmeta().custom_metadata_map["precision"])
    assert facts["precision"] == precision and 0 <= facts["equal_decisions"] <= 1
    recogniser = Recogniser.load(trained_run, runtime=f"onnxruntime:{precision}")
    assert precision in recogniser.note and recogniser.runtime == f"onnxruntime:{precision}"
    chips = [recogniser.prepare(image) for image in images]
    answers = list(recogniser.answers(chips))
    found = dict(
        zip(
            [one.name for one in session.get_outputs()],
            session.run(None, {"images": np.stack(images)}),
            strict=True,
        )
    )
    np.testing.assert_allclose(found["score"], [one.score for one in answers], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found["threshold"], [one.threshold for one in answers], rtol=1e-5)
    fits, refitted = [], reduced.refitted
    monkeypatch.setattr(reduced, "refitted", lambda *given: fits.append(1) or refitted(*given))
    read, fitted_in = [], reduced.fitted_in
    monkeypatch.setattr(
        reduced, "fitted_in", lambda *a, **k: read.append(fitted_in(*a, **k)) or read[-1]
    )
    again = Recogniser.load(trained_run, runtime=f"onnxruntime:{precision}")
    assert again.decision.calibration.scores.tolist() == (
        recogniser.decision.calibration.scores.tolist()
    )
    assert not fits and read[0].facts == facts
    monkeypatch.setattr(jaxatr, "__version__", "next")  # whose network may be another one
    Recogniser.load(trained_run, runtime=f"onnxruntime:{precision}")
    assert fits == [1]


def test_a_precision_that_a_run_or_an_engine_lacks_is_refused(trained_run, embedding_run, tmp_path):
    with pytest.raises(ValueError, match="int8 needs the runtime onnxruntime or openvino, got jax"):
        Recogniser.load(trained_run, runtime="jax:int8")
    with pytest.raises(ValueError, match="bfloat16 needs the runtime jax or onednn, got openvino"):
        Recogniser.load(trained_run, runtime="openvino:bfloat16")
    with pytest.raises(ValueError, match="wanted one of bfloat16, int8, float16"):
        Recogniser.load(trained_run, runtime="onnxruntime:int4")
    with pytest.raises(ValueError, match="an ensemble runs in float32 only"):
        Recogniser.load([trained_run, trained_run], runtime="onnxruntime:int8")
    for runtime in ("onnxruntime:int8", "jax:bfloat16"):
        with pytest.raises(ValueError, match="runs in float32 only"):
            Retriever.load(embedding_run, runtime=runtime)
    with pytest.raises(ValueError, match="precision: .* takes no option"):
        export_run(embedding_run, tmp_path / "model.onnx", precision="int8")


def test_channels_second(trained_run, images, flags, tmp_path):
    last, second = tmp_path / "last.onnx", tmp_path / "second.onnx"
    export_run(trained_run, last, score="none")
    arguments = [f"--workdir={trained_run}", f"--out={second}", "--layout=NCHW", "--score=none"]
    convert.main(flags("export", *arguments, "--nocard"))
    assert not (tmp_path / "MODEL_CARD.md").exists()
    chips = np.stack(images)
    one, other = answers(last, chips), answers(second, chips.transpose(0, 3, 1, 2).copy())
    for name in one:
        np.testing.assert_allclose(other[name], one[name], atol=1e-4)
    assert "Transpose" not in {node.op_type for node in onnx.load(second).graph.node}


def test_an_embedding_embeds_the_same(embedding_run, images, tmp_path):
    export_run(embedding_run, tmp_path / "model.onnx")
    retriever = Retriever.load(embedding_run)
    found = answers(tmp_path / "model.onnx", np.stack(images))
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
    found = answers(tmp_path / "model.onnx", np.stack(images))
    assert list(found) == ["logits", "saliency"]
    np.testing.assert_allclose(found["saliency"], explainer.saliency(chips), atol=1e-4)
    assert not [t.name for t in model.graph.initializer if "target" in t.name]


@pytest.mark.slow
def test_a_plain_classifier_has_no_binary_ones(small_config, trained_run, images, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.loss.open, config.train.epochs = "none", 1
    runs.train_run(config, tmp_path / "run", progress=False)
    export_run(tmp_path / "run", tmp_path / "model.onnx", score="none", takes="chips")
    target = load_target(tmp_path / "run")
    chips = np.float32([Recogniser.load(trained_run).chip(image) for image in images])
    found = answers(tmp_path / "model.onnx", chips)
    assert list(found) == ["logits", "features"]
    np.testing.assert_allclose(found["logits"], target.logits(target.variables, chips), atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no sub-command given, wanted one of inspect, describe, operators, import, export"),
        (["exprt"], "got 'exprt', wanted one of .* did you mean 'export'"),
        (["export", "more"], "export takes only flags"),
        (["export", "--workdir=nowhere"], "--out is required"),
        (["export", "--out=model.onnx"], "--workdir is required"),
        (["export", "--workdir=nowhere", "--out=x.onnx"], "nowhere is not a run's folder"),
        (["export", "--workdir=x", "--out=x", "--checkpoint=y"], "--checkpoint: got 'y'"),
        (
            ["export", "--workdir=x", "--workdir=y", "--out=z.onnx"],
            "got 2 runs, but an ensemble cannot",
        ),
        (["export", "--workdir=x", "--out=z", "--size=big"], "--size: got 'big', wanted ROWSx"),
        (["describe"], "wanted one ONNX file"),
    ],
)
def test_wrong_commands_are_refused(arguments, message, flags):
    with pytest.raises(ValueError, match=message):
        convert.main(flags(*arguments))


def test_a_file_describes_itself(trained_run, flags, tmp_path, capsys):
    path = tmp_path / "model.onnx"
    export_run(trained_run, path, score="cbc")
    convert.main(flags("describe", path))
    said = capsys.readouterr().out
    assert "input images uint8 [batch, 24, 24, 1]" in said and "decides: cbc" in said
    convert.main(flags("describe", path, "--json"))
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"] == path.stat().st_size and found["opset"] == 18
    assert found["metadata"]["classes"] == properties(path)["classes"]


def test_a_model_of_integer_images_is_neither_a_target_nor_a_backbone(trained_run, tmp_path):
    path = tmp_path / "model.onnx"
    export_run(trained_run, path, score="none")
    with pytest.raises(ValueError, match="takes images of uint8, .* --takes=chips"):
        load_target(path)
    with pytest.raises(ValueError, match="takes images of uint8, .* --takes=chips"):
        OnnxBackbone(str(path), "features").init(jax.random.key(0), np.zeros((1, 24, 24, 1)))
