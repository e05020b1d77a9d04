"""A run from configuration to evaluation, and its recogniser."""

import copy
import json
import math
import shutil
from functools import partial

import numpy as np
import pytest
from PIL import Image

from jaxatr import config as configuration
from jaxatr import data, files, losses, metrics, openset, reporting, runs, training
from jaxatr.recognition.prediction import UNKNOWN
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.runs import prolongation
from jaxatr.runs import training as run_training
from jaxatr.tasks import OpenSet


def test_run_learns_and_records(trained_run):
    evaluation = json.loads((trained_run / "evaluation.json").read_text())
    everything = evaluation["groups"]["all"]
    assert everything["num_known"] == 30 and everything["num_unknown"] == 10
    assert everything["closed_accuracy"] > 0.8
    assert {"softmax", "mls", "cbc", evaluation["decides"]} == set(everything["scores"])
    record = training.read_record(trained_run)
    assert record["split"]["name"] == "random-3/1" and len(record["split"]["known"]) == 3
    assert record["examples"] == {"train": 54, "validation": 18, "test": 40}
    assert record["fitted_gamma"] == evaluation["fitted_gamma"]
    assert "jax" in record["versions"]
    table = reporting.open_set_table(evaluation)
    assert f"{100 * everything['scores']['cbc']['auroc']:.1f}" in table and "cbc" in table


def test_recorded_outputs_give_the_recorded_figures(trained_run):
    evaluation = json.loads((trained_run / "evaluation.json").read_text())
    saved = np.load(trained_run / "scores.npz")
    fitted = openset.fit_scores(openset.choose_scores(openset.DEFAULT))
    values = {}
    for part in ("test", "validation"):
        fields = (saved[f"{part}_{field}"] for field in ("logits", "open_logits", "labels"))
        values[part] = fitted.on(openset.Outputs(*fields))
        for name, score in values[part].items():
            np.testing.assert_allclose(saved[f"{part}_score_{name}"], score, rtol=1e-6)
    values = {
        part: {name: saved[f"{part}_score_{name}"] for name in scores}
        for part, scores in values.items()
    }
    predicted, fixed = saved["test_logits"].argmax(1), openset.fixed_thresholds(fitted.scores, 0.9)
    again = openset.evaluate(
        saved["test_labels"], predicted, values["test"], values["validation"], fixed=fixed
    )
    assert again.pop("fitted_gamma") == evaluation["fitted_gamma"]
    recorded = evaluation["groups"]["all"]
    rows = {name: recorded["scores"][name] for name in openset.DEFAULT}
    assert again == recorded | {"scores": rows}


@pytest.mark.slow  # tests/openset/test_fit.py has them all
def test_every_score_of_one_run(trained_run):
    before = json.loads((trained_run / "evaluation.json").read_text())["groups"]["all"]
    result = runs.evaluate_run(trained_run, scores="all", fresh=True)["groups"]["all"]
    assert list(result["scores"]) == [score.name for score in openset.choose_scores("all")]
    for name in openset.DEFAULT:
        assert result["scores"][name] == before["scores"][name]
    saved = np.load(trained_run / "scores.npz")
    known = saved["test_labels"] != openset.UNKNOWN
    for name in result["scores"]:
        score = saved[f"test_score_{name}"].astype(np.float64)
        least = 15 if name == "react" else 30  # bright chips have all features at ReAct's limit
        assert np.all(np.isfinite(score)) and len(np.unique(score)) > least, name
        area = metrics.auroc(score[known], score[~known])
        assert area == pytest.approx(result["scores"][name]["auroc"], abs=1e-6)
    model = openset.openmax.OpenMax(
        *(saved[f"fitted_openmax_{field}"] for field in openset.openmax.OpenMax._fields)
    )
    again = openset.openmax.score(model, saved["test_logits"])
    np.testing.assert_allclose(again, saved["test_score_openmax"], rtol=1e-6)
    table = reporting.open_set_table(json.loads((trained_run / "evaluation.json").read_text()))
    assert "openmax" in table and "conflabel" in table
    runs.evaluate_run(trained_run, fresh=True)


def test_a_field_that_came_later_has_its_default(trained_run, tmp_path):
    recorded = json.loads((trained_run / "config.json").read_text())
    del recorded["model"]["width"]
    files.write_fields(tmp_path / "config.json", recorded)
    assert training.load_config(tmp_path) == training.load_config(trained_run)
    assert training.load_config(tmp_path).model.width == 64


def test_a_run_from_before_a_field_can_be_continued(small_config, trained_run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(trained_run, copy)
    recorded = json.loads((copy / "config.json").read_text())
    del recorded["gan"], recorded["open_set"]["hold_out"], recorded["model"]["width"]
    files.write_fields(copy / "config.json", recorded)
    before = training.read_record(copy)["fingerprint"]
    runs.train_run(small_config, copy, progress=False)
    assert training.read_record(copy)["fingerprint"] == before
    assert json.loads((copy / "config.json").read_text())["open_set"]["hold_out"] == 0
    found, expected = (training.load_snapshot(run, "latest") for run in (copy, trained_run))
    assert found.step == expected.step
    changed = small_config.copy_and_resolve_references()
    changed.open_set.hold_out = 1
    with pytest.raises(training.ConfigMismatch, match="hold_out: recorded 0, now 1"):
        runs.train_run(changed, copy, progress=False)


@pytest.mark.slow
def test_a_run_goes_on_by_its_own_configuration_and_a_finished_one_for_more_epochs(
    trained_run, tmp_path
):
    copy = tmp_path / "run"
    shutil.copytree(trained_run, copy)
    before, metrics = training.read_record(copy), training.read_metrics(copy)
    runs.train_run(None, copy, progress=False)  # it is finished
    assert training.read_metrics(copy) == metrics
    said: list[str] = []
    runs.train_run(None, copy, more_epochs=1, progress=False, say=said.append)
    examples, batch = before["examples"]["train"], 16
    done, steps = round(12 * examples / batch), round(13 * examples / batch)
    assert training.saved_steps(copy)[-1] == steps > done == before["steps"]
    config, record = training.load_config(copy), training.read_record(copy)
    assert config.train.epochs == 13 and record["fingerprint"] == before["fingerprint"]
    line = f"by the constant schedule of {steps} steps: learning rate 0.1 at step {done}, 0.1 at"
    assert line in record["prolonged"][0]["schedule"] == said[0]
    added = [one for one in training.read_metrics(copy) if one not in metrics]
    assert added and all(done < one["step"] <= steps for one in added)


def test_more_epochs_follow_the_schedule_of_the_whole_length():
    config = configuration.of_task()
    config.optimizer.schedule, config.optimizer.learning_rate = "cosine", 0.1
    rates = [0.05 * (1 + math.cos(math.pi * step / 400)) for step in (300, 399)]
    assert prolongation.described(config, 400, 10, before=300) == {
        "from_step": 300,
        "to_step": 400,
        "schedule": "continuing from step 300 to 400 by the cosine schedule of 400 steps: "
        f"learning rate {rates[0]:.3g} at step 300, {rates[1]:.3g} at the end",
    }


@pytest.mark.parametrize(
    ("changes", "kept_step", "more", "message"),
    [
        ({}, None, 0, "more_epochs: got 0, wanted at least 1"),
        (
            {"train.epochs": 30},
            None,
            1,
            r"has done \d+ of \d+ steps: finish it first, by jaxatr",
        ),
        ({"train.steps": 1}, None, 1, r"has done \d+ steps, and its epochs have 1 in this version"),
        ({"open_set.trials": 1, "open_set.score": "auto"}, None, 1, "has trials"),
        ({"open_set.trials": 1, "open_set.score": "consensus"}, None, 1, "has trials"),
        ({}, 3, 1, "ended with the parameters of step 3, the best"),
    ],
)
def test_a_run_that_cannot_have_more_epochs_says_why(
    trained_run, tmp_path, changes, kept_step, more, message
):
    shutil.copytree(trained_run, tmp_path / "run")
    config = training.load_config(tmp_path / "run")
    config.update_from_flattened_dict(changes)
    files.write_fields(tmp_path / "run" / "config.json", json.loads(config.to_json()))
    if kept_step is not None:
        training.update_record(tmp_path / "run", kept_step=kept_step)
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(ValueError, match=message):
        runs.train_run(None, tmp_path / "run", more_epochs=more, progress=False)
    assert (tmp_path / "run" / "config.json").read_bytes() == before


def test_best_checkpoint_can_be_evaluated(trained_run):
    result = runs.evaluate_run(trained_run, checkpoint="best")
    assert result["checkpoint"]["which"] == "best" and result["checkpoint"]["step"] > 0
    runs.evaluate_run(trained_run, fresh=True)


def test_recogniser_agrees_with_the_evaluation(trained_run, chips):
    config, record = training.load_config(trained_run), training.read_record(trained_run)
    dataset = data.open_dataset("image_folder", source=str(chips), data_dir=config.data.data_dir)
    split, saved = dataset.splits["test"], np.load(trained_run / "scores.npz")
    recogniser = Recogniser.load(trained_run, score="cbc")
    assert recogniser.classes == tuple(record["split"]["known"]) and recogniser.gamma == 0.9
    position = {int(i): p for p, i in enumerate(split.columns["id"])}
    images = [split.image(position[int(i)]) for i in saved["test_id"]]
    predictions = list(recogniser(images, batch_size=7))
    assert len(predictions) == 40
    scores = openset.cbc_score(saved["test_logits"], saved["test_open_logits"])
    np.testing.assert_allclose([p.score for p in predictions], scores, atol=1e-3)
    decided = openset.decide(saved["test_logits"], saved["test_open_logits"], gamma=0.9, unknown=-1)
    names = [UNKNOWN if d < 0 else recogniser.classes[d] for d in decided]
    assert [p.label for p in predictions] == names
    for prediction in predictions:
        assert sum(prediction.probabilities.values()) == pytest.approx(1)
        assert max(prediction.probabilities, key=prediction.probabilities.get) == prediction.nearest


def test_gamma_can_be_given_or_the_fitted_one(trained_run):
    fitted = training.read_record(trained_run)["fitted_gamma"]
    assert Recogniser.load(trained_run, score="cbc", gamma="fitted").gamma == fitted
    strict = Recogniser.load(trained_run, score="cbc", gamma=1.0)
    noise = np.random.default_rng(0).integers(0, 255, (3, 24, 24, 1), np.uint8)
    assert {p.label for p in strict(noise)} == {UNKNOWN}


def test_image_of_another_size_is_refused(trained_run):
    with pytest.raises(ValueError, match=r"chip of shape \[30, 24, 1\], wanted \[24, 24, 1\]"):
        Recogniser.load(trained_run).chip(np.zeros((30, 24, 1), np.uint8))


def test_colour_image_is_turned_gray_for_a_gray_network(trained_run):
    assert Recogniser.load(trained_run).chip(np.zeros((24, 24, 3), np.uint8)).shape == (24, 24, 1)


@pytest.mark.slow
def test_plain_classifier_has_no_binary_scores(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.loss.open, config.train.epochs = "none", 1
    runs.train_run(config, tmp_path / "run", progress=False)
    result = runs.evaluate_run(tmp_path / "run")
    assert set(result["groups"]["all"]["scores"]) == {"softmax", "mls", result["decides"]}
    assert result["fitted_gamma"] is None
    with pytest.raises(ValueError, match="plain classifier"):
        Recogniser.load(tmp_path / "run", score="cbc")
    noise = np.zeros((1, 24, 24, 1), np.uint8)
    (prediction,) = Recogniser.load(tmp_path / "run")(noise)
    assert prediction.decides == result["decides"] and prediction.gamma is None


@pytest.mark.slow
def test_the_ablation_trains(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.loss.open, config.train.epochs = "bce", 1
    runs.train_run(config, tmp_path / "run", progress=False)
    steps = training.read_metrics(tmp_path / "run")
    assert all(np.isfinite(step["bce"]) for step in steps if step["phase"] == "open_set")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("loss.open", "cbs", "loss.open: got 'cbs'"),
        ("optimizer.schedule", "linear", "optimizer.schedule: got 'linear'"),
        ("data.test_split", "tests", "no split 'tests'"),
        ("data.center_crop", 99, "smaller than"),
        ("open_set.split", "random-4/1", "random-4/1"),
        ("task", "jaxatr.tasks:OpenSe", "did you mean 'OpenSet'"),
        ("train.batch_size", 0, "train.batch_size: got 0, wanted at least 1"),
        ("train.steps", -5, "train.steps: got -5, wanted 0"),
        ("train.epochs", 0, "train.epochs: got 0, wanted more than 0"),
        ("train.log_every", 0, "train.log_every: got 0"),
        ("train.checkpoint_every", 0, "train.checkpoint_every: got 0"),
        ("augment.shift", -1, "augment.shift: got -1"),
        ("data.validation", 1.0, "data.validation: got 1.0, wanted a share"),
        ("open_set.gamma", 1.5, "open_set.gamma: got 1.5, wanted a probability"),
        ("open_set.tpr", 0.0, "open_set.tpr: got 0.0, wanted a share"),
    ],
)
def test_a_wrong_field_is_named(small_config, tmp_path, field, value, message):
    config = small_config.copy_and_resolve_references()
    config.update_from_flattened_dict({field: value})
    with pytest.raises(ValueError, match=message):
        runs.train_run(config, tmp_path / "run", progress=False)


def test_a_run_on_other_data_is_refused(small_config, trained_run, tmp_path):
    other = tmp_path / "chips"
    for split in ("train", "test"):
        for name in ("cross", "disc", "ring", "square"):
            (other / split / name).mkdir(parents=True)
            for index in range(4):
                Image.new("L", (24, 24), index).save(other / split / name / f"{index}.png")
    with pytest.raises(ValueError, match="run on other data: fingerprint was [0-9a-f]+, is "):
        runs.evaluate_run(trained_run, data={"source": str(other)})


def test_a_run_of_another_configuration_is_refused_before_data_is_opened(small_config, trained_run):
    config = small_config.copy_and_resolve_references()
    config.data.source, config.train.epochs, config.data.size = "nowhere", 3, 20
    with pytest.raises(training.ConfigMismatch, match="data.size: recorded 0, now 20\n.*epochs"):
        runs.train_run(config, trained_run, progress=False)


def test_a_gamma_belongs_to_its_checkpoint(trained_run):
    runs.evaluate_run(trained_run, checkpoint="latest")
    step = runs.evaluate_run(trained_run, checkpoint="best")["checkpoint"]["step"]
    load = partial(Recogniser.load, trained_run, score="cbc", gamma="fitted")
    assert load(checkpoint="best").gamma > 0
    latest = runs.evaluate_run(trained_run)["checkpoint"]["step"]
    if step != latest:
        with pytest.raises(ValueError, match=f"of step {latest}, not of step {step}"):
            load(checkpoint="best")


def test_an_image_of_another_type_is_refused(trained_run):
    with pytest.raises(ValueError, match="got an image of uint16, wanted uint8"):
        Recogniser.load(trained_run).chip(np.zeros((24, 24, 1), np.uint16))


def folder(root, classes, splits=("train", "test"), count=4, size=24):
    """Class folders of flat images."""
    for split in splits:
        for name in classes:
            (root / split / name).mkdir(parents=True)
            for index in range(count):
                side = size if split == "train" else size + 2
                Image.new("L", (side, side), 9 * index).save(root / split / name / f"{index}.png")
    return str(root)


def test_a_known_class_without_training_images_is_refused(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    folder(tmp_path / "chips", ("a", "b", "c"))
    config.data.source = folder(tmp_path / "chips", ("d",), ("test",))
    config.open_set.split, config.data.size = "known:a,d", 24
    with pytest.raises(ValueError, match="split 'train' of image_folder has no examples of d,"):
        runs.train_run(config, tmp_path / "run", progress=False)


def test_a_class_of_the_test_split_alone_is_unknown(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    folder(tmp_path / "chips", ("a", "b", "c"))
    config.data.source = folder(tmp_path / "chips", ("d",), ("test",))
    config.open_set.split, config.data.size, config.data.validation = "closed", 24, 0.0
    with pytest.warns(UserWarning, match="without training examples are unknown: d$"):
        task = runs.make_task(config, tmp_path / "run")
    assert (task.split.known, task.split.unknown) == (("a", "b", "c"), ("d",))
    assert np.sum(task.parts["test"].labels == openset.UNKNOWN) == 4
    config.data.test_split = "train"
    config.data.train_split = "tran"
    with pytest.raises(
        ValueError, match="data.train_split: no split 'tran'.*which has test, train"
    ):
        runs.make_task(config, tmp_path / "run")


def test_a_run_without_a_split_names_the_measures_that_it_leaves_out(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.data.source = folder(tmp_path / "chips", ("a", "b"))
    config.open_set.split, config.data.size, config.data.validation = "closed", 24, 0.0
    with pytest.warns(UserWarning, match="omits AUROC, OSCR and FPR: .*split=known:A,B"):
        runs.make_task(config, tmp_path / "run")


def test_choices_are_made_on_examples_that_were_not_trained_on(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.data.source = folder(tmp_path / "chips", ("a", "b", "c"))
    config.open_set.split, config.data.size, config.data.validation = "closed", 24, 0.5
    config.data.test_split = config.data.train_split
    with pytest.raises(ValueError, match="split 'train' are used for training"):
        runs.make_task(config, tmp_path / "run")
    config.open_set.hold_out = 1
    parts = runs.make_task(config, tmp_path / "run").parts
    ids = {name: set(part.column("id").tolist()) for name, part in parts.items()}
    assert ids["test"] == ids["validation"] | ids["held_out"] and not ids["test"] & ids["train"]
    assert (parts["test"].labels == openset.UNKNOWN).sum() == len(ids["held_out"]) == 4


@pytest.mark.slow
def test_a_file_of_names_is_read_once(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.data.source = folder(tmp_path / "chips", ("a", "b", "c"))
    (tmp_path / "split.json").write_text('["a", "b"]')
    config.open_set.split, config.train.steps = str(tmp_path / "split.json"), 1
    config.data.size, config.data.validation, config.train.batch_size = 24, 0.0, 4
    runs.train_run(config, tmp_path / "run", progress=False)
    (tmp_path / "split.json").unlink()
    assert training.load_config(tmp_path / "run").open_set.split == "known:a,b"
    assert runs.evaluate_run(tmp_path / "run")["unknown"] == ["c"]
    assert config.open_set.split.endswith("split.json")


def test_test_chips_of_another_shape_are_refused(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.data.source = folder(tmp_path / "chips", ("a", "b", "c", "d"))
    with pytest.raises(ValueError, match=r"\(26, 26, 1\) in the test part"):
        runs.train_run(config, tmp_path / "run", progress=False)


@pytest.mark.slow  # to train and measure a run of its own
def test_too_few_images_for_a_validation_part_train_without_one(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.data.source = folder(tmp_path / "chips", ("a", "b", "c", "d"), count=3)
    config.data.size, config.data.validation, config.train.steps = 24, 0.1, 2
    config.train.batch_size = 4
    with pytest.warns(UserWarning, match="less than one image"):
        runs.train_run(config, tmp_path / "run", progress=False)
    assert runs.evaluate_run(tmp_path / "run")["fitted_gamma"] is None


@pytest.mark.slow
def test_images_that_were_left_out_are_reported_and_recorded(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.data.source = folder(tmp_path / "chips", ("a", "b", "c", "d"), size=24)
    (tmp_path / "chips" / "train" / "a" / "0.png").write_bytes(b"no image")
    config.data.size, config.data.skip_corrupt, config.train.steps = 24, True, 1
    config.train.batch_size = 4
    with pytest.warns(
        UserWarning, match="chips: 1 image cannot be read and is skipped:\n  train/a/0.png: not a r"
    ):
        runs.train_run(config, tmp_path / "run", progress=False)
    (entry,) = training.read_record(tmp_path / "run")["skipped"]
    assert "0.png" in entry[0]


def test_the_training_loss_is_equation_4(small_config):
    config = small_config.copy_and_resolve_references()
    config.loss.open_weight, config.loss.entropy_weight = 0.7, 0.3
    draw = np.random.default_rng(0)
    logits, open_logits = 3 * draw.normal(size=(2, 9, 3)).astype(np.float32)
    labels = draw.integers(0, 3, 9)
    expected = losses.open_set(logits, open_logits, labels, entropy_weight=0.3, open_weight=0.7)
    found = OpenSet(config).example_losses(logits, open_logits, labels)["loss"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_folder_that_is_not_a_run(tmp_path):
    with pytest.raises(ValueError, match="not a run's folder"):
        runs.evaluate_run(tmp_path)


def test_tables_of_labels_and_folders_are_found_from_another_folder(
    small_config, tmp_path, monkeypatch
):
    config = copy.deepcopy(small_config)
    (tmp_path / "mine.csv").write_text("path,label\n")
    monkeypatch.chdir(tmp_path)
    config.data.corrections, config.data.added = "mine.csv", "none.csv"
    config.data.data_dir = config.model.weights_dir = "made/later"
    config.open_set.outliers, config.open_set.negatives = "mine.csv", "decoys"
    config.open_set.outside = "near=mine.csv,far=simulated"
    full = run_training.lasting(config)
    assert full.open_set.outliers == str(tmp_path / "mine.csv")
    assert full.open_set.negatives == "decoys"
    assert full.open_set.outside == f"near={tmp_path / 'mine.csv'},far=simulated"
    found = full.data
    assert (found.corrections, found.added) == (str(tmp_path / "mine.csv"), "none.csv")
    assert found.data_dir == full.model.weights_dir == str(tmp_path / "made/later")
    assert config.data.corrections == "mine.csv"
