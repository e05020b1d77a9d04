"""A task outside of the package: docs/examples/brightness.py with all commands."""

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import jaxatr
from jaxatr import config as configuration
from jaxatr import runs, training
from jaxatr.cli import convert, evaluate, predict, report

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
STEPS = 12


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kind")
    shutil.copy(EXAMPLES / "brightness.py", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        config = configuration.of_task("brightness:Brightness")
        config.optimizer.learning_rate = 0.3
        config.train.steps, config.train.checkpoint_every, config.train.keep = STEPS, 4, 9
        yield config
    sys.modules.pop("brightness", None)


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


@pytest.mark.slow  # to train and measure it
def test_the_record_names_the_kind(run):
    assert training.read_record(run)["task"] == "brightness:Brightness"
    assert training.task_of(run).__name__ == "Brightness"


@pytest.mark.slow
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


@pytest.mark.slow  # to train and measure it
def test_its_own_options_reach_its_evaluation(run):
    found = runs.evaluate_run(run)["error"]
    assert 0 < found < 1
    assert runs.evaluate_run(run, scale=2.0)["error"] == pytest.approx(2 * found)
    with pytest.raises(ValueError, match="scores: .* takes scale"):
        runs.evaluate_run(run, scores="all")
    runs.evaluate_run(run)


@pytest.mark.slow  # to train and measure it
def test_its_predictor_is_found(run, gray):
    (found,) = jaxatr.load(run, offset=1.0)([np.full((4, 4, 1), 128, np.uint8)])
    (plain,) = jaxatr.load(run)([np.full((4, 4, 1), 128, np.uint8)])
    assert found == pytest.approx(plain + 1)
    with pytest.raises(ValueError, match="gamma: .* which takes checkpoint, offset"):
        jaxatr.load(run, gamma=0.5)


@pytest.fixture
def command(flags_of, capsys):
    """Runs a command in this process, and returns its output."""

    def run(module, *arguments):
        assert module.main(flags_of(module, *arguments)) in (None, 0)
        return capsys.readouterr().out

    return run


@pytest.mark.slow  # to train and measure it
def test_the_commands_work_with_it(run, gray, tmp_path, command):
    said = command(predict, f"--workdir={run}", gray)
    assert said.startswith(f"{gray}: ") and "of full brightness" in said
    said = command(predict, f"--workdir={run}", "--jsonl", gray)
    assert {"path", "brightness", "runtime", "time", "source"} <= set(json.loads(said))
    pytest.importorskip("pyarrow")  # the extra 'parquet'
    command(predict, f"--workdir={run}", "--engine=local", f"--out={tmp_path / 'parts'}", gray)
    (counts,) = csv.DictReader((tmp_path / "parts" / "_by_hour.csv").open())
    assert (counts["inputs"], counts["unusable"], counts["unknown"]) == ("1", "0", "0")
    assert command(evaluate, f"--workdir={run}").splitlines()[2].startswith("checkpoint.step")
    command(report, f"--workdir={run}", f"--out={tmp_path / 'page.html'}")
    page = (tmp_path / "page.html").read_text()
    assert "Figures" in page and "Choose γ" not in page


@pytest.mark.slow  # to train and measure it
def test_it_goes_out_as_onnx(run, tmp_path, command):
    onnx = pytest.importorskip("onnx")
    from jaxatr.onnx import load

    path = tmp_path / "brightness.onnx"
    command(convert, "export", f"--workdir={run}", f"--out={path}")
    assert [value.name for value in onnx.load(path).graph.output] == ["brightness"]
    model = load(path)
    (wanted,) = jaxatr.load(run)([np.full((4, 4, 1), 128, np.uint8)])
    found = model.apply(model.variables, np.full((1, 4, 4, 1), 128, np.uint8))
    assert float(np.ravel(found)[0]) == pytest.approx(wanted, abs=1e-4)
