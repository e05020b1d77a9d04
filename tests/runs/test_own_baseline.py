"""A score outside the package with its own training: docs/examples/own_training.py."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxatr import openset, runs

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "own_training.py"


@pytest.fixture
def run(trained_run, tmp_path, monkeypatch):
    """A copy of a run's folder, with the score on the import path as ``own_training``."""
    shutil.copy(EXAMPLE, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copytree(trained_run, tmp_path / "run")
    yield tmp_path / "run"
    sys.modules.pop("own_training", None)


def test_it_is_trained_once_and_joins_the_evaluation(run):
    name = "own_training:SCORE"
    with pytest.raises(ValueError, match="usual has not been trained in .* --baselines=MODULE:"):
        runs.evaluate_run(run, scores=name)
    assert runs.check_baselines([name, "conflabel"]) == {name: "usual", "conflabel": "conflabel"}
    runs.train_baseline(run, name, progress=False)
    model = run / "usual" / "model.npz"
    made = model.stat().st_mtime_ns
    runs.train_baseline(run, name, progress=False)
    assert model.stat().st_mtime_ns == made
    found = runs.evaluate_run(run, scores=f"{name},mls", fresh=True)["groups"]["all"]["scores"]
    assert list(found) == ["usual", "mls"]
    with np.load(run / "scores.npz") as saved, np.load(model) as arrays:
        known = saved["validation_labels"] != openset.UNKNOWN
        expected = saved["validation_logits"][known].max(axis=1).mean()
        assert arrays["height"] == pytest.approx(expected, rel=1e-5)
        best = saved["test_logits"].max(axis=1)
        np.testing.assert_allclose(
            saved["test_score_usual"], -np.abs(best - arrays["height"]), rtol=1e-5
        )


def test_a_score_without_a_training_is_not_a_baseline(run, tmp_path):
    (tmp_path / "own_training.py").write_text(
        "from jaxatr.openset import Score\n"
        "SCORE = Score('plain', 'Plain', lambda _, outputs: outputs.logits.max(axis=1))\n"
    )
    with pytest.raises(ValueError, match="the score plain needs no training"):
        runs.train_baseline(run, "own_training:SCORE")
