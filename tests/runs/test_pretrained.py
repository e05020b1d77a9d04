"""Runs that start from the weights of a file or of another run."""

import hashlib
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxatr import models, runs, training
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.runs.baselines import conflabel, gopenmax
from jaxatr.tasks import OpenSet

STEPS = 6

NETWORK = """
from jaxatr.models.resnet import BasicBlock, ResNet


class Tiny(ResNet):
    stage_sizes: tuple = (1, 1)
    block: type = BasicBlock
    width: int = 4
    stem: str = "3x3"
"""


@pytest.fixture(scope="module")
def config(small_config, tmp_path_factory):
    """A training of a residual network that compiles in no time."""
    folder = tmp_path_factory.mktemp("residual")
    (folder / "jaxatr_test_residual.py").write_text(NETWORK)
    config = small_config.copy_and_resolve_references()
    config.model.backbone = "jaxatr_test_residual:Tiny"
    config.train.steps, config.train.checkpoint_every, config.train.keep = STEPS, 2, 9
    config.open_set.score = "cbc"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield config


@pytest.fixture(scope="module")
def file(config, tmp_path_factory):
    """A file of random weights for RGB images."""
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    model = models.build_open_set(config.model, 3).backbone
    shapes = jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, 24, 24, 3), np.float32))
    draw = np.random.default_rng(3)
    variables = jax.tree.map(lambda s: draw.uniform(0.1, 0.4, s.shape).astype("f4"), shapes)
    save_file(models.pretrained.to_torch(variables), path)
    return path


@pytest.fixture(scope="module")
def started(config, file):
    """The configuration of a run that starts from the file and trains only its statistics."""
    config = config.copy_and_resolve_references()
    config.optimizer.learning_rate = 0.0
    config.model.pretrained, config.model.pretrained_channels = str(file), "sum"
    return config


@pytest.fixture(scope="module")
def run(started, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("pretrained") / "run"
    runs.train_run(started, workdir, progress=False)
    return workdir


def backbone(snapshot):
    variables = training.variables_of(snapshot)
    return {name: variables[name]["backbone"] for name in ("params", "batch_stats")}


def loaded(file, config):
    model = models.build_open_set(config.model, 3).backbone
    return models.pretrained.load(file, model, in_channels=1, channels="sum")


def same(first, second):
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_a_run_begins_with_the_files_weights_and_records_them(started, run, file):
    found = backbone(training.load_snapshot(run, "latest"))
    same(found["params"], loaded(file, started)["params"])
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    record = {"path": str(file), "sha256": digest}
    assert training.read_record(run)["pretrained"] == record
    assert "pretrained" not in runs.make_task(started, run).record  # it has begun


def test_the_batch_statistics_are_the_files_too(started, file):
    task = OpenSet(started)
    params, state = jax.jit(task.init)(jax.random.key(0))
    found = {"params": params["backbone"], "batch_stats": state["batch_stats"]["backbone"]}
    same(found, loaded(file, started))


@pytest.mark.slow
def test_the_file_is_not_needed_once_the_run_has_begun(started, run, file, tmp_path, monkeypatch):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    for step in training.saved_steps(copy):
        if step > 2:
            shutil.rmtree(copy / "checkpoints" / str(step))
    gone = file.rename(tmp_path / "gone")
    try:
        runs.train_run(started, copy, progress=False)
        runs.evaluate_run(copy)
        assert len(Recogniser.load(copy).classes) == 3
        with pytest.raises(ValueError, match="weights.safetensors: there is no such file"):
            runs.train_run(started, tmp_path / "new", progress=False)
        assert not (tmp_path / "new").exists()
    finally:
        gone.rename(file)
    states = [training.load_snapshot(workdir, STEPS).state for workdir in (copy, run)]
    same(*states)
    assert training.read_record(copy)["pretrained"] == training.read_record(run)["pretrained"]


def test_a_run_begins_with_another_runs_backbone(config, run):
    config = config.copy_and_resolve_references()
    config.model.pretrained = str(run)
    task = OpenSet(config)
    params, state = jax.jit(task.init)(jax.random.key(5))
    source = training.load_snapshot(run, "latest")
    found = {"params": params["backbone"], "batch_stats": state["batch_stats"]["backbone"]}
    same(found, backbone(source))
    head = params["closed_head"]["kernel"] - source.state["params"]["closed_head"]["kernel"]
    assert np.abs(head).max() > 0.01
    fingerprint = training.read_record(run)["fingerprint"]
    expected = {"path": str(run), "run": fingerprint, "step": STEPS}
    assert task.record["pretrained"] == expected


def test_backbone_variables_of_a_file_and_of_a_run(config, run, file, tmp_path):
    model = models.build_open_set(config.model, 3).backbone
    same(runs.backbone_variables(file, model), models.pretrained.load(file, model))
    found = runs.backbone_variables(run, model, in_channels=1)
    same(found, backbone(training.load_snapshot(run, "latest")))
    save_file(models.pretrained.to_torch(found), tmp_path / "w.safetensors")
    same(models.pretrained.load(tmp_path / "w.safetensors", model, in_channels=1), found)
    with pytest.raises(
        ValueError, match=r"conv1.weight: got \[4, 1, 3, 3\], wanted \[8, 1, 3, 3\]"
    ):
        runs.backbone_variables(run, model.clone(width=8), in_channels=1)
    with pytest.raises(ValueError, match="wanted the folder of a training run"):
        runs.backbone_variables(tmp_path, model)


def test_a_run_of_another_network_is_refused(config, trained_run):
    model = models.build_open_set(config.model, 3).backbone
    with pytest.raises(ValueError, match="does not fit the model:\n(.*\n)*  conv1.weight: missing"):
        runs.backbone_variables(trained_run, model, in_channels=1)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "model.backbone",
            "jaxatr_test_networks:Small",
            "be loaded into the backbone Small",
        ),
        ("model.pretrained_channels", "same", r"got \[4, 3, 3, 3\], wanted \[4, 1, 3, 3\] \(chann"),
        ("model.pretrained", "weights.pth", "weights.pth: there is no such file"),
    ],
)
def test_weights_that_do_not_fit_are_refused_before_anything_is_written(
    started, tmp_path, field, value, message
):
    config = started.copy_and_resolve_references()
    config.update_from_flattened_dict({field: value})
    with pytest.raises(ValueError, match=message):
        runs.train_run(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_the_generator_of_a_baseline_has_no_weights_to_begin_with(run, monkeypatch):
    seen = []

    def stop(config, *_, **__):
        seen.append(config)
        raise InterruptedError

    for module in (gopenmax, conflabel):
        monkeypatch.setattr(module, "train_run", stop)
    for name in ("gopenmax", "conflabel"):
        with pytest.raises(InterruptedError):
            runs.train_baseline(run, name, progress=False)
    generator, network = seen
    assert generator.model.pretrained == ""
    assert network.model.pretrained.endswith("weights.safetensors")
