"""The two heads on any backbone, and backbones named by a configuration."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from jaxatr import config, models


class Mean(nn.Module):
    """A user-defined backbone: the mean over pixels and a dense layer."""

    features: int = 3

    @nn.compact
    def __call__(self, images, train=False):
        return nn.Dense(self.features)(images.mean((1, 2)))


class Map(nn.Module):
    """A wrong backbone, which returns a feature map."""

    @nn.compact
    def __call__(self, images, train=False):
        return images


def not_a_module(**_):
    return object()


def model_config(**fields):
    model = config.common().model
    for name, value in fields.items():
        model[name] = ConfigDict(value) if isinstance(value, dict) else value
    return model


def test_heads_are_linear_in_the_features():
    model = models.OpenSetClassifier(Mean(), num_classes=4)
    x = jax.random.normal(jax.random.key(0), (5, 8, 8, 2))
    variables = model.init(jax.random.key(1), x)
    out = model.apply(variables, x)
    assert out.logits.shape == out.open_logits.shape == (5, 4) and out.features.shape == (5, 3)
    for name, logits in (("closed_head", out.logits), ("open_head", out.open_logits)):
        head = variables["params"][name]
        np.testing.assert_allclose(logits, out.features @ head["kernel"] + head["bias"], atol=1e-6)
    assert np.abs(out.logits - out.open_logits).max() > 1e-3


def test_heads_without_bias():
    model = models.OpenSetClassifier(Mean(), num_classes=4, head_bias=False)
    params = model.init(jax.random.key(1), jnp.zeros((1, 8, 8, 2)))["params"]
    assert set(params["closed_head"]) == set(params["open_head"]) == {"kernel"}


def test_a_backbone_that_returns_a_map_is_refused():
    model = models.OpenSetClassifier(Map(), num_classes=4)
    with pytest.raises(ValueError, match=r"backbone Map: got features of shape \(1, 8, 8, 2\)"):
        model.init(jax.random.key(0), jnp.zeros((1, 8, 8, 2)))


def test_build_names_a_built_in_backbone():
    model = models.build_open_set(
        model_config(backbone="resnet34", stem="3x3", dtype="bfloat16", width=8), 5
    )
    assert model.num_classes == 5
    backbone = model.backbone
    assert isinstance(backbone, models.ResNet)
    assert (backbone.stage_sizes, backbone.stem, backbone.width) == ((3, 4, 6, 3), "3x3", 8)
    assert backbone.dtype == jnp.bfloat16


def test_build_takes_a_users_module_by_its_path(monkeypatch):
    monkeypatch.syspath_prepend(__file__.rsplit("/", 1)[0])
    model = models.build_open_set(
        model_config(backbone="test_open_set:Mean", args={"features": 7}), 5
    )
    assert type(model.backbone).__name__ == "Mean" and model.backbone.features == 7


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"backbone": "resnet81"}, "model.backbone: got 'resnet81'.*did you mean 'resnet18'"),
        ({"dtype": "float16"}, "model.dtype: got 'float16'"),
        ({"backbone": "flax.linen:Dens"}, "did you mean 'Dense'"),
        ({"backbone": "test_open_set:not_a_module"}, "is not a subclass of flax.linen.Module"),
        (
            {"backbone": "test_open_set:Mean", "args": {"feature": 7}},
            "model.args: got an unexpected keyword argument 'feature', of .* test_open_set:Mean",
        ),
        ({"args": {"features": 7}}, "model.args: got an .* 'features', of the backbone resnet18"),
    ],
)
def test_build_names_the_wrong_field(fields, message, monkeypatch):
    monkeypatch.syspath_prepend(__file__.rsplit("/", 1)[0])
    with pytest.raises(ValueError, match=message):
        models.build_open_set(model_config(**fields), 5)
