"""The adversarial task: alternating phases, learning, and generated images."""

import jax
import numpy as np
import pytest
from PIL import Image

from jaxatr import config as configuration
from jaxatr import runs, training
from jaxatr.tasks.gan.task import ConditionalGan, mixtures

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shades(tmp_path_factory):
    """Three classes of gray images: dark, middle and bright, with a little noise."""
    root, draw = tmp_path_factory.mktemp("shades"), np.random.default_rng(0)
    for split in ("train", "test"):
        for name, value in (("a", 40), ("b", 120), ("c", 215)):
            (root / split / name).mkdir(parents=True)
            for index in range(16):
                noise = draw.normal(value, 8, (16, 16)).clip(0, 255)
                Image.fromarray(np.uint8(noise)).save(root / split / name / f"{index}.png")
    return root


@pytest.fixture
def config(shades, tmp_path):
    config = configuration.of_task("jaxatr.tasks.gan:ConditionalGan")
    config.data.name, config.data.source = "image_folder", str(shades)
    config.data.data_dir, config.data.validation = str(tmp_path / "data"), 0.0
    config.open_set.split = "random-2/1"
    config.train.batch_size, config.train.evaluate_every = 16, 1e9
    config.gan.width, config.gan.noise, config.gan.steps = 8, 4, 2
    return config


def trained(config, workdir):
    runs.train_run(config, workdir, progress=False)
    return training.load_snapshot(workdir, "latest").state


def test_a_phase_trains_its_own_network_only(config, tmp_path):
    task = ConditionalGan(config)
    assert [(phase.name, phase.steps) for phase in task.phases] == [
        ("discriminator", 1),
        ("generator", 1),
    ]
    start = jax.device_get(jax.jit(task.init)(jax.random.key(config.seed)))[0]
    first = trained(config, tmp_path / "run")
    for name in ("generator", "discriminator"):
        changed = jax.tree.map(
            lambda a, b: bool((a != b).any()), start[name], first["params"][name]
        )
        assert any(jax.tree.leaves(changed))
    turns = [record["phase"] for record in training.read_metrics(tmp_path / "run")]
    assert turns.count("discriminator") and turns.count("generator")
    for phase in task.phases:
        mine = {path for path in ("generator", "discriminator") if phase.trainable((path, "x"))}
        assert mine == {phase.name}


@pytest.mark.slow
def test_each_class_gets_its_own_brightness(config, tmp_path):
    config.gan.steps, config.gan.learning_rate = 300, 1e-3
    state = trained(config, tmp_path / "run")
    task = ConditionalGan(config)
    split, parts = task.examples.split, task.examples.parts["train"]
    for label, name in enumerate(split.known):
        real = [parts.split.image(i).mean() for i in parts.indices[parts.labels == label]]
        images = task.generate(state["model_state"], np.tile(np.eye(2)[label], (20, 1)), 0)
        assert images.shape == (20, 16, 16, 1) and images.dtype == np.uint8
        assert abs(images.mean() - np.mean(real)) < 30, name
    halfway = task.generate(state["model_state"], np.full((20, 2), 0.5), 0)
    assert not np.array_equal(halfway, images)


def test_images_do_not_depend_on_how_many_are_drawn(config, tmp_path):
    state = trained(config, tmp_path / "run")["model_state"]
    task, weights = ConditionalGan(config), mixtures(70, 2, 3)
    many = task.generate(state, weights, 5)
    np.testing.assert_array_equal(many[:7], task.generate(state, weights[:7], 5))
    assert not np.array_equal(many[:7], task.generate(state, weights[:7], 6))


def test_mixtures_weigh_every_class():
    weights = mixtures(2000, 4, 0)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    np.testing.assert_allclose(weights.mean(axis=0), 0.25, atol=0.02)
    assert weights.min() >= 0 and (weights.max(axis=1) > 0.95).mean() < 0.02


def test_sixteen_bits_and_floats_keep_their_range(config, tmp_path):
    for split in ("train", "test"):
        for place, name in enumerate("abc"):
            folder = tmp_path / "deep" / split / name
            folder.mkdir(parents=True)
            for index in range(6):
                values = np.linspace(1000 + 500 * place, 9000, 256).reshape(16, 16)
                Image.fromarray(values.astype(np.uint16)).save(folder / f"{index}.png")
    config.data.source, config.train.batch_size = str(tmp_path / "deep"), 4
    task = ConditionalGan(config)
    lowest = 1000 + 500 * min("abc".index(name) for name in task.examples.split.known)
    assert task.range == (lowest, 9000)
    unit = np.asarray(task.to_unit(np.array([lowest, 9000])))
    np.testing.assert_allclose(unit, [-1, 1])
    images = task.generate(trained(config, tmp_path / "run")["model_state"], mixtures(5, 2, 0), 0)
    assert images.dtype == np.uint16 and lowest <= images.min() and images.max() <= 9000


def test_chips_of_no_square_are_refused(config, tmp_path):
    for split in ("train", "test"):
        for name in "ab":
            (tmp_path / "wide" / split / name).mkdir(parents=True)
            for index in range(3):
                image = Image.new("L", (20, 16), index)
                image.save(tmp_path / "wide" / split / name / f"{index}.png")
    config.data.source, config.open_set.split = str(tmp_path / "wide"), "closed"
    with pytest.raises(ValueError, match="got chips of 16x20, wanted square ones: set data.size"):
        ConditionalGan(config)
    config.data.size = 24
    with pytest.raises(ValueError, match="size: got 24, wanted a power of two"):
        runs.train_run(config, tmp_path / "run", progress=False)


def test_no_steps_are_refused(config):
    config.gan.steps = 0
    with pytest.raises(ValueError, match="gan.steps: got 0"):
        ConditionalGan(config)
