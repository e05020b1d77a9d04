"""The score that decides: its choice, its fit in the folder of the run, and errors."""

import json
import math
import shutil
import warnings

import jax
import numpy as np
import pytest
import scipy.special

from jaxatr import data, files, metrics, openset, reporting, runs, training
from jaxatr.recognition import choice, selection, store
from jaxatr.recognition.prediction import UNKNOWN
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.reporting import score_record


@pytest.fixture(scope="module")
def folder(small_config, tmp_path_factory):
    """An evaluated run with enough validation examples for a threshold at 90 %."""
    config = small_config.copy_and_resolve_references()
    config.open_set.tpr = 0.9
    workdir = tmp_path_factory.mktemp("decides") / "run"
    runs.train_run(config, workdir, progress=False)
    record = training.read_record(workdir)["decision"]
    assert record["decides"] in openset.SCORES  # as soon as it is trained
    runs.evaluate_run(workdir)
    return workdir


@pytest.fixture(scope="module")
def evaluation(folder):
    return json.loads((folder / "evaluation.json").read_text())


@pytest.fixture(scope="module")
def images(folder, chips):
    config = training.load_config(folder)
    dataset = data.open_dataset("image_folder", source=str(chips), data_dir=config.data.data_dir)
    split, saved = dataset.splits["test"], np.load(folder / "scores.npz")
    position = {int(i): p for p, i in enumerate(split.columns["id"])}
    return [split.image(position[int(i)]) for i in saved["test_id"]]


def copied(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    return tmp_path / "run"


def _check_few(held_out, threshold, guarantee):
    """Checks a threshold at 90 % of few validation examples, and of the training examples."""
    rank = math.ceil(round(0.1 * (len(held_out) + 1), 9))
    assert -np.inf < threshold <= np.sort(held_out)[rank - 1] + 1e-5 * abs(threshold)
    assert guarantee == pytest.approx(1 - rank / (len(held_out) + 1))


@pytest.mark.slow
def test_auto_takes_the_best_by_known_classes(folder, evaluation):
    record = training.read_record(folder)["decision"]
    areas = {n: row["auroc"] for n, row in record["candidates"].items() if "auroc" in row}
    assert areas[record["decides"]] == max(areas.values())
    assert {"cbc", "softmax", "mahalanobis", "nearest"} <= set(areas)
    assert not {"odin", "conflabel", "gopenmax"} & set(record["candidates"])
    for row in record["candidates"].values():
        if "auroc" in row:
            assert set(row["by_class"]) == set(evaluation["known"])
            assert row["auroc"] == pytest.approx(np.mean(list(row["by_class"].values())))
    step = training.load_snapshot(folder, "latest").step
    assert record["step"] == step and store.path_of(folder, step, record["decides"]).is_file()


def test_the_evaluation_names_the_deciding_score_and_its_measures(folder, evaluation):
    name, decision = evaluation["decides"], evaluation["decision"]
    assert name in evaluation["groups"]["all"]["scores"] and name == decision["decides"]
    saved = np.load(folder / "scores.npz")
    labels, threshold = saved["test_labels"], decision["thresholds"][0]
    known, accepted = labels != openset.UNKNOWN, saved[f"test_score_{name}"] >= threshold
    np.testing.assert_array_equal(saved["decided_accepted"], accepted)
    held_out = saved[f"validation_score_{name}"]
    _check_few(held_out, threshold, decision["guarantees"][0])
    assert threshold == evaluation["groups"]["all"]["scores"][name]["fitted_threshold"]
    test = decision["test"]
    assert test["known_accepted"] == np.mean(accepted[known])
    assert test["unknown_accepted"] == np.mean(accepted[~known])
    decided = np.where(accepted, saved["decided_nearest"], openset.UNKNOWN)
    assert test["open_accuracy"] == np.mean(decided == labels)
    assert test["aurc"] == metrics.aurc(
        saved[f"test_score_{name}"], saved["decided_nearest"] == labels
    )
    shares = scipy.special.softmax(
        np.float64(saved["test_logits"][known]) / decision["temperature"], axis=1
    )
    right = shares.argmax(axis=1) == labels[known]
    error = metrics.expected_calibration_error(shares.max(axis=1), right)
    assert test["class_probability"]["error"] == pytest.approx(error)
    assert "known_probability" not in test and decision["probability"] == "p-value"
    table = reporting.open_set_table(evaluation)
    assert f"{len(held_out)} validation examples and " in table and "% guaranteed" in table
    assert "a p-value instead of a probability" in table
    assert f"decides: {name}, by known classes left out" in table
    assert "AURC" in table and "known accepted" in table


def test_the_recogniser_decides_as_the_evaluation_did(folder, evaluation, images):
    recogniser, saved = Recogniser.load(folder), np.load(folder / "scores.npz")
    predictions = list(recogniser(images, batch_size=7))
    name = evaluation["decides"]
    assert {p.decides for p in predictions} == {name}
    np.testing.assert_allclose(
        [p.score for p in predictions], saved[f"test_score_{name}"], rtol=1e-3, atol=1e-3
    )
    near = np.abs(saved["decided_score"] - saved["decided_threshold"]) < 1e-3
    accepted = np.array([p.label != UNKNOWN for p in predictions])
    np.testing.assert_array_equal(accepted[~near], saved["decided_accepted"][~near])
    np.testing.assert_allclose(
        [p.known_probability for p in predictions], saved["decided_known_probability"], atol=1e-2
    )
    for prediction in predictions:
        assert prediction.threshold == evaluation["decision"]["thresholds"][0]
        assert 0 <= prediction.known_probability <= 1 and 0 < prediction.p_value <= 1
        assert sum(prediction.probabilities.values()) == pytest.approx(1)
        line = recogniser.describe(prediction)
        assert f"{name} " in line and line.startswith(prediction.label)
        assert "% guaranteed" in line and "no guarantee" not in line
        assert prediction.guarantee == pytest.approx(evaluation["decision"]["guarantees"][0])
        fields = json.loads(json.dumps(recogniser.to_json(prediction)))
        assert fields["decides"] == name and fields["threshold"] == prediction.threshold


def test_another_score_is_fitted_once_with_its_own_threshold(folder, images, tmp_path):
    run = copied(folder, tmp_path)
    with pytest.warns(UserWarning, match="score=mahalanobis is not fitted yet"):
        first = Recogniser.load(run, score="mahalanobis")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = Recogniser.load(run, score="mahalanobis")
    one, other = (list(each(images[:5])) for each in (first, again))
    assert one == other and one[0].decides == "mahalanobis" and one[0].gamma is None
    result = runs.evaluate_run(run, scores="mahalanobis")
    assert result["decides"] == training.read_record(folder)["decision"]["decides"]
    held_out = np.load(run / "scores.npz")["validation_score_mahalanobis"]
    _check_few(held_out, one[0].threshold, one[0].guarantee)


@pytest.mark.slow
def test_a_missing_or_outdated_decision_is_made_again(folder, tmp_path):
    run = copied(folder, tmp_path)
    step = training.load_snapshot(run, "latest").step
    shutil.rmtree(run / "fitted")
    runs.evaluate_run(run)
    assert store.load_choice(run, step) is not None
    (run / "fitted" / str(step)).rename(run / "fitted" / str(step + 1))
    with pytest.warns(UserWarning, match="score=auto is not fitted yet"):
        Recogniser.load(run)
    name = training.read_record(run)["decision"]["decides"]
    path = store.path_of(run, step, name)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=f"{name}.npz: not a readable fit"):
        Recogniser.load(run)
    shutil.copy(store.path_of(run, step + 1, name), path)
    arrays = dict(np.load(path)) | {"step": np.array(step + 1)}
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=f"it does not belong to step {step}"):
        Recogniser.load(run)


def test_without_the_data_it_is_refused_clearly(folder, chips, tmp_path):
    run = copied(folder, tmp_path)
    config = json.loads((run / "config.json").read_text())
    config["data"]["source"], config["data"]["data_dir"] = "/nowhere", str(tmp_path / "none")
    files.write_fields(run / "config.json", config)
    assert Recogniser.load(run).decision.score.name in openset.SCORES  # what is kept suffices
    with pytest.raises(ValueError, match="score=rmds is not fitted at step.*--data_source=PATH"):
        Recogniser.load(run, score="rmds")
    with pytest.warns(UserWarning, match="rmds is not fitted"):
        found = Recogniser.load(run, score="rmds", source=str(chips))
    assert found.decision.score.name == "rmds"


@pytest.mark.slow
def test_a_threshold_can_be_given_in_the_score_s_own_unit(folder, images):
    own = Recogniser.load(folder, score="nearest")
    middle = float(np.median([p.score for p in own(images)]))
    given = Recogniser.load(folder, score="nearest", gamma=middle)
    labels = [(p.score >= middle, p.label != UNKNOWN) for p in given(images)]
    assert all(one == other for one, other in labels) and len(set(labels)) == 2
    assert Recogniser.load(folder, gamma="fitted").decision.threshold is None
    with pytest.raises(ValueError, match="gamma: got 'high', wanted a number"):
        Recogniser.load(folder, gamma="high")
    energy = Recogniser.load(folder, score="energy", gamma=0.5)  # for which nothing is fitted
    assert {p.threshold for p in energy(images[:3])} == {0.5}


def test_names_that_cannot_decide(folder, small_config, tmp_path):
    with pytest.raises(ValueError, match="got 'wim'.*did you mean 'vim'"):
        Recogniser.load(folder, score="wim")
    with pytest.raises(ValueError, match="gopenmax needs separate training"):
        Recogniser.load(folder, score="gopenmax")
    config = small_config.copy_and_resolve_references()
    config.open_set.score = "none"
    with pytest.raises(ValueError, match="open_set.score: scores: got 'none'"):
        runs.train_run(config, tmp_path / "run", progress=False)


def test_the_configured_score_and_classes_count_without_training_again(
    folder, small_config, tmp_path
):
    run = copied(folder, tmp_path)
    config = training.load_config(run)
    config.open_set.score, config.open_set.per_class = "energy", True
    before = len(training.read_metrics(run))
    with pytest.warns(UserWarning, match="an estimate, with no guarantee"):
        runs.train_run(config, run, progress=False)
    assert len(training.read_metrics(run)) == before
    recogniser = Recogniser.load(run)
    assert recogniser.decision.score.name == "energy" and recogniser.decision.calibration.per_class
    result = runs.evaluate_run(run)
    assert result["decides"] == "energy" and result["decision"]["by"] == "name"
    assert list(result["decision"]["candidates"]) == ["energy"]


@pytest.mark.slow  # to train a run of its own
def test_without_validation_examples_the_paper_s_rule_decides(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.data.validation, config.train.epochs = 0.0, 1
    runs.train_run(config, tmp_path / "run", progress=False)
    result = runs.evaluate_run(tmp_path / "run")
    assert result["decides"] == "cbc" and result["decision"]["by"] == "no validation examples"
    assert result["fitted_gamma"] is None
    assert "fitted_open_accuracy" not in result["groups"]["all"]["scores"]["cbc"]
    with pytest.raises(ValueError, match="no fitted γ"):
        Recogniser.load(tmp_path / "run", gamma="fitted")
    recogniser = Recogniser.load(tmp_path / "run")
    assert recogniser.gamma == pytest.approx(0.9) and recogniser.decision.calibration is None
    with pytest.raises(ValueError, match="no validation examples to fit the threshold of energy"):
        Recogniser.load(tmp_path / "run", score="energy")


def test_the_report_shows_the_decision(folder, evaluation):
    page = reporting.render_report([folder])
    title = score_record.label(evaluation["decides"])
    assert "The decision" in page and "Risk and coverage" in page
    assert f'<option value="{evaluation["decides"]}" selected>{title}' in page
    assert "Class probability of known examples" in page
    assert "Probability of being known" not in page  # it is a p-value
    assert "others as if not seen: at least" in page


def test_nothing_of_the_test_part_takes_part_in_the_choice(folder, small_config, monkeypatch):
    config = training.load_config(folder)
    task = runs.make_task(config, folder)
    asked = []
    reals = {name: getattr(type(task), name) for name in ("outputs", "decided_part")}

    def outputs(self, variables, part, needs=()):
        asked.append(part)
        return reals["outputs"](self, variables, part, needs)

    def decided_part(self, name):
        asked.append(name)
        return reals["decided_part"](self, name)

    monkeypatch.setattr(type(task), "outputs", outputs)
    monkeypatch.setattr(type(task), "decided_part", decided_part)
    variables = training.variables_of(training.load_snapshot(folder, "latest"))
    made = choice.made_for(task, variables)
    assert set(asked) == {"train", "validation"}
    assert made.record["decides"] == training.read_record(folder)["decision"]["decides"]


def test_scores_are_compared_on_a_sample_of_many_chips_and_fitted_to_all(folder, monkeypatch):
    task = runs.make_task(training.load_config(folder), folder)
    variables = training.variables_of(training.load_snapshot(folder, "latest"))
    compared, real = [], openset.compare

    def compare(scores, trials):
        trials = list(trials)
        compared.extend(trials)
        return real(scores, trials)

    monkeypatch.setattr(openset, "compare", compare)
    monkeypatch.setattr(choice, "MOST_COMPARED", 9)
    monkeypatch.setattr(selection, "candidates", lambda _: openset.choose_scores(["nearest"]))
    made = choice.fit(task, variables, "auto")
    known = len(task.split.known)
    assert len(compared) == known and "sample" not in task.parts
    assert sum(len(one.training.labels) for one in compared) == 9 * (known - 1)
    named = choice.fit(task, variables, "nearest")
    assert jax.tree.leaves(made.decision.models)
    jax.tree.map(np.testing.assert_array_equal, made.decision.models, named.decision.models)


def test_the_default_rule_is_fitted_and_read(folder, tmp_path, monkeypatch):
    run = copied(folder, tmp_path)
    config = training.load_config(run)
    task, snapshot = runs.make_task(config, run), training.load_snapshot(run, "latest")
    variables, step = training.variables_of(snapshot), snapshot.step
    made = choice.made_for(task, variables, run, step, score="consensus")
    assert made.record["decides"] == "consensus" and made.record["by"] == "default"
    # The network has seen all classes: there is nothing to estimate an AUROC or a probability from.
    assert made.record["candidates"] == {} and "estimate" not in made.record
    assert made.decision.probability_is == "p-value"
    score, model = made.decision.score, made.decision.models["consensus"]
    assert list(made.record["weights"].values()) == model.weights.tolist()
    assert sum(made.record["weights"].values()) == pytest.approx(1)
    two = openset.Outputs(np.zeros((9, 2)), np.zeros((9, 2)), np.arange(9) % 2)
    by = selection.weights_of(score, model, two, "default")["by"]
    assert by.startswith("default; the network's scores are not weighted: fewer than 3 known")
    read = choice.read(run, step, config, score="consensus")
    assert read.record == json.loads(json.dumps(made.record))
    test = task.decided_outputs(variables, "test", made.decision.score.all_needs)
    for one, other in zip(made.decision(test), read.decision(test), strict=True):
        np.testing.assert_array_equal(one, other)
    lines = reporting.tables.decision_lines({"decides": "consensus", "decision": made.record})
    assert any("cannot be estimated without trials" in line for line in lines)
    given = task.given
    for missing, decides in (("open_logits", "consensus_closed"), ("map_stage2", None)):
        less = property(lambda self, missing=missing: given - {missing})
        monkeypatch.setattr(type(task), "given", less)
        if decides is None:
            monkeypatch.setattr(selection, "candidates", lambda _: openset.choose_scores(["mls"]))
            with pytest.warns(
                UserWarning, match="consensus needs the map of stage 2.*auto decides"
            ):
                made = choice.fit(task, variables, "consensus")
            assert made.record["decides"] == "mls" and "needs the map" in made.record["by"]
        else:
            assert choice.fit(task, variables, "consensus").record["decides"] == decides
