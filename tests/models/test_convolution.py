"""The convolution layer: agreement with flax's over random arguments."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.errors import ScopeParamShapeError

from jaxatr import kernels, models
from jaxatr.models.resnet import BatchNorm


def drawn(rng):
    """Returns random arguments of a convolution, and an input that fits them."""
    axes = int(rng.integers(1, 4))
    groups = int(rng.choice([1, 1, 2]))
    window = tuple(int(n) for n in rng.integers(1, 4, axes))
    several = [tuple(int(n) for n in rng.integers(1, 3, axes)) for _ in range(3)]
    pairs = [tuple(int(n) for n in rng.integers(0, 3, 2)) for _ in range(axes)]
    names = ["SAME", "VALID", "CIRCULAR", "REFLECT", 1, pairs, *(["CAUSAL"] if axes == 1 else [])]
    arguments = {
        "features": 2 * groups,
        "kernel_size": window,
        "strides": several[0] if rng.random() < 0.7 else None,
        "padding": names[rng.integers(len(names))],
        "kernel_dilation": several[2] if rng.random() < 0.4 else 1,
        "feature_group_count": groups,
        "use_bias": bool(rng.random() < 0.5),
        "dtype": rng.choice([None, jnp.float32, jnp.bfloat16]),
        "precision": rng.choice([None, None, "highest"]),
    }
    if not isinstance(arguments["padding"], str) and rng.random() < 0.3:
        arguments["input_dilation"] = several[1]  # XLA has no "SAME" for it
    batch = [(2,), (), (2, 1)][rng.integers(3)]
    shape = (*batch, *(int(n) for n in rng.integers(7, 10, axes)), 2 * groups)
    return arguments, jnp.asarray(rng.normal(size=shape), jnp.float32)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed >= 6)) for seed in range(24)]
)
def test_it_is_flaxs_convolution_over_random_arguments(seed):
    arguments, x = drawn(np.random.default_rng(seed))
    layers = own, peer = models.Conv(**arguments), nn.Conv(**arguments)
    key = jax.random.key(seed)
    mine, variables = jax.jit(lambda x: [layer.init(key, x) for layer in layers])(x)
    jax.tree.map(np.testing.assert_array_equal, mine, variables)  # equal names, shapes and values

    def value(layer):
        return lambda v, x: jnp.sum(jnp.square(layer.apply(v, x).astype(jnp.float32)))

    both = jax.jit(lambda v, x: (peer.apply(v, x), own.apply(v, x)))
    expected, found = both(variables, x)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    close = {"rtol": 2e-2, "atol": 1e-1} if found.dtype == jnp.bfloat16 else {"atol": 1e-4}
    np.testing.assert_allclose(np.float32(found), np.float32(expected), **close)
    if seed < 6:
        gradient = jax.jit(lambda *at: [jax.grad(value(layer), (0, 1))(*at) for layer in layers])
        pairs = gradient(variables, x)
        scale = 30 if found.dtype == jnp.bfloat16 else 1
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(
                np.float32(a), np.float32(b), rtol=1e-3 * scale, atol=5e-3 * scale
            ),
            *pairs,
        )


@pytest.mark.parametrize(
    ("arguments", "shape", "ours"),
    [
        ({"kernel_size": (3, 3)}, (1, 8, 8, 2), True),
        ({"kernel_size": (3,), "padding": "CAUSAL"}, (1, 8, 2), True),
        ({"kernel_size": (3, 3, 3)}, (1, 4, 4, 4, 2), False),
        ({"kernel_size": (3, 3), "input_dilation": 2, "padding": 1}, (1, 8, 8, 2), False),
        ({"kernel_size": (3, 3), "precision": "highest"}, (1, 8, 8, 2), False),
    ],
)
def test_its_algorithm_is_chosen_by_the_kernels(arguments, shape, ours):
    layer = models.Conv(4, **arguments)
    with kernels.collected() as found:
        jax.jit(layer.init_with_output).lower(jax.random.key(0), jnp.zeros(shape))
    assert bool(found.problems) == ours


@pytest.mark.parametrize("layer", [models.Conv(3, (3, 3)), BatchNorm(use_running_average=True)])
def test_a_parameter_of_another_shape_is_an_error_and_metadata_is_taken_off(layer):
    x = jnp.ones((1, 5, 5, 3))
    variables = layer.init(jax.random.key(0), x)
    boxed = jax.tree.map(lambda leaf: nn.Partitioned(leaf, (None,) * leaf.ndim), variables)
    np.testing.assert_array_equal(layer.apply(boxed, x), layer.apply(variables, x))
    cut = jax.tree.map(lambda leaf: leaf[..., :2], variables["params"])
    with pytest.raises(ScopeParamShapeError):
        layer.apply({**variables, "params": cut}, x)
