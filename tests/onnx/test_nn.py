"""Layers agree with torch's; helpers of generated modules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

from jaxatr.onnx import nn

torch = pytest.importorskip("torch")


def image(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def applied(layer, x, *more, **options):
    variables = jax.jit(layer.init)(jax.random.key(0), x, *more)
    return variables, jax.jit(layer.apply)(variables, x, *more, **options)


def tensor(value):
    return torch.from_numpy(np.array(value))


def test_conv_is_torch_s():
    x = image(2, 4, 9, 8)
    layer = nn.Conv(6, (3, 2), strides=(2, 1), dilations=(1, 2), pads=(1, 0, 1, 0), group=2)
    variables, y = applied(layer, x)
    held = {name: tensor(value) for name, value in variables["params"].items()}
    wanted = torch.nn.functional.conv2d(
        tensor(x), held["kernel"], held["bias"], (2, 1), (1, 0), (1, 2), 2
    )
    np.testing.assert_allclose(y, wanted.numpy(), rtol=1e-5, atol=1e-5)


def test_conv_transpose_is_torch_s():
    x = image(2, 4, 5)
    layer = nn.ConvTranspose(6, (3,), strides=(2,), pads=(1, 1), group=2, use_bias=False)
    variables, y = applied(layer, x)
    kernel = tensor(variables["params"]["kernel"])
    wanted = torch.nn.functional.conv_transpose1d(tensor(x), kernel, None, 2, 1, 0, 2)
    np.testing.assert_allclose(y, wanted.numpy(), rtol=1e-5, atol=1e-5)


def test_batch_norm_is_torch_s():
    x = image(4, 3, 5) * 3 + 1
    layer = nn.BatchNorm(epsilon=1e-3, momentum=0.8)
    variables = jax.jit(layer.init)(jax.random.key(0), x)
    peer = torch.nn.BatchNorm1d(3, eps=1e-3, momentum=0.2)
    train = jax.jit(lambda v, x: layer.apply(v, x, True, mutable=["batch_stats"]))
    y, changed = train(variables, x)
    wanted = peer(tensor(x)).detach().numpy()
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
    mean, var = peer.running_mean, peer.running_var
    np.testing.assert_allclose(changed["batch_stats"]["mean"], mean, rtol=1e-5)
    unbiased = (np.array(changed["batch_stats"]["var"]) - 0.8) * 20 / 19 + 0.8  # as torch counts
    np.testing.assert_allclose(unbiased, var, rtol=1e-5)


def test_statistics_are_those_of_the_data_only_in_training():
    x = image(4, 3, 5)
    variables, y = applied(nn.BatchNorm(), x)
    np.testing.assert_allclose(y, x / np.sqrt(1 + 1e-5), rtol=1e-5)
    assert jax.tree.all(
        jax.tree.map(
            jnp.array_equal, variables["batch_stats"], {"mean": jnp.zeros(3), "var": jnp.ones(3)}
        )
    )


@pytest.mark.parametrize(
    "layer, peer",
    [
        (nn.Dense(5, transB=1), lambda x, p: x @ p["kernel"].T + p["bias"]),
        (nn.Dense(5, alpha=2.0, use_bias=False), lambda x, p: 2 * (x @ p["kernel"])),
        (nn.Linear(5), lambda x, p: x @ p["kernel"] + p["bias"]),
        (nn.LayerNorm(), lambda x, p: (x - x.mean(-1, keepdims=True))
         / np.sqrt(x.var(-1, keepdims=True) + 1e-5)),
        (nn.RMSNorm(), lambda x, p: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)),
    ],
)  # fmt: skip
def test_a_layer_of_vectors(layer, peer):
    x = image(4, 3)
    variables, y = applied(layer, x)
    params = {name: np.asarray(value) for name, value in variables.get("params", {}).items()}
    np.testing.assert_allclose(y, peer(x, params), rtol=1e-5, atol=1e-5)


def test_embed_gives_rows():
    variables, y = applied(nn.Embed(7, 3), np.array([[1, 6], [0, 1]]))
    assert np.array_equal(y[0, 1], variables["params"]["embedding"][6]) and y.shape == (2, 2, 3)


@pytest.mark.parametrize(
    "layer, groups", [(nn.InstanceNorm(), 4), (nn.GroupNorm(2), 2), (nn.GroupNorm(4), 4)]
)
def test_groups_of_channels_are_torch_s(layer, groups):
    x = image(2, 4, 5, 3)
    _, y = applied(layer, x)
    wanted = torch.nn.functional.group_norm(tensor(x), groups).numpy()
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind, gates", [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_recurrent_layer_has_its_weights(kind, gates):
    layer = getattr(nn, kind)(5, direction="bidirectional", outputs=2)
    variables, (y, last) = applied(layer, image(6, 2, 3))
    shapes = {name: value.shape for name, value in variables["params"].items()}
    assert shapes == {"w": (2, 5 * gates, 3), "r": (2, 5 * gates, 5), "b": (2, 10 * gates)}
    assert y.shape == (6, 2, 2, 5) and last.shape == (2, 2, 5)
    np.testing.assert_allclose(y[-1, 0], last[0])
    np.testing.assert_allclose(y[0, 1], last[1])


def test_dropout_keeps_the_mean():
    layer, x = nn.Dropout(0.25), np.ones((100, 100), np.float32)
    assert np.array_equal(layer.apply({}, x), x)
    y = np.asarray(layer.apply({}, x, True, rngs={"dropout": jax.random.key(0)}))
    assert 0.23 < (y == 0).mean() < 0.27 and y.mean() == pytest.approx(1, abs=0.03)
    assert np.array_equal(layer.apply({}, x, True), x)


def test_entry_fits_the_inputs_and_keeps_64_bits():
    class Model(linen.Module):
        @nn.entry(x=("float32", ("n", 2)), ids=("int64", None))
        @linen.compact
        def __call__(self, x, ids):
            return x, ids + 2**40

    x, ids = Model().apply({}, np.ones((3, 2)), np.array([1, 2]))
    assert x.dtype == jnp.float32 and ids.dtype == jnp.int64
    assert ids.tolist() == [2**40 + 1, 2**40 + 2]
    with pytest.raises(ValueError, match="input 'x': got shape"):
        Model().apply({}, np.ones((3, 3)), np.array([1]))


def test_an_operator_that_nobody_registered():
    with pytest.raises(ValueError, match="nothing is registered for 'Odd'"):
        nn.operator("Odd", "some.domain", 3)
