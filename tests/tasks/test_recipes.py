"""The terms that recipes add to equation 4, against direct computation, on several devices."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import data, losses, openset, parallel, runs, training
from jaxatr.recognition.session import head
from jaxatr.tasks.open_set import OpenSet, mixing, objective
from jaxatr.tasks.open_set.terms import Labels, rotation
from jaxatr.tasks.open_set.terms.rotation import quarter_turned

EVERYTHING = {
    "augment.rand_operations": 1,
    "augment.erase": 0.5,
    "augment.speckle": 4,
    "augment.gain": 1.5,
    "augment.background": 0.5,
    "loss.label_smoothing": 0.1,
    "loss.logit_norm": 0.1,
    "loss.rotation_weight": 0.5,
    "loss.reciprocal_weight": 0.1,
    "mix.mixup": 0.5,
    "mix.cutmix": 1.0,
    "model.freeze": "",
}


def set_fields(config, fields):
    for name, value in fields.items():
        group, last = name.split(".")
        config[group][last] = value
    return config


@pytest.fixture
def config(small_config):
    """A configuration without batch statistics and augmentation, whose loss is easy to compute."""
    config = small_config.copy_and_resolve_references()
    config.model.backbone = "jaxatr_test_networks:Plain"
    config.augment.shift = 0
    return config


@pytest.fixture(scope="session")
def outliers(chips, tmp_path_factory):
    """A folder with images in subfolders, and a hidden file."""
    root = tmp_path_factory.mktemp("outliers")
    (root / "some").mkdir()
    for index, path in enumerate(sorted((chips / "test" / "ring").iterdir())):
        shutil.copy(path, root / "some" / f"{index}.png")
    (root / ".notes").write_text("not an image")
    return root


def made(config):
    task = OpenSet(config)
    params, state = jax.jit(task.init)(jax.random.key(0))
    return task, params, state, next(task.batches(task.phases[0]))


def gradient(task, params, state, batch, devices):
    """Computes the loss of a batch, its gradient and the metrics, on several devices."""

    def device(part):
        def share(params):
            out = task.loss(params, state, part, jax.random.key(1), jnp.int32(0))
            return out.total, out

        found, out = jax.grad(share, has_aux=True)(params)
        found, sums = jax.lax.psum((found, {**out.sums, "loss": (out.total, out.count)}), "data")
        found = jax.tree.map(lambda leaf: leaf / sums["loss"][1], found)
        return found, {name: total / count for name, (total, count) in sums.items()}

    mapped = jax.jit(jax.vmap(device, axis_name=parallel.AXIS))(parallel.shard(batch, devices))
    return jax.tree.map(lambda leaf: np.asarray(leaf[0]), mapped)


def outputs(task, params, images):
    return task.module.apply({"params": params}, jnp.asarray(images))


def test_off_it_is_equation_4(config):
    task, params, state, batch = made(config)
    assert set(params) == {"backbone", "closed_head", "open_head"}
    _, found = gradient(task, params, state, batch, 1)
    out = outputs(task, params, task.examples.normalize(batch["image"]))
    expected = losses.open_set(out.logits, out.open_logits, batch["label"])
    np.testing.assert_allclose(found["loss"], np.mean(expected), rtol=1e-5)


@pytest.mark.parametrize("kind", ["cutmix", pytest.param("mixup", marks=pytest.mark.slow)])
def test_a_mixture_has_the_mixture_of_two_losses(config, kind, monkeypatch):
    config.mix[kind] = 1.0
    task, params, state, batch = made(config)
    kept = {}

    def targets(*args):
        images, found = original(*args)
        jax.debug.callback(lambda i, s: kept.update(images=i, share=s), images, found[0].weights)
        return images, found

    original = mixing.mixed
    monkeypatch.setattr(objective, "mixed", targets)
    _, found = gradient(task, params, state, batch, 1)
    jax.effects_barrier()
    images, share = np.asarray(kept["images"]), np.asarray(kept["share"])
    raw = np.asarray(task.examples.normalize(batch["image"]))
    partner = np.roll(raw, -1, axis=0)
    if kind == "mixup":
        weight = share[:, None, None, None]
        np.testing.assert_allclose(images, weight * raw + (1 - weight) * partner, atol=1e-5)
    else:
        assert ((images == raw) | (images == partner)).all()
    out, labels = outputs(task, params, images), batch["label"]
    own = np.asarray(losses.open_set(out.logits, out.open_logits, labels))
    other = np.asarray(losses.open_set(out.logits, out.open_logits, np.roll(labels, -1)))
    expected = np.mean(share * own + (1 - share) * other)
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)


def test_label_smoothing_and_logit_normalisation(config):
    config.loss.label_smoothing, config.loss.logit_norm = 0.2, 0.5
    task, params, state, batch = made(config)
    _, found = gradient(task, params, state, batch, 1)
    out, labels = outputs(task, params, task.examples.normalize(batch["image"])), batch["label"]
    logits = losses.normalised_logits(out.logits, temperature=0.5)
    closed = losses.smoothed_cross_entropy(logits, labels, smoothing=0.2)
    expected = closed + 0.1 * losses.entropy(logits) + losses.cbc(out.open_logits, labels)
    np.testing.assert_allclose(found["loss"], np.mean(expected), rtol=1e-5)


def test_classes_weigh_by_their_size_and_rare_ones_are_repeated(config, tmp_path):
    part = OpenSet(config).examples.parts["train"]
    dropped = part.column("path")[part.labels == 0][2:]
    table = tmp_path / "corrections.csv"
    table.write_text("path,label\n" + "".join(f"{path},\n" for path in dropped))
    config.data.corrections = str(table)
    config.loss.class_weights = config.train.balance = "sqrt"
    task, params, state, batch = made(config)
    labels = task.examples.parts["train"].labels
    sizes = np.bincount(labels)
    assert sizes[0] < sizes[1] and task.examples.pass_length > len(labels)
    _, found = gradient(task, params, state, batch, 1)
    out = outputs(task, params, task.examples.normalize(batch["image"]))
    expected = losses.open_set(out.logits, out.open_logits, batch["label"])
    weights = sizes[batch["label"]] ** -0.5
    np.testing.assert_allclose(found["loss"], np.average(expected, weights=weights), rtol=1e-5)


def test_images_of_a_table_are_trained_on(config, chips, tmp_path):
    before = OpenSet(config).parts["train"]
    np.save(tmp_path / "new.npy", 255 - data.read_image(chips / "test" / "disc" / "000.png"))
    (tmp_path / "labels.csv").write_text("path,label\nnew.npy,disc\n")
    config.data.added = str(tmp_path / "labels.csv")
    after = OpenSet(config).parts["train"]
    assert len(after.labels) + len(OpenSet(config).parts["validation"].labels) == 73
    assert len(before.labels) in (len(after.labels), len(after.labels) - 1)


def test_the_contrastive_term_is_of_the_whole_batch(config):
    config.loss.contrastive_weight = 0.7
    task, params, state, batch = made(config)
    _, found = gradient(task, params, state, batch, 2)
    out, labels = outputs(task, params, task.examples.normalize(batch["image"])), batch["label"]
    term = losses.supervised_contrastive(out.features, labels)
    plain = np.mean(losses.open_set(out.logits, out.open_logits, labels))
    np.testing.assert_allclose(found["contrastive"], term, rtol=1e-4)
    np.testing.assert_allclose(found["loss"], plain + 0.7 * term, rtol=1e-4)


def test_reciprocal_points_are_the_head(config):
    config.loss.reciprocal_weight = 0.3
    task, params, state, batch = made(config)
    assert params["closed_head"]["points"].shape == (3, 8)
    _, found = gradient(task, params, state, batch, 2)
    out, labels = outputs(task, params, task.examples.normalize(batch["image"])), batch["label"]
    points, radius = (params["closed_head"][name] for name in ("points", "radius"))
    logits = losses.reciprocal_logits(out.features, points)
    np.testing.assert_allclose(out.logits, logits, rtol=1e-5, atol=1e-6)
    risk = losses.open_space_risk(out.features, points, labels, radius)
    plain = losses.open_set(logits, out.open_logits, labels)
    np.testing.assert_allclose(found["loss"], np.mean(plain) + 0.3 * np.mean(risk), rtol=1e-5)
    layer = head({"params": params})
    rest = logits - (out.features @ layer.kernel + layer.bias)
    expected = np.mean(np.square(out.features), axis=1, keepdims=True)
    np.testing.assert_allclose(rest, np.broadcast_to(expected, rest.shape), atol=1e-4)


def test_quarter_turns_are_numpys():
    images = np.random.default_rng(0).normal(size=(4, 5, 5, 2)).astype(np.float32)
    turned = quarter_turned(jnp.asarray(images), jnp.array([0, 1, 2, 3]))
    for turns, (before, after) in enumerate(zip(images, turned, strict=True)):
        np.testing.assert_array_equal(after, np.rot90(before, turns))


@pytest.mark.slow
def test_quarter_turns_are_predicted_of_a_turned_copy(config):
    config.loss.rotation_weight = 2.0
    task, params, state, batch = made(config)
    assert params["rotation_head"]["kernel"].shape == (8, 4)
    turned = rotation.turned(jax.random.key(1), task.examples.normalize(batch["image"]), batch)
    turns = set(np.asarray(turned.targets))
    assert turns <= {0, 1, 2, 3} and len(turns) > 1
    features = outputs(task, params, turned.images).features
    layer = params["rotation_head"]
    term = losses.cross_entropy(features @ layer["kernel"] + layer["bias"], turned.targets)
    _, found = gradient(task, params, state, batch, 1)
    out = outputs(task, params, task.examples.normalize(batch["image"]))
    plain = losses.open_set(out.logits, out.open_logits, batch["label"])
    np.testing.assert_allclose(found["loss"], np.mean(plain) + 2 * np.mean(term), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("open_loss", ["cbc", "none"])
def test_outliers_are_refused_by_all(config, outliers, open_loss):
    config.open_set.outliers, config.loss.outlier_weight = str(outliers), 0.3
    config.loss.open, config.loss.open_weight = open_loss, 0.8
    task, params, state, batch = made(config)
    assert len(task.examples.streamed.indices) == len(task.parts["train"].indices) + 10
    assert task.record["dataset"]["outliers"]["images"] == 10
    batches = task.batches(task.phases[0])
    while not (batch["label"] == openset.UNKNOWN).any():
        batch = next(batches)
    assert not (task.parts["train"].labels == openset.UNKNOWN).any()
    _, found = gradient(task, params, state, batch, 2)
    known = batch["label"] >= 0
    out = outputs(task, params, task.examples.normalize(batch["image"]))
    values = task.example_losses(out.logits[known], out.open_logits[known], batch["label"][known])
    refused = losses.outlier_exposure(out.logits[~known])
    if open_loss == "cbc":
        refused += 0.8 * losses.refused_by_all(out.open_logits[~known])
    np.testing.assert_allclose(found["outlier_exposure"], np.mean(refused), rtol=1e-5)
    expected = np.mean(values["loss"]) + 0.3 * np.mean(refused)
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)
    correct = np.argmax(out.logits[known], axis=-1) == batch["label"][known]
    np.testing.assert_allclose(found["closed_accuracy"], np.mean(correct), rtol=1e-6)


def test_a_loss_is_a_mean_over_shares_however_small(config, outliers, monkeypatch):
    config.open_set.outliers = str(outliers)
    *network, batch = made(config)
    labels = np.append([openset.UNKNOWN] * 3, batch["label"][3:])
    expected = gradient(*network, batch | {"label": labels}, 1)[1]["loss"]
    small = Labels(labels, np.full(len(labels), 0.01, np.float32))
    monkeypatch.setattr(objective, "mixed", lambda *given: (given[2], [small]))
    assert gradient(*network, batch, 1)[1]["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("contrastive", [False, True])
def test_devices_share_one_gradient(config, outliers, contrastive):
    set_fields(config, EVERYTHING)
    config.open_set.outliers = str(outliers)
    if contrastive:
        config.mix.mixup = config.mix.cutmix = 0.0
        config.loss.contrastive_weight = 0.5
    task, params, state, batch = made(config)
    one, four = (gradient(task, params, state, batch, devices) for devices in (1, 4))
    assert max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(one[0])) > 1e-3
    for ours, theirs in zip(jax.tree.leaves(four), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=2e-5)


@pytest.fixture(scope="module")
def recipe_run(small_config, outliers, tmp_path_factory):
    """An interrupted and continued run with all compatible recipes, and its configuration."""
    config = set_fields(small_config.copy_and_resolve_references(), EVERYTHING)
    config.open_set.outliers = str(outliers)
    config.optimizer.learning_rate, config.optimizer.backbone_factor = 0.02, 0.5
    config.train.steps, config.train.checkpoint_every = 6, 3
    config.open_set.score = "cbc"
    root = tmp_path_factory.mktemp("recipes")
    runs.train_run(config, root / "run", progress=False)
    shutil.copytree(root / "run", root / "broken")
    shutil.rmtree(root / "broken" / "checkpoints" / "6")
    runs.train_run(config, root / "broken", progress=False)
    return root, config


@pytest.mark.slow
def test_a_broken_run_ends_with_the_same_bits(recipe_run):
    root, _ = recipe_run
    whole, broken = (training.load_snapshot(root / name, "latest") for name in ("run", "broken"))
    assert whole.step == broken.step == 6
    jax.tree.map(np.testing.assert_array_equal, whole.state, broken.state)


@pytest.mark.slow
def test_a_run_with_everything_is_used_as_any(recipe_run, chips, tmp_path):
    root, config = recipe_run
    measured = runs.evaluate_run(root / "run", scores="cbc,vim,mahalanobis")
    scores = measured["groups"]["all"]["scores"]
    assert {"cbc", "vim", "mahalanobis"} == set(scores)
    assert all(0 <= one["auroc"] <= 1 for one in scores.values())
    from jaxatr import Recogniser

    image = next((chips / "test" / "disc").iterdir())
    recogniser = Recogniser.load(root / "run")
    assert list(recogniser([recogniser.read(str(image))]))


@pytest.mark.slow
def test_an_exported_network_has_no_head_of_turns(recipe_run, tmp_path):
    pytest.importorskip("onnx")
    from jaxatr.runs.export import export_run

    root, _ = recipe_run
    model = export_run(root / "run", tmp_path / "model.onnx")
    names = [array.name for array in model.graph.initializer]
    assert names and not any("rotation" in name for name in names)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"loss.label_smoothing": 1.0}, "loss.label_smoothing: got 1.0"),
        ({"loss.class_weights": "all"}, "loss.class_weights: got 'all', wanted one of none"),
        ({"train.balance": "all"}, "train.balance: got 'all', wanted one of none"),
        ({"loss.logit_norm": -1.0}, "loss.logit_norm: got -1.0"),
        ({"mix.mixup": -0.1}, "mix.mixup: got -0.1"),
        ({"mix.probability": 1.5}, "mix.probability: got 1.5"),
        ({"loss.reciprocal_weight": -1.0}, "loss.reciprocal_weight: got -1.0"),
        ({"loss.contrastive_temperature": 0.0}, "loss.contrastive_temperature: got 0.0"),
        ({"loss.contrastive_weight": 1.0, "mix.mixup": 1.0}, "mixed images have no"),
        ({"open_set.outliers": "nowhere"}, "there is no folder nowhere"),
        ({"augment.gain": 0.5}, "augment.gain: got 0.5"),
        ({"optimizer.backbone_factor": -1.0}, "optimizer.backbone_factor: got -1.0"),
    ],
)
def test_invalid_values_are_named(config, fields, message):
    with pytest.raises(ValueError, match=message):
        OpenSet(set_fields(config, fields))


def test_a_split_of_the_data_set_can_be_the_outliers(config):
    config.data.name, config.data.source = "simulated", ""
    views = {"aspects": 4, "ranges": (1000,), "bands": ("visible",)}
    config.data.options = {**views, "decoys": 9, "size": 24, "surround": 4}
    config.data.center_crop, config.open_set.split = 24, "random-5/3"
    config.augment.box_shift, config.open_set.outliers = 0.1, "decoys"
    task = OpenSet(config)
    assert task.record["dataset"]["outliers"] == {"images": 9, "split": "decoys"}
    streamed, train = task.examples.streamed, task.parts["train"]
    assert np.sum(streamed.labels == openset.UNKNOWN) == 9
    assert len(streamed.labels) == len(train.labels) + 9
    batch = next(task.batches(task.phases[0]))
    assert batch["image"].shape[1] > 24  # what other boxes show is there for outliers too
    config.open_set.outliers = "test"
    with pytest.raises(ValueError, match="open_set.outliers: 'test' is already data.test_split"):
        OpenSet(config)


def test_outliers_come_from_an_archive(config, outliers, tmp_path):
    records = []
    for source in (outliers, shutil.make_archive(str(tmp_path / "outliers"), "zip", outliers)):
        config.open_set.outliers = str(source)
        records.append(OpenSet(config).record["dataset"]["outliers"])
    assert records[0] == records[1] and records[0]["images"] == 10


def test_outliers_of_another_shape_are_refused(config, outliers, tmp_path):
    shutil.copytree(outliers, tmp_path / "mixed")
    from PIL import Image

    Image.new("L", (7, 9)).save(tmp_path / "mixed" / "some" / "z.png")
    config.open_set.outliers = str(tmp_path / "mixed")
    with pytest.raises(ValueError, match=r"z.png: got a chip of shape \(9, 7, 1\)"):
        OpenSet(config)
    (tmp_path / "empty").mkdir()
    config.open_set.outliers = str(tmp_path / "empty")
    with pytest.raises(ValueError, match="empty: there is no image in it"):
        OpenSet(config)


@pytest.mark.slow
def test_a_frozen_backbone_stays_to_the_bit(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.model.freeze, config.train.steps = "backbone", 3
    config.train.checkpoint_every, config.train.keep = 1, 3
    runs.train_run(config, tmp_path / "run", progress=False)
    early, late = (training.load_snapshot(tmp_path / "run", step).state for step in (1, 3))

    def backbone(state):
        return state["params"]["backbone"], state["model_state"]["batch_stats"]["backbone"]

    jax.tree.map(np.testing.assert_array_equal, backbone(early), backbone(late))
    np.testing.assert_array_equal(backbone(late)[1]["BatchNorm_0"]["mean"], 0)  # as it began
    heads = [state["params"]["closed_head"]["kernel"] for state in (early, late)]
    assert (heads[0] != heads[1]).any()


def test_a_part_that_the_backbone_has_not_is_named(small_config, tmp_path):
    config = small_config.copy_and_resolve_references()
    config.model.freeze = "stage9"
    with pytest.raises(ValueError, match="model.freeze: got 'stage9'"):
        runs.train_run(config, tmp_path / "run", progress=False)
