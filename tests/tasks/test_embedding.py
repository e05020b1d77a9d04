"""The task of an embedding: losses, selection, baselines and evaluation."""

import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import data, metrics, mining, parallel, runs, training
from jaxatr.tasks import Embedding
from jaxatr.tasks.embedding.in_batch import IN_BATCH

SLOW = pytest.mark.slow


def variables_of(task, seed=0):
    params, state = jax.jit(task.init)(jax.random.key(seed))
    return params, state


def first_batch(task, step=0):
    params, state = variables_of(task)
    selected = task.hook.run(step, params, state, False)
    return next(task.hook.batches(task.phases[0], selected)), selected


def shares(task, batch, devices):
    """Computes the share of the loss of each device."""
    params, state = variables_of(task)
    loss = partial(task.phases[0].loss, params, state)
    mapped = jax.vmap(loss, (0, None, None), axis_name=parallel.AXIS)
    return jax.jit(mapped)(parallel.shard(batch, devices), jax.random.key(1), jnp.int32(0))


def by_hand(out, fine, coarse, fields, weights):
    """Computes equation 6 in NumPy, for valid quadruplets."""
    reference, positive, sibling, negative = (
        np.float64(out.embeddings[place::4]) for place in range(4)
    )

    def distances(other):
        return np.sqrt(np.sum((reference - other) ** 2, axis=1))

    near, middle, far = distances(positive), distances(sibling), distances(negative)
    m1, m2 = fields.margins
    joint = np.maximum(0, 1 - middle / (near + m1 - m2)) + np.maximum(0, 1 - far / (middle + m2))

    def cross_entropy(logits, labels):
        logits = np.float64(logits[::4])
        total = np.log(np.sum(np.exp(logits), axis=1))
        return total - logits[np.arange(len(labels)), labels]

    classes = weights[0] * cross_entropy(out.coarse_logits, coarse)
    classes += weights[1] * cross_entropy(out.fine_logits, fine)
    t1, t2 = fields.global_margins
    spread = near.var() + middle.var() + far.var()
    order = max(0, near.mean() - middle.mean() + t1 - t2)
    order += max(0, middle.mean() - far.mean() + t2)
    return joint.sum() + classes.sum() + fields.eta * (spread + order)


def test_the_loss_is_equation_6(embedding_config):
    embedding_config.augment.shift = 0
    embedding_config.quadruplet.eta = 0.5
    task = Embedding(embedding_config)
    batch, _ = first_batch(task)
    assert batch["valid"].all() and batch["image"].shape == (4, 4, 24, 24, 1)
    params, state = variables_of(task)
    images = task.examples.normalize(batch["image"].reshape(16, 24, 24, 1))
    apply = jax.jit(partial(task.module.apply, train=True, mutable=["batch_stats"]))
    out, _ = apply({"params": params, **state}, images)
    fine = batch["label"][:, 0]
    round_ones = np.isin(np.array(task.split.known)[fine], ("disc", "ring"))
    coarse = np.where(round_ones, 0, 1)  # 'round' comes before 'straight'
    fields = embedding_config.quadruplet
    expected = by_hand(out, fine, coarse, fields, embedding_config.embedding.class_weights)
    result = shares(task, batch, 1)
    np.testing.assert_allclose(result.total[0], expected, rtol=1e-5)
    assert float(result.count[0]) == 1


@pytest.mark.slow  # to compile, twice each
@pytest.mark.parametrize("loss", IN_BATCH)
def test_devices_share_one_gradient(embedding_config, loss):
    embedding_config.model.backbone = "jaxatr_test_networks:Plain"
    embedding_config.embedding.loss = loss
    task = Embedding(embedding_config)
    batch = next(task.batches(task.phases[0]))
    params, state = variables_of(task)

    def device(part):
        def share(params):
            return task.phases[0].loss(params, state, part, jax.random.key(1), jnp.int32(0)).total

        return jax.lax.psum(jax.grad(share)(params), parallel.AXIS)

    mapped = jax.jit(jax.vmap(device, axis_name=parallel.AXIS))
    one, four = (mapped(parallel.shard(batch, devices)) for devices in (1, 4))
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(one)) > 1e-3
    for ours, theirs in zip(jax.tree.leaves(four), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["quadruplet", *IN_BATCH])
def test_devices_share_one_loss(embedding_config, loss):
    embedding_config.model.backbone = "jaxatr_test_networks:Plain"
    embedding_config.embedding.loss = loss
    task = Embedding(embedding_config)
    if loss == "quadruplet":
        batch, _ = first_batch(task)
    else:
        batch = next(task.batches(task.phases[0]))
    one, four = shares(task, batch, 1), shares(task, batch, 4)
    assert float(one.total[0]) > 0
    np.testing.assert_allclose(four.total.sum(), one.total[0], rtol=1e-5)
    np.testing.assert_allclose(four.count.sum(), 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        "nearest_to_negative",
        *(pytest.param(name, marks=SLOW) for name in ("nearest_to_reference", "random")),
    ],
)
def test_the_selection_is_that_of_the_training_embeddings(embedding_config, method):
    embedding_config.mining.method = method
    task = Embedding(embedding_config)
    params, state = variables_of(task)
    found = task.select(7, params, state)
    embeddings = task.embed({"params": params, **state}, "train")
    labels = task.parts["train"].labels
    coarse = np.isin(np.array(task.split.known)[labels], ("cross", "square")).astype(np.int32)
    key = jax.random.fold_in(jax.random.key(embedding_config.seed), 7)
    expected = mining.quadruplets(
        embeddings, labels, coarse, np.arange(len(labels)), method=method, key=key
    )
    np.testing.assert_array_equal(found["members"], np.stack(expected[:4], axis=1))
    np.testing.assert_array_equal(found["valid"], expected.valid)
    assert found["selected"] == 7 and found["valid"].all()
    reference, positive, sibling, negative = found["members"].T
    assert (labels[reference] == labels[positive]).all() and (reference != positive).all()
    assert (labels[reference] != labels[sibling]).all()
    assert (coarse[reference] == coarse[sibling]).all()
    assert (coarse[reference] != coarse[negative]).all()


@pytest.mark.slow
def test_a_run_learns_and_is_measured(embedding_run):
    task = Embedding(training.load_config(embedding_run))
    before = task.evaluate(*variables_of(task))["map_at_r"]
    measured = training.load_evaluation(embedding_run)
    assert measured["task"] == "embedding"
    (record,) = [r for r in training.read_metrics(embedding_run) if r["phase"] == "evaluate"]
    assert record["recall_at_1"] > 0.8 and record["map_at_r"] > before
    ages = [
        r["selection_age"] for r in training.read_metrics(embedding_run) if "selection_age" in r
    ]
    assert ages and all(0 <= age < 4 for age in ages)
    trained = measured["retrieval"]["trained"]
    assert trained["examples"] == 30 and trained["classes"] == 3 and trained["recall_at_1"] > 0.8
    assert set(measured["retrieval"]) == {"new", "trained"}
    everything = measured["groups"]["all"]
    assert everything["num_known"] == 30 and everything["closed_accuracy"] > 0.8
    assert set(everything["scores"]) == {"nearest"}

    index, saved = np.load(embedding_run / training.INDEX), np.load(embedding_run / training.SCORES)
    assert not any(name.startswith("index_") for name in saved)
    assert index["index_embeddings"].shape == (54, 8) and int(index["index_step"]) == 60
    variables = training.variables_of(training.load_snapshot(embedding_run, "latest"))
    embedded = task.embed(variables, "test")
    distances = np.linalg.norm(
        np.float64(embedded)[:, None] - np.float64(index["index_embeddings"]), axis=-1
    )
    np.testing.assert_allclose(saved["test_score_nearest"], -distances.min(axis=1), atol=1e-5)
    known = saved["test_labels"] >= 0
    figure = metrics.auroc(-distances.min(axis=1)[known], -distances.min(axis=1)[~known])
    np.testing.assert_allclose(everything["scores"]["nearest"]["auroc"], figure, atol=1e-6)
    recall = metrics.recall_at_k(embedded[known], saved["test_labels"][known], (1,))[1]
    assert recall == trained["recall_at_1"]
    assert saved["sheet_row"].shape[0] == saved["sheet_neighbour"].shape[0] > 0
    shown = np.load(embedding_run / training.THUMBNAILS)
    wanted = saved["test_id"][np.r_[saved["map_row"], saved["sheet_neighbour"].ravel()]]
    assert set(wanted) <= set(shown["id"])


def cut_off(task, last):
    """Makes the selection of the task fail at a step."""
    run = task.hook.run

    def wrapped(step, *arguments):
        if step == last:
            raise KeyboardInterrupt
        return run(step, *arguments)

    task.hook = task.hook._replace(run=wrapped)
    return task


@pytest.mark.slow
def test_interrupted_between_selections_and_resumed_it_ends_with_the_same_bits(
    embedding_config, tmp_path
):
    def train(name, task):
        options = {"config": embedding_config, "checkpoint_every": 5, "progress": False}
        return training.train(task, workdir=tmp_path / name, **options)

    whole = train("whole", Embedding(embedding_config))
    with pytest.raises(KeyboardInterrupt):
        train("cut", cut_off(Embedding(embedding_config), 8))
    snapshot = training.load_snapshot(tmp_path / "cut", "latest")
    assert snapshot.step == 5 and snapshot.hook["selected"] == 4
    resumed = train("cut", Embedding(embedding_config))
    jax.tree.map(np.testing.assert_array_equal, resumed.params, whole.params)


@pytest.mark.slow
@pytest.mark.parametrize("loss", IN_BATCH)
def test_the_baselines_train(embedding_config, tmp_path, loss):
    embedding_config.embedding.loss = loss
    embedding_config.embedding.class_weights = (0.0, 0.0)
    embedding_config.train.steps = 3
    runs.train_run(embedding_config, tmp_path, progress=False)
    record = training.read_metrics(tmp_path)[0]
    assert record["loss"] == pytest.approx(record[loss]) and record["loss"] > 0


@pytest.mark.slow  # tests/losses/test_own_loss.py gives one to a loss of its own
def test_a_margin_reaches_the_loss(embedding_config):
    embedding_config.embedding.loss = "lifted_structure"
    embedding_config.embedding.class_weights = (0.0, 0.0)

    def value():
        task = Embedding(embedding_config)
        return float(shares(task, next(task.batches(task.phases[0])), 1).total[0])

    default = value()
    embedding_config.embedding.margin = 1.0
    assert value() == default
    embedding_config.embedding.margin = 3.0
    assert value() > default


@pytest.mark.slow  # likewise
def test_held_out_classes_measure_new_classes(embedding_config):
    embedding_config.embedding.loss = "semi_hard_triplet"
    embedding_config.open_set.split = "random-3/1"
    embedding_config.open_set.hold_out = 1
    task = Embedding(embedding_config)
    assert len(task.split.known) == 2 and len(task.parts["held_out"].indices) == 24
    result = task.evaluate(*variables_of(task))
    assert result["recall_at_1"] == 1  # one class alone: every neighbour is of it


def test_one_validation_image_of_each_class_can_be_searched_for(embedding_config):
    embedding_config.data.validation = 0.05  # of 24 images
    task = Embedding(embedding_config)
    assert len(task.parts["validation"].indices) == 4
    assert task.evaluate(*variables_of(task)) == {"recall_at_1": 0.0}


@pytest.mark.slow  # likewise
def test_splits_in_one_train_on_some_classes_and_test_on_the_others(embedding_config):
    embedding_config.data.train_split = embedding_config.data.test_split = "train+test"
    embedding_config.data.validation = 0.0
    embedding_config.open_set.split = "random-3/1"
    task = Embedding(embedding_config)
    assert len(task.parts["train"].indices) == 3 * 34
    assert len(task.parts["test"].indices) == 34 and (task.parts["test"].labels < 0).all()
    assert task.parts["train"].split is task.parts["test"].split
    measured, _ = task.test(runs_variables(task))
    assert set(measured["retrieval"]) == {"new"}
    assert "auroc" not in measured["groups"]["all"]["scores"]["nearest"]


def runs_variables(task):
    params, state = variables_of(task)
    return {"params": params, **state}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("embedding.loss", "quadruple", "embedding.loss: got 'quadruple', wanted one of quadruple"),
        ("embedding.margin", 0.5, "embedding.margin: got 0.5; not used by quadruplet"),
        ("embedding.dimension", -1, "embedding.dimension: got -1"),
        ("train.batch_size", 18, "train.batch_size: got 18, wanted a multiple of 4"),
        ("train.keep", 0, "train.keep: got 0, wanted at least 1"),
        ("mining.refresh", 0.0, "mining.refresh: got 0.0, wanted more than 0 epochs"),
        ("quadruplet.margins", (0.7,), r"quadruplet.margins: got \(0.7,\), wanted two numbers"),
        ("embedding.class_weights", (1, 1, 1), "embedding.class_weights: got .*, wanted two numb"),
        ("data.coarse", "mstar", "hierarchy 'mstar' has no coarse class for 4 of 4 classes"),
    ],
)
def test_wrong_fields_are_refused(embedding_config, field, value, message):
    group, name = field.split(".")
    embedding_config.mining.refresh_steps = 0
    embedding_config[group][name] = value
    with pytest.raises(ValueError, match=message):
        Embedding(embedding_config)


def test_a_quadruplet_needs_siblings_and_two_coarse_classes(embedding_config):
    embedding_config.open_set.split = "first-2"  # cross and disc: neither has a sibling
    task = Embedding(embedding_config)
    with pytest.raises(ValueError, match="no training example has a quadruplet"):
        task.select(0, *variables_of(task))
    names = ("cross", "disc", "ring", "square")
    alike = ({"cross", "square"}, {"disc", "ring"})
    draws = (data.known_unknown("random-2/1", names, seed=seed) for seed in range(50))
    chosen = next(draw for draw in draws if set(draw.known) in alike)
    embedding_config.open_set.split = "random-2/1"
    embedding_config.open_set.split_seed = chosen.seed
    with pytest.raises(ValueError, match="all belong to one coarse class"):
        Embedding(embedding_config)


def test_an_embedding_has_one_score(embedding_config):
    task = Embedding(embedding_config)
    with pytest.raises(ValueError, match="scores: got 'cbc', wanted 'nearest'"):
        task.test(runs_variables(task), scores="cbc")


COMMAND = [sys.executable, "-m", "jaxatr.train", "--noprogress"]


def command(levels, data_dir, workdir, backbone="Small"):
    """Returns the command that trains the small embedding: 24 steps, a selection every 5."""
    overrides = {
        "data.source": levels,
        "data.data_dir": data_dir,
        "model.backbone": f"jaxatr_test_networks:{backbone}",
        "embedding.dimension": 8,
        "train.batch_size": 32,
        "train.steps": 24,
        "train.checkpoint_every": 4,
        "mining.refresh_steps": 5,
        "open_set.split": "closed",
    }
    flags = [f"--config.{name}={value}" for name, value in overrides.items()]
    return [*COMMAND, "--config=configs/quadruplet.py:folder", f"--workdir={workdir}", *flags]


@pytest.fixture
def environment(networks_of_the_tests):
    path = os.pathsep.join([str(networks_of_the_tests), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path}


def final(workdir):
    return training.load_snapshot(workdir, "latest").state["params"]


@pytest.mark.slow
def test_one_and_eight_devices_agree(levels, environment, tmp_path):
    for name, flags in (("one", ""), ("eight", "--xla_force_host_platform_device_count=8")):
        subprocess.run(
            # Small has batch statistics of its own on every device.
            command(levels, tmp_path / "data", tmp_path / name, backbone="Plain"),
            check=True,
            env=environment | {"XLA_FLAGS": flags},
        )
    one, eight = ([r for r in training.read_metrics(tmp_path / n)] for n in ("one", "eight"))
    losses = [[r["loss"] for r in records if "loss" in r] for records in (one, eight)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)


@pytest.mark.slow
def test_killed_and_started_again_it_ends_with_the_same_bits(levels, environment, tmp_path):
    def start(name):
        return subprocess.Popen(
            command(levels, tmp_path / "data", tmp_path / name), env=environment
        )

    assert start("whole").wait() == 0
    kills, draw = 0, np.random.default_rng(0)
    for least in (4, 12):
        process = start("killed")
        folder = tmp_path / "killed" / "checkpoints"
        while process.poll() is None and not any(
            path.name.isdigit() and int(path.name) >= least for path in folder.glob("*")
        ):
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.2))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills
    assert start("killed").wait() == 0
    jax.tree.map(
        np.testing.assert_array_equal, final(tmp_path / "killed"), final(tmp_path / "whole")
    )


@pytest.mark.slow  # compiles for its own numbers of chips
def test_copies_of_a_chip_take_no_part_in_a_search(levels, embedding_config, tmp_path):
    copied = tmp_path / "levels"
    shutil.copytree(levels, copied)
    for name in ("disc", "ring"):
        for index in range(3):
            shutil.copy(
                copied / "test" / name / "000.png", copied / "test" / name / f"9{index}.png"
            )
    embedding_config.data.source = str(copied)
    task = Embedding(embedding_config)
    measured, arrays = task.test(runs_variables(task))
    trained = measured["retrieval"]["trained"]
    assert (trained["examples"], trained["duplicates"]) == (40, 6)
    fingerprints = task.examples.fingerprints("test")
    shown = np.unique(np.r_[arrays["sheet_row"], arrays["sheet_neighbour"].ravel()])
    assert len(set(fingerprints[shown])) == len(shown)
