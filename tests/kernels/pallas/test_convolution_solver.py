"""The Pallas kernels as convolution solvers: lowered, and interpreted in both directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels.benchmark import relative_error
from jaxatr.kernels.device import Device, of_platform
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.kernels.ops.convolution.solvers import SOLVERS, pallas

GPU, TPU = Device("gpu", "NVIDIA H200"), Device("tpu", "TPU v5 lite")
UNEVEN = ((1, 0), (0, 2))


def problem(direction, width, dtype="bfloat16", taps=(2, 3), padding=UNEVEN, stride=(1, 1), **rest):
    sizes = (2, 6, 7, width), (*taps, width, 2 * width)
    options = {"dilation": (1, 1), "groups": 1} | rest
    return Problem(direction, *sizes, stride, padding, dtype=dtype, **options)


def interpreted(target, one, interpret):
    given = OPERATION.arguments(one, np.random.default_rng(0))
    result = pallas.run(target, one, *map(jnp.asarray, given), interpret=interpret)
    assert result.shape == one.result_shape and result.dtype == one.dtype
    error = relative_error(result, OPERATION.reference(one, given))
    assert error <= OPERATION.tolerance(one, of_platform("cpu"))


@pytest.mark.parametrize("direction", ["forward", "data"])
def test_hopper_interpreted(direction, mosaic):
    interpreted("hopper", problem(direction, 64), mosaic)


@pytest.mark.parametrize(
    ("direction", "dtype"),
    [
        ("forward", "bfloat16"),
        ("data", "float32"),
        pytest.param("forward", "float32", marks=pytest.mark.slow),
        pytest.param("data", "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_tpu_interpreted(direction, dtype, tpu_interpreter):
    interpreted("tpu", problem(direction, 128, dtype), tpu_interpreter)


def test_a_strided_product_reads_the_pixels_that_it_needs():
    one = problem("forward", 128, taps=(1, 1), padding=((0, 0), (0, 0)), stride=(2, 3))
    interpreted("tpu", one, True)


@pytest.mark.parametrize(
    ("platform", "target", "width", "dtype"),
    [
        ("cuda", GPU, 64, "bfloat16"),
        ("tpu", TPU, 128, "bfloat16"),
        pytest.param("cuda", GPU, 64, "float16", marks=pytest.mark.slow),
        pytest.param("tpu", TPU, 128, "float32", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("direction", ["forward", "data"])
def test_lowering(platform, target, width, dtype, direction, kernels_in):
    one = problem(direction, width, dtype)
    (name,) = {"hopper", "tpu"} & {n for n, s in SOLVERS.items() if s.applies(one, target)}
    given = [jax.ShapeDtypeStruct(shape, one.dtype) for shape in one.argument_shapes]
    assert kernels_in(platform, SOLVERS[name].build(one, ()), *given) == 1


def test_problems_outside_a_kernels_reach_are_left_to_others():
    def applies(device, *arguments, **options):
        one = problem(*arguments, **options)
        return any(SOLVERS[name].applies(one, device) for name in ("hopper", "tpu"))

    assert applies(GPU, "forward", 64) and applies(TPU, "data", 128)
    assert not applies(of_platform("cpu"), "forward", 128)
    assert not applies(Device("gpu", "NVIDIA A100-SXM4-40GB"), "forward", 64)
    assert not applies(GPU, "weight", 64)
    assert not applies(GPU, "forward", 64, dtype="float32")
    assert not applies(GPU, "forward", 24)
    assert not applies(GPU, "forward", 64, stride=(2, 2))
    assert not applies(GPU, "forward", 64, dilation=(1, 2))
    assert not applies(GPU, "data", 64, padding=((2, 0), (0, 0)))  # more than the taps reach
    assert SOLVERS["hopper"].workspace_bytes(problem("forward", 64)) > 0
