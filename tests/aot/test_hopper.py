"""Hopper's kernels through ptxas, and whole programs through XLA, for a described H200."""

import itertools
import math

import described
import jax
import pytest

from jaxatr.kernels import lstm, recurrent
from jaxatr.kernels.contrib.fusion.solvers import SOLVERS

PLATFORMS = ("cuda",)
CASES = {case.name: case for case in described.hopper_cases()}
# Of each kind one is compiled with the fast tests, the rest with the slow ones.
FAST = (
    "conv 3x3 8x28x28 64>64 bfloat16 shift+relu",
    "conv 3x3 256x224x224",
    "lstm 64x1024 bfloat16",
)


def slow(name):
    return name if name.startswith(FAST) else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize("name", list(map(slow, CASES)))
def test_a_kernel_fits_a_multiprocessor(name):
    program, report = described.compile_kernel("h200", CASES[name])
    assert described.custom_calls(program) == {"mosaic_gpu_v2": 1}
    hungry = "residual+swish" in name  # on 128 features; all others keep within what is recorded
    assert report.registers <= (255 if hungry else 176)
    assert report.spills <= (16 if hungry else 0)
    assert report.shared <= described.SHARED
    first, *others = report.grid
    assert first < 2**31 and max(others) <= 65_535  # or the launch ends the process
    wide = any(a.shape[-1] % 128 == 0 for a in CASES[name].arguments[1:2])
    if name.startswith("conv") and not (wide and "residual" in name):
        assert report.shared <= described.HALF  # two blocks


def test_the_launches_of_a_step_of_an_lstm():
    """For results alone, the kernel and the loop's counter; one product and its gates are five."""

    def count(algorithm):
        init = lambda key: recurrent.init(key, "lstm", 1024, 1024, dtype="bfloat16")  # noqa: E731
        params = jax.eval_shape(init, jax.random.key(0))
        x = jax.ShapeDtypeStruct((64, 50, 1024), "bfloat16")
        run = lambda params, x: lstm(params, x, algorithm=algorithm)[0]  # noqa: E731
        return described.launches(described.compile_for("h200", run, params, x))

    assert count("hopper") == 2 < count("gemm")


PLANS = list(itertools.product(described.TAILS, described.SHAPES, ("bfloat16", "float32")))


@pytest.mark.parametrize(
    ("combination", "shape", "dtype"),
    [
        plan if plan[1] == "3x3 28x28 256" else pytest.param(*plan, marks=pytest.mark.slow)
        for plan in PLANS
    ],
)
def test_a_plan_is_one_call_of_cudnn(combination, shape, dtype):
    """What auto chooses on a GPU; with float32 after the convolution it is not."""
    fused = described.plan_case(combination, shape, dtype, "xla_folded")
    program = described.compile_for("h200", fused.function, *fused.arguments)
    assert described.custom_calls(program) == {"__cudnn$convBiasActivationForward": 1}
    wide = described.plan_case(combination, shape, dtype, "xla")
    other = described.compile_for("h200", wide.function, *wide.arguments)
    if dtype == "bfloat16":
        assert described.custom_calls(other) == {"__cudnn$convForward": 1}
        # The result is not written and read once more.
        result = math.prod(wide.arguments[0].shape) * 2
        saved = described.traffic(other) - described.traffic(program)
        assert saved > 1.9 * result
    else:
        assert described.traffic(program) < 1.05 * described.traffic(other)


def test_every_solver_is_compiled():
    """Where a solver is added, its plans belong here, too."""
    assert set(SOLVERS) == {"xla", "xla_folded", "hopper", "tpu"}


@pytest.mark.parametrize("combination", described.TAILS)
def test_a_plan_by_the_kernel(combination):
    case = described.plan_case(combination, "1x1 28x28 256", "bfloat16", "hopper")
    program = described.compile_for("h200", case.function, *case.arguments)
    assert described.custom_calls(program) == {"mosaic_gpu_v2": 1}
