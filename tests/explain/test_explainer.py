"""The explainer of a run, and the command that uses it."""

import functools
import json
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from tqdm import tqdm

from jaxatr import data, runs, training
from jaxatr.cli import explain as command
from jaxatr.cli import predict
from jaxatr.explain import (
    METHODS,
    Explainer,
    Explanation,
    Pictures,
    Target,
    explain_all,
    load_explainers,
    masking,
    measures,
)
from jaxatr.inference import filled_batches
from jaxatr.training import trained_run as trained

QUICK = {
    "rise": {"samples": 20, "cells": 4},
    "lime": {"samples": 30},
    "occlusion": {"window": 8, "stride": 8},
    "integrated_gradients": {"steps": 4},
    "smoothgrad": {"samples": 3},
}


@pytest.fixture
def surrogate_run(earlier):
    """The run folder of a briefly trained surrogate of the small classifier."""
    return earlier / "distillation"


@pytest.fixture
def trained_run(earlier):
    """The run folder of a small classifier."""
    return earlier / "open_set"


@pytest.fixture(scope="module")
def images(earlier):
    paths = sorted((earlier / "chips" / "test").glob("*/00[01].png"))
    return paths, [data.read_image(path) for path in paths]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["surrogate", *METHODS])
def test_every_method_explains_the_prediction(surrogate_run, images, method):
    _, arrays = images
    explainer = Explainer.load(surrogate_run, method, **QUICK.get(method, {}))
    found = list(explainer(arrays[:3], batch_size=2))
    assert len(found) == 3
    predict = explainer._predict
    raw = np.stack([explainer.chip(image) for image in arrays[:3]]).astype(np.float32)
    scores = np.asarray(jax.nn.softmax(predict(raw)))
    for explanation, score, image in zip(found, scores, raw, strict=True):
        assert explanation.saliency.shape == (16, 16)
        assert 0 <= explanation.saliency.min() and explanation.saliency.max() <= 1
        least = 0 if method == "surrogate" else explanation.raw.min()
        span = 1 if method == "surrogate" else np.ptp(explanation.raw)
        np.testing.assert_allclose(span * explanation.saliency, explanation.raw - least, atol=1e-5)
        assert [each["measure"] for each in explanation.convention] == ["insertion", "deletion"]
        assert explanation.label == explainer.classes[score.argmax()]
        assert explanation.score == pytest.approx(score.max(), abs=1e-5)
        again = measures.insertion(
            predict, image[None], explanation.saliency[None], pixels_per_step=16
        )
        assert explanation.insertion == pytest.approx(again.auc[0], abs=1e-4)


@pytest.mark.slow
def test_a_surrogate_of_black_and_constant_images(surrogate_run):
    explainer = Explainer.load(surrogate_run)
    chips = np.stack([np.full((16, 16, 1), value, np.uint8) for value in (0, 90)])
    run = training.load_run(surrogate_run)
    params = {name: run.variables["params"][name] for name in ("student", "explainer")}
    variables = {**run.variables, "params": params}
    wanted = jax.jit(run.module.apply)(variables, run.normalize(chips)).saliency
    black, constant = explainer(chips, batch_size=2)
    for found, saliency in zip((black, constant), wanted, strict=True):
        np.testing.assert_allclose(found.saliency, saliency, atol=1e-5)
        assert 0 < found.saliency.min() < found.saliency.max()
        assert found.label in explainer.classes
        # The image equals its blur, so insertion changes nothing.
        assert found.insertion == pytest.approx(found.score, abs=1e-4)
    assert black.deletion == pytest.approx(black.score, abs=1e-4)  # deleted pixels were black


def test_the_target_of_a_surrogate_is_the_run_that_it_explains(surrogate_run, trained_run, images):
    _, arrays = images
    options = {"window": 8, "stride": 8}
    through = Explainer.load(surrogate_run, "occlusion", **options)
    direct = Explainer.load(trained_run, "occlusion", **options)
    for one, other in zip(through(arrays[:2]), direct(arrays[:2]), strict=True):
        np.testing.assert_allclose(one.saliency, other.saliency, atol=1e-4)
        assert one.label == other.label


@pytest.mark.parametrize(
    ("method", "count", "given"),
    [("occlusion", 1, [1]), ("smoothgrad", 1, [1]), ("grad_cam", 1, [1]), ("grad_cam", 3, [4])],
)
def test_an_image_is_explained_once(method, count, given):
    """Batches are padded, to few sizes, for methods that make a single pass."""
    explained = []

    def logits(scale, images):
        return scale * jnp.stack([images[:, :4].sum((1, 2, 3)), images[:, 4:].sum((1, 2, 3))], 1)

    def explain(images):
        explained.append(len(images))
        return 3 * images[..., 0] - 1

    target = Target(logits, jnp.float32(0.001), ("upper", "lower"), {})
    intake = data.Intake(data.Chip(), (8, 8, 1), "uint8")
    image = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)
    found, *_ = Explainer(target, intake, METHODS[method], explain)([image] * count)
    assert explained == given
    assert found.label == "lower" and found.score == pytest.approx(1 / (1 + np.exp(-1.024)))
    np.testing.assert_allclose(found.raw, 3.0 * image[..., 0] - 1)
    np.testing.assert_allclose(found.saliency, image[..., 0] / 63, atol=1e-6)
    assert found.convention[1]["fill"] == (0.0,) and found.convention[0]["pixels_per_step"] == 8


def test_methods_that_draw_are_repeatable(trained_run, images):
    _, arrays = images
    maps = [
        next(Explainer.load(trained_run, "rise", seed=seed, samples=10)(arrays[:1])).saliency
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(maps[0], maps[1])
    assert np.abs(maps[0] - maps[2]).max() > 0.01


@pytest.fixture
def gradients(tmp_path, monkeypatch):
    """docs/examples/input_gradient.py as a module outside the package."""
    examples = Path(__file__).parents[2] / "docs" / "examples"
    shutil.copy(examples / "input_gradient.py", tmp_path / "gradients.py")
    monkeypatch.syspath_prepend(tmp_path)
    yield "gradients:PART"
    sys.modules.pop("gradients", None)


def test_a_method_of_ones_own_explains(trained_run, images, gradients, flags, tmp_path):
    paths, arrays = images
    explainer = Explainer.load(trained_run, gradients)
    chip = explainer.chip(arrays[0])[None].astype(np.float32)
    slope = jax.jit(jax.grad(lambda chip: explainer._predict(chip).max()))(chip)
    (found,) = explainer(arrays[:1])
    np.testing.assert_allclose(found.raw, np.asarray(slope)[0].sum(-1), rtol=1e-4, atol=1e-7)
    out = tmp_path / "out"
    given = flags(f"--workdir={trained_run}", f"--out={out}", f"--method={gradients}", paths[0])
    assert command.main(given) == 0
    assert json.loads((out / "000.json").read_text())["method"] == "input_gradient"
    np.testing.assert_allclose(np.load(out / "000.npy"), found.raw, rtol=1e-4, atol=1e-7)


def test_defaults_and_refusals(surrogate_run, trained_run, earlier):
    assert Explainer.load(surrogate_run).method == "surrogate"
    assert Explainer.load(trained_run).method == "grad_cam"
    assert Explainer.load(trained_run, "gradcam").method == "grad_cam"
    with pytest.raises(ValueError, match="'all' needs load_explainers"):
        Explainer.load(trained_run, "all")
    with pytest.raises(ValueError, match="'surrogate' needs a run of configs/distill.py"):
        Explainer.load(trained_run, "surrogate")
    with pytest.raises(ValueError, match="method: got 'grad_can', .* did you mean 'grad_cam'"):
        Explainer.load(trained_run, "grad_can")
    with pytest.raises(ValueError, match="wanted the run of a classifier"):
        Explainer.load(earlier / "embedding")
    with pytest.raises(ValueError, match="options: got samples, cells; surrogate has none"):
        Explainer.load(surrogate_run, samples=10, cells=4)


@pytest.fixture
def flags(flags_of):
    return functools.partial(flags_of, command)


def test_the_command_writes_picture_map_and_figures(surrogate_run, images, flags, tmp_path, capsys):
    paths, _ = images
    (tmp_path / "broken.png").write_bytes(b"no image")
    out = tmp_path / "out"
    arguments = flags(
        f"--workdir={surrogate_run}", f"--out={out}", paths[0], tmp_path / "broken.png", paths[2]
    )
    assert command.main(arguments) == 1
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2 and "broken.png" in printed.err
    # Both are called 000.png, in different folders.
    second = f"{paths[2].parent.name}/000"
    assert files_below(out) == {
        f"{stem}.{suffix}" for stem in ("000", second) for suffix in ("png", "npy", "json")
    }
    figures = json.loads((out / f"{second}.json").read_text())
    assert figures["image"] == str(paths[2]) and figures["method"] == "surrogate"
    names = {"image", "verdict", "method", "class", "score", "insertion", "deletion", "convention"}
    assert set(figures) == names | {"marked", "note"}
    assert figures["verdict"] in printed.out  # of the run that is explained
    inserted, deleted = figures["convention"]
    assert inserted["blur"]["size"] == 11 and inserted["pixels_per_step"] == 16
    assert deleted["fill"] == [0.0] and deleted["target"] == "top class of the image"
    assert np.load(out / "000.npy").shape == (16, 16)
    assert Image.open(out / "000.png").size[0] > 600


@pytest.fixture
def read(monkeypatch):
    """Lists the runs whose checkpoints are read."""
    found, load = [], trained.load_snapshot

    def load_snapshot(workdir, which):
        found.append(Path(workdir))
        return load(workdir, which)

    monkeypatch.setattr(trained, "load_snapshot", load_snapshot)
    return found


def test_the_command_shows_a_bar_and_writes_the_raw_map(
    trained_run, images, flags, read, tmp_path, monkeypatch
):
    (path, *_), _ = images
    bars = []

    def bar(*arguments, **options):
        bars.append((options["desc"], options["disable"], "file" in options))
        return tqdm(*arguments, **options)

    monkeypatch.setattr(masking, "tqdm", bar)
    run, out = f"--workdir={trained_run}", f"--out={tmp_path}"
    assert command.main(flags(run, out, "--method=occlusion", path)) == 0
    assert read == [trained_run]  # once, for the map and for the decision
    assert bars == [("occlusion", None, False)]  # at a terminal, on standard error
    drops = np.load(tmp_path / "000.npy")
    assert drops.min() < 0 or drops.max() < 1  # probabilities, not scaled
    (explanation,) = Explainer.load(trained_run, "occlusion")([data.read_image(path)])
    np.testing.assert_allclose(drops, explanation.raw, atol=1e-5)


def test_the_command_needs_images(surrogate_run, flags, tmp_path):
    with pytest.raises(ValueError, match="no image given"):
        command.main(flags(f"--workdir={surrogate_run}", f"--out={tmp_path}"))


@pytest.fixture
def predict_flags(flags_of):
    return functools.partial(flags_of, predict)


def test_predict_explains_in_one_go(
    trained_run, surrogate_run, images, predict_flags, read, tmp_path, capsys
):
    paths, _ = images
    (tmp_path / "broken.png").write_bytes(b"no image")
    given = [paths[0], tmp_path / "broken.png", paths[2]]
    out, run = tmp_path / "out", f"--workdir={trained_run}"
    options = [f"--explain={out}", f"--surrogate={surrogate_run}", "--jsonl"]
    assert predict.main(predict_flags(run, *options, *given)) == 1
    # The classifier is the predictor, the surrogate's target, and what --surrogate is checked for.
    assert sorted(read) == sorted([trained_run, surrogate_run])
    printed = capsys.readouterr()
    told = [json.loads(line) for line in printed.out.splitlines()]
    assert [line["path"] for line in told] == [str(paths[0]), str(paths[2])]
    second = f"{paths[2].parent.name}/000"
    assert f"{second}.png" in printed.err
    figures = [json.loads((out / f"{name}.json").read_text()) for name in ("000", second)]
    for prediction, explained in zip(told, figures, strict=True):
        assert explained["image"] == prediction["path"] and explained["method"] == "surrogate"
        best = max(prediction["probabilities"], key=prediction["probabilities"].get)
        assert explained["class"] == best
        assert explained["verdict"].startswith(prediction["label"])


def files_below(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_a_folder_keeps_its_folders_and_nothing_is_overwritten(
    trained_run, images, flags, tmp_path, capsys
):
    paths, _ = images
    for name in ("one/a/000.png", "one/b/000.png", "two/a/000.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(paths[0], tmp_path / name)
    out, run = tmp_path / "out", f"--workdir={trained_run}"
    for folder in ("one", "two", "two"):  # the same image again takes its own place
        assert command.main(flags(run, f"--out={out}", tmp_path / folder)) == 0
    stems = {path.removesuffix(".png") for path in files_below(out) if path.endswith(".png")}
    assert stems == {"a/000", "b/000", "two/a/000"}
    assert json.loads((out / "two/a/000.json").read_text())["image"].endswith("two/a/000.png")
    (out / "c").mkdir()
    (out / "c" / "000.json").write_text("of something else")
    shutil.copytree(tmp_path / "one" / "a", tmp_path / "three" / "c")
    assert command.main(flags(run, f"--out={out}", tmp_path / "three")) == 0
    assert (out / "c" / "000.json").read_text() == "of something else"
    assert (out / "three" / "c" / "000.png").is_file()


def test_all_methods_are_on_one_sheet(trained_run, images, tmp_path):
    paths, arrays = images
    every = load_explainers(trained_run, "all")
    assert list(every) == list(METHODS)
    some = {name: every[name] for name in ("grad_cam", "occlusion", "smoothgrad")}
    (found,) = explain_all(some, arrays[:1])
    path = data.ImagePath(str(paths[0]), str(paths[0]), "000.png")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file is a file, wanted a folder"):
        Pictures(tmp_path / "file")
    picture = Pictures(tmp_path).write(path, found, verdict="unknown, most like disc (0.500)")
    said = json.loads((tmp_path / "000.json").read_text())
    assert said["verdict"].startswith("unknown") and said["agreement"].endswith(".")
    assert [one["method"] for one in said["methods"]] == list(some)
    assert np.shape(said["rank_correlations"]) == (3, 3)
    with np.load(tmp_path / "000.npz") as maps:
        assert {name: maps[name].shape for name in maps} == dict.fromkeys(some, (16, 16))
    with Image.open(picture) as drawn:
        assert drawn.size[0] > 4 * 200


def test_a_picture_does_not_replace_the_image_that_it_explains(tmp_path):
    chip = np.zeros((64, 64, 1), np.uint8)
    found = Explanation("disc", 0.9, chip, np.zeros((64, 64)), np.zeros((64, 64)), 0.5, 0.5, ())
    original = tmp_path / "a.png"
    Image.fromarray(chip[:, :, 0]).save(original)
    before = original.read_bytes()
    path = data.ImagePath(str(original), str(original), "a.png")
    for _ in range(2):  # the second replaces the first
        picture = Pictures(tmp_path).write(path, {"grad_cam": found})
        assert picture == tmp_path / tmp_path.name / "a.png"
    assert original.read_bytes() == before
    assert len([*tmp_path.rglob("*.png")]) == 2


def test_a_map_of_the_whole_chip_says_so():
    chip, raw = np.zeros((8, 8, 1), np.uint8), np.ones((8, 8))
    explanation = Explanation("disc", 0.9, chip, np.zeros((8, 8)), raw, 0.5, 0.5, ())
    assert explanation.note == "the map is the same everywhere"
    spread = raw - 0.4 * np.eye(8)
    explanation = explanation._replace(raw=spread, saliency=spread)
    assert explanation.marked == 1 and "marks 100% of the chip" in explanation.note
    corner = np.zeros((8, 8))
    corner[:2, :2] = 1
    assert explanation._replace(raw=corner, saliency=corner).note == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method=rise"], "--method needs --explain=FOLDER"),
        (["--explain=out", "--checkpoint=best"], "--explain uses the latest checkpoint"),
        (
            ["--explain=out", "--max_distance=2"],
            "max_distance: .* which takes checkpoint, gamma",
        ),
        (["--explain=out", "--method=rose"], "method: got 'rose', .* did you mean 'rise'"),
    ],
)
def test_predict_refuses(trained_run, predict_flags, arguments, message):
    with pytest.raises(ValueError, match=message):
        predict.main(predict_flags(f"--workdir={trained_run}", *arguments, "x.png"))


def test_the_surrogate_of_another_run_is_refused(earlier, surrogate_run, predict_flags):
    options = [
        f"--workdir={earlier / 'embedding'}",
        "--explain=out",
        f"--surrogate={surrogate_run}",
    ]
    with pytest.raises(ValueError, match="embedding: wanted the run of a classifier"):
        predict.main(predict_flags(*options, "x.png"))


def test_methods_are_of_a_surrogates_run(trained_run):
    with pytest.raises(ValueError, match="methods: .* takes scores"):
        runs.evaluate_run(trained_run, methods="rise")


@pytest.mark.parametrize("size", [0, -1])
def test_batches_of_nothing_are_refused(size):
    with pytest.raises(ValueError, match=f"batch_size: got {size}, wanted at least 1"):
        list(explain_all({}, [np.zeros((8, 8, 1))], batch_size=size))
    with pytest.raises(ValueError, match=f"batch_size: got {size}, wanted at least 1"):
        list(filled_batches("abc", size))
