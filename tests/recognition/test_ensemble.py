"""Ensembles of runs: loading, decision, evaluation, and errors for incompatible runs."""

import json
import shutil

import numpy as np
import pytest
import scipy.special

from jaxatr import data, files, openset, reporting, runs, training
from jaxatr.cli import evaluate as evaluate_command
from jaxatr.cli import predict as predict_command
from jaxatr.recognition import store
from jaxatr.recognition.ensemble import Ensemble
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks.open_set import OpenSet


def calibration_of(ensemble) -> openset.Calibration:
    """Returns the calibration of an ensemble."""
    found = ensemble.decision.calibration
    assert found is not None
    return found


def edited(run, name, change):
    """Changes a JSON file of a run's folder."""
    content = json.loads((run / name).read_text())
    change(content)
    files.write_fields(run / name, content)


@pytest.fixture(scope="module")
def pair(trained_run, small_config, tmp_path_factory):
    """Two runs with different seeds and the same validation part."""
    root = tmp_path_factory.mktemp("ensemble")
    shutil.copytree(trained_run, root / "one")
    config = small_config.copy_and_resolve_references()
    config.seed, config.data.validation_seed = 1, small_config.seed
    runs.train_run(config, root / "two", progress=False)
    for name in ("one", "two"):  # 18 validation examples can reject at 0.9
        edited(root / name, "config.json", lambda content: content["open_set"].update(tpr=0.9))
    return root / "one", root / "two"


@pytest.fixture(scope="module")
def images(chips):
    """Test images of all classes, including unknown ones."""
    return [data.read_image(path) for path in sorted((chips / "test").glob("*/00[0-4].png"))]


@pytest.fixture
def copies(pair, tmp_path):
    for path in pair:
        without = shutil.ignore_patterns("ensemble.*")  # that another test has fitted
        shutil.copytree(path, tmp_path / path.name, ignore=without)
    return tmp_path / "one", tmp_path / "two"


@pytest.mark.slow
def test_the_validation_seed_draws_the_validation_part(small_config, pair):
    first, second = (OpenSet(training.load_config(path)) for path in pair)
    own = small_config.copy_and_resolve_references()
    own.seed = 1
    np.testing.assert_array_equal(
        first.parts["validation"].indices, second.parts["validation"].indices
    )
    third = OpenSet(own).parts["validation"].indices
    assert not np.array_equal(first.parts["validation"].indices, third)


def test_an_ensemble_of_one_answers_as_the_run(pair, images):
    alone, ensemble = Recogniser.load(pair[0]), Recogniser.load([pair[0]])
    name = ensemble.decision.score.name
    assert name == "ensemble" and alone.decision.score.name != name
    for one, other in zip(alone(images), ensemble(images), strict=True):
        assert (one.label, one.nearest) == (other.label, other.nearest)
        assert other.decides == "ensemble" and one.probability_is == other.probability_is
        assert one.p_value == pytest.approx(other.p_value)
        assert one.known_probability == pytest.approx(other.known_probability, abs=1e-6)
        shares = [np.array(list(p.probabilities.values())) for p in (one, other)]
        np.testing.assert_allclose(shares[0], shares[1], rtol=1e-5)


def test_two_answer_as_a_loop_over_them(pair, images):
    ensemble, members = Recogniser.load(pair), [Recogniser.load(path) for path in pair]
    outputs = [list(member.outputs(images)) for member in members]
    shares, standings = [], []
    for (one,), member in zip(outputs, members, strict=True):
        shares.append(scipy.special.softmax(np.float64(one.logits), axis=1))
        scores, _ = member.decision.score_of(one)
        own = calibration_of(member)
        standings.append(openset.standing_of(scores, own.scores[: own.held_out]))
    mean, standing = np.mean(shares, axis=0), np.mean(standings, axis=0)
    calibration = calibration_of(ensemble)
    logits = np.log(mean) / calibration.temperature
    predictions = list(ensemble(images, batch_size=len(images)))
    np.testing.assert_allclose([p.score for p in predictions], standing, rtol=1e-4, atol=1e-4)
    found = np.array([list(p.probabilities.values()) for p in predictions])
    np.testing.assert_allclose(found, scipy.special.softmax(logits, axis=1), atol=1e-5)
    threshold = calibration.threshold
    assert calibration.pooled  # the training examples count as if not seen
    for prediction in predictions:
        assert prediction.threshold == threshold
        known = prediction.score >= threshold
        assert prediction.label == (prediction.nearest if known else "unknown")
    if not ensemble.decision.gallery:
        nearest = [ensemble.classes[label] for label in mean.argmax(1)]
        assert [p.nearest for p in predictions] == nearest


def test_of_the_validation_examples_as_many_are_accepted_as_promised(pair):
    ensemble, task = Recogniser.load(pair), OpenSet(training.load_config(pair[0]))
    part = task.parts["validation"]
    chips = part.chips(np.arange(len(part.indices)))
    calibration = calibration_of(ensemble)
    assert len(chips) == calibration.held_out == 18
    scores = np.array([prediction.score for prediction in ensemble(chips)])
    # Never above the second of 18 scores, ceil(0.1 * 19), to the rounding of two compilations.
    assert np.sum(scores >= calibration.threshold - 1e-4) >= 17
    assert calibration.guarantee(3) == pytest.approx(17 / 19)


def test_it_is_fitted_once_and_needs_no_data_then(copies):
    first = Recogniser.load(copies)
    step = Recogniser.load(copies[0]).step
    files = sorted(path.name for path in (copies[0] / store.FOLDER / str(step)).glob("ensemble.*"))
    assert len(files) == 1 and not list((copies[1] / store.FOLDER).glob("*/ensemble.*"))
    for path in copies:
        edited(path, "config.json", lambda content: content["data"].update(source="/nowhere"))
    again = Recogniser.load(copies)
    np.testing.assert_array_equal(calibration_of(again).scores, calibration_of(first).scores)
    assert again.decision.probability_is == first.decision.probability_is
    edited(copies[0], "config.json", lambda content: content["open_set"].update(tpr=0.8))
    edited(copies[1], "config.json", lambda content: content["open_set"].update(tpr=0.8))
    assert calibration_of(Recogniser.load(copies)).tpr == 0.8
    with pytest.raises(ValueError, match="two: an ensemble is calibrated to validation examples"):
        Recogniser.load(copies[::-1])  # in another order it is another one


def test_a_threshold_can_be_given(pair, images):
    ensemble = Recogniser.load(pair, gamma=1e9)
    assert {prediction.label for prediction in ensemble(images)} == {"unknown"}
    by_softmax = Recogniser.load(pair, score="softmax")
    assert isinstance(by_softmax, Ensemble)
    assert [one.decision.score.name for one in by_softmax.members] == ["softmax", "softmax"]


def test_only_examples_that_no_member_was_trained_on_count(copies, small_config):
    # As if the second had drawn its own validation part.
    edited(copies[1], "config.json", lambda content: content["data"].update(validation_seed=5))
    tasks = [OpenSet(training.load_config(path)) for path in copies]
    one, two = (task.parts["validation"].indices for task in tasks)
    shared = np.intersect1d(one, two)
    assert 0 < len(shared) < 18
    with pytest.warns(UserWarning, match=f"{len(shared)} validation examples are too few"):
        ensemble = Recogniser.load(copies)
    assert len(calibration_of(ensemble).scores) == len(shared)
    for path in copies[0].glob(f"{store.FOLDER}/*/ensemble.*"):
        path.unlink()
    edited(copies[1], "config.json", lambda content: content["data"].update(validation=0.0))
    with pytest.raises(ValueError, match="two: there are no validation examples"):
        Recogniser.load(copies)


@pytest.mark.parametrize(
    "name, change, message",
    [
        (
            "record.json",
            lambda one: one["split"].update(known=one["split"]["known"][::-1]),
            "one and .*two cannot form an ensemble: their known classes differ, .* and ",
        ),
        (
            "record.json",
            lambda one: one.update(image_shape=[16, 16, 1]),
            r"their chips differ, \(24, 24, 1\) of uint8 and \(16, 16, 1\) of uint8",
        ),
        ("record.json", lambda one: one["split"].update(seed=3), "their split differ"),
        ("record.json", lambda one: one["dataset"].update(fingerprint="x"), "their data differ"),
        ("config.json", lambda one: one["data"].update(square=True), "their geometry differ"),
        ("config.json", lambda one: one["open_set"].update(tpr=0.5), "their open_set.tpr differ"),
    ],
)
def test_runs_that_do_not_fit_are_refused(copies, name, change, message):
    edited(copies[1], name, change)
    with pytest.raises(ValueError, match=message):
        Recogniser.load(copies)


def test_other_kinds_make_no_ensemble(pair, embedding_run):
    with pytest.raises(ValueError, match="got a run of similarity search, wanted recognisers"):
        runs.load_predictor([pair[0], embedding_run])
    with pytest.raises(ValueError, match="got no run"):
        Recogniser.load([])


def test_a_calibration_to_chips_of_the_field_does_not_count(copies, chips, tmp_path):
    for name in Recogniser.load(copies[0]).classes:
        shutil.copytree(chips / "test" / name, tmp_path / "field" / name)
    before = Recogniser.load(copies)
    runs.calibrate_run(copies[1], tmp_path / "field")
    after = Recogniser.load(copies)
    assert not before.note and "two: the calibration to field chips applies only" in after.note
    np.testing.assert_array_equal(calibration_of(before).scores, calibration_of(after).scores)
    score = before.members[1].decision.score
    step, kept = before.members[1].step, score.name + store.FIELD
    saved = store.load(copies[1], step, kept, score)
    store.save(copies[1], step, kept, saved, {"enrolled_chips": ["taken out since"]})
    assert not Recogniser.load(copies).note  # the single run does not use it either


@pytest.mark.slow
def test_an_ensemble_is_evaluated(pair):
    result = runs.evaluate_ensemble(pair)
    row = result["groups"]["all"]["scores"]["ensemble"]
    assert result["groups"]["all"]["num_known"] == 30 and 0 <= row["auroc"] <= 1
    test = result["decision"]["test"]
    task = OpenSet(training.load_config(pair[0]))
    part = task.parts["test"]
    chips, known = part.chips(np.arange(len(part.indices))), part.labels >= 0
    accepted = np.array([p.label != "unknown" for p in Recogniser.load(pair)(chips)])
    assert test["known_accepted"] == pytest.approx(accepted[known].mean())
    assert test["unknown_accepted"] == pytest.approx(accepted[~known].mean())
    text = reporting.open_set_table(result)
    assert "decides: ensemble, by 2 runs" in text
    names = [part.split.classes[label] for label in part.classes]
    other = runs.evaluate_ensemble(pair, data=(chips, names))  # as another set
    assert other["groups"]["all"] == result["groups"]["all"]
    assert other["set"]["source"] == "arrays in memory"


def test_the_commands_take_several_runs(pair, chips, flags_of, capsys):
    image = sorted((chips / "test" / "disc").iterdir())[0]
    workdirs = [f"--workdir={path}" for path in pair]
    assert predict_command.main(flags_of(predict_command, *workdirs, image, "--jsonl")) == 0
    found = json.loads(capsys.readouterr().out)
    (expected,) = Recogniser.load(pair)([data.read_image(image)])
    assert found["decides"] == "ensemble" and found["label"] == expected.label
    arguments = flags_of(predict_command, *workdirs, image, "--explain=out")
    with pytest.raises(ValueError, match="--explain cannot be used with an ensemble"):
        predict_command.main(arguments)
    flags_of(evaluate_command, *workdirs, "--scores=all")
    with pytest.raises(ValueError, match="--scores cannot be used with an ensemble"):
        evaluate_command.main([])
