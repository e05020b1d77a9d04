"""A kind of run that the package does not know: one module, and every command works with it."""

import json
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

import jaxatr
from jaxatr import config as configuration
from jaxatr import runs, training
from jaxatr.cli import convert, evaluate, predict, report

KIND = '''
"""Learns how bright an image is."""

import os

import flax.linen as nn
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from jaxatr import data, training


class Network(nn.Module):
    @nn.compact
    def __call__(self, images):
        return nn.Dense(1)(images.mean(axis=(1, 2)))[:, 0]


class Brightness(training.Task):
    predictor = "jaxatr_test_kind:Meter"
    best = "exactness"

    @classmethod
    def fields(cls):
        return {"brightness": ConfigDict({"images": 32})}

    def __init__(self, config):
        self.config = config
        self.module = self.network(config, self.record)
        self.steps_per_epoch = config.brightness.images // 8
        optimizer = optax.sgd(config.optimizer.learning_rate)
        self.phases = [training.Phase("fit", self.loss, optimizer, config.train.steps)]

    @classmethod
    def network(cls, config, record):
        return Network()

    @property
    def record(self):
        return {
            "image_shape": [4, 4, 1],
            "image_dtype": "uint8",
            "normalization": {"mean": [0.0], "std": [255.0]},
        }

    def init(self, key):
        return self.module.init(key, jnp.zeros((1, 4, 4, 1)))["params"], {}

    def batches(self, phase):
        source = grain.MapDataset.source(np.arange(self.config.brightness.images))
        return iter(source.seed(0).shuffle().repeat().map(example).batch(8).to_iter_dataset())

    def loss(self, params, model_state, batch, key, step):
        found = self.module.apply({"params": params}, batch["image"])
        error = jnp.square(found - batch["brightness"])
        return training.LossOutput(jnp.sum(error), jnp.float32(len(error)), {}, model_state)

    def evaluate(self, params, model_state):
        return {"exactness": -self.error({"params": params})}

    def error(self, variables):
        batch = example(np.arange(self.config.brightness.images))
        found = self.module.apply(variables, batch["image"])
        return float(np.abs(found - batch["brightness"]).mean())

    def test(self, variables, *, scale=1.0):
        return {"error": scale * self.error(variables)}, {"test_id": np.arange(3)}

    @classmethod
    def exportable(cls, run):
        def apply(variables, images):
            return [run.module.apply(variables, images)]

        return training.Exportable(apply, run.variables, ("brightness",), ())


def example(index):
    brightness = (np.asarray(index) % 8 / 8).astype(np.float32)
    image = np.broadcast_to(brightness[..., None, None, None], (*brightness.shape, 4, 4, 1))
    return {"id": np.asarray(index, np.int32), "image": image.copy(), "brightness": brightness}


class Meter(training.Predictor):
    def __init__(self, run, offset):
        self.run, self.offset, self.chip = run, offset, run.intake

    @classmethod
    def load(cls, workdir: str | os.PathLike, *, checkpoint="latest", offset: float = 0.0):
        run = training.load_run(workdir, checkpoint)
        training.check_predictor(run, cls)
        return cls(run, offset)

    def read(self, path):
        return data.read_image(path)

    def check(self, item):
        return self.chip(item)

    def __call__(self, items):
        for item in items:
            images = self.run.normalize(self.chip(item)[None])
            yield float(self.run.module.apply(self.run.variables, images)[0]) + self.offset

    def describe(self, prediction):
        return f"{prediction:.2f} of full brightness"

    def to_json(self, prediction):
        return {"brightness": prediction}
'''
STEPS = 12


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kind")
    (folder / "jaxatr_test_kind.py").write_text(KIND)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        config = configuration.of_task("jaxatr_test_kind:Brightness")
        config.optimizer.learning_rate = 0.3
        config.train.steps, config.train.checkpoint_every, config.train.keep = STEPS, 4, 9
        yield config
    sys.modules.pop("jaxatr_test_kind", None)


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("own") / "run"
    runs.train_run(config, workdir, progress=False)
    runs.evaluate_run(workdir)
    return workdir


@pytest.fixture(scope="module")
def gray(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "gray.png"
    Image.fromarray(np.full((4, 4), 128, np.uint8)).save(path)
    return path


def test_the_record_names_the_kind(run):
    assert training.read_record(run)["task"] == "jaxatr_test_kind:Brightness"
    assert training.task_of(run).__name__ == "Brightness"


def test_a_run_that_was_cut_off_ends_with_the_same_bits(config, run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    for step in training.saved_steps(copy):
        if step > 4:
            shutil.rmtree(copy / "checkpoints" / str(step))
    runs.train_run(config, copy, progress=False)
    first, second = (training.load_run(folder) for folder in (run, copy))
    assert first.step == second.step == STEPS
    for name in ("kernel", "bias"):
        one, other = (r.variables["params"]["Dense_0"][name] for r in (first, second))
        np.testing.assert_array_equal(one, other)


def test_its_own_options_reach_its_evaluation(run):
    found = runs.evaluate_run(run)["error"]
    assert 0 < found < 1
    assert runs.evaluate_run(run, scale=2.0)["error"] == pytest.approx(2 * found)
    with pytest.raises(ValueError, match="scores: .* is a run of Brightness, which takes scale"):
        runs.evaluate_run(run, scores="all")
    runs.evaluate_run(run)


def test_its_predictor_is_found(run, gray):
    (found,) = jaxatr.load(run, offset=1.0)([np.full((4, 4, 1), 128, np.uint8)])
    (plain,) = jaxatr.load(run)([np.full((4, 4, 1), 128, np.uint8)])
    assert found == pytest.approx(plain + 1)
    with pytest.raises(ValueError, match="gamma: .* which takes checkpoint, offset"):
        jaxatr.load(run, gamma=0.5)


@pytest.fixture
def command(flags_of, capsys):
    """Runs a command in this process; gives its output."""

    def run(module, *arguments):
        assert module.main(flags_of(module, *arguments)) in (None, 0)
        return capsys.readouterr().out

    return run


def test_the_commands_work_with_it(run, gray, tmp_path, command):
    said = command(predict, f"--workdir={run}", gray)
    assert said.startswith(f"{gray}: ") and "of full brightness" in said
    said = command(predict, f"--workdir={run}", "--jsonl", gray)
    assert set(json.loads(said)) == {"image", "brightness"}
    assert command(evaluate, f"--workdir={run}").splitlines()[2].startswith("checkpoint.step")
    command(report, f"--workdir={run}", f"--out={tmp_path / 'page.html'}")
    page = (tmp_path / "page.html").read_text()
    assert "Figures" in page and "Choose γ" not in page


def test_it_goes_out_as_onnx(run, tmp_path, command):
    onnx = pytest.importorskip("onnx")
    from jaxatr.onnx import load

    path = tmp_path / "brightness.onnx"
    command(convert, "export", f"--workdir={run}", f"--out={path}")
    assert [value.name for value in onnx.load(path).graph.output] == ["brightness"]
    model = load(path)
    (wanted,) = jaxatr.load(run)([np.full((4, 4, 1), 128, np.uint8)])
    found = model(model.variables, np.full((1, 4, 4, 1), 128, np.float32))
    assert float(np.ravel(found)[0]) == pytest.approx(wanted, abs=1e-4)
