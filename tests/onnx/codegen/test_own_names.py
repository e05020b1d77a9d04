"""Source generated from this package's exports keeps the names of the original modules."""

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxatr import config as configuration
from jaxatr import models
from jaxatr.onnx import export, generate, load_weights
from jaxatr.onnx.codegen.bodies import shared


def exported(backbone, path, **fields):
    config = configuration.of_task()
    config.model.backbone, config.model.width = backbone, 4
    for name, value in fields.items():
        config.model[name] = value
    network = models.build_open_set(config.model, 3)
    images = np.random.default_rng(0).normal(size=(2, 16, 16, 1)).astype(np.float32)
    variables = jax.jit(network.init)(jax.random.key(0), images)
    return export(network, variables, images, path), network, variables, images


@pytest.fixture(scope="module")
def resnet18(tmp_path_factory):
    """The folder of an export and its source, and what was exported."""
    folder = tmp_path_factory.mktemp("resnet18")
    made = exported("resnet18", folder / "own.onnx")
    generate(folder / "own.onnx", folder / "source")
    return folder, *made


def test_paths_of_modules_become_names(resnet18):
    folder, model, *_ = resnet18
    check_names(model, folder)


@pytest.mark.slow
def test_paths_of_modules_of_another_block_become_names(tmp_path):
    model, *_ = exported("resnet50", tmp_path / "own.onnx")
    generate(tmp_path / "own.onnx", tmp_path / "source")
    check_names(model, tmp_path)


def check_names(model, folder):
    mine = {tensor.name for tensor in model.graph.initializer if "/" in tensor.name}
    theirs = load_file(folder / "source" / "weights.safetensors")

    def flat(names):
        return {(name.split("/")[0], "_".join(name.split("/")[1:])) for name in names}

    assert flat(theirs) == flat(mine) and len(theirs) == len(mine)
    text = (folder / "source" / "model.py").read_text()
    assert "class ResidualBlock" in text and "residual_block" not in text
    for name in ("conv1", "norm1", "shortcut_conv"):
        assert f'name="{name}"' in text
    assert 'name="backbone_stage2_block1"' in text and 'name="closed_head"' in text


@pytest.mark.slow
def test_it_computes_the_same(resnet18):
    folder, _, network, variables, images = resnet18
    space = {}
    exec((folder / "source" / "model.py").read_text(), space)
    weights = load_weights(folder / "source" / "weights.safetensors")
    found = jax.jit(space["Model"]().apply)(weights, images)
    wanted = jax.jit(network.apply)(variables, images)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_shared_beginnings():
    assert shared([("a", "b", "c"), ("a", "b", "d")]) == ("a", "b") and shared([]) == ()


@pytest.mark.parametrize("names", [("params/a", "params/a/b"), ("params/a/b", "params/a")])
def test_an_array_inside_of_an_array_is_refused(tmp_path, names):
    path = tmp_path / "weights.safetensors"
    save_file({name: np.zeros(1, np.float32) for name in names}, path)
    with pytest.raises(ValueError, match="params/a"):
        load_weights(path)
