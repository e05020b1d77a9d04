"""Run folders made before their records named a task (tests/fixtures/make_runs.py) still load."""

import json

import numpy as np
import pytest

import jaxatr
from jaxatr import data, runs, training
from jaxatr.reporting.recorded_run import read_run

CLASSES = ("cross", "disc", "ring", "square")


@pytest.fixture(scope="module")
def expected(earlier):
    return json.loads((earlier / "predictions.json").read_text())


@pytest.fixture(scope="module")
def images(earlier):
    return [data.read_image(earlier / "chips" / "test" / name / "000.png") for name in CLASSES]


def same(found, wanted):
    """Compares recorded values: numbers to float32 rounding, everything else exactly."""
    if isinstance(wanted, dict):
        assert set(found) >= set(wanted)
        for name in wanted:
            same(found[name], wanted[name])
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-4)
    else:
        assert found == wanted


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("open_set", "OpenSet"),
        ("track", "TrackOpenSet"),
        ("embedding", "Embedding"),
        ("distillation", "Distillation"),
        ("open_set/gopenmax/generator", "ConditionalGan"),
    ],
)
def test_the_configuration_tells_the_kind(earlier, name, kind):
    assert "task" not in training.read_record(earlier / name)
    assert training.task_of(earlier / name).__name__ == kind
    assert training.load_run(earlier / name).step > 0


@pytest.mark.parametrize(("name", "takes"), [("open_set", "IMAGE"), ("track", "FOLDER")])
def test_a_report_describes_the_input_of_the_runs_predictor(earlier, name, takes):
    assert read_run(earlier / name).takes == takes


def test_recognisers_answer_as_before(earlier, expected, images):
    found = [one._asdict() for one in jaxatr.load(earlier / "open_set")(images)]
    same(found, expected["open_set"])
    found = [one._asdict() for one in jaxatr.load(earlier / "track")([images])]
    same(found, expected["track"])


def test_they_decide_by_the_rule_that_there_was(earlier, images):
    for name in ("open_set", "track"):
        assert training.load_config(earlier / name).open_set.score == "cbc"
    recogniser = jaxatr.load(earlier / "open_set")
    assert recogniser.gamma == 0.9 and recogniser.decision.calibration is None
    assert {(p.decides, p.probability_is) for p in recogniser(images)} == {("cbc", "score")}
    assert not (earlier / "open_set" / "fitted").exists()


def test_a_retriever_answers_as_before(earlier, expected, images):
    retriever = jaxatr.load(earlier / "embedding", neighbours=2)
    found = [retriever.to_json(one) for one in retriever(images)]
    for one in found:  # paths are of the machine that made the index
        for neighbour in one["neighbours"]:
            assert neighbour["path"] is not None
    wanted = expected["embedding"]
    for one in wanted:
        one["neighbours"] = [
            dict(zip(("label", "distance", "id", "path"), neighbour, strict=True))
            for neighbour in one["neighbours"]
        ]
    same(found, wanted)


def test_an_explainer_answers_as_before(earlier, expected, images):
    explained = list(jaxatr.Explainer.load(earlier / "distillation")(images))
    for one, wanted in zip(explained, expected["distillation"], strict=True):
        assert one.label == wanted["label"]
        assert one.score == pytest.approx(wanted["score"], abs=1e-4)
        np.testing.assert_allclose(one.saliency, wanted["saliency"], atol=1e-3)


@pytest.mark.parametrize(
    "name",
    [
        "open_set",
        pytest.param("track", marks=pytest.mark.slow),
        pytest.param("embedding", marks=pytest.mark.slow),
        pytest.param("distillation", marks=pytest.mark.slow),
    ],
)
def test_an_evaluation_finds_the_recorded_figures(earlier, name):
    recorded = json.loads((earlier / name / "evaluation.json").read_text())
    same(runs.evaluate_run(earlier / name), recorded)
    page = earlier / f"{name}.html"
    from jaxatr import reporting

    reporting.write_report([earlier / name], page)
    assert name in page.read_text()
