"""Random problems: every solver that applies agrees with the float64 reference.

The examples are the same in every run: a few in the fast tests, many in the slow ones.
"""

import math
from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from jaxatr.kernels.activations import ACTIVATIONS
from jaxatr.kernels.benchmark import relative_error
from jaxatr.kernels.contrib import ctc, response_norm, softmax, tensor
from jaxatr.kernels.device import of_platform
from jaxatr.kernels.ops import pooling
from jaxatr.kernels.ops.batch_norm.operation import BatchNormProblem as BatchNorm
from jaxatr.kernels.ops.convolution.problem import ConvProblem as Convolution
from jaxatr.kernels.ops.recurrent.problem import CELLS
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem as Recurrent
from jaxatr.kernels.solver import Choice, operation_of

CPU = of_platform("cpu")
FLOATS = ("float32", "bfloat16", "float16", "float64")
# The error is relative to the largest result. With few results, all may be small by cancellation.
LEAST = 24

repeatable = partial(
    settings,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # a problem that fails is printed as it was drawn
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def sizes(low, high, count=2):
    return st.tuples(*[st.integers(low, high)] * count)


@st.composite
def convolutions(draw):
    dtype = draw(st.sampled_from([*FLOATS, "int8"]))
    directions = ("forward",) if dtype == "int8" else ("forward", "data", "weight")
    window = draw(st.one_of(st.just((3, 3)), sizes(1, 4), st.just((5, 5))))
    stride, dilation = draw(st.just((1, 1)) | sizes(1, 3)), draw(st.just((1, 1)) | sizes(1, 3))
    padding = draw(st.tuples(sizes(0, 3), sizes(0, 3)))
    groups, depth, features = draw(sizes(1, 3, 3))
    sides = [
        max(1, (taps - 1) * d + 1 - sum(edges)) + draw(st.integers(0, 6))
        for taps, d, edges in zip(window, dilation, padding, strict=True)
    ]
    problem = Convolution(
        draw(st.sampled_from(directions)),
        (draw(st.sampled_from([1, 2, 3, 12])), *sides, groups * depth),
        (*window, depth, groups * features),
        stride,
        padding,
        dilation,
        groups,
        dtype,
    )
    assume(math.prod(problem.result_shape) >= LEAST)
    return problem


@st.composite
def poolings(draw):
    window, mode = draw(sizes(1, 4)), st.sampled_from(["max", "average", "average_inclusive"])
    padding = tuple((draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1))) for n in window)
    sides = [n + draw(st.integers(0, 5)) for n in window]
    return pooling.PoolingProblem(
        draw(st.sampled_from(["forward", "backward"])),
        draw(mode),
        (2, *sides, 3),
        window,
        draw(sizes(1, 4)),
        padding,
        draw(st.sampled_from(FLOATS)),
    )


@st.composite
def recurrents(draw):
    cell, skip = draw(st.sampled_from(CELLS)), draw(st.booleans())
    hidden = draw(st.integers(4, 8))
    return Recurrent(
        cell=cell,
        steps=draw(st.integers(1, 6)),
        batch=draw(st.integers(3, 5)),
        inputs=hidden if skip else draw(st.integers(2, 6)),
        hidden=hidden,
        skip=skip,
        masked=draw(st.booleans()),
        dtype=draw(st.sampled_from(FLOATS)),
        reset_after=cell != "gru" or draw(st.booleans()),
        direction=draw(st.sampled_from(["forward", "backward"])),
    )


def images(draw, low=1, batch=2):
    """Draws ``(batch, height, width, channels)`` with at least ``LEAST`` numbers."""
    shape = (batch, *draw(sizes(low, 6, 3)))
    assume(math.prod(shape) >= LEAST)
    return shape


@st.composite
def batch_norms(draw):
    return BatchNorm(
        draw(st.sampled_from(["forward", "backward"])),
        draw(st.sampled_from(["spatial", "per_activation"])),
        draw(st.booleans()),
        draw(st.sampled_from(sorted(ACTIVATIONS))),
        images(draw, low=2, batch=draw(st.integers(8, 12))),
        draw(st.sampled_from(FLOATS)),
    )


@st.composite
def response_norms(draw):
    return response_norm.NormProblem(
        draw(st.sampled_from(["forward", "backward"])),
        draw(st.sampled_from(["across", "within"])),
        images(draw),
        draw(st.integers(1, 6)),
        draw(st.sampled_from([1e-4, 0.1, 1.0])),
        draw(st.sampled_from([0.5, 0.75, 1.0])),
        draw(st.sampled_from([1.0, 2.0])),
        draw(st.sampled_from(FLOATS)),
    )


@st.composite
def softmaxes(draw):
    return softmax.SoftmaxProblem(
        draw(st.sampled_from(["forward", "backward"])),
        draw(st.sampled_from(["instance", "channel"])),
        draw(st.booleans()),
        images(draw),
        draw(st.sampled_from(FLOATS)),
    )


@st.composite
def ctcs(draw):
    labels = draw(st.integers(1, 4))
    return ctc.CtcProblem(
        draw(st.sampled_from(["forward", "backward"])),
        draw(st.integers(2, 4)),
        2 * labels + draw(st.integers(0, 5)),
        labels,
        draw(st.integers(2, 6)),
        draw(st.sampled_from(FLOATS)),
    )


@st.composite
def tensors(draw):
    a_shape = draw(sizes(1, 6, 3))
    assume(math.prod(a_shape) >= LEAST)
    return (  # fields only, because checking a problem's types would draw numbers
        draw(st.sampled_from(["forward", "backward"])),
        draw(st.sampled_from(["add", "mul", "min", "max"])),
        a_shape,
        tuple(n if draw(st.booleans()) else 1 for n in a_shape),
        draw(st.tuples(*[st.sampled_from([-2.0, 0.5, 1.0])] * 3)),
        draw(st.sampled_from(FLOATS)),
    )


def check(problem):
    """Compares every solver in its first and last configuration, in one program."""
    operation = operation_of(problem)
    choices = [
        Choice(name, config)
        for name, solver in operation.solvers.items()
        if solver.applies(problem, CPU)
        for config in dict.fromkeys((solver.configs(problem)[0], solver.configs(problem)[-1]))
    ]
    arguments = operation.arguments(problem, np.random.default_rng(0))
    wanted = jax.tree.leaves(operation.reference(problem, arguments))
    with jax.enable_x64(problem.dtype == "float64"):
        runs = [operation.solvers[name].build(problem, config) for name, config in choices]
        results = jax.jit(lambda *given: [run(*given) for run in runs])(*arguments)
    allowed = operation.tolerance(problem, CPU)
    for choice, result in zip(choices, results, strict=True):
        pairs = zip(jax.tree.leaves(result), wanted, strict=True)
        error = max(relative_error(*pair) for pair in pairs)
        assert error <= allowed, (problem, choice, error)


@repeatable(max_examples=4)
@given(poolings())
def test_poolings(problem):
    check(problem)


@repeatable(max_examples=2)
@given(recurrents())
def test_recurrent_layers(problem):
    check(problem)


@repeatable(max_examples=2)
@given(batch_norms())
def test_batch_norms(problem):
    check(problem)


@repeatable(max_examples=2)
@given(response_norms())
def test_response_norms(problem):
    check(problem)


@repeatable(max_examples=2)
@given(softmaxes())
def test_softmaxes(problem):
    check(problem)


@repeatable(max_examples=2)
@given(ctcs())
def test_ctc_losses(problem):
    check(problem)


@repeatable(max_examples=2)
@given(tensors())
def test_operations_on_tensors(fields):
    check(tensor.TensorProblem(*fields))


@pytest.mark.slow
@repeatable(max_examples=20)
@given(tensors())
def test_many_operations_on_tensors(fields):
    check(tensor.TensorProblem(*fields))


@pytest.mark.slow
@repeatable(max_examples=15)
@given(batch_norms() | response_norms() | softmaxes() | ctcs())
def test_many_others(problem):
    check(problem)


@pytest.mark.slow
@repeatable(max_examples=60)
@given(convolutions())
def test_many_convolutions(problem):
    check(problem)


@pytest.mark.slow
@repeatable(max_examples=50)
@given(poolings())
def test_many_poolings(problem):
    check(problem)


@pytest.mark.slow
@repeatable(max_examples=20)
@given(recurrents())
def test_many_recurrent_layers(problem):
    check(problem)
