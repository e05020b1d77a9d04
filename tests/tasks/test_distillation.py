"""The task of a surrogate: trained parameters, losses and evaluation."""

import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from tqdm import tqdm

from jaxatr import config as configuration
from jaxatr import losses, parallel, runs, training
from jaxatr.explain import Explainer, load_target, masking, measures
from jaxatr.explain.methods.occlusion import occlusion
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks import Distillation
from jaxatr.tasks.distillation.saliency_sections import explanation_table


def make_config(small_config, trained_run):
    config = configuration.retasked(small_config, "jaxatr.tasks.distillation:Distillation")
    config.distillation.target = str(trained_run)
    config.distillation.judged = 6
    config.model.backbone, config.model.width = "resnet18", 4
    config.model.stem = "3x3"
    config.model.args = ConfigDict({"stage_sizes": (1, 1, 1, 1)})  # half as much to compile
    config.surrogate.width = 4
    config.optimizer.learning_rate = 0.05
    config.train.steps, config.explanation.steps = 2, 2
    config.explanation.learning_rate = 0.05
    config.explanation.schedule = "constant"
    return config


@pytest.fixture
def config(small_config, trained_run):
    return make_config(small_config, trained_run)


@pytest.fixture(scope="module")
def surrogate_run(small_config, trained_run, tmp_path_factory):
    """The folder of a run of that configuration, trained and not yet evaluated."""
    workdir = tmp_path_factory.mktemp("surrogate") / "run"
    runs.train_run(make_config(small_config, trained_run), workdir, progress=False)
    return workdir


@pytest.fixture
def task(config):
    return Distillation(config)


def drawn_variables(task):
    """Random parameters and state of the right shapes, without compiling their initialisation."""
    params, state = jax.eval_shape(task.init, jax.random.key(0))
    draw = np.random.default_rng(0)

    def value(path, leaf):
        if path[-1].key == "kernel":
            return jnp.float32(draw.normal(size=leaf.shape) * np.prod(leaf.shape[:-1]) ** -0.5)
        return jnp.float32(draw.uniform(0.5, 1, leaf.shape))

    params, state = jax.tree_util.tree_map_with_path(value, (params, state))
    return {**params, "target": task.target.variables}, state


def shares(task, phase, batch, devices=1, step=0):
    params, state = drawn_variables(task)
    loss = jax.vmap(
        lambda part: phase.loss(params, state, part, jax.random.key(1), jnp.int32(step)),
        axis_name=parallel.AXIS,
    )
    return jax.jit(loss)(parallel.shard(batch, devices)), params, state


def apply(task, *arguments, **options):
    """Applies the surrogate in training mode under the axis name of a single device."""

    def run(_):
        return task.module.apply(*arguments, train=True, mutable=["batch_stats"], **options)[0]

    out = jax.jit(jax.vmap(run, axis_name=parallel.AXIS))(jnp.zeros(1))
    return jax.tree.map(lambda leaf: leaf[0], out)


def test_the_target_answers_as_its_run_does(task, trained_run):
    saved = np.load(trained_run / "scores.npz")
    test = task.parts["test"]
    images = np.stack([test.chip(test.split.image(i)) for i in test.indices]).astype(np.float32)
    logits = task.target.logits(task.target.variables, images)
    np.testing.assert_allclose(logits, saved["test_logits"], atol=1e-4)
    assert task.target.classes == task.split.known


@pytest.mark.slow
def test_phases_train_their_own_part_only(config, surrogate_run):
    task = Distillation(config)
    assert [(p.name, p.steps) for p in task.phases] == [("student", 2), ("explanation", 2)]
    start, _ = jax.device_get(jax.jit(task.init)(jax.random.split(jax.random.key(config.seed))[0]))
    state = training.load_snapshot(surrogate_run, "latest").state
    jax.tree.map(np.testing.assert_array_equal, state["params"]["target"], start["target"])
    for name in ("student", "explainer"):
        changed = jax.tree.map(
            lambda a, b: bool(np.any(a != b)), start[name], state["params"][name]
        )
        assert any(jax.tree.leaves(changed)), name
    assert set(state["opt_state"]) == {"student", "explanation"}
    for phase, wanted in zip(task.phases, ("student", "explainer"), strict=True):
        own = {name for name in ("student", "explainer", "target") if phase.trainable((name, "x"))}
        assert own == {wanted}


@pytest.mark.slow
def test_the_losses_are_equations_4_and_8(task, config):
    config.augment.shift = 0
    batch = next(task.batches(task.phases[0]))
    result, params, state = shares(task, task.phases[0], batch)
    images = jnp.asarray(batch["image"], jnp.float32)
    teacher = task.target.logits(params["target"], images)
    own = {name: params[name] for name in ("student", "explainer")}
    normal = (images - task.examples.mean) / task.examples.std
    student = apply(task, {"params": own, **state}, normal, method="classify")
    expected = losses.distillation(teacher, student.logits, batch["label"], alpha=0.5)
    np.testing.assert_allclose(result.total[0], expected.sum(), rtol=1e-4)

    result, params, state = shares(task, task.phases[1], batch)
    out = apply(task, {"params": own, **state}, normal)
    masked = task.target.logits(params["target"], images * out.saliency[..., None])
    expected = losses.explanation(teacher, masked)
    expected += config.distillation.l1_weight * losses.saliency_l1(out.saliency)
    np.testing.assert_allclose(result.total[0], expected.sum(), rtol=1e-4)


def gradient(task, phase, batch, devices):
    """Computes the mean loss over a batch and its gradient, on several devices."""
    params, state = jax.jit(task.init)(jax.random.key(0))
    own = {name: params[name] for name in ("student", "explainer")}

    def loss(own, part):
        result = phase.loss({**params, **own}, state, part, jax.random.key(1), jnp.int32(0))
        sums = jax.lax.psum((result.total, result.count), parallel.AXIS)
        return sums[0] / sums[1]

    def device(part):
        value, grads = jax.value_and_grad(loss)(own, part)
        return value, jax.lax.pmean(grads, parallel.AXIS)

    found = jax.jit(jax.vmap(device, axis_name=parallel.AXIS))(parallel.shard(batch, devices))
    return jax.tree.map(lambda leaf: leaf[0], found)


@pytest.mark.slow  # to compile, eight times
@pytest.mark.parametrize("kind", ["student", "explanation", "curves", "masks", "end to end"])
def test_one_and_eight_devices_agree(config, kind):
    config.distillation.end_to_end = kind == "end to end"
    config.distillation.objective = "curves" if kind in ("curves", "masks") else "mask"
    if kind == "masks":
        config.distillation.masks, config.surrogate.deltas = 2, "features"
    config.train.batch_size = 16
    task = Distillation(config)
    phase = next(p for p in task.phases[::-1] if p.name == kind or kind != "student")
    batch = next(task.batches(phase))
    (one, slopes), (eight, others) = (gradient(task, phase, batch, n) for n in (1, 8))
    np.testing.assert_allclose(eight, one, rtol=1e-4)
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(slopes))
    assert largest > 1e-4
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3 * largest),
        slopes,
        others,
    )


@pytest.mark.slow
def test_end_to_end_is_one_phase(config, tmp_path):
    config.distillation.end_to_end = True
    config.distillation.scorer = "student"
    runs.train_run(config, tmp_path, progress=False)
    task = runs.make_task(config, tmp_path)
    assert [phase.name for phase in task.phases] == ["surrogate"]
    record = training.read_metrics(tmp_path)[0]
    assert {"distillation", "explanation", "prior", "agreement", "mean_intensity"} <= set(record)
    parts = record["distillation"] + record["explanation"] + record["prior"]
    assert record["loss"] == pytest.approx(parts, rel=1e-4)


@pytest.mark.slow
def test_the_curves_loss_is_its_two_images_probabilities(config):
    config.augment.shift = 0
    config.distillation.objective = "curves"
    task = Distillation(config)
    batch = next(task.batches(task.phases[1]))
    result, params, state = shares(task, task.phases[1], batch, step=3)
    images = jnp.asarray(batch["image"], jnp.float32)
    own = {name: params[name] for name in ("student", "explainer")}
    normal = (images - task.examples.mean) / task.examples.std
    saliency = apply(task, {"params": own, **state}, normal).saliency
    key = jax.random.fold_in(jax.random.key(1), 3)  # another one at every step
    share = [jax.random.uniform(jax.random.fold_in(key, i)) for i in batch["id"].tolist()]
    taken = losses.top_share(saliency, jnp.stack(share))[..., None]
    blurred = measures.Blur()(np.asarray(images))
    logits = [
        task.target.logits(params["target"], x)
        for x in (images, taken * images + (1 - taken) * blurred, (1 - taken) * images)
    ]
    expected = losses.faithfulness(logits[1], logits[2], logits[0].argmax(-1))
    expected += config.distillation.l1_weight * losses.saliency_l1(saliency)
    np.testing.assert_allclose(result.total[0], expected.sum(), rtol=1e-3)


@pytest.mark.slow
def test_measurements_are_recorded(config, surrogate_run, trained_run, monkeypatch):
    (record,) = [r for r in training.read_metrics(surrogate_run) if r["phase"] == "evaluate"]
    assert record["fidelity"] == pytest.approx(record["insertion"] - record["deletion"])
    bars = []

    def bar(*arguments, **options):
        bars.append((options["desc"], options["disable"]))
        return tqdm(*arguments, **options)

    monkeypatch.setattr(masking, "tqdm", bar)
    measured = runs.evaluate_run(surrogate_run, methods="gradcam,occlusion", progress=True)
    assert bars == [("occlusion", None)]  # shown at a terminal
    found = measured["explanation"]
    assert found["examples"] == 6 and found["target_accuracy"] > 0.8
    assert list(found["methods"]) == ["surrogate", "grad_cam", "occlusion"]
    own = found["methods"]["surrogate"]
    assert 0 < own["mean_intensity"] < 1 and "share_inside" not in own
    saved = np.load(surrogate_run / "scores.npz")
    task = runs.make_task(config, surrogate_run)
    test = task.parts["test"]
    assert test.labels[saved["test_row"]].tolist() == [0, 0, 1, 1, 2, 2]  # all known classes
    images = test.chips(saved["test_row"]).astype(np.float32)
    predict = jax.tree_util.Partial(task.target.logits, task.target.variables)
    maps = occlusion(predict, images)
    again = measures.insertion(predict, images, maps, pixels_per_step=24)
    np.testing.assert_allclose(again.auc, saved["occlusion_insertion"], atol=1e-4)
    means = found["methods"]["occlusion"]
    np.testing.assert_allclose(means["insertion"], saved["occlusion_insertion"].mean())
    shown = np.concatenate([saved["sheet_worst"], saved["sheet_drawn"]])
    assert sorted(shown) == list(range(6))  # all of them, as there are few
    assert saved["sheet_worst"][0] == saved["surrogate_insertion"].argmin()
    np.testing.assert_allclose(saved["occlusion_map"], 255 * np.asarray(maps)[shown], atol=1)
    np.testing.assert_array_equal(predict(images).argmax(-1), saved["test_predicted"])
    lines = explanation_table(measured).splitlines()
    assert lines[2].startswith("target") and lines[7].startswith("surrogate")
    assert f"{own['insertion']:.3f}" in lines[7] and lines[8].startswith("Grad-CAM ")
    with pytest.raises(ValueError, match="a run of explanation by distillation cannot predict"):
        Recogniser.load(surrogate_run)
    assert measured["target"]["fingerprint"] == training.read_record(trained_run)["fingerprint"]


@pytest.mark.slow  # to train a surrogate
def test_methods_are_compared_on_validation_images(config, surrogate_run):
    (record,) = [r for r in training.read_metrics(surrogate_run) if r["phase"] == "evaluate"]
    task = runs.make_task(config, surrogate_run)
    variables = training.variables_of(training.load_snapshot(surrogate_run))
    found = task.compare(variables, "validation", "gradcam")
    assert list(found) == ["surrogate", "grad_cam"]
    for name in ("insertion", "deletion", "fidelity", "mean_intensity"):
        assert found["surrogate"][name] == pytest.approx(record[name], abs=1e-4)
    assert found["grad_cam"] != found["surrogate"]
    with pytest.raises(ValueError, match="part: got 'dev', wanted one of .*validation"):
        task.compare(variables, "dev", "gradcam")


@pytest.mark.slow
def test_a_target_may_move_but_be_no_other(config, surrogate_run, trained_run, tmp_path):
    run, moved = tmp_path / "run", tmp_path / "moved"
    shutil.copytree(surrogate_run, run)
    shutil.copytree(trained_run, moved)
    config.distillation.target = str(moved)
    runs.train_run(config, run, progress=False)  # it is trained: only where the target is changes
    assert training.load_config(run).distillation.target == str(moved)
    assert training.read_record(run)["target"]["workdir"] == str(moved)
    explained = training.read_record(run)["target"]
    training.update_record(run, target={**explained, "fingerprint": "another"})
    for use in (
        lambda: runs.train_run(config, run, progress=False),
        lambda: runs.evaluate_run(run),
        lambda: Explainer.load(run),
    ):
        with pytest.raises(ValueError, match=r"explains another network: recorded .*'another'"):
            use()
    shutil.rmtree(moved)
    with pytest.raises(ValueError, match=r"nothing at .*moved; .* --config.distillation.target="):
        runs.evaluate_run(run)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("target", "", "distillation.target: got nothing"),
        ("scorer", "teacher", "distillation.scorer: got 'teacher', wanted target or student"),
        ("objective", "area", "distillation.objective: got 'area', wanted mask or curves"),
        ("l1", "max", "distillation.l1: got 'max', wanted sum or mean"),
        ("l1_weight", -1.0, "distillation.l1_weight: got -1.0, wanted 0 or more"),
        ("insertion_weight", 20.0, "insertion_weight: got 20.0, which needs .*=curves"),
        ("masks", 4, "distillation.masks: got 4, which needs .*objective=curves"),
        ("masks_contrast", 0.0, "distillation.masks_contrast: got 0.0, wanted more than 0"),
        ("area", 2.0, "distillation.area: got 2.0, wanted a share"),
        ("area_weight", -1.0, "distillation.area_weight: got -1.0, wanted 0"),
        ("temperature", 0.0, "distillation.temperature: got 0.0, wanted more than 0"),
        ("alpha", 1.5, "distillation.alpha: got 1.5, wanted 0 to 1"),
    ],
)
def test_wrong_fields_are_refused(config, field, value, message):
    config.distillation[field] = value
    with pytest.raises(ValueError, match=message):
        Distillation(config)


def test_a_wrong_schedule_of_the_second_phase_is_named(config):
    config.explanation.schedule = "linear"
    with pytest.raises(ValueError, match="explanation.schedule: got 'linear', wanted constant or"):
        Distillation(config)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("insertion_weight", -1.0, "distillation.insertion_weight: got -1.0, wanted 0 or more"),
        ("masks", 1, r"distillation.masks: got 1, wanted 0 \(off\), or at least 2"),
    ],
)
def test_wrong_fields_of_the_curves_are_refused(config, field, value, message):
    config.distillation.objective = "curves"
    config.distillation[field] = value
    with pytest.raises(ValueError, match=message):
        Distillation(config)


def test_another_split_than_the_targets_is_refused(config):
    config.open_set.split = "closed"
    with pytest.raises(ValueError, match="distillation.target: the known classes of"):
        Distillation(config)


def test_a_target_with_a_class_of_negatives_is_refused(config, monkeypatch):
    target = Distillation(config).target
    target = target._replace(classes=(*target.classes, "unknown"))
    monkeypatch.setattr("jaxatr.tasks.distillation.task.load_target", lambda _: target)
    with pytest.raises(ValueError, match=r"a class of negatives \(open_set.negatives\)"):
        Distillation(config)


A_TARGET = """
import jax.numpy as jnp
import numpy as np
from jaxatr.tasks import Target

def logits(w, images):
    thirds = jnp.array_split(images / 255, 3, axis=1)
    return jnp.stack([part.mean((1, 2, 3)) for part in thirds], axis=-1) @ w

def target():
    return Target(logits, np.eye(3, dtype=np.float32), %r, {"from": "a test"})

def none():
    return "logits"
"""


@pytest.fixture
def module_with_a_target(config, tmp_path, monkeypatch):
    """The name of a module with a target that does not come from a run."""
    known = load_target(config.distillation.target).classes
    (tmp_path / "their_networks.py").write_text(A_TARGET % (known,))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_networks", raising=False)
    return "their_networks"


@pytest.mark.slow
def test_any_function_can_be_the_target(config, module_with_a_target):
    config.distillation.target = f"{module_with_a_target}:target"
    task = Distillation(config)
    assert task.target.classes == task.split.known and len(task.target.classes) == 3
    source = task.record["target"]
    assert source["workdir"] == "their_networks:target" and source["from"] == "a test"
    assert len(source["variables"]) == 64
    batch = next(task.batches(task.phases[0]))
    result, params, _ = shares(task, task.phases[0], batch)
    np.testing.assert_array_equal(params["target"], np.eye(3))
    assert np.isfinite(result.total[0])


def test_an_unsuitable_target_is_named(module_with_a_target):
    with pytest.raises(ValueError, match="none returned str, wanted a jaxatr.explain.Target"):
        load_target(f"{module_with_a_target}:none")
    with pytest.raises(ValueError, match="no 'targte' in .*did you mean 'target'"):
        load_target(f"{module_with_a_target}:targte")


def test_a_run_without_a_classifier_is_not_a_target(earlier):
    with pytest.raises(ValueError, match="wanted the run of a classifier"):
        load_target(earlier / "embedding")
