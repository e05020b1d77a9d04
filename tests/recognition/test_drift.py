"""The comparison of new chips with a run's training, and where it is said."""

import datetime
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from jaxatr import data, training
from jaxatr.cli import monitor, predict
from jaxatr.recognition import drift
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks import image_facts


@pytest.fixture(scope="module")
def trained_run(trained_run, tmp_path_factory):
    """A copy, in which a score is fitted that other tests do not expect."""
    folder = tmp_path_factory.mktemp("drift") / "run"
    shutil.copytree(trained_run, folder)
    return folder


@pytest.fixture(scope="module")
def known(trained_run, chips):
    """The test chips of the known classes."""
    names = training.read_record(trained_run)["split"]["known"]
    return [data.read_image(p) for name in names for p in sorted((chips / "test" / name).iterdir())]


@pytest.fixture
def run(trained_run, tmp_path):
    shutil.copytree(trained_run, tmp_path / "run")
    return tmp_path / "run"


def compared(recogniser, images):
    watch = drift.Watch.of(recogniser)
    for one in recogniser.answers(watch.passing(map(recogniser.prepare, images))):
        watch.scored(one.score)
    return watch.drift()


def test_the_facts_of_all_training_chips_are_kept_with_the_run(trained_run):
    recogniser = Recogniser.load(trained_run, score="energy")
    reference = drift.reference_of(recogniser)
    assert tuple(reference.values) == (drift.SCORE, *data.FACTS) and not reference.missing
    assert len(reference.values["brightness"]) == 54  # of 72 chips, a quarter is for validation
    assert reference.values[drift.SCORE] is recogniser.decision.calibration.scores


def test_chips_like_those_of_the_training_show_no_drift(trained_run, known):
    found = compared(Recogniser.load(trained_run, score="energy"), known)
    assert found.chips == 30 and not found.found
    assert found.sentence() == "drift: none found in 30 chips; 1% of such tests find one by chance"


def test_darker_chips_and_their_scores_are_named(trained_run, known):
    recogniser = Recogniser.load(trained_run, score="energy")
    found = compared(recogniser, [image // 8 for image in known])
    assert {"brightness", "contrast"} <= {one.name for one in found.found}
    sentence, statistics = found.lines()
    assert "these 30 chips " in sentence and "are darker" in sentence
    assert "brightness 1.00 (p " in statistics
    few = compared(recogniser, known[:5])
    assert few.lines() == ["drift: cannot be told from 5 chips: at least 20 are needed"]


def test_after_a_calibration_the_sentence_names_the_field_chips():
    for field, said in (
        (True, "compared with the field chips, these 20 chips score lower; 1%"),
        (False, "compared with the training, these 20 chips score lower than the validation chips"),
    ):
        watch = drift.Watch(drift.Reference({drift.SCORE: np.arange(100.0)}, field=field))
        for score in range(-20, 0):
            watch.scored(float(score))
        assert f"drift: {said}" in watch.drift().sentence()


def test_a_run_of_an_earlier_version_compares_scores_and_says_so(run, known):
    (run / image_facts.FILE).unlink()
    found = compared(Recogniser.load(run, score="energy"), known)
    assert [one.name for one in found.shifts] == [drift.SCORE]
    assert "trained before facts of its training chips were recorded" in found.sentence()
    rule = compared(Recogniser.load(run, score="cbc"), known)  # at its γ, without a calibration
    assert not rule.shifts and "drift: cannot be told from 30 chips (" in rule.sentence()


def test_damaged_facts_are_named(run):
    (run / image_facts.FILE).write_bytes(b"damaged")
    with pytest.raises(ValueError, match=f"{image_facts.FILE}: not readable"):
        drift.reference_of(Recogniser.load(run, score="energy"))


def test_a_table_of_predictions_comes_with_the_drift(
    trained_run, known, flags_of, tmp_path, capsys
):
    for number, image in enumerate(known):
        Image.fromarray(image[..., 0] // 8).save(tmp_path / f"{number}.png")
    out = tmp_path / "table.csv"
    arguments = flags_of(predict, f"--workdir={trained_run}", "--score=energy", f"--out={out}")
    assert predict.main([*arguments, str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert "drift: compared with the training, these 30 chips" in said
    assert "drift by statistic: score " in said
    assert predict.main([*arguments, str(tmp_path / "0.png")]) == 0
    assert "cannot be told from 1 chip: " in capsys.readouterr().err


def test_sources_are_told_apart_and_a_page_compares_them_with_the_training(
    trained_run, known, flags_of, tmp_path, capsys
):
    for gate, factor in (("gate1", 1), ("gate2", 8)):
        (tmp_path / gate).mkdir()
        for number, image in enumerate(known):
            Image.fromarray(image[..., 0] // factor).save(tmp_path / gate / f"{number}.png")
    (tmp_path / "gate2" / "bad.png").write_bytes(b"no image")
    out, page = tmp_path / "table.jsonl", tmp_path / "page.html"
    arguments = flags_of(predict, f"--workdir={trained_run}", "--score=energy", f"--out={out}")
    gates = [str(tmp_path / "gate1"), str(tmp_path / "gate2")]
    assert predict.main([*arguments, *gates]) == 0
    said = capsys.readouterr().err
    assert f"{gates[0]}: " in said and f"{gates[1]}: " in said
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["run"] for row in rows} == {training.run_id(trained_run)}
    assert [row["source"] for row in rows] == [gates[0]] * 30 + [gates[1]] * 31
    assert sum(row["image_brightness"] is None for row in rows) == 1  # the damaged one
    assert all(datetime.datetime.fromisoformat(row["time"]).tzinfo for row in rows)
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(rows[0] | {"run": "another", "source": "<b>"}) + "\n")
    arguments = flags_of(monitor, f"--workdir={trained_run}", f"--out={page}")
    monitor.main([*arguments, str(out), str(other)])
    printed = capsys.readouterr()
    assert "left out: 1 of the run another, and " in printed.err
    than = "than in the training: the median brightness"
    (sentence,) = [one for one in printed.out.splitlines() if than in one and gates[1] in one]
    assert "the chips are darker than in the training" in sentence
    assert not any(line.startswith(f"{gates[0]}: ") for line in printed.out.splitlines())
    assert "are darker than in the training" in page.read_text()
    arguments = flags_of(monitor, f"--out={page}", f"--table={tmp_path / 'figures.csv'}")
    monitor.main([*arguments, str(out), str(other)])
    assert "2 runs or scores are compared by themselves: " in capsys.readouterr().err
    for place, why in ((out, "is an input|is read|--table"), (tmp_path / "new.csv", "is in ")):
        arguments = flags_of(monitor, f"--out={page}", f"--table={place}")
        with pytest.raises(ValueError, match=why):
            monitor.main([*arguments, str(out), str(tmp_path)])
    text = page.read_text()
    assert "&lt;b&gt;" in text and "<td><b>" not in text
    with pytest.raises(ValueError, match="the tables have no predictions of "):
        monitor.main([*flags_of(monitor, f"--workdir={trained_run}", f"--out={page}"), str(other)])
