"""The local response norm against PyTorch and by hand (gradients are in test_operations.py)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels.contrib import response_norm

SHAPE = (3, 5, 4, 6)


@pytest.mark.parametrize("size", [3, 5])
def test_the_response_norm_across_channels_is_torchs(size):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    theirs = torch.nn.functional.local_response_norm(
        torch.tensor(x).permute(0, 3, 1, 2), size, 0.3, 0.5, 2.0
    )
    options = {"size": size, "alpha": 0.3, "beta": 0.5, "k": 2.0}
    ours = jax.jit(partial(response_norm.local_response_norm, **options))(x)
    np.testing.assert_allclose(ours, theirs.permute(0, 2, 3, 1).numpy(), rtol=1e-5)


def test_the_response_norm_within_a_channel_by_hand():
    x = jnp.arange(1.0, 5.0).reshape(1, 2, 2, 1)
    y = response_norm.local_response_norm(x, mode="within", size=3, alpha=9.0, beta=1.0, k=0.0)
    np.testing.assert_allclose(y, x / 30.0, rtol=1e-6)  # each of the four is a neighbour of all


def test_the_response_norm_is_differentiated_twice_and_batched():
    x = jax.random.normal(jax.random.key(0), (2, 1, 3, 3, 4))
    fn = lambda x: jnp.sum(response_norm.local_response_norm(x, alpha=1.0) ** 2)  # noqa: E731
    gradient, step = jax.grad(fn), np.float32(1e-2)
    second = jax.jit(jax.vmap(lambda x: jax.jvp(gradient, (x,), (jnp.ones_like(x),))[1]))(x)
    gradient = jax.jit(gradient)
    ends = [[np.asarray(gradient(one + sign * step)) for sign in (1, -1)] for one in np.asarray(x)]
    numeric = [(ahead - behind) / (2 * step) for ahead, behind in ends]
    np.testing.assert_allclose(second, numeric, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "around"}, "mode: got 'around', wanted 'across' or 'within'"),
        ({"size": 0}, "size: got 0, wanted at least 1"),
        ({"algorithm": "fast"}, "algorithm: got 'fast', wanted 'auto' or one of"),
        ({"x": jnp.zeros(3)}, r"x: got shape \(3,\), wanted \[b, h, w, c\]"),
        ({"x": jnp.zeros(SHAPE, int)}, "x: got type int32, wanted a floating-point one"),
    ],
)
def test_bad_input_of_the_response_norm_is_named(change, message, unchecked):
    arguments = {"x": jnp.zeros(SHAPE)} | change
    with pytest.raises(ValueError, match=message):
        response_norm.local_response_norm(arguments.pop("x"), **arguments)
