"""Tables show the recorded figures and nothing else."""

import numpy as np

from jaxatr import openset, reporting


def evaluation(**fields):
    rng = np.random.default_rng(0)
    labels = np.array([0, 1, 0, 1, openset.UNKNOWN, openset.UNKNOWN])
    out = openset.Outputs(*np.float32(rng.normal(size=(2, 6, 2))), labels)
    fitted = openset.fit_scores(openset.choose_scores(openset.DEFAULT))
    groups = {
        name: openset.evaluate(one.labels, one.predicted, fitted.on(one))
        for name, one in (("all", out), ("1000 m", out.select(labels >= 0)))
    }
    return {
        "dataset": {"name": "simulated"},
        "split": {"name": "random-2/1", "version": 1, "seed": 7},
        "known": ["a", "b"],
        "unknown": ["c"],
        "gamma": 0.9,
        "tpr": 0.95,
        "groups": groups,
    } | fields


def test_rows_and_columns():
    recorded = evaluation()
    lines = reporting.open_set_table(recorded).splitlines()
    assert lines[0].split()[:2] == ["test", "data"]
    assert [line.split()[0] for line in lines[2:8]] == ["all", "mls", "cbc", "1000", "mls", "cbc"]
    auroc = recorded["groups"]["all"]["scores"]["softmax"]["auroc"]
    assert f"{100 * auroc:.1f}" in lines[2]
    assert lines[5].rstrip().endswith("-")  # no unknown examples at that range: nothing to show
    assert "known: a, b; unknown: c" in lines
    assert "data: simulated; split: random-2/1, version 1, seed 7" in lines


def test_the_accuracy_of_a_score_that_names_the_class_has_a_column():
    recorded = evaluation()
    assert "own acc." not in reporting.open_set_table(recorded)
    recorded["groups"]["all"]["scores"]["mls"]["closed_accuracy"] = 0.5
    lines = reporting.open_set_table(recorded).splitlines()
    assert lines[0].endswith("own acc.") and lines[2].endswith("-") and lines[3].endswith("50.0")


def test_a_fixed_threshold_that_is_not_a_probability_is_stated():
    recorded = evaluation()
    scores = recorded["groups"]["all"]["scores"]
    scores["mls"]["threshold"] = 3.0
    assert "rejecting below 0.9 (mls: 3)\n" in reporting.open_set_table(recorded) + "\n"
    scores["mls"]["threshold"] = None
    assert "rejecting below 0.9\n" in reporting.open_set_table(recorded) + "\n"


def test_fitted_gamma_is_stated_where_there_is_one():
    recorded = evaluation(fitted_gamma=0.75)
    recorded["groups"]["all"]["scores"]["cbc"]["fitted_threshold"] = 1.1
    assert "γ = 0.75" in reporting.open_set_table(recorded)
    assert "validation" not in reporting.open_set_table(evaluation())


def test_a_threshold_of_training_examples_too_is_told_from_those_of_the_other_scores():
    recorded = evaluation(decides="mls")
    recorded["groups"]["all"]["scores"]["cbc"]["fitted_threshold"] = 1.1
    scores = np.arange(65.0)
    few = openset.fit_calibration(scores)._replace(unseen=5)
    for calibration, said in ((few, True), (openset.fit_calibration(scores), False)):
        recorded["decision"] = {"by": "name", "fitted_to": calibration.basis}
        table = reporting.open_set_table(recorded)
        assert ("its threshold is fitted to the training examples as well" in table) == said


def test_worst_confusions_come_by_count_then_by_share():
    counts = [[5, 2, 0], [2, 1, 0], [1, 0, 0]]
    found = reporting.worst_confusions("abc", counts)
    assert [(c.true, c.taken_for, c.count) for c in found] == [
        ("b", "a", 2),
        ("a", "b", 2),
        ("c", "a", 1),
    ]
    assert found[0].share == 2 / 3 and found[2].share == 1
    assert reporting.worst_confusions("abc", counts, most=1) == found[:1]
    assert reporting.worst_confusions("ab", [[1, 0], [0, 0]]) == []


def test_an_enrolled_class_without_test_examples_is_said_to_be_unmeasured():
    measured = {"enrolled": {"classes": {"jeep": {"chips": 10, "test": 0}}}}
    (line,) = reporting.tables.enrolled_lines(measured)
    assert line.startswith("enrolled: jeep, by 10 chips; not measured: ")
