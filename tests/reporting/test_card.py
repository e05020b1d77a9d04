"""A model card has the recorded figures, and marks missing facts."""

import json
import shutil

import pytest

from jaxatr import bundled, files, reporting, training
from jaxatr.data.splits import MSTAR_CLASSES
from jaxatr.reporting.card import NAME, card
from jaxatr.reporting.detector_card import COLUMNS

SECTIONS = (
    *("Model details", "Intended use", "Factors", "Metrics", "Evaluation data", "Training data"),
    *("Quantitative analyses", "Ethical considerations", "Caveats and recommendations"),
)


@pytest.fixture
def run(trained_run, tmp_path):
    folder = tmp_path / "first"
    shutil.copytree(trained_run, folder, ignore=shutil.ignore_patterns("checkpoints"))
    return folder


def exported(run, **changes):
    record = training.read_record(run)
    told = {"classes": record["split"]["known"], "image_shape": [24, 24, 1], "tpr": 0.95}
    told |= {"image_dtype": "uint8", "thresholds": [2.5] * 3, "validation_examples": 18}
    told |= {"probability_is": "calibrated", "decides": "cbc"} | changes
    step = training.load_evaluation(run)["checkpoint"]["step"]
    return reporting.Exported("model.onnx", step, told["decides"], told)


def altered(path, change):
    content = json.loads(path.read_text())
    change(content)
    files.write_fields(path, content)


def test_every_section_is_present_and_every_figure_is_recorded(run):
    text = card([run], exported(run))
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(SECTIONS)
    group = training.load_evaluation(run)["groups"]["all"]
    (row,) = [line for line in text.splitlines() if line.startswith("| all |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:3] == [str(group["num_known"]), str(group["num_unknown"])]
    wanted = [group["closed_accuracy"]]
    wanted += [group["scores"]["cbc"][key] for key in ("auroc", "oscr", "fpr_at_tpr")]
    assert cells[3:7] == [f"{100 * value:.1f}" for value in wanted]
    assert "threshold: 2.5" in text and "Guarantee: 95 % of known" in text
    assert "Unknown classes, held out from training**: square" in text
    assert "**Licence of the model**: missing" in text and "One run:" in text
    assert "&#" not in text and "autoescape" not in text


@pytest.mark.parametrize(
    ("guarantees", "words"),
    [
        ([0.9, 0.875, 0.9], "at least 87.5 % guaranteed to be accepted"),
        ([None, 0.9, 0.9], "Guarantee: none (no guarantee)"),
    ],
)
def test_the_guarantee_of_a_threshold_is_that_of_the_file(run, guarantees, words):
    text = card([run], exported(run, guarantees=guarantees, fitted_to="8 validation examples"))
    assert words in text and "fitted to 8 validation examples, to accept 95 %" in text


def test_thresholds_are_listed_by_value_and_an_unknown_type_is_missing(run):
    told = exported(run, thresholds=[10.0, None, 9.0])
    del told.metadata["image_dtype"]
    text = card([run], told)
    assert "threshold: 9, 10, none, everything is accepted" in text
    assert "24 × 24 × 1 missing values" in text


def test_a_decision_that_was_not_evaluated_has_no_figures(run):
    text = card([run], exported(run, decides="vim"))
    assert "The evaluation has no figures of the score vim." in text
    assert "its figures are missing" in text and "| all |" not in text
    (run / training.EVALUATION).unlink()
    assert "No evaluation is recorded: all figures are missing." in card(
        [run], reporting.Exported("m.onnx", 1, "cbc", {})
    )


def test_a_calibrated_threshold_has_no_recorded_shares(run):
    limits = [2.5] * 3
    altered(run / training.EVALUATION, lambda e: e["decision"].update(thresholds=limits))
    share = "Known test examples that are accepted"
    assert share in card([run], exported(run))
    text = card([run], exported(run, thresholds=[1.5] * 3))
    assert share not in text and "decides at another threshold" in text and "| all |" in text


def test_a_second_file_in_a_folder_has_a_card_of_its_own(run, tmp_path):
    made = [
        reporting.write_card([run], tmp_path, exported(run)._replace(name=name)).name
        for name in ("a.onnx", "b.onnx", "a.onnx", "b.onnx")
    ]
    assert made == 2 * ["MODEL_CARD.md", "MODEL_CARD-b.md"]
    assert "# Model card: a.onnx" in (tmp_path / "MODEL_CARD.md").read_text()
    (tmp_path / "MODEL_CARD-b.md").write_text("mine")
    with pytest.raises(ValueError, match="MODEL_CARD-b.md was changed by hand"):
        reporting.check_card(tmp_path, "b.onnx")


def test_figures_with_enrolled_classes_are_refused(run):
    altered(run / training.EVALUATION, lambda e: e.update(enrolled={"classes": {"jeep": {}}}))
    with pytest.raises(ValueError, match=r"enrolled classes \(jeep\).* evaluate --workdir=.*first"):
        card([run], exported(run))


def test_repeats_give_the_spread_and_differ_in_their_seed_alone(run, tmp_path):
    other = tmp_path / "second"
    shutil.copytree(run, other)
    altered(other / "config.json", lambda config: config.update(seed=1))

    def worse(evaluation):
        evaluation["groups"]["all"]["closed_accuracy"] -= 0.2

    altered(other / training.EVALUATION, worse)
    accuracy = training.load_evaluation(run)["groups"]["all"]["closed_accuracy"]
    text = card([run, other], exported(run))
    assert f"{100 * accuracy - 10:.1f} ± 14.1" in text and "One run:" not in text
    assert "Mean ± standard deviation of 2 runs" in text
    altered(other / "config.json", lambda config: config["optimizer"].update(learning_rate=0.5))
    with pytest.raises(ValueError, match="this one differs in optimizer.learning_rate"):
        card([run, other], exported(run))
    with pytest.raises(ValueError, match="the same run is given twice"):
        card([run, run], exported(run))


def test_another_checkpoint_and_radar_chips_are_reported(run):
    def radar(record):
        classes = sorted(MSTAR_CLASSES)
        record["split"] |= {"known": classes[:6], "unknown": classes[6:]}

    altered(run / "record.json", radar)
    text = card([run], exported(run)._replace(step=7))
    assert "not of the exported one of step 7" in text and "MSTAR: the clutter" in text


def test_names_stay_text(run):
    told = exported(run, classes=["<b>|x", "two\nlines"])
    assert "&lt;b&gt;\\|x, two lines" in card([run], told)


def test_a_card_that_was_changed_is_kept(run, tmp_path):
    path = reporting.write_card([run], tmp_path, exported(run))
    assert path == tmp_path / NAME and path.read_text().startswith("<!-- Written by")
    reporting.write_card([run], tmp_path, exported(run))
    path.write_text("# Mine\n")
    with pytest.raises(ValueError, match="was changed by hand"):
        reporting.write_card([run], tmp_path, exported(run))
    assert path.read_text() == "# Mine\n"


def test_a_detector_has_its_own_sections(tmp_path):
    averages = dict.fromkeys(COLUMNS, 0.25) | {"ap_large": None}
    evaluation = {
        "checkpoint": {"step": 9},
        "average_precision": {"targets": averages, "classes": averages | {"ap50": 0.5}},
        "recall": {"0.1": 0.3, "1": 0.75},
        "classes": {"CAR": {"known": True, "targets": 4, "recall": {"0.1": 0.2, "1": 0.625}}},
        "ranges": {"1000": {"targets": 4, "recall": 0.5}},
        "decision": {"threshold": 0.4, "recall": 0.6, "unknown_accepted": 0.125},
    }
    record = {"detection": {"threshold": 0.4, "gamma": 0.3}, "examples": {"validation": 7}}
    training.record_config(tmp_path, bundled.load("detect:smoke"))
    training.update_record(tmp_path, **record)
    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    metadata = {"classes": ["CAR"], "threshold": 0.4, "gamma": 0.3, "image_shape": [512, 640, 1]}
    file = reporting.Exported("d.onnx", 9, "", metadata)
    text = card([tmp_path], file)
    for wanted in (
        "finding targets in scenes, each with a box",
        "| test data | AP | AP50 | AP75 | small | medium | large | AR100 |",
        "| targets, whatever their class | 25.0 | 25.0 | 25.0 | 25.0 | 25.0 | – | 25.0 |",
        "| known classes | 25.0 | 50.0 |",
        "- Measured separately: CAR, 1000 m",
        "- Recall at 1 false alarms per scene: 75.0 %",
        "- Recall of CAR (known) at 1 false alarms per scene: 62.5 %",
        "a score of at least 0.4; it is unknown if no class has a probability of at least 0.3",
        "- Recall at the file's least score: 60.0 %",
        "like the 7 validation scenes",
    ):
        assert wanted in text
    assert "score missing" not in text and "with γ |" not in text
    other = card([tmp_path], file._replace(metadata=metadata | {"threshold": 0.5}))
    assert "The file has another least score" in other
