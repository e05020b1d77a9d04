"""Depthwise convolutions by the heuristic's choice: edge cases of size, types, transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels import convolution
from jaxatr.kernels.benchmark import relative_error
from jaxatr.kernels.device import of_platform
from jaxatr.kernels.ops.convolution.heuristic import choose
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.primitive import bind
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.sums import sums

CPU = of_platform("cpu")
DIRECTIONS = ("forward", "data", "weight")
SHAPES = {  # x, kernel, features of a channel, stride, padding, dilation
    "1x1 image": ((3, 1, 1, 5), (3, 3), 1, (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "2x2 image, stride 2": ((2, 2, 2, 4), (3, 3), 1, (2, 2), ((1, 1), (1, 1)), (1, 1)),
    "23 rows: two blocks and a rest": ((1, 23, 3, 2), (3, 3), 1, (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "odd, stride 2, unequal padding": ((3, 9, 7, 3), (3, 3), 1, (2, 2), ((0, 1), (1, 0)), (1, 1)),
    "5x5, stride 2, cropped": ((2, 12, 11, 3), (5, 5), 1, (2, 3), ((2, -1), (2, 2)), (1, 1)),
    "dilated": ((2, 8, 9, 4), (3, 3), 1, (1, 1), ((2, 2), (2, 2)), (2, 2)),
    "three features of a channel": ((2, 5, 6, 2), (3, 2), 3, (2, 1), ((1, 1), (0, 1)), (1, 1)),
    "kernel larger than the stride's reach": (
        (2, 7, 7, 2),
        (1, 1),
        1,
        (3, 3),
        ((0, 0), (0, 0)),
        (1, 1),
    ),
    "a sequence": ((2, 1, 40, 3), (1, 4), 1, (1, 1), ((0, 0), (3, 0)), (1, 1)),
}


def problem_of(name, direction, dtype="float32"):
    x_shape, kernel, features, *rest = SHAPES[name]
    channels = x_shape[3]
    shape = (*kernel, 1, channels * features)
    return ConvProblem(direction, x_shape, shape, *rest, channels, dtype)


HALF = ("odd, stride 2, unequal padding", "three features of a channel")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float32") for name in SHAPES),
        *(
            pytest.param(name, "bfloat16", marks=() if name in HALF else pytest.mark.slow)
            for name in SHAPES
        ),
    ],
)
def test_every_direction_is_the_definition(name, dtype):
    problems = [problem_of(name, direction, dtype) for direction in DIRECTIONS]
    assert {choose(problem) for problem in problems} == {"direct"}
    given = [OPERATION.arguments(one, np.random.default_rng(0)) for one in problems]
    results = jax.jit(
        lambda given: [bind(*a, one, "direct") for a, one in zip(given, problems, strict=True)]
    )(given)
    for problem, arguments, result in zip(problems, given, results, strict=True):
        assert result.shape == problem.result_shape and result.dtype == dtype
        expected = OPERATION.reference(problem, arguments)
        assert relative_error(result, expected) <= OPERATION.tolerance(problem, CPU)


def draw(shape, seed):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def ours(x, w):
    return convolution(x, w, stride=2, padding=1, groups=3)


def xla(x, w):
    return jax.lax.conv_general_dilated(
        x,
        w,
        (2, 2),
        ((1, 1), (1, 1)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=3,
    )


def everything(fn, x, w):
    """Returns results, gradients and a second derivative of a batch of problems."""

    def loss(x, w):
        return jnp.sum(jnp.sin(fn(x, w)))

    gradients = jax.grad(loss, (0, 1))

    def one(x, w):
        _, second = jax.jvp(gradients, (x, w), (jnp.cos(x), jnp.sin(w)))
        return fn(x, w), gradients(x, w), second

    return jax.vmap(one)(x, w)


def test_second_derivatives_of_a_batch_of_problems_are_xlas():
    x, w = draw((2, 1, 5, 6, 3), 0), draw((2, 3, 3, 1, 3), 1)
    results, expected = (
        jax.tree.leaves(jax.jit(everything, static_argnums=0)(fn, x, w)) for fn in (ours, xla)
    )
    for result, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["complex64", "uint8"])
def test_other_element_types_are_xlas(dtype):
    x, w = (draw(shape, seed) * 9 for seed, shape in enumerate([(2, 5, 6, 3), (3, 3, 1, 3)]))
    x, w = ((a + 1j * jnp.sin(a) if dtype == "complex64" else abs(a)) for a in (x, w))
    x, w = x.astype(dtype), w.astype(dtype)
    result = jax.jit(ours)(x, w)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, xla(x, w), rtol=1e-5, atol=1e-3)


def test_not_jitted_is_the_same():
    x, w = draw((2, 6, 5, 3), 0), draw((3, 3, 1, 3), 1)
    np.testing.assert_array_equal(ours(x, w), jax.jit(ours)(x, w))


@pytest.mark.parametrize(
    ("shape", "block"),
    [((3, 23, 5, 2), 8), ((8, 1, 1, 1), 8), ((1, 1, 1, 3), 8), ((2, 7, 6, 2), 3)],
)
def test_sums_are_numpys(shape, block):
    arrays = np.random.default_rng(0).integers(-9, 9, (11, *shape)).astype(np.float32)

    @jax.jit
    def run(arrays):
        terms = [lambda start, stop, one=one: one[:, start:stop] for one in arrays]
        return sums(terms, shape[1], block)

    np.testing.assert_array_equal(run(list(arrays)), arrays.sum((1, 2, 3)))


def test_the_sum_of_two_arrays_by_hand():
    first = jnp.asarray([[[[1.0, 10.0]], [[2.0, 20.0]]]])  # one image of two rows
    result = sums([lambda i, j: first[:, i:j], lambda i, j: 3 * first[:, i:j]], 2)
    np.testing.assert_array_equal(result, [[3.0, 30.0], [9.0, 90.0]])
