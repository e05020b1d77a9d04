"""Baselines trained beside a run, and how they join its evaluation, table and report."""

import json
import shutil

import numpy as np
import pytest
import scipy.special
from PIL import Image

from jaxatr import data, files, metrics, openset, reporting, runs, training
from jaxatr.explain import Explainer
from jaxatr.reporting.recorded_run import read_run

pytestmark = pytest.mark.slow


def small(config):
    config = config.copy_and_resolve_references()
    config.data.size, config.train.epochs = 16, 25
    config.optimizer.schedule = "cosine"  # which settles: OpenMax needs right examples
    config.gan.width, config.gan.noise, config.gan.steps = 8, 8, 6
    config.gan.threshold, config.gan.images = 0.999, 12
    return config


@pytest.fixture(scope="module")
def compared_run(small_config, tmp_path_factory):
    """The folder of a run with both baselines, evaluated."""
    config, workdir = small(small_config), tmp_path_factory.mktemp("compared") / "run"
    runs.train_run(config, workdir, progress=False)
    for name in runs.BASELINES:
        runs.train_baseline(workdir, name, progress=False)
    runs.evaluate_run(workdir)
    return workdir


def test_the_trained_scores_join_the_evaluation(compared_run):
    evaluation = json.loads((compared_run / "evaluation.json").read_text())
    everything = evaluation["groups"]["all"]["scores"]
    assert set(everything) == {*openset.DEFAULT, "conflabel_detector", "gopenmax"}
    saved = np.load(compared_run / "scores.npz")
    known = saved["test_labels"] != openset.UNKNOWN
    for name in ("conflabel_detector", "gopenmax"):
        score = saved[f"test_score_{name}"].astype(np.float64)
        area = metrics.auroc(score[known], score[~known])
        assert area == pytest.approx(everything[name]["auroc"], abs=1e-6)
    table = reporting.open_set_table(evaluation)
    assert "gopenmax" in table and "conflabel_detector" in table


def test_all_scores_are_the_given_ones_and_the_trained_ones(compared_run):
    found = runs.evaluate_run(compared_run, scores="all", fresh=True)["groups"]["all"]["scores"]
    wanted = [score.name for score in openset.choose_scores("all")]
    assert list(found) == [*wanted, "conflabel_detector", "gopenmax"]
    only = runs.evaluate_run(compared_run, scores="gopenmax,mls", fresh=True)
    only = only["groups"]["all"]["scores"]
    assert set(only) == {"mls", "gopenmax"} and only["mls"] == found["mls"]
    runs.evaluate_run(compared_run, fresh=True)


def test_the_confounding_labels_detector_never_saw_an_unknown_class(compared_run):
    main = training.read_record(compared_run)["split"]
    own = training.read_record(compared_run / "conflabel")["split"]
    assert {*own["known"], *own["unknown"]} == {*main["known"]}
    assert len(own["unknown"]) == 1
    config = training.load_config(compared_run / "conflabel")
    dataset = data.open_dataset(
        "image_folder", source=config.data.source, data_dir=config.data.data_dir
    )
    assert training.read_record(compared_run / "conflabel")["examples"]["held_out"] == 24
    assert dataset.classes.index(main["unknown"][0]) >= 0


def test_the_detector_is_adapted_to_the_run_it_judges(compared_run):
    saved = np.load(compared_run / "scores.npz")
    with np.load(compared_run / "conflabel" / "detector.npz") as arrays:
        detector = openset.conflabel_detector.NormDetector(**arrays)
    prefix = "fitted_conflabel_detector_"
    used = openset.conflabel_detector.NormDetector(
        *(saved[prefix + field] for field in detector._fields)
    )
    np.testing.assert_array_equal(used.hidden_kernel, detector.hidden_kernel)
    assert not np.allclose(used.mean, detector.mean)
    assert len(used.mean) == 10  # two convolutions, batch norm and two heads, two arrays each


def test_gopenmax_has_a_network_of_its_own(compared_run):
    folder = compared_run / "gopenmax"
    with np.load(folder / "generated.npz") as arrays:
        images, weights = arrays["images"], arrays["mixtures"]
    assert images.shape == (12, 16, 16, 1) and images.dtype == np.uint8
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    record = training.read_record(folder / "classifier")
    assert record["dataset"]["negatives"]["images"] == 12
    assert record["examples"]["train"] == 54 + 12
    heads = training.load_snapshot(folder / "classifier", "latest").state["params"]["closed_head"]
    assert heads["bias"].shape == (4,)
    saved = np.load(compared_run / "scores.npz")
    own = np.load(folder / "classifier" / "scores.npz")
    np.testing.assert_array_equal(
        saved["test_predicted_gopenmax"], own["test_logits"].argmax(axis=1)
    )
    row = json.loads((compared_run / "evaluation.json").read_text())["groups"]["all"]["scores"]
    labels, known = saved["test_labels"], saved["test_labels"] != openset.UNKNOWN
    right = saved["test_predicted_gopenmax"] == labels
    assert row["gopenmax"]["closed_accuracy"] == right[known].mean()
    score = own["test_score_gopenmax"]
    oscr = metrics.oscr(score[known], right[known], score[~known])
    assert row["gopenmax"]["oscr"] == pytest.approx(oscr)


def test_kept_examples_are_unlike_every_class(compared_run):
    """The kept images are unlike any class for the run's network, loaded again."""
    from jaxatr.tasks import OpenSet

    task = OpenSet(training.load_config(compared_run))
    snapshot = training.load_snapshot(compared_run, "latest")
    images, _ = data.read_images(compared_run / "gopenmax" / "generated.npz")
    logits = task.logits(training.variables_of(snapshot), images)
    assert logits.shape == (12, 3)
    assert scipy.special.softmax(logits, axis=-1).max() < 0.999
    sheet = Image.open(compared_run / "gopenmax" / "generated.png")
    assert sheet.height > 6 * 72 and sheet.width > 8 * 72


def test_a_trained_baseline_is_not_trained_again(compared_run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(compared_run, copy)
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*.npz")}
    for name in runs.BASELINES:
        runs.train_baseline(copy, name, progress=False)
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*.npz")} == before


def test_a_baseline_that_was_cut_goes_on(compared_run, tmp_path):
    """Training again without the last files gives the same results from the remaining parts."""
    copy = tmp_path / "run"
    shutil.copytree(compared_run, copy)
    (copy / "conflabel" / "detector.npz").unlink()
    (copy / "gopenmax" / "classifier" / "evaluation.json").unlink()
    (copy / "gopenmax" / "generated.npz").unlink()
    for name in runs.BASELINES:
        runs.train_baseline(copy, name, progress=False)
    found, expected = (
        runs.evaluate_run(folder)["groups"]["all"]["scores"] for folder in (copy, compared_run)
    )
    assert found == expected


def test_the_report_judges_a_score_by_its_own_network(compared_run):
    run = read_run(compared_run)
    assert not np.array_equal(run.predictions["gopenmax"], run.predictions["cbc"])
    np.testing.assert_array_equal(run.predictions["cbc"], run.predicted)
    page = reporting.render_report([compared_run])
    assert "G-OpenMax" in page


def test_a_score_for_which_nothing_was_trained(trained_run):
    with pytest.raises(ValueError, match="gopenmax has not been trained in.*--baselines=gopenmax"):
        runs.evaluate_run(trained_run, scores="mls,gopenmax")
    with pytest.raises(ValueError, match="conflabel_detector.*--baselines=conflabel"):
        runs.evaluate_run(trained_run, scores="conflabel_detector")


def test_wrong_names_and_runs_that_cannot_have_one(compared_run, tmp_path):
    with pytest.raises(ValueError, match="got 'gopenmx'.*did you mean 'gopenmax'"):
        runs.check_baselines(["conflabel", "gopenmx"])
    with pytest.raises(ValueError, match="baselines: got 'odin'"):
        runs.train_baseline(compared_run, "odin")
    for part in ("conflabel", "gopenmax/generator", "gopenmax/classifier"):
        with pytest.raises(ValueError, match="not itself part of a baseline"):
            runs.train_baseline(compared_run / part, "conflabel")
    shutil.copytree(compared_run, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["train"]["epochs"] = 99
    files.write_fields(tmp_path / "run" / "config.json", config)
    with pytest.raises(ValueError, match="of 334: a baseline needs"):
        runs.train_baseline(tmp_path / "run", "gopenmax")


def test_too_few_classes_and_no_validation_examples(small_config, tmp_path):
    config = small(small_config)
    config.open_set.split, config.train.steps = "random-2/1", 1
    runs.train_run(config, tmp_path / "two", progress=False)
    with pytest.raises(ValueError, match="got 2 known classes, wanted 3"):
        runs.train_baseline(tmp_path / "two", "conflabel", progress=False)
    config = small(small_config)
    config.data.validation, config.train.steps = 0.0, 1
    runs.train_run(config, tmp_path / "whole", progress=False)
    with pytest.raises(ValueError, match="needs validation examples"):
        runs.train_baseline(tmp_path / "whole", "conflabel", progress=False)


def test_images_that_are_all_like_a_class(small_config, tmp_path):
    config = small(small_config)
    config.train.steps, config.gan.steps, config.gan.threshold = 1, 1, 0.01
    runs.train_run(config, tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match="probability of 0.01 or more: raise gan.threshold"):
        runs.train_baseline(tmp_path / "run", "gopenmax", progress=False)
    assert not (tmp_path / "run" / "gopenmax" / "generated.npz").exists()


def test_negatives_need_a_plain_classifier_and_chips_that_fit(small_config, tmp_path):
    config = small(small_config)
    config.open_set.negatives = str(tmp_path / "more.npz")
    with pytest.raises(ValueError, match="open_set.negatives: .*loss.open='cbc', wanted 'none'"):
        runs.train_run(config, tmp_path / "run", progress=False)
    config.loss.open = "none"
    with pytest.raises(ValueError, match="more.npz: there is no such file"):
        runs.train_run(config, tmp_path / "run", progress=False)
    np.savez(tmp_path / "more.npz", images=np.zeros((3, 8, 8, 1), np.uint8))
    with pytest.raises(ValueError, match=r"more.npz: got images of shape \(8, 8, 1\)"):
        runs.train_run(config, tmp_path / "run", progress=False)
    np.savez(tmp_path / "more.npz", images=np.zeros((3, 16, 16, 1), np.uint8))
    config.train.steps = 1
    runs.train_run(config, tmp_path / "run", progress=False)
    run = training.load_run(tmp_path / "run")
    bias = run.variables["params"]["closed_head"]["bias"]
    bias[:] = 100.0 * (np.arange(len(bias)) == len(run.classes))  # of the class of negatives
    explainer = Explainer.of_run(run, "smoothgrad", samples=1)
    (explanation,) = explainer([np.zeros((16, 16, 1), np.uint8)])
    assert explanation.label == "unknown" and explanation.score > 0.99
    assert len(explainer.classes) == len(bias)
