import contextlib
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

from jaxatr.scenes import boxes, metrics
from jaxatr.scenes.metrics import UNKNOWN, Detections, Truths

DATA = Path(os.environ.get("JAXATR_DATA", "../shared/data"))


def a_set(seed, images=12, labels=3, spread=3.0):
    """Targets of all sizes, crowds, and detections near them with equal scores among them."""
    draw = np.random.default_rng(seed)
    count = 9 * images
    low, sides = draw.uniform(0, 300, (count, 2)), draw.uniform(1, 12, (count, 2)) ** 2
    truth = Truths(
        draw.integers(0, images, count),
        np.concatenate([low, low + sides], axis=1),
        draw.integers(0, labels, count),
        draw.random(count) < 0.15,
    )
    copies = np.repeat(np.arange(count), draw.integers(0, 4, count))
    moved = truth.boxes[copies] + draw.normal(0, spread, (len(copies), 4))
    moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 1)
    label = truth.labels[copies]
    label = np.where(draw.random(len(copies)) < 0.2, draw.integers(0, labels, len(copies)), label)
    scores = draw.integers(0, 30, len(copies)) / 32
    return Detections(truth.images[copies], moved, scores, label), truth


def of_hituav(seed):
    """Detections drawn around HIT-UAV's targets; DontCare is a crowd of any class."""
    if not (DATA / "hituav/val.json").is_file():
        pytest.skip(f"HIT-UAV is not in {DATA}")
    recorded = json.loads((DATA / "hituav/val.json").read_text())
    rows = [(a["image_id"], a["category_id"], *a["bbox"]) for a in recorded["annotations"]]
    table = np.array(rows, float)
    care = table[table[:, 1] < 5]
    ignored = [
        np.column_stack([table[table[:, 1] == 5], np.full((table[:, 1] == 5).sum(), c)])
        for c in range(1, 5)
    ]
    ignored = np.concatenate(ignored)
    images = np.concatenate([care[:, 0], ignored[:, 0]]).astype(int)
    corners = boxes.of_xywh(np.concatenate([care[:, 2:6], ignored[:, 2:6]]))
    labels = np.concatenate([care[:, 1], ignored[:, 6]]).astype(int)
    truth = Truths(images, corners, labels, np.arange(len(images)) >= len(care))
    draw = np.random.default_rng(seed)
    copies = np.repeat(np.arange(len(images)), draw.integers(0, 3, len(images)))
    moved = corners[copies] + draw.normal(0, 1.5, (len(copies), 4))
    moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 1)
    return Detections(images[copies], moved, draw.random(len(copies)), labels[copies]), truth


def reference(found, truth, classes):
    """COCO's twelve numbers by pycocotools."""
    coco, cocoeval = (
        pytest.importorskip("pycocotools.coco"),
        pytest.importorskip("pycocotools.cocoeval"),
    )
    with contextlib.redirect_stdout(io.StringIO()):
        base = coco.COCO()
        images = np.union1d(found.images, truth.images)
        xywh, areas = boxes.to_xywh(truth.boxes), boxes.area(truth.boxes)
        base.dataset = {
            "images": [{"id": int(image)} for image in images],
            "categories": [{"id": int(label)} for label in classes],
            "annotations": [
                {
                    "id": i + 1,
                    "image_id": int(truth.images[i]),
                    "category_id": int(truth.labels[i]),
                    "bbox": xywh[i].tolist(),
                    "area": float(areas[i]),
                    "iscrowd": int(truth.crowd[i]),
                }
                for i in range(len(xywh))
            ],
        }
        base.createIndex()
        columns = boxes.to_xywh(found.boxes), found.scores, found.images, found.labels
        results = base.loadRes(
            [
                {"bbox": b.tolist(), "score": float(s), "image_id": int(i), "category_id": int(c)}
                for b, s, i, c in zip(*columns, strict=True)
            ]
        )
        judge = cocoeval.COCOeval(base, results, "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return judge.stats


@pytest.mark.parametrize(
    "found,truth,classes",
    [(*a_set(0), (0, 1, 2)), (*a_set(1, 3, 2, 12.0), (0, 1)), ("hituav", None, (1, 2, 3, 4))],
    ids=["drawn", "loose", "hituav"],
)
def test_measures_are_those_of_pycocotools(found, truth, classes):
    if truth is None:
        found, truth = of_hituav(0)
    expected = reference(found, truth, classes)
    ours = metrics.average_precision(found, truth, classes=classes)
    np.testing.assert_allclose(np.nan_to_num(np.array(ours[:12]), nan=-1), expected, atol=1e-6)


SQUARE = np.array([0.0, 0, 10, 10])


def placed(*offsets):
    return np.array(
        [SQUARE + np.tile(np.atleast_1d(offset), 4 // np.size(offset)) for offset in offsets]
    )


@pytest.mark.parametrize(
    "types",
    [
        {"boxes": "uint8", "scores": "uint8", "images": "uint8", "labels": "uint8"},
        {"boxes": "int16", "scores": "float16", "images": "int16", "labels": "int8"},
    ],
)
def test_columns_of_any_type_count_as_their_numbers(types):
    """In uint8, -1 is 255, 255 + 1 is 0, and squares of 200 x 200 pixels are small."""
    images, labels = np.array([254, 254, 255]), np.array([0, 1, 0])
    boxes = np.array([[0, 0, 200, 200], [210, 0, 250, 50], [5, 5, 250, 250]])
    truth = Truths(
        images, boxes, labels, crowd=np.array([0, 0, 1]), areas=np.array([4e4, 2e3, 6e4])
    )
    more = np.array([254, *images]), np.concatenate([boxes[2:], boxes])
    found = Detections(*more, np.array([0, 3, 2, 5]), np.array([0, *labels]))
    given = [
        one._replace(**{key: getattr(one, key).astype(types[key]) for key in types.keys() & names})
        for one in (found, truth)
        for names in [set(one._fields)]
    ]
    wanted = metrics.average_precision(
        found, truth._replace(crowd=np.array([0, 0, 1], bool)), classes=[0, 1]
    )
    assert (wanted.ap_large, wanted.ap_medium) == pytest.approx((1, 1))
    np.testing.assert_equal(metrics.average_precision(*given, classes=[0, 1]), wanted)


def test_by_hand():
    """Two targets; the detections are right, wrong, right: precision 1 to recall 1/2, then 2/3."""
    truth = Truths(np.array([0, 1]), placed(0, 0), np.array([0, 0]))
    found = Detections(
        np.array([0, 0, 1]), placed(0, 50, 0), np.array([0.9, 0.8, 0.7]), np.array([0, 0, 0])
    )
    measures = metrics.average_precision(found, truth, classes=[0])
    assert measures.ap50 == pytest.approx((51 + 50 * 2 / 3) / 101)
    assert measures.ap == pytest.approx(measures.ap50) and measures.ar1 == 1
    assert measures.ar10 == 1 and np.isnan(measures.ap_large)
    assert measures.by_class == {0: (pytest.approx(measures.ap), pytest.approx(measures.ap50))}
    curve = metrics.operating_curve(found, truth, classes=[0])
    assert curve.recalls.tolist() == [0.5, 0.5, 1] and curve.alarms.tolist() == [0, 1, 1]
    assert [curve.alarms_at(r) for r in (0.5, 0.51, 1.0)] == [0, 1, 1]
    assert [curve.recall_at(a) for a in (0.0, 1.0, 5.0)] == [0.5, 1, 1]
    missed = Detections(*(column[:2] for column in found))
    assert metrics.operating_curve(missed, truth, classes=[0]).alarms_at(0.6) == np.inf


def test_crowds_and_difficult_targets_count_neither_way():
    truth = Truths(
        np.zeros(3, int),
        np.array([SQUARE, SQUARE + 100, [200, 200, 300, 300]]),
        np.zeros(3, int),
        np.array([False, False, True]),
        np.array([False, True, False]),
    )
    found = Detections(
        np.zeros(5, int),
        np.array([SQUARE, SQUARE + 100, SQUARE + 210, SQUARE + 230, SQUARE + 101]),
        np.array([0.5, 0.9, 0.8, 0.7, 0.6]),
        np.zeros(5, int),
    )
    curve = metrics.operating_curve(found, truth, classes=[0])
    # The crowd takes two detections, the difficult target one; its second one is a false alarm.
    assert curve.scores.tolist() == [0.6, 0.5] and curve.alarms.tolist() == [1, 1]
    assert curve.recalls.tolist() == [0, 1]


def test_a_curve_counts_every_detection_of_an_image():
    """COCO's hundred detections an image are not enough for a scene of any size."""
    images, where = np.zeros(150, int), placed(*range(0, 7500, 50))
    truth = Truths(images, where, images)
    far = Detections(images, where + 25, np.full(150, 0.6), images)
    near = Detections(images, where, np.full(150, 0.4), images)
    both = Detections(*map(np.concatenate, zip(far, near, strict=True)))
    curve = metrics.operating_curve(both, truth, classes=[0])
    assert curve.recalls.tolist() == [0, 1] and curve.alarms.tolist() == [150, 150]
    strange = truth._replace(labels=np.repeat([0, UNKNOWN], [10, 140]))
    measures = metrics.open_set(near, strange, classes=[0])
    assert measures.open_set_errors == 140 and measures.wilderness_impact == pytest.approx(14)


def test_open_set_by_hand():
    """Four known targets of two classes and three unknown ones, of which one is taken for known."""
    images = np.zeros(7, int)
    where = placed(0, 50, 100, 150, 200, 250, 300)
    truth = Truths(images, where, np.array([0, 0, 1, 1, UNKNOWN, UNKNOWN, UNKNOWN]))
    found = Detections(
        np.zeros(8, int),
        np.concatenate([where[:4], where[4:6], placed(400), where[4:5]]),
        np.array([0.9, 0.8, 0.7, 0.1, 0.75, 0.6, 0.72, 0.05]),
        np.array([0, 0, 1, 1, 1, UNKNOWN, 0, 0]),
    )
    measures = metrics.open_set(found, truth, classes=[0, 1], recall=0.75)
    assert measures.threshold == 0.7 and measures.open_set_errors == 1
    assert measures.wilderness_impact == pytest.approx(1 / 4)  # 3 hits and 1 other false alarm
    assert measures.unknown.ap50 == pytest.approx(34 / 101)  # one of three, at precision 1
    # Class 1: an unknown target, a hit, a hit; class 0: two hits first.
    assert measures.known.ap50 == pytest.approx((1 + 2 / 3) / 2)
    late = metrics.open_set(
        found._replace(scores=found.scores / 2), truth, classes=[0, 1], recall=1.0
    )
    assert late.threshold == 0.05 and late.open_set_errors == 1
    # An unknown target that may be missed, or a crowd of them, counts neither way.
    optional = np.arange(7) == 4
    for flags in ({"crowd": optional}, {"difficult": optional}):
        free = metrics.open_set(found, truth._replace(**flags), classes=[0, 1], recall=0.75)
        assert free.open_set_errors == 0 and free.wilderness_impact == 0


def test_nothing_found_and_nothing_to_find():
    nothing = Detections(np.zeros(0, int), np.zeros((0, 4)), np.zeros(0), np.zeros(0, int))
    truth = Truths(np.array([0]), placed(0), np.array([0]))
    assert metrics.average_precision(nothing, truth, classes=[0, 1]).ap == 0
    empty = Truths(*(column[:0] for column in truth[:3]))
    assert np.isnan(metrics.average_precision(nothing, empty, classes=[0]).ap)
    assert metrics.operating_curve(nothing, truth, classes=[0]).alarms_at(0.5) == np.inf
    with pytest.raises(ValueError, match="no target to find"):
        metrics.operating_curve(nothing, empty, classes=[0])


def test_bad_columns_are_refused():
    found, truth = a_set(0, 2)
    with pytest.raises(ValueError, match="score that is not finite"):
        metrics.average_precision(found._replace(scores=found.scores * np.nan), truth, classes=[0])


def test_the_mean_of_a_curve_is_the_average_precision_at_an_iou_of_half():
    found, truth = a_set(3)
    measured = metrics.average_precision(found, truth, classes=[0, 1, 2])
    for label, (_, ap50) in measured.by_class.items():
        curve = metrics.precisions(found, truth, label=label)["all"]
        assert curve.shape == (101,) and curve.mean() == pytest.approx(ap50)
        assert np.all(np.diff(curve) <= 0)
    # By hand: of two targets the better detection hits one, the worse one is a false alarm.
    box = np.array([[0.0, 0, 10, 10], [50, 0, 60, 10]])
    truth = Truths(np.zeros(2, int), box, np.zeros(2, int))
    found = Detections(np.zeros(2, int), box + [[0], [99]], np.array([0.9, 0.8]), np.zeros(2, int))
    curves = metrics.precisions(found, truth, label=0)
    np.testing.assert_allclose(curves["small"], [1.0] * 51 + [0.0] * 50)
    assert curves["large"] is None
