"""Recorded scores, and the measures and mistakes computed from them."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from jaxatr import openset
from jaxatr.reporting import score_record


def arrays(n=50, k=3):
    rng = np.random.default_rng(0)
    return {
        "test_logits": np.float32(rng.normal(size=(n, k))),
        "test_open_logits": np.float32(rng.normal(size=(n, k))),
        "test_labels": rng.integers(-1, k, n),
    }


def test_title_and_scale_of_a_score_from_outside_are_recorded():
    margin = openset.Score("margin", "Margin", lambda _, out: np.ptp(out.logits, axis=1))
    recorded = score_record.further_scores([margin, openset.SCORES["cbc"]])
    assert recorded == {"margin": {"title": "Margin", "scale": "plain"}}
    assert score_record.shown("margin", {"further_scores": recorded}).title == "Margin"
    assert score_record.shown("cbc") == ("CBC", "logit")
    assert score_record.shown("gone", {}) == ("gone", "plain")


def test_a_score_is_its_array_or_follows_from_the_outputs():
    recorded = arrays() | {"test_score_energy": np.arange(50.0)}
    found = score_record.recorded_scores(recorded, ["energy", "mls"])
    np.testing.assert_array_equal(found["energy"], np.arange(50.0))
    np.testing.assert_array_equal(found["mls"], recorded["test_logits"].max(axis=1))
    with pytest.raises(ValueError, match="'vim' has no array test_score_vim"):
        score_record.recorded_scores(recorded, ["vim"])


@pytest.mark.parametrize("most", [4, 1000])
def test_mistakes_by_a_plain_search(most):
    rng = np.random.default_rng(1)
    labels, predicted = rng.integers(-1, 3, 60), rng.integers(0, 3, 60)
    score = rng.permutation(60) / 7
    expected = {
        "misclassified": [i for i in range(60) if labels[i] >= 0 and labels[i] != predicted[i]],
        "accepted": [i for i in range(60) if labels[i] < 0],
        "rejected": [i for i in range(60) if labels[i] >= 0],
    }
    found = score_record.confident_mistakes(labels, predicted, score, most=most)
    for kind, rows in expected.items():
        worst_first = sorted(rows, key=lambda i: score[i] if kind == "rejected" else -score[i])
        assert found[kind].tolist() == worst_first[:most]


def test_the_worst_mistakes_of_the_deciding_score_are_the_decisions():
    recorded = arrays(n=200) | {"test_predicted_cbc": np.zeros(200, int)}
    recorded |= {"decided_nearest": np.full(200, 2)}
    score = score_record.recorded_scores(recorded, ["cbc"])["cbc"]
    for decides, named in (("cbc", 2), (None, 0), ("mls", 0)):
        found = score_record.confident_mistakes(
            recorded["test_labels"], np.full(200, named), score
        ).values()
        rows = score_record.worst_mistakes(recorded, ["cbc"], decides)
        assert rows.tolist() == sorted({int(row) for kind in found for row in kind})


def test_decisions_about_the_chips_of_tracks_are_not_the_tracks_predictions():
    recorded = arrays(n=20) | {"decided_nearest": np.full(60, 2)}
    predicted = score_record.recorded_predictions(recorded, "cbc", "cbc")
    np.testing.assert_array_equal(predicted, recorded["test_logits"].argmax(axis=1))
    assert len(score_record.worst_mistakes(recorded, ["cbc"], "cbc")) <= 20


def test_without_mistakes_there_are_no_rows():
    labels = np.array([0, 1])
    found = score_record.confident_mistakes(labels, labels, np.array([1.0, 2.0]))
    assert not len(found["misclassified"]) and not len(found["accepted"])


ARCHIVE = Path(__file__).parents[1] / "fixtures" / "runs.tar.xz"
EARLIER = ("open_set", "open_set/gopenmax/classifier", "track", "embedding")


@pytest.fixture(scope="module")
def earlier():
    """Evaluation and arrays of runs that were evaluated before every score was recorded."""
    found = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            folder, _, file = member.name.rpartition("/")
            if folder in EARLIER and file in ("evaluation.json", "scores.npz"):
                content = io.BytesIO(archive.extractfile(member).read())
                load = json.load if file == "evaluation.json" else lambda file: dict(np.load(file))
                found[folder, file] = load(content)
    return found


@pytest.mark.parametrize("name", EARLIER)
def test_the_figures_of_earlier_folders_follow_from_their_arrays(earlier, name):
    evaluation, arrays = (earlier[name, file] for file in ("evaluation.json", "scores.npz"))
    recorded = evaluation["groups"]["all"]
    wanted = {n: row for n, row in recorded["scores"].items() if "closed_accuracy" not in row}
    test = score_record.recorded_scores(arrays, wanted)
    validation = {f"test_{k[11:]}": v for k, v in arrays.items() if k.startswith("validation_")}
    fixed = {}
    if evaluation["gamma"] is not None:
        scores = [openset.SCORES[n] for n in wanted]
        fixed = openset.fixed_thresholds(scores, evaluation["gamma"])
    again = openset.evaluate(
        arrays["test_labels"],
        score_record.recorded_predictions(arrays, next(iter(wanted))),
        test,
        score_record.recorded_scores(validation, wanted),
        fixed=fixed,
        tpr=evaluation["tpr"],
    )
    assert again.pop("fitted_gamma", None) == evaluation.get("fitted_gamma")
    rows = again.pop("scores")  # which have measures that there were not then
    assert {n: {key: rows[n][key] for key in row} for n, row in wanted.items()} == wanted
    assert again == {key: value for key, value in recorded.items() if key != "scores"}
