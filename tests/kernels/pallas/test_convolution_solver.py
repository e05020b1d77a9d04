"""The Pallas kernels as convolution solvers: lowered, and interpreted in both directions."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels.benchmark import relative_error
from jaxatr.kernels.device import Device, of_platform
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers import SOLVERS, hopper, tpu
from jaxatr.kernels.pallas.hopper import persistent

SLOW = pytest.mark.slow
GPU, TPU = Device("gpu", "NVIDIA H200"), Device("tpu", "TPU v5 lite")
UNEVEN = ((1, 0), (0, 2))
SIZE = (8, 6, 7)


def problem(
    direction,
    width,
    dtype="bfloat16",
    taps=(2, 3),
    padding=UNEVEN,
    stride=(1, 1),
    size=(2, 6, 7),
    **rest,
):
    sizes = (*size, width), (*taps, width, 2 * width)
    options = {"dilation": (1, 1), "groups": 1} | rest
    return ConvProblem(direction, *sizes, stride, padding, dtype=dtype, **options)


def interpreted(run, one, interpret):
    given = OPERATION.arguments(one, np.random.default_rng(0))
    result = run(*map(jnp.asarray, given), interpret=interpret)
    assert result.shape == one.result_shape and result.dtype == one.dtype
    error = relative_error(result, OPERATION.reference(one, given))
    assert error <= OPERATION.tolerance(one, of_platform("cpu"))


@pytest.mark.parametrize(
    ("direction", "stride", "size"),
    [
        ("data", (2, 1), (8, 3, 3)),
        pytest.param("forward", (2, 2), (8, 5, 3), marks=pytest.mark.slow),
        pytest.param("forward", (1, 2), (24, 2, 5), marks=pytest.mark.slow),
        pytest.param("data", (1, 1), (8, 3, 3), marks=pytest.mark.slow),
        pytest.param("data", (2, 3), (10, 4, 4), marks=pytest.mark.slow),
        ("weight", (2, 1), (8, 3, 3)),
        pytest.param("weight", (1, 2), (12, 3, 4), marks=pytest.mark.slow),
    ],
)
def test_hopper_interpreted(direction, stride, size, mosaic, monkeypatch):
    monkeypatch.setattr(persistent, "BLOCKS", 2)
    one = problem(direction, 64, stride=stride, size=size)
    interpreted(partial(hopper.run, one, SOLVERS["hopper"].configs(one)[-1]), one, mosaic)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "stride"), [("forward", (2, 1)), pytest.param("data", (1, 2), marks=SLOW)]
)
def test_hopper_in_float32(direction, stride, mosaic, monkeypatch):
    """The interpreter multiplies float32 exactly, where the tensor cores use TF32."""
    monkeypatch.setattr(persistent, "BLOCKS", 2)
    one = problem(direction, 64, "float32", stride=stride, size=(8, 3, 3))
    interpreted(partial(hopper.run, one, ()), one, mosaic)


def test_full_precision_is_not_tf32():
    one = problem("forward", 64, "float32", size=SIZE)
    with jax.default_matmul_precision("highest"):
        assert not SOLVERS["hopper"].applies(one, GPU)
        assert SOLVERS["hopper"].applies(dataclasses.replace(one, dtype="float16"), GPU)
    assert SOLVERS["hopper"].applies(one, GPU)
    assert not SOLVERS["hopper"].applies(one.in_direction("weight"), GPU)


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
    one = problem(direction, 128, dtype)
    interpreted(partial(tpu.run, one), one, tpu_interpreter)


def test_a_strided_product_reads_the_pixels_that_it_needs():
    one = problem("forward", 128, taps=(1, 1), padding=((0, 0), (0, 0)), stride=(2, 3))
    interpreted(partial(tpu.run, one), one, True)


@pytest.mark.parametrize(
    ("platform", "target", "width", "dtype"),
    [
        ("cuda", GPU, 64, "bfloat16"),
        ("tpu", TPU, 128, "bfloat16"),
        pytest.param("cuda", GPU, 64, "float16", marks=pytest.mark.slow),
        ("cuda", GPU, 64, "float32"),
        pytest.param("tpu", TPU, 128, "float32", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("direction", ["forward", "data"])
def test_lowering(platform, target, width, dtype, direction, kernels_in):
    one = problem(direction, width, dtype, size=(8, 3, 3))
    (name,) = {"hopper", "tpu"} & {n for n, s in SOLVERS.items() if s.applies(one, target)}
    given = [jax.ShapeDtypeStruct(shape, one.dtype) for shape in one.argument_shapes]
    assert kernels_in(platform, SOLVERS[name].build(one, ()), *given) == 1


def test_problems_outside_a_kernels_reach_are_left_to_others():
    def applies(device, *arguments, **options):
        one = problem(*arguments, **options)
        return any(SOLVERS[name].applies(one, device) for name in ("hopper", "tpu"))

    assert applies(GPU, "forward", 64, size=SIZE) and applies(TPU, "data", 128)
    assert not applies(of_platform("cpu"), "forward", 128)
    assert not applies(Device("gpu", "NVIDIA A100-SXM4-40GB"), "forward", 64, size=SIZE)
    assert applies(GPU, "weight", 64, size=SIZE) and not applies(TPU, "weight", 128)
    assert not applies(GPU, "forward", 64, dtype="float64", size=SIZE)
    assert not applies(GPU, "forward", 24, size=SIZE)
    assert not applies(TPU, "forward", 128, stride=(2, 2))
    assert applies(GPU, "forward", 64, stride=(2, 2), size=SIZE)
    assert not applies(GPU, "forward", 64, size=(2, 6, 7))  # fewer than 8 images
    assert not applies(GPU, "forward", 64, padding=((-1, 0), (0, 0)), size=SIZE)
    assert not applies(GPU, "forward", 64, dilation=(1, 2), size=SIZE)
    assert not applies(TPU, "data", 128, padding=((2, 0), (0, 0)))  # more than the taps reach
    assert applies(GPU, "data", 64, padding=((2, 0), (0, 0)), size=SIZE)


def test_only_an_odd_batch_and_a_kernel_in_float32_are_copied():
    copied = SOLVERS["hopper"].workspace_bytes
    assert copied(problem("forward", 64, size=SIZE)) == 0
    wide = problem("forward", 64, "float32", size=SIZE)
    assert copied(wide) == wide.bytes(wide.w_shape) and copied(wide.in_direction("data")) == 0
    assert copied(problem("data", 64, size=(12, 6, 7))) > 0
    assert SOLVERS["tpu"].workspace_bytes(problem("forward", 128)) > 0


def test_the_tiles_of_hopper_are_configurations():
    configs = SOLVERS["hopper"].configs(problem("forward", 64, size=SIZE))
    assert len(configs) == 4 and (("columns", 128), ("rows", 128)) in configs
    configs = SOLVERS["hopper"].configs(problem("data", 64, size=SIZE))  # 64 features
    assert len(configs) == 2 and all(dict(one)["columns"] == 64 for one in configs)
