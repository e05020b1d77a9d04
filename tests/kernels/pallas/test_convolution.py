"""Fused convolutions: lowered for their platforms, and interpreted against float64."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels.activations import ACTIVATIONS
from jaxatr.kernels.pallas.epilogue import Epilogue, folded
from jaxatr.kernels.pallas.hopper import convolution as hopper
from jaxatr.kernels.pallas.rows import Rows
from jaxatr.kernels.pallas.tpu import convolution as tpu

ONE = ((1, 1), ((0, 0), (0, 0)))
THREE = ((3, 3), ((1, 1), (1, 1)))
UNEVEN = ((2, 3), ((1, 0), (0, 2)))
EPILOGUES = [
    Epilogue(),
    Epilogue(shift=True, activation="relu"),
    Epilogue(scale=True, shift=True, activation="swish"),
    Epilogue(residual=True, activation="leaky_relu"),
    Epilogue(scale=True, shift=True, residual=True, activation="tanh"),
]
WIDTH = {"cuda": 64, "tpu": 128}
MODULES = {"cuda": hopper, "tpu": tpu}
OTHER_ACTIVATIONS = ["elu", "abs", "relu6", "sigmoid"]


def draw(shape, dtype, seed, scale=1.0):
    return jnp.asarray(scale * np.random.default_rng(seed).standard_normal(shape), dtype)


def operands(geometry, epilogue, channels, dtype, size=(2, 6, 7)):
    taps, padding = geometry
    rows = Rows(*size, taps, padding)
    x = draw((*size, channels), dtype, 0)
    w = draw((*taps, channels, channels), dtype, 1, (taps[0] * taps[1] * channels) ** -0.5)
    scale, shift = (
        draw((channels,), jnp.float32, seed) if has else None
        for seed, has in ((2, epilogue.scale), (3, epilogue.shift))
    )
    residual = draw((*size, channels), dtype, 4) if epilogue.residual else None
    return x, w, rows, epilogue, scale, shift, residual


def exact(x, w, rows, epilogue, scale, shift, residual):
    """Computes the sum over taps and then each step of the epilogue, in float64."""
    x, w = (np.asarray(a, np.float64) for a in (x, w))
    padded = np.pad(x, ((0, 0), *rows.padding, (0, 0)))
    y = sum(
        padded[:, i : i + rows.height, j : j + rows.width] @ w[i, j]
        for i in range(rows.taps[0])
        for j in range(rows.taps[1])
    )
    y = y if scale is None else y * np.asarray(scale, np.float64)
    y = y if shift is None else y + np.asarray(shift, np.float64)
    y = y if residual is None else y + np.asarray(residual, np.float64)
    return {
        "none": lambda: y,
        "relu": lambda: np.maximum(y, 0),
        "leaky_relu": lambda: np.where(y > 0, y, y / 100),
        "tanh": lambda: np.tanh(y),
        "swish": lambda: y / (1 + np.exp(-y)),
    }[epilogue.activation]()


def check(y, wanted):
    tolerance = {"float32": 1.5e-6, "float16": 8.2e-3, "bfloat16": 8 * 8.2e-3}[y.dtype.name]
    error = np.sqrt(np.mean((np.asarray(y, np.float64) - wanted) ** 2)) / abs(wanted).max()
    assert y.shape == wanted.shape and error < tolerance
    np.testing.assert_allclose(np.float64(y), wanted, atol=30 * tolerance)


@pytest.mark.parametrize(
    ("epilogue", "geometry"),
    [
        *((epilogue, ONE) for epilogue in EPILOGUES),
        (EPILOGUES[4], THREE),
        *(pytest.param(epilogue, THREE, marks=pytest.mark.slow) for epilogue in EPILOGUES[:4]),
    ],
)
@pytest.mark.parametrize("platform", WIDTH)
def test_lowering(platform, epilogue, geometry, kernels_in):
    assert lowered(platform, epilogue, geometry, jnp.bfloat16, kernels_in) == 1


def lowered(platform, epilogue, geometry, dtype, kernels_in):
    x, w, rows, epilogue, *extras = operands(geometry, epilogue, WIDTH[platform], dtype)
    run = MODULES[platform].convolution
    return kernels_in(platform, lambda x, w, *e: run(x, w, rows, epilogue, *e), x, w, *extras)


@pytest.mark.parametrize("geometry", [ONE, pytest.param(THREE, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("platform", "dtype"), [("cuda", jnp.float16), ("tpu", jnp.float32)])
def test_lowering_of_the_other_types(platform, dtype, geometry, kernels_in):
    assert lowered(platform, EPILOGUES[4], geometry, dtype, kernels_in) == 1


@pytest.mark.parametrize("activation", OTHER_ACTIVATIONS)
@pytest.mark.parametrize("platform", WIDTH)
def test_lowering_of_the_other_activations(platform, activation, kernels_in):
    epilogue = Epilogue(shift=True, activation=activation)
    assert lowered(platform, epilogue, ONE, jnp.bfloat16, kernels_in) == 1


def test_every_activation_is_lowered():
    assert {one.activation for one in EPILOGUES} | set(OTHER_ACTIVATIONS) == set(ACTIVATIONS)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("geometry", "epilogue", "dtype"),
    [
        (THREE, EPILOGUES[4], jnp.bfloat16),
        (UNEVEN, EPILOGUES[1], jnp.float16),
        pytest.param(ONE, EPILOGUES[0], jnp.bfloat16, marks=SLOW),  # as in several tiles, below
        pytest.param(ONE, EPILOGUES[0], jnp.float16, marks=SLOW),
        pytest.param(THREE, EPILOGUES[4], jnp.float16, marks=SLOW),
        pytest.param(UNEVEN, EPILOGUES[1], jnp.bfloat16, marks=SLOW),
    ],
)
def test_hopper_interpreted(geometry, epilogue, dtype, mosaic):
    arguments = operands(geometry, epilogue, 64, dtype)
    check(hopper.convolution(*arguments, interpret=mosaic), exact(*arguments))


def test_hopper_with_several_tiles_of_each_kind(mosaic):
    """Two tiles of rows, two of features, and more products than slots."""
    arguments = operands(ONE, EPILOGUES[2], 320, jnp.bfloat16, size=(3, 8, 9))
    check(hopper.convolution(*arguments, interpret=mosaic), exact(*arguments))


@pytest.mark.parametrize(
    ("geometry", "epilogue", "dtype"),
    [
        (ONE, EPILOGUES[0], jnp.float32),
        (THREE, EPILOGUES[4], jnp.bfloat16),
        (UNEVEN, EPILOGUES[3], jnp.float32),
        pytest.param(ONE, EPILOGUES[0], jnp.bfloat16, marks=SLOW),
        pytest.param(THREE, EPILOGUES[4], jnp.float32, marks=SLOW),
        pytest.param(UNEVEN, EPILOGUES[3], jnp.bfloat16, marks=SLOW),
    ],
)
def test_tpu_interpreted(geometry, epilogue, dtype, tpu_interpreter):
    arguments = operands(geometry, epilogue, 128, dtype)
    check(tpu.convolution(*arguments, interpret=tpu_interpreter), exact(*arguments))


@pytest.mark.parametrize("module", [hopper, tpu])
def test_sizes_that_do_not_fit(module):
    arguments = operands(ONE, EPILOGUES[0], 24, jnp.bfloat16)
    with pytest.raises(NotImplementedError, match="got 24 channels, 24 features, bfloat16; wanted"):
        module.convolution(*arguments)


def test_an_image_that_does_not_fit_in_the_memory_of_a_core():
    assert tpu.applies(Rows(8, 28, 28, *THREE), 128, 128, "bfloat16")
    assert not tpu.applies(Rows(8, 224, 224, *THREE), 128, 128, "bfloat16")


def test_more_rows_of_tiles_than_the_second_axis_of_a_grid_takes():
    """There are 104,864; a launch of more than 65,535 along that axis would abort the process."""
    rows, images = (
        Rows(256, 224, 224, *THREE),
        jax.ShapeDtypeStruct((256, 224, 224, 64), "bfloat16"),
    )
    w = jax.ShapeDtypeStruct((3, 3, 64, 64), "bfloat16")
    assert hopper.applies(rows, 64, 64, "bfloat16")
    traced = jax.make_jaxpr(lambda x, w: hopper.convolution(x, w, rows, Epilogue()))(images, w)
    (grid,) = set(re.findall(r"Mesh\(grid=\((.*?)\)", str(traced)))
    assert grid == "104864,"


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("columns", [64, 128])
def test_two_blocks_share_a_multiprocessor(columns, epilogue):
    """Of 228 KiB, each block reserves one; buffers are aligned to whole KiB."""
    slots = hopper._slots(columns, epilogue)
    beside = 2 * 128 * columns * epilogue.residual
    vectors = 1024 * (epilogue.scale + epilogue.shift)
    used = 2 * slots * 64 * (128 + columns) + beside + vectors + 8 * (slots + 1) + 1024
    assert slots == 4 if columns == 128 and epilogue.residual else 2 * used <= 228 * 1024
    assert used <= 227 * 1024


def test_the_cost_is_stated():
    x, w, rows, epilogue, *extras = operands(THREE, EPILOGUES[4], 128, jnp.bfloat16)
    traced = jax.make_jaxpr(lambda *a: tpu.convolution(*a[:2], rows, epilogue, *a[2:]))(
        x, w, *extras
    )
    (call,) = [e for e in traced.eqns if e.primitive.name == "pallas_call"]
    cost = call.params["cost_estimate"]
    assert cost.flops == 2 * 2 * 6 * 16 * 9 * 128 * 128  # lines of 7 pixels are padded to 16
    assert cost.transcendentals == 2 * 6 * 16 * 128
    assert cost.bytes_accessed >= w.nbytes + x.nbytes


def test_folded_batch_norm():
    gamma, beta, mean, bias = (draw((5,), jnp.float32, seed) for seed in range(4))
    variance, a = jnp.arange(1.0, 6.0), draw((3, 5), jnp.float32, 9)
    scale, shift = folded(gamma, beta, mean, variance, 1e-3, bias)
    wanted = gamma * (a + bias - mean) / jnp.sqrt(variance + 1e-3) + beta
    np.testing.assert_allclose(a * scale + shift, wanted, rtol=1e-4, atol=1e-5)


def test_an_activation_that_is_not_known():
    with pytest.raises(ValueError, match="activation: got 'gelu', wanted one of"):
        Epilogue(activation="gelu")
