"""Scores of an open-set run: user-defined scores, and scores that a run cannot compute."""

import json
import shutil

import numpy as np
import pytest

from jaxatr import metrics, openset, reporting, runs
from jaxatr.recognition.baselines import trained_scores

OUTSIDE = """
from typing import NamedTuple

import numpy as np

from jaxatr.openset import Score


class Box(NamedTuple):
    low: np.ndarray
    high: np.ndarray


def fit(outputs, head):
    features = outputs.more["features"]
    assert len(features) == len(outputs.labels) and head.kernel.shape[0] == features.shape[1]
    return Box(features.min(axis=0), features.max(axis=0))


def score(model, outputs):
    features = outputs.more["features"]
    beyond = np.maximum(model.low - features, features - model.high)
    return -np.maximum(beyond, 0).sum(axis=1)


BOX = Score("box", "Bounding <box>", score, fit, needs=("features",), scale="distance")
MISSPELT = Score("misspelt", "Misspelt", score, needs=("feature",))
"""


@pytest.fixture(scope="module")
def run(trained_run, tmp_path_factory):
    """A copy of the folder of a run, with a module of user-defined scores on the import path."""
    folder = tmp_path_factory.mktemp("scored")
    (folder / "users_scores.py").write_text(OUTSIDE)
    shutil.copytree(trained_run, folder / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder / "run"


def test_a_score_from_outside_is_fitted_measured_and_shown(run):
    result = runs.evaluate_run(run, scores="users_scores:BOX,mls", fresh=True)
    rows, arrays = result["groups"]["all"]["scores"], dict(np.load(run / "scores.npz"))
    assert list(rows) == ["box", "mls"]
    score, known = arrays["test_score_box"], arrays["test_labels"] != openset.UNKNOWN
    assert rows["box"]["auroc"] == metrics.auroc(score[known], score[~known])
    assert rows["box"]["threshold"] is None and "fitted_threshold" in rows["box"]
    assert np.all(arrays["fitted_box_low"] <= arrays["fitted_box_high"])
    assert json.loads((run / "evaluation.json").read_text())["groups"] == result["groups"]
    assert "  box  " in reporting.open_set_table(result)
    page = reporting.render_report([run])
    assert "Bounding &lt;box&gt;" in page and '"scale": "distance"' in page.replace('":"', '": "')


def test_every_score_is_computed_once_for_each_part(run, monkeypatch):
    calls = []
    mls = openset.SCORES["mls"]

    def counted(model, outputs):
        calls.append(len(outputs.labels))
        return mls.score(model, outputs)

    counting = openset.Score("mls", "MLS", counted, fixed_threshold=mls.fixed_threshold)
    monkeypatch.setattr(openset.detectors.mls, "PART", counting)
    result = runs.evaluate_run(run, scores="mls", fresh=True)
    assert calls == [18, 40] and set(result["groups"]["all"]["scores"]) == {"mls"}


def test_it_names_the_scores_that_it_fits(run, capsys):
    runs.evaluate_run(run, scores="knn,mls", progress=True)
    told = capsys.readouterr()
    assert not told.out
    lines = [line for line in told.err.splitlines() if "fitting" in line or "examples" in line]
    assert "fitting knn" in lines and "fitting mls" not in lines
    assert "computing outputs on 54 examples (train)" in lines
    runs.evaluate_run(run, scores="mls")
    assert "examples" not in capsys.readouterr().err


def test_scores_that_a_run_cannot_give(run, small_config):
    from jaxatr.tasks import OpenSet

    with pytest.raises(ValueError, match="needs 'feature', which no network provides.*'fe"):
        runs.evaluate_run(run, scores="users_scores:MISSPELT")
    with pytest.raises(ValueError, match="got 'mlss'.*did you mean 'mls'"):
        runs.evaluate_run(run, scores="mlss")
    config = small_config.copy_and_resolve_references()
    config.loss.open = "none"
    with pytest.raises(ValueError, match="cbc needs the binary classifiers"):
        OpenSet(config).test({}, scores="mls,cbc")


def test_a_damaged_model_of_a_baseline_is_named(tmp_path):
    (tmp_path / "conflabel").mkdir()
    (tmp_path / "conflabel" / "detector.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"conflabel/detector\.npz: not readable arrays"):
        trained_scores(tmp_path)
