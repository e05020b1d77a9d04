"""Operations that jax differentiates: every form and direction, and their references."""

import dataclasses
from itertools import product

import jax
import numpy as np
import pytest

from jaxatr.kernels.activations import ACTIVATIONS
from jaxatr.kernels.benchmark import Bench
from jaxatr.kernels.contrib import ctc, response_norm, softmax, tensor
from jaxatr.kernels.ops import pooling
from jaxatr.kernels.ops.batch_norm import operation as batch_norm
from jaxatr.kernels.solver import Choice, operation_of

SHAPE = (3, 5, 4, 6)


def pool(mode, window, stride, padding):
    return pooling.PoolingProblem("forward", mode, SHAPE, window, stride, padding, "float32")


def norm(mode, training, activation):
    return batch_norm.BatchNormProblem("forward", mode, training, activation, SHAPE, "float32")


PROBLEMS = [
    *(
        pool(mode, *geometry)
        for mode, geometry in product(
            ("max", "average", "average_inclusive"),
            [((2, 2), (2, 2), ((0, 0), (0, 0))), ((3, 2), (2, 1), ((2, 1), (0, 1)))],
        )
    ),
    *(
        softmax.SoftmaxProblem("forward", mode, log, SHAPE, "float32")
        for mode, log in product(("instance", "channel"), (False, True))
    ),
    *(
        tensor.TensorProblem("forward", name, (3, 4, 5), shape, (0.5, -2.0, 1.5), "float32")
        for name, shape in zip(
            ("add", "mul", "min", "max"), [(3, 4, 5), (1, 4, 1), (1, 1, 5), (3, 1, 1)], strict=True
        )
    ),
    ctc.CtcProblem("forward", 4, 9, 4, 3, "float32"),  # so few classes that labels repeat
    *(
        response_norm.NormProblem("forward", mode, SHAPE, size, 0.7, 0.75, 2.0, "float32")
        for mode, size in product(("across", "within"), (3, 4))
    ),
    norm("spatial", True, "relu"),
    norm("per_activation", True, "tanh"),
    norm("spatial", False, "elu"),
    norm("per_activation", False, "none"),
]
OTHERS = [norm("spatial", True, name) for name in sorted(set(ACTIVATIONS) - {"relu", "tanh"})]


OF_NORM = response_norm.NormProblem("forward", "across", SHAPE, 3, 0.7, 0.75, 2.5, "float32")


def named(problems, *marks):
    return [pytest.param(one, id=one.key.removesuffix(" float32"), marks=marks) for one in problems]


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("problem", named(PROBLEMS) + named(OTHERS, pytest.mark.slow))
def test_every_form_equals_the_reference(problem, direction):
    problem = dataclasses.replace(problem, direction=direction)
    operation, device = operation_of(problem), jax.devices()[0]
    bench = Bench(operation, problem, device)
    for name in operation.solvers:
        assert bench.error(Choice(name)) <= operation.tolerance(problem, device), name


HALF = [PROBLEMS[k] for k in (1, 3, 6, 9, 10, 14, 16, 19, 20)]


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("problem", HALF, ids=[problem.key.split()[0] for problem in HALF])
def test_half_precision(problem, dtype):
    problem = dataclasses.replace(problem, dtype=dtype, direction="backward")
    operation, device = operation_of(problem), jax.devices()[0]
    bench = Bench(operation, problem, device)
    for name in operation.solvers:
        assert bench.run(Choice(name))[0].dtype == dtype
        assert bench.error(Choice(name)) <= operation.tolerance(problem, device), name


@pytest.mark.parametrize("problem", named(PROBLEMS + OTHERS))
def test_the_reference_gradient_is_the_slope_of_the_reference(problem):
    """Along a random direction, in float64, where a step of 1e-6 leaves nine accurate digits."""
    backward = dataclasses.replace(problem, direction="backward")
    operation, rng = operation_of(problem), np.random.default_rng(5)
    given = operation.arguments(backward, rng)
    inputs, cotangent = [np.asarray(a, np.float64) for a in given[:-1]], given[-1]
    gradients = operation.reference(backward, given)
    along = [rng.standard_normal(gradient.shape) for gradient in gradients]

    def score(step):
        moved = [a + step * b for a, b in zip(inputs, along, strict=False)]
        rest = inputs[len(moved) :]
        return np.sum(operation.reference(problem, (*moved, *rest)) * cotangent)

    slope = (score(1e-6) - score(-1e-6)) / 2e-6
    wanted = sum(np.sum(g * a) for g, a in zip(gradients, along, strict=True))
    assert abs(slope - wanted) <= 1e-6 * sum(
        np.sum(np.abs(g * a)) for g, a in zip(gradients, along, strict=True)
    )


def test_keys_tell_problems_apart():
    keys = [
        dataclasses.replace(problem, direction=direction).key
        for problem in PROBLEMS
        for direction in ("forward", "backward")
    ]
    near = [dataclasses.replace(OF_NORM, alpha=0.1), dataclasses.replace(OF_NORM, alpha=0.10000001)]
    keys += [problem.key for problem in near]
    assert len(set(keys)) == len(keys)


def test_the_loss_of_ctc_by_hand():
    """With two steps and one label, the paths are aa, _a and a_."""
    logits = np.log(np.array([[[0.6, 0.4], [0.7, 0.3]]]))
    problem = ctc.CtcProblem("forward", 1, 2, 1, 2, "float64")
    none = np.zeros((1, 2)), np.ones((1, 1), int), np.zeros((1, 1))
    (loss,) = ctc.reference(problem, (logits, *none))
    np.testing.assert_allclose(np.exp(-loss), 0.4 * 0.3 + 0.6 * 0.3 + 0.4 * 0.7)
