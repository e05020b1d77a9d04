"""The TPU's kernels compiled by libtpu, at the limits of the sizes that they support."""

import described
import kernel_cases
import program_reports
import pytest

PLATFORMS = ("tpu",)
CASES = {case.name: case for case in kernel_cases.tpu_cases()}
FAST = ("conv 3x3 8x14x14 128>128 bfloat16 scale", "lstm 512x4096 bfloat16", "conv 5x5 2x")


def slow(name):
    return name if name.startswith(FAST) else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize("name", list(map(slow, CASES)))
@pytest.mark.parametrize("device", ["v5e", pytest.param("v6e", marks=pytest.mark.slow)])
def test_a_kernel_fits_a_core(device, name):
    case = CASES[name]
    program = described.compile_for(device, case.function, *case.arguments)
    assert program_reports.custom_calls(program)["tpu_custom_call"] == 1
    assert program_reports.memory(program) <= described.DEVICES[device].memory


def test_the_compiler_sees_the_cost():
    case = CASES["conv 3x3 8x14x14 128>128 bfloat16 scale+shift+residual+relu"]
    program = described.compile_for("v5e", case.function, *case.arguments)
    # The kernel pads a line of 14 pixels to 16.
    assert program.cost_analysis()["flops"] >= 2 * 8 * 14 * 16 * 9 * 128 * 128


@pytest.mark.parametrize("combination", kernel_cases.TAILS)
def test_a_plan(combination):
    case = kernel_cases.plan_case(combination, "1x1 28x28 256", "bfloat16", "tpu")
    program = described.compile_for("v5e", case.function, *case.arguments)
    assert program_reports.custom_calls(program)["tpu_custom_call"] == 1
