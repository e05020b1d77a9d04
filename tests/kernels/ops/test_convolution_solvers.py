"""Every solver in every configuration, direction and type on random problems, against NumPy."""

import jax
import numpy as np
import pytest

from jaxatr.kernels.benchmark import relative_error
from jaxatr.kernels.device import Device, of_platform
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers import SOLVERS
from jaxatr.kernels.ops.convolution.solvers.fft import _smooth
from jaxatr.kernels.solver import Choice

CPU = of_platform("cpu")
DIRECTIONS = ("forward", "data", "weight")
NOT_FOR = {
    "forward": {"turned", "space_to_depth"},
    "data": {"turned"},
    "weight": {"split"},
}
UNIT = (1, 1), ((1, 1), (1, 1)), (1, 1), 1  # stride, padding, dilation, groups
KINDS = ("winograd", "fft", "direct", "split", "space_to_depth")
FLOATS = ("float32", "bfloat16", "float16", "float64")


def random_problem(rng, direction, dtype, *, kind="any"):
    """Draws a problem with a non-empty result; ``kind`` names a solver that should apply."""
    window = {"winograd": (3, 3), "fft": (5, 6)}.get(kind) or tuple(rng.integers(1, 5, 2).tolist())
    stride, dilation = (
        (1, 1) if kind == "winograd" else tuple(rng.integers(1, 3, 2).tolist()) for _ in range(2)
    )
    groups = int(rng.integers(2, 4)) if kind == "direct" else int(rng.choice([1, 1, 2]))
    if kind == "space_to_depth":
        window, stride, dilation, groups = (window[0], 3 + window[1]), (stride[0], 2), (1, 1), 1
    depth, features = (int(rng.integers(1, 4)) for _ in range(2))
    batch = 12 if kind == "split" else int(rng.integers(1, 5))
    padding = tuple(tuple(rng.integers(0, 4, 2).tolist()) for _ in range(2))
    sides = [
        max(1, (taps - 1) * d + 1 - sum(edges)) + int(rng.integers(0, 6))
        for taps, d, edges in zip(window, dilation, padding, strict=True)
    ]
    return ConvProblem(
        direction,
        (batch, *sides, groups * depth),
        (*window, depth, groups * features),
        stride,
        padding,
        dilation,
        groups,
        dtype,
    )


def errors_of(problem, seed=0):
    """Returns the error of every applicable choice, all computed by one program."""
    choices = [
        Choice(name, config)
        for name, solver in SOLVERS.items()
        if solver.applies(problem, CPU)
        for config in solver.configs(problem)
    ]
    arguments = OPERATION.arguments(problem, np.random.default_rng(seed))
    expected = OPERATION.reference(problem, arguments)
    with jax.enable_x64(problem.dtype == "float64"):
        functions = [SOLVERS[name].build(problem, config) for name, config in choices]
        results = jax.jit(lambda *given: [run(*given) for run in functions])(*arguments)
    for result in results:
        assert result.shape == problem.result_shape and result.dtype == problem.result_dtype
    return {
        choice: relative_error(result, expected)
        for choice, result in zip(choices, results, strict=True)
    }


def check(problem):
    errors = errors_of(problem)
    wrong = {c: e for c, e in errors.items() if e > OPERATION.tolerance(problem, CPU)}
    assert not wrong, (problem, wrong)
    return {choice.algorithm for choice in errors}


SLOW = {  # slow to compile, or not computed by that solver
    *(("winograd", "data"), ("winograd", "weight"), ("fft", "forward")),
    *(("split", "weight"), ("space_to_depth", "forward")),
    *(("fft", "weight"), ("split", "data")),  # see test_convolution.py
}


@pytest.mark.parametrize(
    ("kind", "direction"),
    [
        pytest.param(kind, direction, marks=[pytest.mark.slow] * ((kind, direction) in SLOW))
        for kind in KINDS
        for direction in DIRECTIONS
    ],
)
def test_a_random_problem_of_each_kind(kind, direction):
    problem = random_problem(np.random.default_rng(1), direction, "float32", kind=kind)
    expected = {kind} - NOT_FOR[direction]
    assert check(problem) >= expected | {"matmul", "xla"}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_many_random_problems(direction, dtype):
    rng, seen = np.random.default_rng(DIRECTIONS.index(direction)), set()
    for kind in ("any", *KINDS):
        seen |= check(random_problem(rng, direction, dtype, kind=kind))
    here = set(SOLVERS) - {"hopper", "tpu"}  # these are tested in tests/kernels/pallas
    assert seen == here - NOT_FOR[direction]


@pytest.mark.parametrize("kind", ["any", "direct"])
def test_int8_is_summed_in_int32_exactly(kind):
    problem = random_problem(np.random.default_rng(2), "forward", "int8", kind=kind)
    assert problem.result_dtype == "int32"
    assert check(problem) >= {"matmul", "xla"} | ({"direct"} if kind == "direct" else {"taps"})


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_reference_is_the_definition(direction):
    # One channel, one image: y[i] = sum over taps of x[stride i + tap - top] w[tap], by hand.
    x, w, y = np.array([1.0, 2.0, 3.0]), np.array([10.0, 1.0]), np.array([1.0, 100.0])
    problem = ConvProblem(
        direction, (1, 3, 1, 1), (2, 1, 1, 1), (2, 1), ((1, 0), (0, 0)), (1, 1), 1, "float32"
    )
    arrays = {"x": x, "w": w, "y": y}
    shaped = {
        name: array.reshape(shape)
        for (name, array), shape in zip(
            arrays.items(), (problem.x_shape, problem.w_shape, problem.y_shape), strict=True
        )
    }
    given = {"forward": "xw", "data": "yw", "weight": "xy"}[direction]
    result = OPERATION.reference(problem, tuple(shaped[name] for name in given))
    # Rows 0 and 1 of y meet (zero, x0) and (x1, x2).
    expected = {"forward": [1, 23], "data": [1, 1000, 100], "weight": [200, 301]}[direction]
    np.testing.assert_array_equal(result.ravel(), expected)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_reference_of_a_cropped_and_grouped_problem_is_xlas(direction):
    problem = ConvProblem(
        direction, (2, 6, 5, 4), (2, 3, 2, 6), (1, 2), ((-1, 2), (0, -1)), (2, 1), 2, "float32"
    )
    arguments = OPERATION.arguments(problem, np.random.default_rng(0))
    ours = OPERATION.reference(problem, arguments)
    theirs = jax.jit(SOLVERS["xla"].build(problem, ()))(*arguments)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_xlas_form_does_not_crop_pixels_that_no_window_reads(direction):
    padding = ((0, 0), (0, 0))
    problem = ConvProblem(
        direction, (2, 8, 9, 3), (1, 1, 3, 4), (2, 2), padding, (1, 1), 1, "float32"
    )
    small = OPERATION.canonical(problem, CPU)
    assert small.padding == ((0, -1), (0, 0))
    arguments = OPERATION.arguments(problem, np.random.default_rng(0))
    texts = {
        jax.jit(SOLVERS["xla"].build(one, ())).lower(*arguments).as_text()
        for one in (small, problem)
    }
    assert len(texts) == 1
    check(small)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_default_configuration_always_exists(name):
    rng, solver = np.random.default_rng(3), SOLVERS[name]
    for direction in DIRECTIONS:
        for kind in ("any", *KINDS):
            problem = random_problem(rng, direction, "float32", kind=kind)
            if solver.applies(problem, CPU):
                configs = solver.configs(problem)
                assert len(set(configs)) == len(configs) > 0
                assert solver.workspace_bytes(problem) >= 0


def test_a_block_of_images_bounds_the_memory():
    large = ConvProblem("forward", (32, 224, 224, 64), (3, 3, 64, 64), *UNIT, "float32")
    assert SOLVERS["blocked"].configs(large) == [(("images", 1),)]
    assert SOLVERS["blocked"].workspace_bytes(large) == 224 * 224 * 9 * 64 * 4
    assert SOLVERS["matmul"].workspace_bytes(large) >= 32 * 224 * 224 * 9 * 64 * 4
    small = ConvProblem("forward", (32, 14, 14, 64), (3, 3, 64, 64), *UNIT, "float32")
    counts = [dict(config)["images"] for config in SOLVERS["blocked"].configs(small)]
    assert counts == [16, 1, 2, 4, 8]
    assert SOLVERS["blocked"].workspace_bytes(small) == 16 * 14 * 14 * 9 * 64 * 4


def test_a_direction_that_is_none_is_named(unchecked):
    with pytest.raises(ValueError, match="direction: got 'backward', wanted forward, data or wei"):
        ConvProblem("backward", (1, 8, 8, 1), (3, 3, 1, 1), *UNIT, "float32")


def test_the_tolerance_follows_the_precision_of_the_device():
    def accepted(dtype, platform):
        problem = random_problem(np.random.default_rng(0), "forward", dtype)
        return OPERATION.tolerance(problem, Device(platform, ""))

    assert accepted("float32", "cpu") == 1.5e-6 and accepted("int8", "gpu") == 0
    assert accepted("float32", "gpu") == accepted("float16", "gpu") == 8.2e-3
    assert accepted("float32", "tpu") == accepted("bfloat16", "cpu") == 8 * 8.2e-3
    with jax.default_matmul_precision("highest"):
        assert accepted("float32", "gpu") == 1.5e-6


def test_lengths_of_transforms():
    assert [_smooth(n) for n in (1, 7, 11, 17, 23, 31, 121)] == [2, 8, 12, 18, 24, 32, 128]
