"""The classifier of tracks: lengths, order, gradients, and the LSTM against flax's."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import kernels, models
from jaxatr.models.track import LSTM


class Small(nn.Module):
    """A convolution and its mean."""

    @nn.compact
    def __call__(self, images, train=False):
        del train
        return nn.silu(nn.Conv(6, (3, 3), name="conv")(images)).mean((1, 2))


class Normed(nn.Module):
    @nn.compact
    def __call__(self, images, train=False):
        x = nn.BatchNorm(use_running_average=not train)(images)
        return x.reshape(len(images), -1)


TRACKS = np.float32(np.random.default_rng(0).normal(size=(3, 5, 6, 6, 1)))
LENGTHS = np.array([5, 2, 3])


@pytest.fixture(scope="module")
def network():
    """The apply of one, compiled once for each shape, and its variables."""
    module = models.TrackClassifier(Small(), num_classes=4, hidden=7)
    return jax.jit(module.apply), jax.jit(module.init)(jax.random.key(1), TRACKS)


def say(network, tracks, lengths=None):
    apply, variables = network
    return apply(variables, tracks, lengths=lengths)


def test_shapes(network):
    out = say(network, TRACKS, LENGTHS)
    assert [leaf.shape for leaf in out.track] == [(3, 4), (3, 4), (3, 7)]
    assert [leaf.shape for leaf in out.chips] == [(15, 4), (15, 4), (15, 6)]
    assert set(network[1]["params"]) == {
        "backbone", "lstm", "closed_head", "open_head", "chip_closed_head", "chip_open_head"
    }  # fmt: skip


def test_a_padded_track_equals_the_unpadded_one(network):
    out = say(network, TRACKS, LENGTHS)
    for row, length in enumerate(LENGTHS):
        alone = say(network, TRACKS[row : row + 1, :length])
        for ours, expected in zip(out.track, alone.track, strict=True):
            np.testing.assert_allclose(ours[row], expected[0], atol=1e-6)


def test_frames_beyond_the_end_change_nothing(network):
    @jax.jit
    @jax.value_and_grad
    def total(tracks):
        return jnp.sum(jnp.sin(say(network, tracks, LENGTHS).track.logits))

    other = TRACKS.copy()
    other[1, 2:] = 1e3
    (one, slope), (two, _) = total(TRACKS), total(other)
    np.testing.assert_allclose(two, one, atol=1e-6)
    assert not np.any(slope[1, 2:]) and np.all(np.any(slope[1, :2], axis=(1, 2, 3)))


def test_order_matters_to_the_lstm_and_not_to_the_mean(network):
    there, back = say(network, TRACKS), say(network, TRACKS[:, ::-1])
    assert np.abs(there.track.logits - back.track.logits).max() > 1e-3
    means = [out.chips.logits.reshape(3, 5, 4).mean(axis=1) for out in (there, back)]
    np.testing.assert_allclose(*means, atol=1e-6)


def test_gradients_reach_the_convolutions_through_the_lstm(network):
    apply, variables = network

    @jax.jit
    @jax.value_and_grad
    def loss(params):
        out = apply({"params": params}, TRACKS, lengths=LENGTHS)
        return jnp.sum(jnp.square(out.track.logits))

    _, slope = loss(variables["params"])
    for name in ("backbone", "lstm", "closed_head"):
        assert all(np.any(leaf) for leaf in jax.tree.leaves(slope[name])), name
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(slope["chip_closed_head"]))
    kernel, step = variables["params"]["backbone"]["conv"]["kernel"], 1e-3
    moved = [
        jax.tree.map(lambda x, k=k: x + k * step if x is kernel else x, variables["params"])
        for k in (1, -1)
    ]
    numeric = (loss(moved[0])[0] - loss(moved[1])[0]) / (2 * step)
    exact = slope["backbone"]["conv"]["kernel"].sum()
    np.testing.assert_allclose(exact, numeric, rtol=2e-2)


def test_the_lstm_is_flaxs():
    x = jax.random.normal(jax.random.key(0), (3, 5, 6))
    module = LSTM(8)
    variables = jax.jit(module.init)(jax.random.key(1), x)
    weights = kernels.recurrent.Weights(**variables["params"])
    cell = nn.OptimizedLSTMCell(8)
    params = kernels.recurrent.to_flax("lstm", weights)
    expected = jax.jit(nn.RNN(cell).apply)({"params": {"cell": params}}, x)[:, -1]
    np.testing.assert_allclose(jax.jit(module.apply)(variables, x), expected, atol=1e-5)


def test_batch_statistics_are_of_all_chips():
    module = models.TrackClassifier(Normed(), num_classes=2, hidden=3)
    variables = jax.jit(module.init)(jax.random.key(0), TRACKS)
    apply = jax.jit(partial(module.apply, train=True, mutable=["batch_stats"]))
    _, new = apply(variables, TRACKS, lengths=LENGTHS)
    mean = new["batch_stats"]["backbone"]["BatchNorm_0"]["mean"]
    np.testing.assert_allclose(mean, 0.01 * TRACKS.mean(), atol=1e-6)


def test_a_backbone_without_features_is_refused():
    class Flat(nn.Module):
        @nn.compact
        def __call__(self, images, train=False):
            return images

    module = models.TrackClassifier(Flat(), num_classes=2, hidden=3)
    with pytest.raises(ValueError, match=r"Flat: got features of shape \(15, 6, 6, 1\)"):
        module.init(jax.random.key(0), TRACKS)
