"""Boxes that are found again: the cut, the fit, and their use in all rooms of a run."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import data, files, runs, training
from jaxatr.data.warp import warp
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks.open_set import OpenSet, reframing
from jaxatr.tasks.open_set.views import kept_as


def with_boxes_off(config, error=0.1):
    config = config.copy_and_resolve_references()
    config.open_set.box_error = error
    return config


@pytest.fixture(scope="module")
def run(trained_run, tmp_path_factory):
    """A run whose chips are cut anew."""
    copy = tmp_path_factory.mktemp("reframed") / "run"
    shutil.copytree(trained_run, copy)
    written = json.loads((copy / "config.json").read_text())
    written["open_set"] |= {"box_error": 0.1, "score": "nearest"}
    files.write_fields(copy / "config.json", written)
    return copy


def test_a_moved_box_is_that_of_a_warp():
    draw = np.random.default_rng(0)
    images = jnp.asarray(draw.normal(size=(4, 9, 12, 2)), jnp.float32)
    shifts = jnp.asarray(draw.uniform(-3, 3, (4, 2)), jnp.float32)
    scales = jnp.asarray([0.7, 1.0, 1.2, 1.4], jnp.float32)
    found = jax.jit(data.moved)(images, shifts, scales)
    for image, shift, scale, cut in zip(images, shifts, scales, found, strict=True):
        np.testing.assert_allclose(cut, warp(image, scale * jnp.eye(2), shift), atol=1e-5)
    same = data.moved(images, jnp.zeros((4, 2)), jnp.ones(4))
    np.testing.assert_array_equal(same, images)
    down = data.moved(images, jnp.full((4, 2), jnp.array([2.0, 0.0])), jnp.ones(4))
    np.testing.assert_allclose(down[:, :7], images[:, 2:], atol=1e-6)
    np.testing.assert_allclose(down[:, 7:], images[:, [7, 6]], atol=1e-6)  # reflected


def test_a_correction_undoes_the_error_of_a_box():
    """Of 16 pixels, moved down by a tenth and a fifth too long, in a chip of 20 pixels."""
    moves = reframing.corrections(np.array([[0.5, 0.0, 1.0]]), error=0.2, margin=0.25)
    # 1.6 of 24 pixels; the side has to shrink by 1.2.
    np.testing.assert_allclose(moves, [[-1.6 / 24, 0, -np.log(1.2)]], atol=1e-12)
    line = np.linspace(-30, 30, 61, dtype=np.float32)
    image = np.broadcast_to(line[:, None, None], (61, 61, 1))
    columns = {
        "id": np.array([7]),
        "label": np.zeros(1, int),
        "height": np.array([61]),
        "width": np.array([61]),
    }
    split = data.Split("", [{"image": image}], columns, ("a",), image.dtype)
    off = data.other_boxes(split, data.Chip(center_crop=20), error=0.2, margin=0.25, copy=3)
    errors = data.box_errors(7, 3)[None]
    assert np.abs(errors).max() <= 1 and (errors[0] != data.box_errors(7)).all()
    back = reframing.corrections(errors, error=0.2, margin=0.25)
    found = data.moved(
        jnp.asarray(off.image(0)[None]), jnp.asarray(20 * back[:, :2]), jnp.exp(back[:, 2])
    )
    exact = data.Chip(center_crop=20)(image)
    # Beyond the moved chip's border, the picture is reflected.
    np.testing.assert_allclose(found[0, 7:-7], exact[7:-7], atol=0.1)


@pytest.mark.parametrize("shape", [(40, 6), (6, 40)])
def test_the_fit_is_ridge_regression(shape):
    draw = np.random.default_rng(1)
    rows, moves = draw.normal(3, 2, shape), draw.normal(size=(shape[0], 3))
    kernel, bias = reframing.fit(rows, moves, ridge=5.0)
    scale = np.std(rows - rows.mean(axis=0))
    centred = (rows - rows.mean(axis=0)) / scale
    square = centred.T @ centred + 5.0 * np.eye(shape[1])
    expected = np.linalg.solve(square, centred.T @ (moves - moves.mean(axis=0))) / scale
    np.testing.assert_allclose(kernel, expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(rows @ kernel + bias, rows @ expected + bias, atol=1e-3)
    np.testing.assert_allclose((rows @ kernel + bias).mean(axis=0), moves.mean(axis=0), atol=1e-5)


def test_constant_maps_move_nothing():
    kernel, bias = reframing.fit(np.ones((5, 2)), np.arange(15.0).reshape(5, 3))
    np.testing.assert_array_equal(kernel, 0)
    np.testing.assert_allclose(bias, [6, 7, 8])


def test_chips_without_surroundings_are_continued_by_reflection():
    image = np.arange(36, dtype=np.float32).reshape(6, 6, 1)
    columns = {
        "id": np.array([1]),
        "label": np.zeros(1, int),
        "height": np.array([6]),
        "width": np.array([6]),
    }
    split = data.Split("", [{"image": image}], columns, ("a",), image.dtype)
    off = data.other_boxes(split, data.Chip(), error=0.2, copy=0, reflect=True).image(0)
    assert off.shape == (6, 6, 1) and 0 <= off.min() < off.max() <= 35
    same = data.other_boxes(split, data.Chip(), error=0.0, copy=0, reflect=True).image(0)
    np.testing.assert_array_equal(same, image)
    split = data.Split(
        "", [{"image": image}], columns | {"width": np.array([7])}, ("a",), image.dtype
    )
    with pytest.raises(ValueError, match="need square chips of one size"):
        data.other_boxes(split, data.Chip(), error=0.2, reflect=True)


def test_outputs_are_those_of_chips_cut_anew(run):
    """The estimate, the cut and the network, each by itself, against the run's own outputs."""
    task = OpenSet(training.load_config(run))
    plain = training.variables_of(training.load_snapshot(run, "latest"))
    with pytest.raises(ValueError, match=r"no estimate of boxes that are off by 10 % at step"):
        Recogniser.load(run)
    variables = task.with_boxes(plain)
    assert task.with_boxes(variables) is variables
    estimate = variables[reframing.COLLECTION]
    names = reframing.maps_of(task.module)
    chips = task.parts["test"].chips(np.arange(len(task.parts["test"].labels)))
    maps = task.outputs(plain, "test", names).more
    moves = reframing.rows_of(maps, names) @ estimate["kernel"] + estimate["bias"]
    assert np.ptp(moves, axis=0).min() > 0
    moves = np.clip(moves, -estimate["most"], estimate["most"]).astype(np.float32)
    cut = data.moved(
        jnp.asarray(chips, jnp.float32),
        jnp.asarray(chips.shape[1] * moves[:, :2]),
        jnp.exp(moves[:, 2]),
    )
    found = task.outputs(variables, "test", {"image", "features"})
    difference = np.abs(found.more["image"].astype(int) - np.rint(cut).astype(int))
    assert found.more["image"].dtype == chips.dtype and difference.max() <= 1
    expected = task.infer(plain, {"image": found.more["image"]})
    np.testing.assert_allclose(found.logits, expected["logits"], rtol=1e-3, atol=1e-3)
    assert not np.array_equal(found.more["image"], chips)


@pytest.mark.slow
def test_a_run_decides_by_chips_cut_anew(run, tmp_path):
    """An evaluation fits what a changed field needs; predictions then agree with it."""
    runs.evaluate_run(run, scores="nearest")
    arrays = dict(np.load(run / "scores.npz"))
    recogniser = Recogniser.load(run)
    assert recogniser.kept == "nearest.boxes_10"
    task = OpenSet(training.load_config(run))
    chips = task.parts["test"].chips(np.arange(len(task.parts["test"].labels)))
    scores = [prediction.score for prediction in recogniser(chips)]
    np.testing.assert_allclose(scores, arrays["test_score_nearest"], rtol=1e-3, atol=1e-4)
    moved = task.decided_part("validation")
    np.testing.assert_array_equal(moved.labels, task.parts["validation"].labels)
    assert not np.array_equal(
        moved.chips(np.arange(2)), task.parts["validation"].chips(np.arange(2))
    )
    target = OpenSet.classifier(training.load_run(run))
    assert reframing.COLLECTION not in target.variables
    damaged = reframing.path_of(run, recogniser.step, training.load_config(run))
    damaged.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"reframing.boxes_10.npz: not readable .* remove it"):
        training.load_run(run)
    damaged.unlink()


def test_the_field_is_free_and_checked(small_config, trained_run):
    config = with_boxes_off(small_config)
    training.check_config(
        trained_run, with_boxes_off(training.load_config(trained_run)), free=OpenSet.free_fields
    )
    assert kept_as("vim", config) == "vim.boxes_10"
    with pytest.raises(
        ValueError, match=r"open_set.box_error: got 0.6, wanted a share in \[0, 0.5\]"
    ):
        OpenSet(with_boxes_off(small_config, 0.6))


@pytest.mark.slow
def test_an_export_cuts_anew_too(run, chips, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from jaxatr.runs.export import export_run

    runs.evaluate_run(run, scores="nearest")
    images = [data.read_image(path) for path in sorted((chips / "test").glob("*/000.png"))]
    export_run(run, tmp_path / "net.onnx", score="nearest")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    found = session.run(["score", "class_probabilities"], {"images": np.stack(images)})
    wanted = list(Recogniser.load(run, score="nearest")(images))
    np.testing.assert_allclose(found[0], [one.score for one in wanted], atol=1e-3)
    probabilities = [list(one.probabilities.values()) for one in wanted]
    np.testing.assert_allclose(found[1], probabilities, atol=1e-3)
