"""Trials: short trainings without some known classes, to choose the score that decides."""

import shutil

import numpy as np
import pytest

from jaxatr import metrics, openset, runs, training
from jaxatr.recognition import choice
from jaxatr.tasks.open_set import OpenSet


@pytest.fixture(scope="module")
def config(small_config):
    config = small_config.copy_and_resolve_references()
    config.train.steps, config.train.evaluate_every = 12, 1e9
    config.open_set.trials, config.open_set.trial_share = 2, 0.5
    return config


@pytest.fixture(scope="module")
def folder(config, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("trials") / "run"
    runs.train_run(config, workdir, progress=False)
    return workdir


@pytest.mark.slow
def test_auto_chooses_by_networks_that_never_saw_the_classes(folder):
    record = training.read_record(folder)["decision"]
    assert record["by"] == "known classes left out of 2 trainings"
    held = []
    for turn in range(2):
        own = training.load_config(folder / "trials" / str(turn))
        assert own.train.steps == 6 and own.open_set.hold_out == 1 and own.open_set.trials == 0
        task = OpenSet(own)
        (name,) = task.split.unknown
        held.append(name)
        assert set(task.parts["train"].labels) == {0, 1} and name not in task.split.known
        variables = training.variables_of(
            training.load_snapshot(folder / "trials" / str(turn), "latest")
        )
        known, others = (
            task.outputs(variables, part).logits.max(axis=1) for part in ("validation", "held_out")
        )
        area = record["candidates"]["mls"]["by_class"][name]
        assert area == pytest.approx(metrics.auroc(known, others))
    assert len(set(held)) == 2


@pytest.mark.slow
def test_a_score_that_is_named_is_calibrated_by_them(folder):
    config = training.load_config(folder)
    task, snapshot = OpenSet(config), training.load_snapshot(folder, "latest")
    variables = training.variables_of(snapshot)
    by_trials = choice.fit(task, variables, "mls", folder)
    alone = choice.fit(task, variables, "mls")
    by_class = [set(made.record["candidates"]["mls"]["by_class"]) for made in (by_trials, alone)]
    assert len(by_class[0]) == 2 and len(by_class[1]) == 3


@pytest.mark.slow
def test_the_default_rule_is_weighted_by_them_too_and_estimated(folder):
    task = OpenSet(training.load_config(folder))
    variables = training.variables_of(training.load_snapshot(folder, "latest"))
    by_trials = choice.fit(task, variables, "consensus", folder).record
    alone = choice.fit(task, variables, "consensus").record
    assert by_trials["by"] == "default, weights also by 2 trainings" and alone["by"] == "default"
    assert "estimate" in by_trials and "estimate" not in alone
    areas = {name: row["auroc"] for name, row in by_trials["candidates"].items()}
    expected = {n: w * np.exp(8 * (areas[n] - 0.5)) for n, w in alone["weights"].items()}
    whole = sum(expected.values())
    assert by_trials["weights"] == pytest.approx({n: w / whole for n, w in expected.items()})


@pytest.mark.slow
def test_trials_that_are_gone_are_missed(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run", ignore=shutil.ignore_patterns("trials", "fitted"))
    task = OpenSet(training.load_config(folder))
    variables = training.variables_of(training.load_snapshot(folder, "latest"))
    with pytest.warns(UserWarning, match="there is no trained run in .*trials/0"):
        made = choice.fit(task, variables, "auto", tmp_path / "run")
    assert made.record["by"] == "known classes left out in turn, after the network"


@pytest.mark.slow
def test_configurations_that_rule_out_trials_are_named(config, tmp_path):
    changed = config.copy_and_resolve_references()
    changed.open_set.split = "random-2/2"
    with pytest.raises(ValueError, match="open_set.trials: got 2 with 2 known classes"):
        OpenSet(changed).beside(changed)
    changed.open_set.trial_share = 0.0
    with pytest.raises(ValueError, match="open_set.trial_share: got 0.0, wanted a share"):
        OpenSet(changed).beside(changed)
    changed.open_set.score = "mls"
    assert OpenSet(changed).beside(changed) == {}


@pytest.mark.slow
def test_outputs_are_joined():
    rng = np.random.default_rng(0)
    whole = openset.Outputs(
        rng.normal(size=(5, 3)), rng.normal(size=(5, 3)), np.arange(5) % 3, {"a": np.arange(5)}
    )
    first = np.arange(5) < 2
    again = openset.concatenated([whole.select(first), whole.select(~first)])
    for one, other in zip(again[:3], whole[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.more["a"], whole.more["a"])
