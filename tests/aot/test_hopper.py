"""Hopper's kernels compiled by ptxas, and whole programs by XLA, for a described H200."""

import itertools
import math

import described
import jax
import kernel_cases
import program_reports
import pytest

from jaxatr.kernels import gru, lstm, recurrent
from jaxatr.kernels.contrib.fusion.solvers import SOLVERS
from jaxatr.kernels.ops.convolution.solvers import SOLVERS as CONVOLUTIONS

PLATFORMS = ("cuda",)
CASES = {case.name: case for case in kernel_cases.hopper_cases()}
# The fast tests compile one case of each kind, the slow ones the rest.
FAST = (
    "conv 3x3 8x28x28 64>64 bfloat16 shift+relu",
    "conv 3x3 256x224x224",
    "conv 3x3 256x28x28 256>256 float32 none",
    "conv 3x3 32x14x14 256>256 stride 2 gradient",
    "weight 3x3 32x28x28 256>256 bfloat16 128x128, 14 pieces",
    "lstm 64x1024 bfloat16",
    "persistent lstm backward 64x128 bfloat16",
)


FAST_DIRECTIONS = (
    ("data", "3x3 56x56 128, stride 2"),
    ("weight", "3x3 56x56 128, stride 2"),
)
SLOW = pytest.mark.slow


def slow(name):
    return name if name.startswith(FAST) else pytest.param(name, marks=SLOW)


@pytest.mark.parametrize("name", list(map(slow, CASES)))
def test_a_kernel_fits_a_multiprocessor(name):
    program, report = program_reports.compile_kernel("h200", CASES[name])
    assert program_reports.custom_calls(program) == {"mosaic_gpu_v2": 1}
    assert report.spills == 0
    if not name.startswith("persistent"):  # which has one to four warp groups
        assert report.registers <= 168  # of 65,536 for a convolution's three warp groups
    assert report.shared <= program_reports.SHARED
    first, *others = report.grid
    assert first < 2**31 and max(others) <= 65_535  # or the launch aborts the process
    if not name.startswith(("lstm", "persistent")):
        assert first <= 132


@pytest.mark.parametrize(
    ("direction", "shape"),
    [
        pair if pair in FAST_DIRECTIONS else pytest.param(*pair, marks=SLOW)
        for pair in itertools.product(("forward", "data", "weight"), kernel_cases.DIRECTIONS)
    ],
)
def test_a_convolution_moves_the_least_bytes(direction, shape):
    """No array is copied, for any stride; an odd batch is padded, and partial sums are added."""
    case = kernel_cases.direction_case(direction, shape, "hopper")
    problem = kernel_cases.direction_problem(direction, shape)
    program = described.compile_for("h200", case.function, *case.arguments)
    sizes = program.memory_analysis()
    least = sizes.argument_size_in_bytes + sizes.output_size_in_bytes
    least += 2 * CONVOLUTIONS["hopper"].workspace_bytes(problem)  # written and read
    assert program_reports.traffic(program) <= (1.08 if "batch 36" in shape else 1.01) * least


def test_the_launches_of_a_step_of_an_lstm():
    """For inference a step launches the kernel and the loop's counter; XLA launches five."""

    def count(algorithm):
        init = lambda key: recurrent.init(key, "lstm", 1024, 1024, dtype="bfloat16")  # noqa: E731
        params = jax.eval_shape(init, jax.random.key(0))
        x = jax.ShapeDtypeStruct((64, 50, 1024), "bfloat16")
        run = lambda params, x: lstm(params, x, algorithm=algorithm)[0]  # noqa: E731
        return program_reports.launches(described.compile_for("h200", run, params, x))

    assert count("hopper") == 2 < count("gemm")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_persistent_network_and_its_gradient_are_two_launches(cell):
    """There is no loop outside the kernels, whatever the number of steps."""
    init = lambda key: recurrent.init(key, cell, 128, 128, dtype="bfloat16")  # noqa: E731
    params = jax.eval_shape(init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((64, 50, 128), "bfloat16")
    layer = {"lstm": lstm, "gru": gru}[cell]

    def run(params, x):
        return layer(params, x, algorithm="persistent")[0].astype("float32").sum()

    for function, calls in ((run, 1), (jax.grad(run), 2)):
        program = described.compile_for("h200", function, params, x)
        assert program_reports.custom_calls(program)["mosaic_gpu_v2"] == calls
        assert " while(" not in program.as_text()


FAST_PLANS = [("CBA", "1x1 28x28 256"), ("CBNRA", "3x3 28x28 256")]
PLANS = list(itertools.product(kernel_cases.TAILS, kernel_cases.SHAPES, ("bfloat16", "float32")))


@pytest.mark.parametrize(
    ("combination", "shape", "dtype"),
    [
        plan if plan[1] == "3x3 28x28 256" else pytest.param(*plan, marks=pytest.mark.slow)
        for plan in PLANS
    ],
)
def test_a_plan_is_one_call_of_cudnn(combination, shape, dtype):
    """The form that auto chooses on a GPU is one call; with float32 after the convolution not."""
    fused = kernel_cases.plan_case(combination, shape, dtype, "xla_folded")
    program = described.compile_for("h200", fused.function, *fused.arguments)
    assert program_reports.custom_calls(program) == {"__cudnn$convBiasActivationForward": 1}
    wide = kernel_cases.plan_case(combination, shape, dtype, "xla")
    other = described.compile_for("h200", wide.function, *wide.arguments)
    if dtype == "bfloat16":
        assert program_reports.custom_calls(other) == {"__cudnn$convForward": 1}
        # A write and a read of the result are saved.
        result = math.prod(wide.arguments[0].shape) * 2
        saved = program_reports.traffic(other) - program_reports.traffic(program)
        assert saved > 1.9 * result
    else:
        assert program_reports.traffic(program) < 1.05 * program_reports.traffic(other)


def test_every_solver_is_compiled():
    """Plans of a new solver must be added to these tests."""
    assert set(SOLVERS) == {"xla", "xla_folded", "hopper", "tpu"}


@pytest.mark.parametrize(
    ("combination", "shape"),
    [
        pair if pair in FAST_PLANS else pytest.param(*pair, marks=SLOW)
        for pair in itertools.product(kernel_cases.TAILS, kernel_cases.SHAPES)
    ],
)
def test_a_plan_by_the_kernel(combination, shape):
    case = kernel_cases.plan_case(combination, shape, "bfloat16", "hopper")
    program = described.compile_for("h200", case.function, *case.arguments)
    assert program_reports.custom_calls(program) == {"mosaic_gpu_v2": 1}
    sizes = program.memory_analysis()
    least = sizes.argument_size_in_bytes + sizes.output_size_in_bytes
    assert program_reports.traffic(program) <= 1.01 * least
