"""Runs that end with their best evaluation, including that of the initial parameters."""

import shutil

import numpy as np
import pytest

from jaxatr import training


def judged(toy, scores):
    """Returns the toy task with given scores, and a list of the evaluated parameters."""
    task, asked = toy.make(), []

    def evaluate(params, model_state):
        asked.append(params)
        score = scores[len(asked) - 1]
        return {} if score is None else {"accuracy": score}

    task.evaluate = evaluate
    return task, asked


def train(toy, workdir, task, **options):
    return toy.run(workdir, task, end_with_best=True, evaluate_every=5, **options)


def kernel(params):
    return np.asarray(params["conv"]["kernel"])


@pytest.mark.filterwarnings("ignore:train.end_with_best")
@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([0.9, 0.5, 0.4, 0.3, 0.6], 0),
        ([0.1, 0.5, 0.8, 0.3, 0.6], 10),
        ([0.1, 0.5, 0.6, 0.3, 0.6], None),  # of equals the newest
        ([0.1, 0.2, 0.3, 0.4, 0.5], None),
    ],
)
def test_a_run_ends_with_its_best_state(toy, records, tmp_path, scores, kept):
    task, asked = judged(toy, scores)
    result = train(toy, tmp_path, task)
    assert result.step == 20 and len(asked) == 5
    place = 4 if kept is None else kept // 5
    np.testing.assert_array_equal(kernel(result.params), kernel(asked[place]))
    assert result.metrics == {"accuracy": scores[place]}
    assert training.read_record(tmp_path).get("kept_step") == kept
    for which in ("latest", "best"):
        snapshot = training.load_snapshot(tmp_path, which)
        assert snapshot.step == 20
        np.testing.assert_array_equal(kernel(snapshot.state["params"]), kernel(result.params))
    told = [(r["step"], r["accuracy"]) for r in records(tmp_path) if r["phase"] == "evaluate"]
    assert told == list(zip(range(0, 21, 5), scores, strict=True))  # what was measured then


@pytest.mark.slow
def test_a_run_that_was_cut_off_ends_with_the_same(toy, tmp_path):
    scores = [0.5, 0.4, 0.8, 0.3, 0.6]
    whole = train(toy, tmp_path / "whole", judged(toy, scores)[0])
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "20")
    task, asked = judged(toy, scores[4:])
    result = train(toy, tmp_path / "cut", task)
    assert len(asked) == 1  # the beginning is not evaluated again
    np.testing.assert_array_equal(kernel(result.params), kernel(whole.params))
    task, asked = judged(toy, [])
    assert train(toy, tmp_path / "cut", task).metrics == {"accuracy": 0.8} and not asked


@pytest.mark.slow
def test_the_average_is_kept_too(toy, tmp_path):
    task, asked = judged(toy, [0.1, 0.9, 0.4, 0.3, 0.6])
    result = train(toy, tmp_path, task, ema=0.5)
    np.testing.assert_array_equal(kernel(result.params), kernel(asked[1]))


def test_a_run_that_learned_nothing_says_so(toy, tmp_path):
    task, _ = judged(toy, [0.9, 0.5, 0.4, 0.3, 0.6])
    with pytest.warns(UserWarning, match="no evaluation was as good"):
        train(toy, tmp_path, task)


def test_without_an_evaluation_it_says_so(toy, tmp_path):
    task, asked = judged(toy, [None] * 5)
    with pytest.warns(UserWarning, match="train.end_with_best: there is no validation data"):
        result = train(toy, tmp_path, task)
    np.testing.assert_array_equal(kernel(result.params), kernel(asked[-1]))
