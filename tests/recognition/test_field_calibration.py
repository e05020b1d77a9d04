"""The calibration to field chips: its file, its use in decisions, and its removal."""

import dataclasses
import hashlib
import json
import shutil
import warnings

import numpy as np
import pytest
from PIL import Image

from jaxatr import data, openset, runs, training
from jaxatr.cli import calibrate
from jaxatr.recognition import drift, field_calibration, store
from jaxatr.recognition.field_calibration import _by_the_others, _check_separates
from jaxatr.recognition.field_chips import Item, digest_of
from jaxatr.recognition.recogniser import Recogniser


@pytest.fixture
def run(trained_run, tmp_path):
    shutil.copytree(trained_run, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def field(run, chips, tmp_path):
    """A folder of field chips: test chips of the known classes."""
    for name in training.read_record(run)["split"]["known"]:
        shutil.copytree(chips / "test" / name, tmp_path / "field" / name)
    return tmp_path / "field"


def images_at(field):
    return sorted(field.glob("*/*.png"))


def images_of(field):
    return [data.read_image(path) for path in images_at(field)]


def test_thresholds_and_probabilities_are_those_of_the_chips(run, field):
    digest = training.digest(training.variables_of(training.load_snapshot(run, "latest")))
    before = Recogniser.load(run, score="energy")
    result = runs.calibrate_run(run, field, score="energy", tpr=0.9)
    after = Recogniser.load(run, score="energy")
    assert "energy is calibrated to 30 field chips" in after.note and not before.note
    images = images_of(field)
    scores = [p.score for p in before(images)]
    threshold = openset.conformal_threshold(scores, tpr=0.9)
    answers = list(after(images))
    assert answers[0].threshold == pytest.approx(threshold, rel=1e-6)
    assert [p.score for p in answers] == scores
    np.testing.assert_allclose(
        [p.p_value for p in answers], openset.conformal_p_values(scores, scores)
    )
    known = sorted(field.iterdir())
    labels = np.repeat([after.classes.index(folder.name) for folder in known], 10)
    logits = np.concatenate([out.logits for out in after.outputs(images)])
    first = before.decision.calibration.temperature
    temperature = openset.fit_temperature(logits, labels, before=first)
    assert after.decision.calibration.temperature == pytest.approx(temperature)
    assert result["after"]["threshold"] == pytest.approx(threshold)
    assert result["before"]["threshold"] != result["after"]["threshold"]
    others = [
        scores[i] >= openset.conformal_threshold(np.delete(scores, i), tpr=0.9) for i in range(30)
    ]
    assert result["after"]["accepted"] == pytest.approx(np.mean(others))
    again = training.digest(training.variables_of(training.load_snapshot(run, "latest")))
    assert again == digest  # the network is what it was


def test_with_few_chips_the_validation_scores_count_too_as_if_of_the_field(run, field):
    for path in images_at(field)[18:]:
        path.unlink()
    before = Recogniser.load(run, score="energy").decision.calibration.scores
    with pytest.warns(UserWarning, match="18 chips are too few.*94.7 %.* 59 are"):
        result = runs.calibrate_run(run, field, score="energy")
    after = Recogniser.load(run, score="energy")
    scores = np.array([p.score for p in after(images_of(field))])

    def threshold(chips):  # at most the lowest of the chips, which gives the promise
        moved = before + np.median(chips[:, None] - before)
        pooled = np.sort(np.concatenate([chips, moved]))
        return min(chips.min(), pooled[(len(pooled) + 1) // 20 - 1])

    assert result["after"]["threshold"] == pytest.approx(threshold(scores), rel=1e-6)
    assert result["after"]["guarantee"] == pytest.approx(18 / 19)
    others = [scores[i] >= threshold(np.delete(scores, i)) - 1e-9 for i in range(18)]
    assert result["after"]["accepted"] == pytest.approx(np.mean(others))
    assert after.decision.calibration.held_out == 18 and len(before) > 1
    assert "energy is calibrated to 18 field chips, " in after.note
    with pytest.warns(UserWarning, match="for chips taken for .*no guarantee; 4 per class"):
        runs.calibrate_run(run, field, score="energy", tpr=0.8, per_class=True)


def test_evaluate_says_that_it_measures_the_decision_without_it(run, field):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = runs.evaluate_run(run)
    runs.calibrate_run(run, field)
    with pytest.warns(UserWarning, match="is calibrated to field chips, by which predict decides"):
        assert runs.evaluate_run(run) == before
    step, name = before["checkpoint"]["step"], before["decides"]
    saved = store.load(run, step, name + store.FIELD, openset.SCORES[name])
    origin = {"enrolled_chips": ["taken out since"]}  # so that predict does not use it any more
    store.save(run, step, name + store.FIELD, saved, origin)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert runs.evaluate_run(run) == before


def test_enrol_states_the_thresholds_by_which_predict_decides(run, field, chips):
    score = "spatial_stage2"
    runs.calibrate_run(run, field, score=score)
    (stranger,) = training.read_record(run)["split"]["unknown"]
    stated = runs.enrol_run(run, chips / "train" / stranger, score=score)
    after = Recogniser.load(run).decision
    assert stated["threshold_of_the_run"] == after.calibration.threshold
    assert stated["threshold"] == pytest.approx(after.thresholds(3)[-1])


def test_it_is_recorded_where_from_and_can_be_undone(run, field):
    (before,) = Recogniser.load(run)(images_of(field)[:1])
    result = runs.calibrate_run(run, field)
    step, name = training.load_snapshot(run, "latest").step, result["score"]
    origin = store.provenance_of(run, step, name + store.FIELD)
    assert origin["source"] == str(field) and set(origin["chips"].values()) == {10}
    assert len(origin["digest"]) == 64 and origin["made"].startswith("20")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert str(field) in Recogniser.load(run).note
    assert runs.undo_calibration(run) == result["path"]
    assert next(Recogniser.load(run)(images_of(field)[:1])) == before
    with pytest.raises(ValueError, match=f"{name} is not calibrated to chips from the field$"):
        runs.undo_calibration(run)
    runs.calibrate_run(run, field, score="spatial_stage2")
    with pytest.raises(ValueError, match=f"{name} is not .*; --score=spatial_stage2 is$"):
        runs.undo_calibration(run)


@pytest.fixture
def mixed(chips, tmp_path):
    """A folder of 40 test chips of known and unknown classes, without labels."""
    (tmp_path / "mixed").mkdir()
    for path in (chips / "test").glob("*/*.png"):
        shutil.copy(path, tmp_path / "mixed" / f"{path.parent.name}-{path.name}")
    return tmp_path / "mixed"


def test_chips_without_labels_move_and_stretch_the_known_scores(
    run, mixed, monkeypatch, flags_of, capsys
):
    before = Recogniser.load(run, score="energy").decision.calibration
    found = openset.Mixture(-0.5, 1.2, 0.25, float(np.median(before.scores)) - 20.0, 2.0)
    given = []

    def fit(known, scores, *, tpr):
        given.append((known, scores, tpr))
        return found

    monkeypatch.setattr(openset, "fit_mixture", fit)
    monkeypatch.setattr(field_calibration, "_MOST_DOUBT", 1.0)
    arguments = (f"--workdir={run}", f"--unlabelled={mixed}", "--score=energy", "--tpr=0.8")
    calibrate.main(flags_of(calibrate, *arguments))
    said = capsys.readouterr().out
    assert "40 chips without labels, of which about 25% seem to be unknown" in said
    assert "about 0% of the unknown ones are accepted" in said and "without a guarantee" in said
    assert ("without trials (open_set.trials), nothing says" in said) == (before.sigmoid is None)
    after = Recogniser.load(run, score="energy")
    calibration = after.decision.calibration
    ((known, scores, tpr),) = given
    np.testing.assert_array_equal(known, before.scores)
    images = [data.read_image(path) for path in sorted(mixed.iterdir())]
    np.testing.assert_allclose(scores, [one.score for one in after(images)], rtol=1e-5)
    middle, unit = (
        np.median(before.scores),
        1.4826 * np.median(np.abs(before.scores - np.median(before.scores))),
    )
    wanted = middle - 0.5 * unit + 1.2 * (before.scores - middle)
    np.testing.assert_allclose(calibration.scores, wanted)
    assert calibration.sigmoid == before.sigmoid and tpr == 0.8
    count = len(before.scores)
    assert calibration.basis == f"{count} validation examples, shifted to chips without labels"
    assert "energy is shifted to 40 field chips without labels, an estimate" in after.note
    reference = drift.reference_of(after)  # now that of the field
    np.testing.assert_allclose(reference.values["score"], wanted)
    assert len(reference.values["brightness"]) == 40 and reference.field
    runs.undo_calibration(run, score="energy")
    assert len(drift.reference_of(Recogniser.load(run, score="energy")).values["noise"]) == 54


def test_what_cannot_be_told_without_labels_changes_nothing(run, mixed):
    before = Recogniser.load(run, score="energy")
    weak = before.decision.calibration._replace(sigmoid=openset.Sigmoid(0.0, 0.0))
    with pytest.raises(openset.CannotTell, match="a mean probability of 50% of being unknown"):
        _check_separates("energy", weak)
    with pytest.raises(openset.CannotTell, match="mixed: known .* changed: got 40 chips"):
        runs.shift_run(run, mixed, score="energy")
    assert not Recogniser.load(run, score="energy").note
    with pytest.raises(ValueError, match="cbc is not calibrated to validation chips"):
        runs.shift_run(run, mixed, score="cbc")


def test_the_paper_s_rule_can_be_calibrated_too(run, field):
    assert Recogniser.load(run, score="cbc").gamma == 0.9
    runs.calibrate_run(run, field, score="cbc", tpr=0.9)
    recogniser = Recogniser.load(run, score="cbc")
    images = images_of(field)
    scores = [p.score for p in recogniser(images)]
    threshold = openset.conformal_threshold(scores, tpr=0.9)
    assert recogniser.gamma == pytest.approx(1 / (1 + np.exp(-threshold)))
    assert Recogniser.load(run, score="cbc", gamma=0.5).gamma == 0.5


def test_a_prediction_has_the_gamma_of_its_class(run, field):
    runs.calibrate_run(run, field, score="cbc", tpr=0.6, per_class=True)
    predictions = list(Recogniser.load(run, score="cbc")(images_of(field)))
    assert len({p.gamma for p in predictions}) > 1
    for one in predictions:
        assert one.gamma == pytest.approx(1 / (1 + np.exp(-one.threshold)))


def test_an_enrolled_class_is_accepted_by_its_own_threshold_in_leave_one_out():
    enrolled = np.array([0.5, 0.6, 0.7, 0.8])
    calibration = openset.Calibration(
        np.array([5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 1.1, 1.2, 1.3]),
        np.array([0, 0, 1, 1, 1, 2, 2, 2, 2]),
        temperature=1.0,
        tpr=0.6,
        per_class=False,
        sigmoid=None,
    )
    twos = np.full(4, 2)
    further = openset.Further(2, 1, enrolled, twos, twos)
    decision = openset.Decision(
        openset.SCORES["nndr_image"], {}, True, calibration, further=further
    )
    # Three of the other eight scores may be rejected, so the rest of them are at most 1.3; the
    # enrolled class has the threshold 0.6, its second score.
    assert decision.thresholds(2).tolist() == [1.3, 1.3, 0.6]
    assert _by_the_others(decision).all()
    alone = decision.calibration._replace(per_class=True)
    assert _by_the_others(dataclasses.replace(decision, calibration=alone))[5:].all()


def test_hidden_files_of_a_track_are_not_part_of_its_digest(tmp_path):
    track = tmp_path / "disc" / "1"
    (track / ".checkpoints").mkdir(parents=True)
    (track / "1.png").write_bytes(b"1")
    listed = [Item("disc/1", track, "disc")]
    assert digest_of(listed) == hashlib.sha256(b"disc/1/1.png\n1").hexdigest()


def test_the_command_prints_before_and_after(run, field, flags_of, capsys):
    Recogniser.load(run, score="energy")  # which fits it, before the flags are those of the command
    arguments = [f"--workdir={run}", "--score=energy"]
    calibrate.main(flags_of(calibrate, *arguments, f"--source={field}", "--tpr=0.9"))
    printed = capsys.readouterr().out
    assert "score: energy; chips: " in printed and "saved in" in printed
    assert [line.split()[0] for line in printed.splitlines()[3:5]] == ["before", "after"]
    calibrate.main(flags_of(calibrate, *arguments, f"--chips={field}", "--tpr=0.9", "--json"))
    assert json.loads(capsys.readouterr().out)["after"]["accepted"] > 0.7
    calibrate.main(flags_of(calibrate, *arguments, "--undo"))
    assert "energy.field.npz" in capsys.readouterr().out
    with pytest.raises(
        ValueError, match="wanted one of --chips=DATA, --unlabelled=DATA and --undo"
    ):
        calibrate.main(flags_of(calibrate, *arguments))
    with pytest.raises(ValueError, match="--tpr cannot be combined with --undo"):
        calibrate.main(flags_of(calibrate, *arguments, "--undo", "--tpr=0.9"))


@pytest.mark.parametrize("kind", ["table", "archive", "split"])
def test_any_layout_of_the_training_data_will_do(run, field, kind, tmp_path):
    few = tmp_path / "few"
    names = []
    for path in sorted(field.glob("*/*.png"))[::3]:
        place = few / ("day" if kind == "split" else "") / path.parent.name / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        names.append((str(place.relative_to(few)), path.parent.name))
    source = few
    if kind == "table":
        source = few / "chips.csv"
        rows = [f"{name},{label}" for name, label in names]
        source.write_text("\n".join(["path,label", *rows]))
    if kind == "archive":
        source = shutil.make_archive(str(tmp_path / "chips"), "zip", few)
    result = runs.calibrate_run(run, source)
    assert sum(result["chips"].values()) == len(names)
    assert set(result["chips"]) == {label for _, label in names}


def test_a_folder_that_cannot_be_used_is_refused(run, field, embedding_run, tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        runs.calibrate_run(run, tmp_path / "none")
    (tmp_path / "chips.7z").write_bytes(b"")
    with pytest.raises(ValueError, match="chips.7z is a file, but neither an archive"):
        runs.calibrate_run(run, tmp_path / "chips.7z")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no images in"):
        runs.calibrate_run(run, tmp_path / "empty")
    shutil.copytree(next(field.iterdir()), field / "stranger")
    with pytest.raises(ValueError, match="got the class 'stranger', wanted known classes"):
        runs.calibrate_run(run, field)
    with pytest.raises(ValueError, match="wanted a run of open-set recognition"):
        runs.calibrate_run(embedding_run, field)


def test_errors_name_the_archive_and_the_chip_in_it(run, field, tmp_path):
    name = next(field.iterdir()).name
    (field / name / "bad.png").write_bytes(b"no image")
    source = shutil.make_archive(str(tmp_path / "chips"), "zip", field)
    with pytest.raises(ValueError, match=f"^{source}/{name}/bad.png: not a readable image"):
        runs.calibrate_run(run, source)
    Image.fromarray(np.zeros((24, 24), np.uint16)).save(field / name / "bad.png")
    for place in (shutil.make_archive(str(tmp_path / "chips"), "zip", field), field):
        with pytest.raises(ValueError, match=f"^{place}/{name}/bad.png: got an image of uint16"):
            runs.calibrate_run(run, place)
    (field / name).rename(field / "stranger")
    source = shutil.make_archive(str(tmp_path / "chips"), "zip", field)
    with pytest.raises(ValueError, match=f"^{source}/stranger/.*.png: got the class 'stranger'"):
        runs.calibrate_run(run, source)


def test_options_without_a_flag_are_taken_but_not_advertised(run):
    assert runs.load_predictor(run, field=False).classes
    with pytest.raises(ValueError, match="which takes (?!.*field)(?!.*enrolled).*gamma"):
        runs.load_predictor(run, colour=1)


def test_a_threshold_is_a_number(run):
    with pytest.raises(ValueError, match="gamma: got nan, wanted a number or 'fitted'"):
        Recogniser.load(run, score="energy", gamma=float("nan"))


def test_a_threshold_of_a_logarithm_is_not_positive(run):
    with pytest.raises(ValueError, match="gamma: got 0.5, but softmax is the logarithm of a prob"):
        Recogniser.load(run, score="softmax", gamma=0.5)
