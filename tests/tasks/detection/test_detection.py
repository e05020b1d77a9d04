"""The task of detection: its loss, its training, its evaluation and its predictor."""

import pickle
import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from PIL import Image

import jaxatr
from jaxatr import bundled, parallel, runs, training
from jaxatr.models import DetectionOutput
from jaxatr.scenes import boxes as geometry
from jaxatr.tasks.detection import Detection
from jaxatr.tasks.detection.assignment import IGNORED, PADDING, UNKNOWN
from jaxatr.tasks.detection.decoding import Decoded, Found, Tiling, decode, found_in
from jaxatr.tasks.detection.examples import SceneExamples
from jaxatr.tasks.detection.matching import DROPPED, FALSE_ALARM, match, match_all


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A few scenes, and a network that compiles quickly."""
    config = bundled.load("detect:smoke")
    config.data.data_dir = str(tmp_path_factory.mktemp("scenes"))
    config.data.options.update({"train": 6, "test": 2, "bands": ("thermal",), "ranges": (2000,)})
    config.data.options.empty, config.data.validation = 0.0, 0.2
    config.model.width = config.detection.width = 8
    config.model.args = {"stage_sizes": (1, 1, 1, 1)}
    config.detection.picture = 64
    return config


@pytest.fixture(scope="module")
def task(config):
    return Detection(config)


@pytest.fixture(scope="module")
def start(task):
    return jax.jit(task.init)(jax.random.key(0))


def shares(task, start, batch, devices):
    """Computes each device's share of the loss."""
    loss = partial(task.loss, *start)
    mapped = jax.vmap(loss, (0, None, None), axis_name=parallel.AXIS)
    return jax.jit(mapped)(parallel.shard(batch, devices), jax.random.key(1), jnp.int32(0))


def test_boxes_have_the_roles_of_the_split(task):
    assert task.split.known == ("PICKUP", "SUV", "BMP2", "T72", "2S3")
    for part in ("train", "validation", "test"):
        classes = np.concatenate(task.examples.parts[part].classes)
        names = np.array(task.examples.dataset.classes)[classes]
        for name, label in zip(names, np.concatenate(task.examples.labels(part)), strict=True):
            if name in task.split.known:
                assert label == task.split.known.index(name)
            else:  # a decoy is a target everywhere; an unknown class only in the test
                assert label == (UNKNOWN if name == "DECOY" or part == "test" else IGNORED)


def test_scenes_of_a_folder_stay_together(config, tmp_path):
    config, rows = config.copy_and_resolve_references(), ["path,label,x,y,width,height,part"]
    for number in range(14):  # frames of three flights, and two of the test
        name = f"flight{number // 4}/{number}.png"
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((64, 64), number, np.uint8)).save(tmp_path / name)
        rows.append(f"{name},SUV,8,8,30,30,{'train' if number < 12 else 'test'}")
    (tmp_path / "boxes.csv").write_text("\n".join(rows), encoding="utf-8")
    config.data.name, config.data.source = "whole_scenes", str(tmp_path)
    config.data.options = ConfigDict({"boxes": str(tmp_path / "boxes.csv")})
    config.data.group_by, config.data.validation, config.open_set.split = "folder", 0.3, "closed"
    config.detection.outliers = ()
    parts = SceneExamples(config).parts
    flights = [
        [str(parts[name].split.columns["path"][row])[:7] for row in parts[name].indices]
        for name in ("train", "validation")
    ]
    assert [len(one) for one in flights] == [8, 4]
    assert [len({*one}) for one in flights] == [2, 1] and not {*flights[0]} & {*flights[1]}


@pytest.mark.slow
def test_the_loss_has_finite_gradients_and_is_shared_by_devices(task, start):
    batch = next(task.batches(task.phases[0]))
    alone, together = (shares(task, start, batch, count) for count in (1, 2))
    np.testing.assert_allclose(together.count.sum(), alone.count.sum())
    assert alone.count.sum() == np.sum(batch["labels"] >= UNKNOWN)
    for name, (total, _) in alone.sums.items():
        np.testing.assert_allclose(
            together.sums[name][0].sum(), total.sum(), rtol=0.2, err_msg=name
        )

    def total(params):
        return shares(task, (params, start[1]), batch, 1).total.sum()

    gradient = jax.grad(total)(start[0])
    for path, leaf in jax.tree.leaves_with_path(gradient):
        assert np.isfinite(leaf).all(), path
        assert np.any(leaf != 0), path


def test_a_batch_without_targets_has_a_loss_and_no_boxes(task, start):
    batch = dict(next(task.batches(task.phases[0])))
    batch["labels"] = np.full_like(batch["labels"], PADDING)
    found = shares(task, start, batch, 1)
    assert found.count.sum() == 0 and np.isfinite(found.total).all()
    assert found.sums["boxes"][0].sum() == 0 and found.sums["classes"][0].sum() == 0


def test_ignored_boxes_teach_nothing(task, start):
    batch = dict(next(task.batches(task.phases[0])))
    whole = np.zeros_like(batch["boxes"])
    whole[:, 0] = [0, 0, 64, 64]
    batch["boxes"] = whole
    batch["labels"] = np.where(np.arange(whole.shape[1]) == 0, IGNORED, PADDING)[None].repeat(4, 0)
    assert shares(task, start, batch, 1).total.sum() == 0


def maps(target, distances, logits):
    return DetectionOutput(
        *(jnp.asarray(a, jnp.float32)[None] for a in (target, logits, distances))
    )


def test_decoding_finds_peaks_as_a_plain_loop():
    rng = np.random.default_rng(0)
    target, logits = rng.normal(size=(12, 10)), rng.normal(size=(12, 10, 3))
    distances = rng.uniform(1, 9, (12, 10, 4))
    wanted = []
    for r in range(12):
        for c in range(10):
            around = target[max(r - 1, 0) : r + 2, max(c - 1, 0) : c + 2]
            if target[r, c] == around.max():
                x, y = 4 * c + 2, 4 * r + 2
                left, top, right, bottom = distances[r, c]
                box = [x - left, y - top, x + right, y + bottom]
                wanted.append((1 / (1 + np.exp(-target[r, c])), box, logits[r, c]))
    wanted.sort(key=lambda one: -one[0])
    kept = []
    for one in wanted:
        if all(geometry.iou(np.array(one[1]), np.array(k[1])) <= 0.3 for k in kept):
            kept.append(one)
    found = jax.jit(partial(decode, most=30, overlap=0.3))(maps(target, distances, logits))
    for wide in (False, True):
        with jax.enable_x64(wide), jax.numpy_dtype_promotion("strict"):
            strict = decode(maps(target, distances, logits), most=30, overlap=0.3)
        jax.tree.map(np.testing.assert_allclose, strict, found)
    count = int(found.valid.sum())
    assert count == len(kept) > 5
    for row, (score, box, own) in enumerate(kept):
        np.testing.assert_allclose(found.scores[0, row], score, rtol=1e-5)
        np.testing.assert_allclose(found.boxes[0, row], box, rtol=1e-4)
        np.testing.assert_allclose(found.open_logits[0, row], own, rtol=1e-5)


def test_decoding_takes_nan_and_few_places():
    out = maps(np.full((2, 2), np.nan), np.ones((2, 2, 4)), np.zeros((2, 2, 1)))
    assert not decode(out, most=5, overlap=0.5).valid.any()
    out = maps(np.zeros((2, 2)), np.ones((2, 2, 4)), np.zeros((2, 2, 1)))  # all are peaks
    assert decode(out, most=5, overlap=0.5).valid.sum() == 4


def bright(batches):
    """A detector of bright rectangles."""
    for batch in batches:
        rows = []
        for tile in batch["image"]:
            y, x = np.nonzero(tile[..., 0] > 100)
            boxes = np.zeros((1, 4))
            if len(y):
                boxes[0] = [x.min(), y.min(), x.max() + 1, y.max() + 1]
            rows.append((boxes, np.full(1, 0.9), np.zeros((1, 2)), np.full(1, bool(len(y)))))
        yield batch, jax.tree.map(lambda *a: np.stack(a), *[Decoded(*row) for row in rows])


def test_a_target_on_a_seam_is_found_once_and_sizes_may_differ():
    tiling = Tiling(64, 16, np.array([7], np.uint8))
    scenes = [np.zeros(shape, np.uint8) for shape in ((40, 50, 1), (60, 150, 1), (33, 20, 1))]
    scenes[0][5:9, 10:20] = 200
    scenes[1][30:40, 50:75] = 200  # longer than what tiles share
    found = list(found_in(scenes, tiling, bright, batch_size=2, overlap=0.5, least=0.1))
    assert [len(one.scores) for one in found] == [1, 1, 0]
    np.testing.assert_array_equal(found[0].boxes, [[10, 5, 20, 9]])
    np.testing.assert_array_equal(found[1].boxes, [[50, 30, 75, 40]])


def test_scenes_may_be_read_into_one_buffer():
    buffer = np.zeros((64, 64, 1), np.uint8)

    def read():
        for place in (10, 20, 30):
            buffer[...] = 0
            buffer[place : place + 9, 5:9] = 200
            yield buffer

    tiling = Tiling(64, 16, np.array([7], np.uint8))
    found = found_in(read(), tiling, bright, batch_size=2, overlap=0.5, least=0.1)
    assert [one.boxes[0, 1] for one in found] == [10, 20, 30]


def detections(boxes, scores, logits=None):
    logits = np.zeros((len(scores), 2)) if logits is None else logits
    return Found(np.float32(boxes).reshape(-1, 4), np.float32(scores), np.asarray(logits))


def test_found_targets_match_the_true_ones_once():
    truth = np.float32([[0, 0, 10, 10], [20, 0, 30, 10], [50, 50, 90, 90]])
    labels = np.array([1, UNKNOWN, IGNORED])
    boxes = [[0, 0, 10, 9], [0, 0, 10, 10], [21, 0, 30, 10], [60, 60, 70, 70], [0, 40, 9, 49]]
    found = detections(boxes, [0.9, 0.8, 0.3, 0.7, 0.6])
    rows = match(found, truth, labels)
    assert rows.tolist() == [0, FALSE_ALARM, 1, DROPPED, FALSE_ALARM]
    all_found = match_all(
        [found, found], [truth, np.zeros((0, 4), np.float32)], [labels, labels[:0]]
    )
    assert all_found.targets == 2 and all_found.counted.sum() == 9
    # Of the second scene, all five are false alarms; the highest scores 0.9.
    assert all_found.threshold(0.4) > np.float32(0.9) and all_found.recall(0.5) == 0.5
    assert all_found.false_alarms(0.65) == 2.0 and all_found.recall(0.3) == 1.0
    assert np.isnan(all_found.recall(0.3, np.zeros(3, bool)))
    assert all_found.threshold_of_recall(0.5) == np.float32(0.9)
    assert all_found.threshold_of_recall(0.51) == np.float32(0.3)
    first = all_found._replace(total=np.append(all_found.total, 0))  # a target never found
    assert np.isnan(first.threshold_of_recall(0.7))


def test_the_threshold_keeps_the_false_alarms():
    rng = np.random.default_rng(0)
    found = [detections(rng.uniform(0, 9, (6, 2)).repeat(2, 1) + [0, 0, 5, 5], rng.uniform(size=6))]
    all_found = match_all(found * 10, [np.zeros((0, 4))] * 10, [np.zeros(0, int)] * 10)
    for rate in (0.1, 1.0, 3.0):
        threshold = all_found.threshold(rate)
        assert all_found.false_alarms(threshold) <= rate


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("detection.picture", 100, "a multiple of 32"),
        ("detection.unknown", "target", "ignore or background"),
        ("data.size", 64, "for chips, not for scenes"),
        ("model.stem", "3x3", "wanted '7x7' for a detector"),
        ("detection.validation_split", "val", "no split 'val'"),
        ("data.name", "simulated", "have no boxes, labels"),
        ("open_set.split", "known:DECOY", "no class 'DECOY'"),
    ],
)
def test_a_field_that_does_not_fit_is_refused(config, field, value, message):
    changed = runs.training.with_fields(config, {field: value})
    if field == "data.name":
        changed.data.options = {"aspects": 1, "ranges": (1000,), "bands": ("thermal",)}
    with pytest.raises(ValueError, match=message):
        Detection(changed)


def of_boxes(config, folder, rows):
    """Returns a configuration of the scenes in a folder, whose boxes have these rows."""
    (folder / "boxes.csv").write_text("path,x,y,width,height,label,part\n" + rows)
    fields = {"data.name": "whole_scenes", "data.source": str(folder), "data.validation": 0.0}
    fields |= {"open_set.split": "closed", "detection.outliers": ()}
    changed = runs.training.with_fields(config, fields)
    changed.data.options = {"boxes": str(folder / "boxes.csv")}
    return changed


def test_scenes_of_gray_and_colour_are_refused_or_converted(config, tmp_path):
    rows = ""
    for number, part in enumerate(("train", "train", "test")):
        pixels = np.full((70, 80), 90 + number, np.uint8)
        image = Image.fromarray(pixels).convert("RGB" if number == 1 else "L")
        image.save(tmp_path / f"{number}.png")
        rows += f"{number}.png,9,9,20,12,car,{part}\n"
    changed = of_boxes(config, tmp_path, rows)
    with pytest.raises(ValueError, match="whole_scenes have 1 and 3 channels; 1 makes all of them"):
        Detection(changed)
    changed.data.channels = 1
    assert next(Detection(changed).examples.train_batches())["image"].shape[-1] == 1


def test_scenes_of_several_sizes_are_measured_in_the_tiles_of_detect(config, tmp_path, monkeypatch):
    """Scores depend on the padding, which was that of the largest scene in the evaluation only."""
    rows = ""
    for number, (size, part) in enumerate(
        [((64, 64), "train"), ((70, 80), "test"), ((200, 130), "test")]
    ):
        Image.fromarray(np.full(size, 90 + number, np.uint8)).save(tmp_path / f"{number}.png")
        rows += f"{number}.png,9,9,20,12,car,{part}\n"
    changed = of_boxes(config, tmp_path, rows)
    task, shapes = Detection(changed), []

    def search(variables, batches):
        for batch in batches:
            shapes.append(batch["image"].shape[1:3])
            none = np.zeros((len(batch["image"]), 1))
            yield batch, Decoded(np.zeros((*none.shape, 4)), none, none[..., None], none > 0)

    monkeypatch.setattr(task, "search", search)
    assert len(task.found({}, "test")) == 2
    assert shapes == [(96, 96), (224, 160)]


@pytest.fixture(scope="module")
def learned(config, tmp_path_factory):
    """The folder of a run that has seen one scene, at one scale."""
    fields = {"train.steps": 160, "data.validation": 0.5, "open_set.split": "closed"}
    fields |= {"train.evaluate_every": 100.0, "train.checkpoint_every": 120, "train.keep": 9}
    fields |= {"detection.mosaic": 0.0, "detection.scales": (1.0, 1.0), "detection.width": 16}
    fields |= {"model.width": 16, "detection.picture": 128, "optimizer.learning_rate": 5e-3}
    config = runs.training.with_fields(config, fields)
    config.data.options.train, config.data.options.test = 2, 1
    workdir = tmp_path_factory.mktemp("learned") / "run"
    runs.train_run(config, workdir, progress=False)
    return workdir


@pytest.mark.slow
def test_one_scene_is_learned(learned):
    losses = [row["loss"] for row in training.read_metrics(learned) if "loss" in row]
    assert np.mean(losses[-3:]) < 0.5 * np.mean(losses[:2])
    measured = runs.evaluate_run(learned)
    assert measured["scenes"] == 1 and set(measured["recall"]) == {"0.1", "0.2", "1"}
    detector = jaxatr.load(learned, threshold=0.1)
    scene = Detection(training.load_config(learned)).examples.parts["train"]
    found = detector.detect(scene.image(0))
    overlaps = geometry.iou(scene.boxes[0][:, None], found.boxes[None])
    assert np.mean(overlaps.max(axis=1) > 0.4) > 0.5  # of the targets that it has seen
    assert [row["label"] for row in found.rows()] == list(found.labels)
    assert detector.describe(found).startswith(f"{len(found.labels)} targets; ")
    again = pickle.loads(pickle.dumps(detector)).detect(scene.image(0))
    np.testing.assert_array_equal(again.boxes, found.boxes)
    with pytest.raises(ValueError, match="got an image of float32, wanted uint8"):
        detector.detect(np.zeros((64, 64), np.float32))


@pytest.mark.slow
def test_a_run_that_was_cut_off_ends_with_the_same_bits(learned, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(learned, copy)
    for step in training.saved_steps(copy):
        if step > 120:
            shutil.rmtree(copy / "checkpoints" / str(step))
    assert training.saved_steps(copy)[-1] == 120
    runs.train_run(training.load_config(copy), copy, progress=False)
    ends = [training.variables_of(training.load_snapshot(one, "latest")) for one in (learned, copy)]
    jax.tree.map(np.testing.assert_array_equal, *ends)
