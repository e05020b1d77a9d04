"""The detector of radar scenes that needs no training: its run, its evaluation and its report."""

import copy
import json
import pickle
import shutil

import numpy as np
import pytest
import tifffile
from PIL import Image

import jaxatr
from jaxatr import bundled, reporting, runs, training
from jaxatr.data.sources import simulated_clutter
from jaxatr.reporting.page import render_report
from jaxatr.scenes import boxes as geometry
from jaxatr.tasks.detection import Detection, evaluation
from jaxatr.tasks.detection.cfar import Cfar, Searcher
from jaxatr.tasks.detection.decoding import Found
from jaxatr.tasks.detection.predictor import Detector

FIELDS = {"cfar.guard": 8, "cfar.train": 3, "cfar.largest": 12, "detection.tile": 96}
FIELDS |= {"detection.tile_overlap": 16}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    config = bundled.load("detect:cfar")
    config.data.data_dir = str(tmp_path_factory.mktemp("clutter"))
    options = {"size": 90, "targets": (3, 3), "sides": (5, 7), "contrast": 15.0}
    config.data.options = {"train": 1, "test": 3, **options}
    return runs.training.with_fields(config, FIELDS)


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    """The folder of an evaluated run."""
    workdir = tmp_path_factory.mktemp("cfar") / "run"
    runs.train_run(config, workdir, progress=False)
    runs.evaluate_run(workdir)
    return workdir


@pytest.fixture(scope="module")
def detector(run):
    return jaxatr.load(run)


def test_a_run_is_loaded_measured_and_not_trained(run, config, detector):
    assert Detection.of_config(config) is Cfar
    assert training.saved_steps(run) == [0]
    assert isinstance(detector, Detector) and detector.classes == ()
    assert "level mean, 1e-06 false alarms a pixel, 1 looks" in repr(detector)
    assert repr(Detector.load(run)) == repr(detector)  # as jaxatr detect loads it
    measured = training.load_evaluation(run)
    assert measured["targets"] == 9 and measured["classes"]["TARGET"]["recall"]["1"] == 1
    assert "classes" not in measured["average_precision"]
    assert measured["confusion"] == {"names": ["unknown", "nothing"], "counts": [[9, 0], [0, 0]]}
    runs.train_run(config, run, progress=False)  # again: there is nothing left to do
    with pytest.raises(ValueError, match="more_epochs: .* nothing is trained"):
        runs.train_run(None, run, more_epochs=1, progress=False)
    with pytest.raises(ValueError, match="constant false alarm rate cannot be exported to ONNX"):
        Cfar.exportable(training.load_run(run))


def test_targets_are_found_in_scenes_of_any_dtype_and_size(detector):
    options = {"size": 150, "targets": (4, 4), "sides": (6, 8), "contrast": 15.0}  # a tile: 96
    scene = simulated_clutter.scene("test", 7, **options)
    found = detector.detect(scene["image"])
    overlaps = np.asarray(geometry.iou(scene["boxes"][:, None], found.boxes[None]))
    assert found.labels == ("unknown",) * 4 and np.all(overlaps.max(axis=1) > 0.5)
    assert np.all((found.scores > 0) & (found.scores < 1))
    again = pickle.loads(pickle.dumps(detector)).detect(scene["image"])
    np.testing.assert_array_equal(again.boxes, found.boxes)
    row = found.rows()[0]
    assert (row["label"], row["nearest"], row["known_probability"]) == ("unknown", "", 0.0)
    coarse = np.round(200 * scene["image"])
    wanted = detector.detect(coarse.astype(np.float32)).boxes
    np.testing.assert_array_equal(detector.detect(coarse.astype(np.uint16)).boxes, wanted)
    assert not len(detector.detect(np.zeros((5, 7), np.uint8)).scores)  # nothing but gaps


def test_false_alarms_are_as_many_as_were_asked_for(run):
    """In scenes without targets, every detection of one pixel counts."""
    loaded = training.load_run(run)
    config = copy.deepcopy(loaded.config)
    config.cfar.update({"rate": 2e-3, "gap": 0, "pixels": 1, "largest": 0, "guard": 2})
    searcher = Searcher(config)
    rng = np.random.default_rng(0)
    clutter = rng.exponential(size=(1, 500, 500, 1)).astype(np.float32)
    found = searcher(clutter)
    # Groups of several pixels are rare at this rate: 8 neighbours of 500 detections.
    assert np.asarray(found.valid).sum() == pytest.approx(500, rel=0.12)


def test_a_bright_target_of_another_size_is_left_out(detector):
    scene = np.sqrt(np.random.default_rng(0).exponential(size=(90, 90))).astype(np.float32)
    scene[10:15, 10:15] = 30
    scene[40:60, 40:60] = 300  # longer than cfar.largest
    (box,) = detector.detect(scene).boxes.tolist()
    assert box == [10, 10, 15, 15]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("cfar.rate", 0.0, "cfar.rate: got 0.0, wanted a rate"),
        ("cfar.level", "median", "cfar.level: got 'median', wanted mean or log_mean or order"),
        ("cfar.largest", 3, "cfar.largest: got 3, wanted 0"),
        ("detection.tile_overlap", 96, "detection.tile_overlap: got 96, wanted 0 or more"),
        ("detection.method", "cfa", "detection.method: got 'cfa', wanted network or cfar"),
    ],
)
def test_a_field_that_does_not_fit_is_refused(config, field, value, message):
    changed = runs.training.with_fields(config, {"cfar.smallest": 5, field: value})
    with pytest.raises(ValueError, match=message):
        Detection.of_config(changed)(changed)


def test_the_report_shows_what_was_missed_and_false_alarms(run, tmp_path):
    page = render_report([run])
    assert "Precision and recall" in page and "What was found" in page
    assert "Simulated images" in page and "Misses and false alarms" not in page  # there are none
    # With a threshold above one of the targets, that one is missed.
    task = runs.training.make_task(training.load_config(run), run)
    arrays = {name: value for name, value in np.load(run / "scores.npz").items()}
    measured = training.load_evaluation(run)
    order = np.argsort(arrays["found_scores"])
    measured["decision"]["threshold"] = float(arrays["found_scores"][order[1]])
    arrays["found_truth"][order[-1]] = -1
    shown = task.thumbnails(measured, arrays)
    missed = np.load(run / "scores.npz")["found_truth"][[order[0], order[-1]]]
    assert sorted(shown["id"]) == sorted([*missed, -1 - order[-1]])
    assert shown["image"].shape == (3, 96, 96, 3)
    other = tmp_path / "run"
    shutil.copytree(run, other)
    (other / "evaluation.json").write_text(json.dumps(measured))
    np.savez(other / "scores.npz", **arrays)
    np.savez(other / "thumbnails.npz", **shown)
    page = render_report([other])
    assert "Missed targets" in page and "False alarms, the most certain first" in page
    for value, message in (
        ({"names": ["a"], "counts": []}, "confusion.counts: wanted 1 rows of 1 numbers"),
        ({"names": ["a"], "counts": [[-1]]}, r"confusion.counts\[0\]\[0\]: got -1, wanted an int"),
        ({"counts": []}, "confusion: the field 'names' is missing"),
    ):
        (other / "evaluation.json").write_text(json.dumps(measured | {"confusion": value}))
        with pytest.raises(ValueError, match=message):
            render_report([other])
    np.savez(other / "scores.npz", test_id=arrays["test_id"])
    with pytest.raises(ValueError, match="by an earlier version: run jaxatr evaluate"):
        render_report([other])
    assert "recall at 1 a scene" in reporting.report_of(run).text(measured)


def test_false_alarms_are_counted_by_scene_and_by_ground(run):
    config = runs.training.with_fields(
        training.load_config(run), {"detection.ground_sample_distance": 0.5}
    )
    task = runs.training.make_task(config, run)
    found = []
    for number, boxes in enumerate(task.examples.parts["test"].boxes):  # three of three targets
        wrong = np.float32([[80, 80, 85, 85]] if number == 0 else np.zeros((0, 4)))
        scores = np.float32([0.9, 0.8, 0.7, 0.75][: 3 + len(wrong)])
        found.append(Found(np.concatenate([boxes, wrong]), scores, np.zeros((len(scores), 0))))
    figures, _ = evaluation.measured(task, found, None)
    alarms = figures["false_alarms"]
    assert alarms["0.5"] == {"scene": 0.0, "square_kilometre": 0.0}
    # One alarm in three scenes of 90 x 90 pixels, each 0.5 m long.
    assert alarms["0.9"]["scene"] == pytest.approx(1 / 3)
    assert alarms["0.9"]["square_kilometre"] == pytest.approx(1 / (3 * 45.0**2 / 1e6))
    fewer = [one._replace(scores=one.scores[:1], boxes=one.boxes[:1]) for one in found]
    fewer = [one._replace(open_logits=one.open_logits[:1]) for one in fewer]
    figures, _ = evaluation.measured(task, fewer, None)
    assert figures["false_alarms"]["0.5"]["scene"] is None
    assert "not reached" in reporting.report_of(run).text(figures)


def test_scenes_without_targets_are_measured_and_shown(config, tmp_path):
    changed = copy.deepcopy(config)
    changed.data.options.update({"targets": (0, 0), "test": 1})
    runs.train_run(changed, tmp_path / "run", progress=False)
    measured = runs.evaluate_run(tmp_path / "run")
    assert measured["targets"] == 0 and measured["classes"] == {}
    assert measured["recall"]["1"] is None and measured["decision"]["recall"] is None
    assert "recall -" in reporting.report_of(tmp_path / "run").text(measured)
    assert "What was found" in render_report([tmp_path / "run"])


def test_a_geotiff_with_overviews_and_missing_values(detector, tmp_path):
    values = np.sqrt(np.random.default_rng(0).exponential(size=(90, 120))).astype(np.float32)
    values[20:26, 30:36] = 20
    values[:, 60:] = -9999  # beyond it, the clutter's ring has fewer cells
    values[:9, :9] = np.nan
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        tags = [(42113, "s", 0, "-9999"), (33550, "d", 3, (2.0, 2.0, 0.0))]
        tags += [(33922, "d", 6, (0, 0, 0, 100, 500, 0))]
        file.write(values, extratags=tags, metadata=None, tile=(32, 32), subifds=1)
        file.write(values[::2, ::2], subfiletype=1, metadata=None)
    found = detector.detect(tmp_path / "a.tif")
    assert found.boxes.tolist() == [[30, 20, 36, 26]]


@pytest.mark.slow
def test_a_line_of_60_000_pixels(detector, tmp_path):
    line = np.full((1, 60_000), 4, np.uint8)
    line[:, 30_000:30_006] = 255
    Image.fromarray(line).save(tmp_path / "a.jpg", quality=100)
    (box,) = detector.detect(tmp_path / "a.jpg").boxes.tolist()
    assert box[1::2] == [0, 1] and abs(box[0] - 30_000) <= 2 and abs(box[2] - 30_006) <= 2
