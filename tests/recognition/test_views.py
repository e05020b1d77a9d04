"""Test-time averaging: its views, against a loop, and in all uses of a run."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import data, files, runs, training
from jaxatr.recognition import store
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks.open_set import OpenSet
from jaxatr.tasks.open_set.needs import pooled
from jaxatr.tasks.open_set.views import View, averaged, kept_as, views_of

NEEDS = {"features", "map_stage1", "map_stage2", "odin", "image"}


def averaging(config, *, horizontal=False, vertical=False, shift=0):
    config = config.copy_and_resolve_references()
    config.open_set.test_flip_horizontal = horizontal
    config.open_set.test_flip_vertical = vertical
    config.open_set.test_shift = shift
    return config


@pytest.fixture(scope="module")
def run(trained_run, tmp_path_factory):
    """A run that averages over ten views of each chip."""
    copy = tmp_path_factory.mktemp("averaged") / "run"
    shutil.copytree(trained_run, copy)
    written = json.loads((copy / "config.json").read_text())
    written["open_set"] |= {"test_flip_horizontal": True, "test_shift": 2}
    files.write_fields(copy / "config.json", written)
    return copy


def by_loop(image, horizontal, shift):
    """Yields the views of an image [h, w, c], computed with NumPy and reflected at the border."""
    for flipped in (image, image[:, ::-1]) if horizontal else (image,):
        padded = np.pad(flipped, ((shift, shift), (shift, shift), (0, 0)), "reflect")
        for down, right in [(0, 0), (-shift, 0), (shift, 0), (0, -shift), (0, shift)]:
            rows = slice(shift - down, shift - down + image.shape[0])
            yield padded[rows, shift - right : shift - right + image.shape[1]]


def test_views_are_every_flip_with_every_shift(small_config):
    assert views_of(small_config) == (View((False, False), (0, 0)),)
    assert kept_as("vim", small_config) == "vim"
    both = averaging(small_config, horizontal=True, vertical=True, shift=3)
    views = views_of(both)
    assert len(views) == len(set(views)) == 20 and views[0] == View((False, False), (0, 0))
    assert {view.flips for view in views} == {(a, b) for a in (0, 1) for b in (0, 1)}
    assert {view.shift for view in views} == {(0, 0), (-3, 0), (3, 0), (0, -3), (0, 3)}
    assert len(views_of(averaging(small_config, vertical=True))) == 2
    assert kept_as("vim", averaging(small_config, shift=1)) == "vim.mean_1"
    assert kept_as("vim", averaging(small_config, vertical=True)) == "vim.mean_v"
    assert kept_as("vim", both) == "vim.mean_hv3"


def test_maps_are_turned_back_and_not_moved():
    images = np.random.default_rng(0).normal(size=(3, 8, 8, 1)).astype(np.float32)
    flips, shifts = [(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 0), (2, 0)]
    views = tuple(View((bool(a), bool(b)), shift) for shift in shifts for a, b in flips)

    def infer(images):
        # A map that goes along with its image, and one that stays where it is.
        maps = images.astype(jnp.float16)
        ramp = jnp.broadcast_to(jnp.arange(8.0)[:, None, None], images.shape)
        return {"map_stage1": maps, "map_stage2": ramp, "corner": images[:, 0, 0]}

    found = averaged(infer, jnp.asarray(images), views)
    assert found["map_stage1"].dtype == jnp.float16
    np.testing.assert_allclose(found["map_stage1"], images.astype(np.float16), rtol=1e-3)
    np.testing.assert_allclose(found["map_stage2"], np.full_like(images, 3.5))
    corners = images[:, [0, 0, -1, -1], [0, -1, 0, -1], 0].mean(axis=1)
    moved = images[:, [2, 2, 5, 5], [0, -1, 0, -1], 0].mean(axis=1)
    np.testing.assert_allclose(found["corner"][:, 0], (corners + moved) / 2, rtol=1e-5)


def test_outputs_are_the_mean_of_a_loop(run):
    config = training.load_config(run)
    task, plain = OpenSet(config), OpenSet(averaging(config))
    variables = training.load_run(run).variables
    found = task.outputs(variables, "validation", NEEDS)
    part = task.parts["validation"]
    chips = part.chips(np.arange(len(part.indices)))
    mean, std = task.examples.mean, task.examples.std
    views = [np.stack([v for v in by_loop(chip, True, 2)]) for chip in chips]
    normal = (np.stack(views).astype(np.float32) - mean) / std

    @jax.jit
    def network(images):
        out, state = plain.module.apply(variables, images, mutable=["intermediates"])
        return out, state["intermediates"]["backbone"]

    outs = [network(jnp.asarray(normal[:, v], jnp.float32)) for v in range(normal.shape[1])]
    for name in ("logits", "open_logits"):
        expected = np.mean([getattr(out, name) for out, _ in outs], axis=0)
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-4, atol=1e-4)
    expected = np.mean([out.features for out, _ in outs], axis=0)
    np.testing.assert_allclose(found.more["features"], expected, rtol=1e-4, atol=1e-4)
    # The first of each five is not moved; the sixth is mirrored.
    for name in ("map_stage1", "map_stage2"):
        one, other = (np.asarray(pooled(outs[v][1][name][0])) for v in (0, 5))
        expected = (one + other[:, :, ::-1]) / 2
        np.testing.assert_allclose(found.more[name], expected, rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(found.more["image"], chips)
    alone = plain.outputs(variables, "validation", NEEDS)
    assert not np.allclose(found.logits, alone.logits, atol=1e-3)
    assert not np.allclose(found.more["odin"], alone.more["odin"], atol=1e-6)


@pytest.mark.slow
def test_predictions_and_the_evaluation_agree(run):
    result = runs.evaluate_run(run, scores="mls,cbc,nearest")
    arrays = dict(np.load(run / "scores.npz"))
    with pytest.warns(UserWarning, match="score=nearest is not fitted yet"):
        recogniser = Recogniser.load(run, score="nearest")
    part = OpenSet(training.load_config(run)).parts["test"]
    chips = part.chips(np.arange(len(part.indices)))
    outputs = list(recogniser.outputs(chips))
    logits = np.concatenate([one.logits for one in outputs])
    np.testing.assert_allclose(logits, arrays["test_logits"], rtol=1e-4, atol=1e-4)
    scores = [prediction.score for prediction in recogniser(chips)]
    np.testing.assert_allclose(scores, arrays["test_score_nearest"], rtol=1e-3, atol=1e-4)
    assert result["groups"]["all"]["scores"]["mls"]["auroc"] > 0


@pytest.mark.slow
def test_a_threshold_fitted_to_single_chips_is_not_used_for_views(run, trained_run):
    single, step = Recogniser.load(trained_run), Recogniser.load(trained_run).step
    recogniser = Recogniser.load(run)
    name = recogniser.decision.score.name
    assert recogniser.kept == f"{name}.mean_h2" and single.kept == single.decision.score.name
    assert store.path_of(run, step, recogniser.kept).is_file()
    choice = store.load_choice(run, step, "choice.mean_h2")
    assert choice is not None and choice["decides"] == name
    assert store.load_choice(run, step) == store.load_choice(trained_run, step)
    runs.evaluate_run(run)
    assert training.read_record(run)["fitted_gamma_of"] == "cbc.mean_h2"
    assert Recogniser.load(run, score="cbc", gamma="fitted").gamma is not None
    training.update_record(run, fitted_gamma_of="cbc")
    with pytest.raises(ValueError, match="γ was fitted to outputs averaged over other"):
        Recogniser.load(run, score="cbc", gamma="fitted")


def test_a_calibration_to_chips_of_the_field_is_kept_apart(run, chips, tmp_path):
    step = Recogniser.load(run).step
    (folder := tmp_path / "field").mkdir()
    for name in Recogniser.load(run).classes:
        shutil.copytree(chips / "test" / name, folder / name)
    path = runs.calibrate_run(run, folder)["path"]
    assert path == str(store.path_of(run, step, Recogniser.load(run).kept + store.FIELD))
    assert "is calibrated to" in Recogniser.load(run).note
    assert runs.undo_calibration(run) == path and not Recogniser.load(run).note


@pytest.mark.slow
def test_an_export_averages_too(run, chips, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from jaxatr.runs.export import export_run

    images = [data.read_image(path) for path in sorted((chips / "test").glob("*/000.png"))]
    export_run(run, tmp_path / "net.onnx", score="nndr_stage1")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    found = session.run(["score", "class_probabilities"], {"images": np.stack(images)})
    wanted = list(Recogniser.load(run, score="nndr_stage1")(images))
    np.testing.assert_allclose(found[0], [one.score for one in wanted], atol=1e-4)
    probabilities = [list(one.probabilities.values()) for one in wanted]
    np.testing.assert_allclose(found[1], probabilities, atol=1e-4)


def test_the_fields_are_free_and_checked(small_config, run):
    config = averaging(small_config, vertical=True)
    training.check_config(run, config, free=OpenSet.free_fields)
    with pytest.raises(ValueError, match="open_set.test_shift: got -1, wanted 0"):
        OpenSet(averaging(small_config, shift=-1))
