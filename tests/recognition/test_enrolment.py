"""Classes are enrolled in a finished run, recognised, and removed again."""

import errno
import json
import os
import shutil
import warnings
import zipfile

import grain  # noqa: F401 - first imported under the commands' flags, it would lose its own
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxatr
from jaxatr import data, files, openset, reporting, runs, training
from jaxatr.cli import cluster, enrol
from jaxatr.data import Bands
from jaxatr.recognition import enrolment, enrolment_file, extension, field_calibration, store
from jaxatr.recognition.decision import open_task
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.recognition.session import Session
from jaxatr.runs import continual

SCORE = "spatial_stage2"


@pytest.fixture
def run(trained_run, tmp_path):
    """A copy whose few validation examples can still reject something."""
    shutil.copytree(trained_run, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["open_set"]["tpr"] = 0.9
    files.write_fields(tmp_path / "run" / "config.json", config)
    return tmp_path / "run"


@pytest.fixture
def split(run):
    return training.read_record(run)["split"]


@pytest.fixture
def stranger(split):
    (name,) = split["unknown"]
    return name


@pytest.fixture
def source(chips, stranger):
    """Chips of the unknown class, on which the run was not trained."""
    return chips / "train" / stranger


def few(source, tmp_path, count, name=None):
    folder = tmp_path / f"few{count}" / (name or source.name)
    folder.mkdir(parents=True)
    for path in sorted(source.iterdir())[:count]:
        shutil.copy(path, folder)
    return folder


def images_of(folder):
    return [data.read_image(path) for path in sorted(folder.glob("*.png"))]


def test_an_enrolled_class_is_known_measured_and_taken_out_again(run, chips, stranger, source):
    digest = training.digest(training.variables_of(training.load_snapshot(run, "latest")))
    test = images_of(chips / "test" / stranger)
    before = Recogniser.load(run, score=SCORE)
    answers = before.predict(test)
    assert stranger not in {one.nearest for one in answers}
    result = runs.enrol_run(run, source, score=SCORE)
    assert result["chips"] == result["added"] == 24 and result["score"] == SCORE
    assert result["threshold"] <= result["threshold_of_the_run"]
    assert result["promise"] >= 0.9 and 0.8 < result["named"] <= 1

    after = Recogniser.load(run)  # by the score that it was enrolled with
    assert after.classes == (*before.classes, stranger) and after.further == (stranger,)
    assert f"enrolled: {stranger} by 24 chips" in after.note
    found = after.predict(test)
    assert np.mean([one.label == stranger for one in found]) >= 0.8
    assert all(set(one.probabilities) == set(before.classes) for one in found)
    assert list(after.columns()) == list(after.to_row(found[0]))
    assert "threshold" in after.describe(found[0])
    assert {after.verdict(one) for one in found if one.label == stranger} == {stranger}

    others = {"mls", "klm", "gradnorm"}  # take no classes
    measured = runs.evaluate_run(run, scores=[SCORE, *sorted(others)])
    assert others <= set(measured["groups"]["all"]["scores"])
    assert measured["decides"] == SCORE
    assert measured["known"] == list(after.classes) and measured["unknown"] == []
    row = measured["enrolled"]["classes"][stranger]
    assert (row["test"], row["chips"]) == (10, 24)
    assert row["accuracy"] == np.mean([one.label == stranger for one in found])
    own = measured["enrolled"]["own"]
    assert own["before"]["accuracy"] - own["after"]["accuracy"] <= 0.2
    assert measured["groups"]["all"]["num_known"] == 40
    assert training.read_record(run)["split"]["unknown"] == [stranger]  # as it was trained
    table = reporting.open_set_table(measured)
    assert f"enrolled: {stranger}, by 24 chips; of 10 test examples named right" in table
    assert "other known classes, before and after: named right and accepted" in table
    page = reporting.render_report([run])
    assert 'id="enrolled"' in page and f'<th scope="row">{stranger}</th><td>24</td>' in page

    assert runs.remove_class(run, stranger) == 24
    assert not (run / enrolment_file.FILE).exists()
    assert Recogniser.load(run, score=SCORE).predict(test) == answers
    again = training.digest(training.variables_of(training.load_snapshot(run, "latest")))
    assert again == digest


def test_a_score_of_ones_own_takes_a_class(run, source, stranger, tmp_path, monkeypatch):
    (tmp_path / "own_taker.py").write_text(
        "from jaxatr import openset\n"
        "nearest = openset.SCORES['nearest']\n"
        "PART = openset.Score('taker', 'taker', nearest.score, nearest.fit, ('features',),\n"
        "                     comparing=nearest.comparing, model=nearest.model)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    jaxatr.trust("own_taker")
    twin = tmp_path / "twin"
    shutil.copytree(run, twin)
    found = []
    for folder, score in ((run, "own_taker:PART"), (twin, "nearest")):
        result = runs.enrol_run(folder, few(source, tmp_path / folder.name, 5), score=score)
        assert result["score"] == score
        found.append([one.nearest for one in Recogniser.load(folder).predict(images_of(source))])
    assert found[0] == found[1] and stranger in found[0]
    assert runs.enrol_run(run, source)["score"] == "own_taker:PART"  # as it was named before


def test_enrolled_classes_are_recorded(run, source, stranger):
    runs.enrol_run(run, source, score=SCORE)
    content = json.loads((run / enrolment_file.FILE).read_text())
    (entry,) = content["enrolments"]
    assert content["score"] == SCORE and entry["name"] == stranger and entry["chips"] == 24
    assert entry["source"] == str(source) and entry["date"].startswith("20")
    chip = training.load_run(run).intake(images_of(source)[0])
    assert entry["sha256"][0] == enrolment_file.checksum(chip)
    assert (run / entry["file"]).is_file()


def test_one_chip_keeps_the_threshold_and_more_lower_it(run, source, stranger, tmp_path):
    one = runs.enrol_run(run, few(source, tmp_path, 1), score=SCORE)
    assert one["promise"] is None and one["named"] is None
    assert one["threshold"] == one["threshold_of_the_run"]
    five = runs.enrol_run(run, few(source, tmp_path, 5))
    assert (five["added"], five["left_out"], five["chips"]) == (4, 1, 5)
    decision = Recogniser.load(run).decision
    own = decision.further.own(3)
    assert 1 <= own.size <= 5
    assert five["promise"] == pytest.approx(1 - 1 / (own.size + 1))
    assert five["threshold"] == min(five["threshold_of_the_run"], own[0])
    with pytest.raises(ValueError, match="all 5 chips are already enrolled"):
        runs.enrol_run(run, tmp_path / "few5" / source.name)


def test_enrolled_chips_are_left_out_of_the_test(run, chips, stranger, tmp_path):
    runs.enrol_run(run, few(chips / "test" / stranger, tmp_path, 3), score=SCORE)
    measured = runs.evaluate_run(run)
    assert measured["enrolled"]["classes"][stranger]["test"] == 7
    assert measured["groups"]["all"]["num_known"] == 37


@pytest.mark.slow
def test_more_chips_of_a_known_class_join_it(run, chips, split, tmp_path):
    name = split["known"][0]
    result = runs.enrol_run(run, few(chips / "test" / name, tmp_path, 3), score=SCORE)
    assert "promise" not in result and result["chips"] == 3
    recogniser = Recogniser.load(run)
    assert recogniser.classes == tuple(split["known"]) and recogniser.further == ()
    assert all(p.label == name for p in recogniser.predict(images_of(tmp_path / "few3" / name)))
    assert runs.evaluate_run(run)["groups"]["all"]["num_known"] == 27


@pytest.mark.slow  # tests/openset has them all
@pytest.mark.parametrize("score", ["nearest", "nndr_stage2", "nndr_image", "template", "fusion"])
def test_other_scores_take_classes_too(run, chips, stranger, source, score):
    runs.enrol_run(run, source, score=score)
    found = Recogniser.load(run).predict(images_of(chips / "test" / stranger))
    assert np.mean([one.nearest == stranger for one in found]) >= 0.6
    assert {one.decides for one in found} == {score}


def test_a_score_that_cannot_enrol_names_those_that_can(run, source):
    with pytest.raises(ValueError, match="energy decides, and cannot.*--score=auto.*spatial_stage"):
        runs.enrol_run(run, source, score="energy")
    assert not (run / enrolment_file.FILE).exists() and not (run / enrolment_file.FOLDER).exists()


@pytest.mark.parametrize(
    "compared",
    [True, pytest.param(False, marks=pytest.mark.slow)],  # which fits every score anew
)
def test_auto_enrols_by_the_best_score_that_can(run, source, compared):
    areas = training.read_record(run)["decision"]["candidates"]
    takers = {n: row["auroc"] for n, row in areas.items() if openset.SCORES[n].takes_classes}
    named = {"decides": "energy", "candidates": {"energy": {"auroc": 1.0}}}
    training.update_record(run, decision=named)  # as of a run whose score was named
    if not compared:
        (choice,) = (run / "fitted").glob(f"*/{store.CHOICE}.json")
        choice.unlink()
    chosen = runs.enrol_run(run, source, score="auto")["score"]
    assert takers[chosen] == max(takers.values())
    plain = Recogniser.load(run, score="energy")
    assert plain.further == () and "does not support" in plain.note


@pytest.mark.slow
def test_it_is_derived_again_where_something_is_missing_or_the_data_has_gone(
    run, source, chips, stranger, tmp_path
):
    runs.enrol_run(run, source, score=SCORE)
    test = images_of(chips / "test" / stranger)
    first = Recogniser.load(run).predict(test)
    step = training.load_snapshot(run, "latest").step
    path = store.path_of(run, step, SCORE + extension.KEPT)
    path.unlink()  # as if it had been killed before it was written
    assert Recogniser.load(run).predict(test) == first
    path.unlink()
    config = json.loads((run / "config.json").read_text())
    config["data"] |= {"source": "/nowhere", "data_dir": str(tmp_path / "empty")}
    files.write_fields(run / "config.json", config)
    told = "previous threshold is used: .*by --data_source="
    with pytest.warns(UserWarning, match=told):
        alone = Recogniser.load(run).predict(test)
    assert [one.nearest for one in alone] == [one.nearest for one in first]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        where = str(chips)
        with pytest.raises(UserWarning):  # asked for again, until the data is there
            Recogniser.load(run)
        assert Recogniser.load(run, source=where).predict(test) == first


def test_a_link_to_a_folder_names_the_class(run, source, tmp_path):
    (tmp_path / "jeep").symlink_to(few(source, tmp_path, 2, name="0017"), target_is_directory=True)
    assert runs.enrol_run(run, tmp_path / "jeep", score=SCORE)["name"] == "jeep"


def test_a_folder_that_cannot_be_used_changes_nothing(run, chips, source, tmp_path, earlier):
    runs.enrol_run(run, few(source, tmp_path, 2), score=SCORE)
    before = (run / enrolment_file.FILE).read_text()
    kept = sorted((run / enrolment_file.FOLDER).iterdir())
    other = few(source, tmp_path, 3, name="other")
    with pytest.raises(ValueError, match=f"already enrolled as {source.name}"):
        runs.enrol_run(run, other)
    (other / "broken.png").write_bytes(b"no image")
    for path in other.glob("0*.png"):
        path.unlink()
    with pytest.raises(ValueError, match="broken.png"):
        runs.enrol_run(run, other)
    with pytest.raises(ValueError, match="holds folders"):
        runs.enrol_run(run, chips / "train")
    with pytest.raises(ValueError, match="there is no folder or file"):
        runs.enrol_run(run, tmp_path / "none")
    with pytest.raises(ValueError, match="is not a folder named after the class"):
        runs.enrol_run(run, next(source.iterdir()))
    with pytest.raises(ValueError, match="got 'unknown', wanted a name"):
        runs.enrol_run(run, source, name="unknown")
    with pytest.raises(ValueError, match="mahalanobis takes further chips of new classes only"):
        known = training.load_run(run).classes[0]
        runs.enrol_run(run, source, name=known, score="mahalanobis")
    with pytest.raises(ValueError, match="cannot remove 'tank'; enrolled classes"):
        runs.remove_class(run, "tank")
    with pytest.raises(ValueError, match="wanted one of open-set recognition of single images"):
        runs.enrol_run(earlier / "embedding", source)
    assert (run / enrolment_file.FILE).read_text() == before
    assert sorted((run / enrolment_file.FOLDER).iterdir()) == kept
    kept[0].write_bytes(b"damaged")
    for path in run.rglob("*.enrolled.npz"):
        path.unlink()
    with pytest.raises(ValueError, match="--remove="):
        Recogniser.load(run)


def test_a_folder_that_cannot_be_listed_is_named(run, source, tmp_path, monkeypatch):
    closed = tmp_path / "closed"
    shutil.copytree(source, closed)
    whole = os.scandir

    def scandir(path):
        if path == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return whole(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(ValueError, match=f"^{closed}: Permission denied$"):
        runs.enrol_run(run, closed, score=SCORE)


def test_a_damaged_archive_is_named(run, source, tmp_path):
    path = tmp_path / "chips.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for chip in sorted(source.iterdir())[:3]:
            packed.write(chip, f"a/{chip.name}")
        packed.writestr("a/bad.png", "<no image>")
    with pytest.raises(ValueError, match=f"^{path}/a/bad.png: not a readable image"):
        runs.enrol_run(run, path, name="new", score=SCORE)
    path.write_bytes(path.read_bytes().replace(b"<no image>", b"<an image>"))
    why = "not a readable archive .Bad CRC-32 for file 'a/bad.png'"
    with pytest.raises(ValueError, match=f"^{path}/a/bad.png: {why}"):
        runs.enrol_run(run, path, name="new", score=SCORE)
    assert not (run / enrolment_file.FILE).exists()
    found = runs.cluster_run(run, [str(path)], tmp_path / "page.html", score=SCORE)
    ((name, reason),) = found.left_out
    assert name == f"{path}/a/bad.png" and reason.startswith("not a readable archive")
    assert found.content["images"] == 3
    other = tmp_path / "page.json"  # such as a run's record
    other.write_text("{}")
    with pytest.raises(ValueError, match="written to .*page.json, which is another file"):
        runs.cluster_run(run, [str(path)], tmp_path / "page.html", score=SCORE)
    assert other.read_text() == "{}"


def test_a_class_that_is_removed_while_it_is_read_is_named(tmp_path):
    images = np.zeros((2, 4, 4, 1), np.uint8)
    entry = enrolment_file.keep(tmp_path, "new", "chips", images)
    found = enrolment_file.Enrolment("nearest", (entry,))
    enrolment_file.write(tmp_path, found)
    assert enrolment_file.chips(tmp_path, found, ["a"]).labels.tolist() == [1, 1]
    enrolment_file.discard(tmp_path, found.entries)
    with pytest.raises(ValueError, match="not readable.*--remove=new removes the class"):
        enrolment_file.chips(tmp_path, found, ["a"])
    enrolment_file.write(tmp_path, None)
    with pytest.raises(ValueError, match="new was removed after its enrolment had been read"):
        enrolment_file.chips(tmp_path, found, ["a"])


def test_each_precision_keeps_its_own_extended_decision(run, tmp_path, monkeypatch):
    decision = openset.Decision(openset.SCORES["nearest"], {}, threshold=0.0)
    kept = []
    monkeypatch.setattr(store, "save", lambda *given: kept.append(given[2]))
    monkeypatch.setattr(openset, "enrol", lambda *_, **__: decision)
    opened = training.load_run(run, "latest")
    entry = enrolment_file.keep(run, "new", "chips", np.zeros((1, *opened.intake.shape), np.uint8))
    engines = ("jax", "onnxruntime", "jax:bfloat16", "onnxruntime:int8", "openvino:float16")
    for runtime in engines:
        session = object.__new__(Session)
        session.run, session.runtime = opened, runtime
        monkeypatch.setattr(Session, "outputs", lambda *_: openset.Outputs(*[np.zeros((1, 1))] * 3))
        extension.extend(
            session, decision, enrolment_file.Enrolment("nearest", (entry,)), lambda: None
        )
    assert kept == [f"nearest{one}.enrolled" for one in ("", "", ".bfloat16", ".int8", ".float16")]


@pytest.mark.parametrize(("runtime", "fits"), [("onnxruntime", 1), ("onnxruntime:int8", 2)])
def test_a_network_converted_by_another_version_is_enrolled_again(
    run, tmp_path, monkeypatch, runtime, fits
):
    decision, made = openset.Decision(openset.SCORES["nearest"], {}, threshold=0.0), []
    monkeypatch.setattr(openset, "enrol", lambda *_, **__: made.append(runtime) or decision)
    monkeypatch.setattr(Session, "outputs", lambda *_: openset.Outputs(*[np.zeros((1, 1))] * 3))
    session = object.__new__(Session)
    session.run = training.load_run(run, "latest")._replace(workdir=tmp_path)
    session.runtime = runtime
    chip = np.zeros((1, *session.run.intake.shape), np.uint8)
    enrolment = enrolment_file.Enrolment(
        "nearest", (enrolment_file.keep(tmp_path, "new", "chips", chip),)
    )
    for version in (jaxatr.__version__, jaxatr.__version__, "next", "next"):
        monkeypatch.setattr(jaxatr, "__version__", version)
        extension.extend(session, decision, enrolment, lambda: None)
    assert len(made) == fits


def test_of_several_files_of_a_chip_the_first_is_enrolled(tmp_path):
    bands = Bands(files=("_vis.png", "_ir.png"))
    (tmp_path / "car").mkdir()
    for name in ("a_vis.png", "a_ir.png", "b_ir.png", "b_vis.png"):
        (tmp_path / "car" / name).touch()
    name, images, scratch = enrolment._images(tmp_path / "car", None, None, bands)
    scratch.cleanup()
    assert name == "car" and [one.below for one in images] == ["a_vis.png", "b_vis.png"]


def test_of_two_files_of_a_name_in_a_group_the_first_is_enrolled(run, source, tmp_path):
    path, group = tmp_path / "chips.zip", tmp_path / "groups.json"
    names = [chip.name for chip in sorted(source.iterdir())[:3]]
    with zipfile.ZipFile(path, "w") as packed:
        for name in names:
            packed.write(source / name, name)
        with pytest.warns(UserWarning, match="Duplicate name"):
            packed.writestr(names[0], "no image")
    images = [f"{path}/{name}" for name in names]
    content = {"sources": [str(path)], "groups": [{"group": 1, "images": images}]}
    group.write_text(json.dumps(content))
    assert runs.enrol_run(run, group, name="new", group=1, score=SCORE)["chips"] == 3


@pytest.mark.slow
def test_one_that_is_killed_leaves_the_run_as_it_was(
    run, chips, source, stranger, monkeypatch, tmp_path
):
    runs.enrol_run(run, few(source, tmp_path, 2), score=SCORE)
    test = images_of(chips / "test" / stranger)
    before = Recogniser.load(run).predict(test)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(enrolment_file, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            runs.enrol_run(run, source)
    assert enrolment_file.read(run).counts() == {stranger: 2}
    assert Recogniser.load(run).predict(test) == before
    assert runs.enrol_run(run, source)["chips"] == 24


@pytest.mark.slow
def test_an_ensemble_and_an_export_refuse_it(run, source, trained_run):
    runs.enrol_run(run, source, score="nearest")
    with pytest.raises(ValueError, match="which ensembles do not"):
        Recogniser.load([run, trained_run])
    task = training.task_of(run)
    loaded = training.load_run(run)
    for score in (None, "nearest"):
        with pytest.raises(ValueError, match="has enrolled classes, .*--score=none"):
            task.exportable(loaded, score=score)


@pytest.mark.slow
def test_chips_of_the_field_calibrate_it_too(run, chips, source, split, stranger, tmp_path):
    runs.enrol_run(run, source, score=SCORE)
    for name in (*split["known"], stranger):
        shutil.copytree(chips / "test" / name, tmp_path / "field" / name)
    same = shutil.copy(next(source.iterdir()), tmp_path / "field" / stranger / "same.png")
    with pytest.raises(ValueError, match=f"same.png: is enrolled as {stranger}, wanted other"):
        runs.calibrate_run(run, tmp_path / "field", tpr=0.9)
    os.remove(same)
    result = runs.calibrate_run(run, tmp_path / "field", tpr=0.9)
    assert result["score"] == SCORE and result["chips"][stranger] == 10
    recogniser = Recogniser.load(run)
    assert "calibrated to 40 field chips" in recogniser.note and "enrolled" in recogniser.note
    assert recogniser.decision.further.count == 1


def test_a_calibration_with_chips_of_a_class_is_not_used_without_it(run, source, stranger, chips):
    before = Recogniser.load(run, score="nearest").decision
    runs.enrol_run(run, source, score="nearest")
    runs.calibrate_run(run, chips / "test", score="nearest", tpr=0.9)
    counted = Recogniser.load(run, score="nearest")
    assert "calibrated to 40 field chips" in counted.note
    assert runs.remove_class(run, stranger)
    after = Recogniser.load(run, score="nearest")
    assert f"no longer calibrated to field chips, because chips of {stranger} were" in after.note
    np.testing.assert_array_equal(after.decision.thresholds(3), before.thresholds(3))
    runs.enrol_run(run, source, score="nearest")
    again = Recogniser.load(run, score="nearest").decision
    np.testing.assert_array_equal(again.thresholds(3), counted.decision.thresholds(3))


def test_a_class_is_refused_where_the_precision_that_is_served_cannot_decide_about_it(
    run, source, stranger, split, chips, tmp_path
):
    for name in split["known"]:
        shutil.copytree(chips / "test" / name, tmp_path / "field" / name)
    runs.calibrate_run(run, tmp_path / "field", score="nearest", tpr=0.9)
    opened = training.load_run(run, "latest")
    session = Session(opened, runtime="onnxruntime:int8", task=lambda: open_task(opened, {}))
    chip = opened.intake(images_of(source)[0])
    about = {"name": stranger, "source": "", "score": "nearest"}
    with pytest.raises(ValueError, match="calibrated to field chips in float32"):
        runs.enrol_chips(opened, [("a.png", chip)], session=session, **about)
    assert not (run / enrolment_file.FILE).exists()
    assert runs.enrol_chips(opened, [("a.png", chip)], **about)["added"] == 1  # in float32


def test_chips_that_joined_a_known_class_do_not_calibrate_it(
    run, chips, split, tmp_path, monkeypatch
):
    name, before = split["known"][0], Recogniser.load(run, score="nearest").decision
    joining = few(chips / "test" / name, tmp_path, 3)
    runs.enrol_run(run, joining, score="nearest")
    with pytest.raises(ValueError, match=f"is enrolled as {name}, wanted other chips"):
        runs.calibrate_run(run, tmp_path / "few3", score="nearest")
    with pytest.raises(ValueError, match="cannot be told|wanted other chips"):
        runs.shift_run(run, chips / "test", score="nearest")  # no threshold of its own prevents it
    network, images = training.load_run(run, "latest"), images_of(joining)
    export = network.task.exportable(network, score="nearest")  # there is no class to refuse it for
    stacked = jnp.stack([network.intake(image) for image in images]).astype(jnp.float32)
    exported = export.apply(export.variables, stacked)["score"]
    answers = Recogniser.load(run, score="nearest").predict(images)
    np.testing.assert_allclose(exported, [one.score for one in answers], atol=1e-3)
    assert max(exported) > -1e-2  # the distance of a chip to itself
    others = tmp_path / "field" / name
    shutil.copytree(chips / "test" / name, others)
    for path in joining.iterdir():
        (others / path.name).unlink()
    runs.calibrate_run(run, others.parent, score="nearest")
    assert "calibrated to 7 field chips" in Recogniser.load(run, score="nearest").note
    assert runs.remove_class(run, name)
    after = Recogniser.load(run, score="nearest")
    assert "no longer calibrated to field chips, because chips were" in after.note
    np.testing.assert_array_equal(after.decision.thresholds(3), before.thresholds(3))
    runs.enrol_run(run, joining, score="nearest")
    taken_out = []  # by another process, while this one calibrates
    monkeypatch.setattr(
        field_calibration, "_warn_of_few", lambda *_: taken_out.append(runs.remove_class(run, name))
    )
    runs.calibrate_run(run, others.parent, score="nearest")
    after = Recogniser.load(run, score="nearest")
    assert taken_out == [3] and "no longer calibrated to field chips" in after.note
    np.testing.assert_array_equal(after.decision.thresholds(3), before.thresholds(3))


@pytest.mark.slow
def test_further_training_adds_the_class_to_the_heads_and_measures_forgetting(
    run, chips, source, stranger, split, tmp_path, capsys, flags_of
):
    arguments = [f"--workdir={run}", f"--train={tmp_path / 'new'}"]
    with pytest.raises(ValueError, match="no class is enrolled in it"):
        enrol.main(flags_of(enrol, *arguments))
    runs.enrol_run(run, few(source, tmp_path, 12), score=SCORE)
    enrol.main(flags_of(enrol, *arguments, "--epochs=4", "--learning_rate=0.02", "--noprogress"))
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()[2:5]] == [
        *("before", "enrolled", "trained")
    ]
    new = training.load_run(tmp_path / "new")
    assert new.classes == (*split["known"], stranger)
    old = training.load_run(run)
    for head in ("closed_head", "open_head"):
        shapes = [one.variables["params"][head]["kernel"].shape[1] for one in (old, new)]
        assert shapes == [3, 4]
    before, after, trained = new.record["forgotten"]
    own = runs.evaluate_run(run)["enrolled"]["own"]
    for row, figures in ((before, own["before"]), (after, own["after"])):
        assert figures.items() <= row.items() and "unknown_accepted" not in row
    assert after["classes"][stranger] > before["classes"][stranger] == 0
    assert trained["accuracy"] >= before["accuracy"] - 0.2
    assert trained["classes"][stranger] >= 0.5
    assert new.record["continues"]["step"] == old.step
    # Twelve chips, of which a quarter is held out, are repeated to as many as a class has.
    assert new.record["examples"]["train"] == 4 * 18 and new.record["examples"]["validation"] == 21
    evaluation = training.load_evaluation(tmp_path / "new")
    assert evaluation["enrolled"]["classes"][stranger]["accuracy"] == trained["classes"][stranger]
    assert evaluation["enrolled"]["own"]["after"]["accuracy"] == trained["accuracy"]
    assert f"enrolled: {stranger}, by 12 chips" in reporting.open_set_table(evaluation)
    assert 'id="enrolled"' in reporting.render_report([tmp_path / "new"])
    assert evaluation["known"] == list(new.classes) and evaluation["unknown"] == []
    further = few(chips / "test" / stranger, tmp_path, 4)
    runs.enrol_run(tmp_path / "new", further)
    runs.enrol_run(
        tmp_path / "new", few(chips / "test" / split["known"][0], tmp_path, 5), name="other"
    )
    again = runs.train_enrolled(tmp_path / "new", tmp_path / "newer", epochs=1, progress=False)
    newer = training.load_run(tmp_path / "newer")
    assert newer.classes == (*new.classes, "other") and again["classes"] == ["other"]
    # Twelve chips of the first training, and four more, are known by name.
    assert newer.record["dataset"]["enrolled"]["classes"] == {stranger: 16, "other": 5}
    held, later = (open_task(one, {}).examples.fingerprints("validation") for one in (new, newer))
    assert {*held} < {*later}  # none is trained on later, or the other way round
    assert runs.remove_class(tmp_path / "new", stranger) == 4
    assert runs.remove_class(tmp_path / "new", "other") == 5
    shutil.rmtree(run)  # its weights are in the new run's checkpoint
    assert Recogniser.load(tmp_path / "new").classes == new.classes
    assert runs.evaluate_run(tmp_path / "new")["groups"] == evaluation["groups"]


@pytest.mark.slow
def test_the_network_begins_as_the_one_that_is_continued(run, source, tmp_path):
    runs.enrol_run(run, few(source, tmp_path, 3), score=SCORE)
    loaded, found = training.load_run(run), enrolment_file.read(run)
    config = continual.configuration(loaded, found, tmp_path / "new", {})
    (tmp_path / "new").mkdir()
    images, labels = enrolment_file.chips(run, found, loaded.classes)
    names = np.array([source.name] * len(labels))
    np.savez(tmp_path / "new" / continual.CHIPS, images=images, names=names)
    task = runs.make_task(config, tmp_path / "new")
    params, state = task.init(jax.random.key(0))
    out = task.module.apply({"params": params, **state}, task.examples.normalize(images))
    old = loaded.module.apply(loaded.variables, loaded.normalize(images))
    np.testing.assert_allclose(out.logits[:, :3], old.logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out.open_logits[:, :3], old.open_logits, rtol=1e-5, atol=1e-6)
    config.open_set.split = "first-2"
    with pytest.raises(ValueError, match="open_set.continues: .* wanted the first of"):
        runs.make_task(config, tmp_path / "new")


def test_the_commands_enrol_group_and_remove(
    run, chips, source, stranger, flags_of, capsys, tmp_path
):
    """A folder of unknown chips is grouped, and the group enrolled by the command on the page."""
    Recogniser.load(run, score=SCORE)  # which fits it, before the flags are those of the command
    folder = tmp_path / "seen"
    folder.mkdir()
    for path in sorted(source.iterdir()):
        shutil.copy(path, folder)
    (folder / "broken.png").write_bytes(b"no image")
    lost = f"--out={tmp_path / 'none' / 'groups.html'}"
    with pytest.raises(OSError, match="groups.html: there is no folder"):
        cluster.main(flags_of(cluster, f"--workdir={run}", lost, folder))
    page = tmp_path / "groups.html"
    arguments = [f"--workdir={run}", f"--score={SCORE}", f"--out={page}", "--fewest=4"]
    cluster.main(flags_of(cluster, *arguments, folder))
    printed = capsys.readouterr()
    assert "broken.png" in printed.err and "predicting the images" in printed.err
    content = json.loads(page.with_suffix(".json").read_text())
    assert content["images"] == 24 and content["groups"][0]["size"] >= 4
    assert f"{content['rejected']} of 24 images are unknown" in printed.out
    text = page.read_text(encoding="utf-8")
    command = f"--chips={page.with_suffix('.json')} --group=1 --score={SCORE} --name=NAME"
    assert command in printed.out and command in text
    assert "data:image/jpeg;base64," in text and "<script" not in text
    group = [f"--workdir={run}", f"--chips={page.with_suffix('.json')}", "--group=1"]
    enrol.main(flags_of(enrol, *group, f"--name={stranger}", f"--score={SCORE}"))
    printed = capsys.readouterr()
    said = printed.out
    assert printed.err.startswith("enrolling ")
    undo = f"jaxatr enrol --workdir={run} --remove={stranger} removes the class"
    assert undo in said
    assert f"{stranger}: {content['groups'][0]['size']} chips enrolled" in said
    assert f"that are classified as {stranger}, at least " in said and f"decides: {SCORE}" in said
    enrol.main(flags_of(enrol, f"--workdir={run}", f"--remove={stranger}"))
    said = capsys.readouterr().out
    assert f"removed: {stranger}" in said and f"jaxatr evaluate --workdir={run}" in said
    for wrong, message in (
        (["--group=9", "--name=a"], "group: got 9, wanted one of"),
        ([], "name: got None|group: got None"),
    ):
        with pytest.raises(ValueError, match=message):
            enrol.main(flags_of(enrol, f"--workdir={run}", group[1], *wrong))
    with pytest.raises(ValueError, match="wanted one of --chips"):
        enrol.main(flags_of(enrol, f"--workdir={run}"))
    with pytest.raises(ValueError, match="--json cannot be combined with --remove"):
        enrol.main(flags_of(enrol, f"--workdir={run}", "--remove=a", "--json"))
    with pytest.raises(ValueError, match="--epochs needs --train"):
        enrol.main(flags_of(enrol, *group, "--epochs=2"))
    with pytest.raises(ValueError, match="no image given"):
        cluster.main(flags_of(cluster, f"--workdir={run}"))
    with pytest.raises(ValueError, match="no image can be used .*broken.png"):
        cluster.main(flags_of(cluster, *arguments, folder / "broken.png"))
