"""Source generated from this package's exports keeps the names of the original modules."""

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

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
    variables = network.init(jax.random.key(0), images)
    return export(network, variables, images, path), network, variables, images


@pytest.mark.parametrize("backbone", ["resnet18", pytest.param("resnet50", marks=pytest.mark.slow)])
def test_paths_of_modules_become_names(backbone, tmp_path):
    model, *_ = exported(backbone, tmp_path / "own.onnx")
    generate(tmp_path / "own.onnx", tmp_path / "source")
    mine = {tensor.name for tensor in model.graph.initializer if "/" in tensor.name}
    theirs = load_file(tmp_path / "source" / "weights.safetensors")

    def flat(names):
        return {(name.split("/")[0], "_".join(name.split("/")[1:])) for name in names}

    assert flat(theirs) == flat(mine) and len(theirs) == len(mine)
    text = (tmp_path / "source" / "model.py").read_text()
    assert "class ResidualBlock" in text and "residual_block" not in text
    for name in ("conv1", "norm1", "shortcut_conv"):
        assert f'name="{name}"' in text
    assert 'name="backbone_stage2_block1"' in text and 'name="closed_head"' in text


def test_it_computes_the_same(tmp_path, monkeypatch):
    _, network, variables, images = exported("resnet18", tmp_path / "own.onnx")
    generate(tmp_path / "own.onnx", tmp_path / "source")
    space = {}
    exec((tmp_path / "source" / "model.py").read_text(), space)
    found = space["Model"]().apply(load_weights(tmp_path / "source/weights.safetensors"), images)
    wanted = network.apply(variables, images, train=False)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_shared_beginnings():
    assert shared([("a", "b", "c"), ("a", "b", "d")]) == ("a", "b") and shared([]) == ()
