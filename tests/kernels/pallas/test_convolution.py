"""Fused convolutions: lowered for their platforms, and interpreted against float64."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels.activations import ACTIVATIONS
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.reference import arguments, reference
from jaxatr.kernels.ops.convolution.solvers.hopper import windows_of
from jaxatr.kernels.pallas.epilogue import Epilogue, folded
from jaxatr.kernels.pallas.hopper import convolution as hopper
from jaxatr.kernels.pallas.hopper import persistent
from jaxatr.kernels.pallas.rows import Rows
from jaxatr.kernels.pallas.tpu import convolution as tpu
from jaxatr.kernels.pallas.windows import Windows

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
SLOW = pytest.mark.slow
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


def windowed(rows):
    """Returns the geometry of rows in the form that Hopper's kernel takes."""
    size = rows.height, rows.width
    return Windows(rows.batch, size, size, rows.taps, before=tuple(p[0] for p in rows.padding))


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
    size = (8, 3, 3) if platform == "cuda" else (2, 6, 7)
    x, w, rows, epilogue, *extras = operands(geometry, epilogue, WIDTH[platform], dtype, size)
    run, place = MODULES[platform].convolution, rows if platform == "tpu" else windowed(rows)
    return kernels_in(platform, lambda x, w, *e: run(x, w, place, epilogue, *e), x, w, *extras)


@pytest.mark.parametrize("geometry", [ONE, pytest.param(THREE, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("platform", "dtype"),
    [("cuda", jnp.float16), ("cuda", jnp.float32), ("tpu", jnp.float32)],
)
def test_lowering_of_the_other_types(platform, dtype, geometry, kernels_in):
    assert lowered(platform, EPILOGUES[4], geometry, dtype, kernels_in) == 1


@pytest.mark.parametrize("activation", OTHER_ACTIVATIONS)
@pytest.mark.parametrize("platform", WIDTH)
def test_lowering_of_the_other_activations(platform, activation, kernels_in):
    epilogue = Epilogue(shift=True, activation=activation)
    assert lowered(platform, epilogue, ONE, jnp.bfloat16, kernels_in) == 1


def test_every_activation_is_lowered():
    assert {one.activation for one in EPILOGUES} | set(OTHER_ACTIVATIONS) == set(ACTIVATIONS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("geometry", "epilogue", "dtype", "size"),
    [
        (THREE, EPILOGUES[4], jnp.bfloat16, (8, 3, 3)),
        pytest.param(UNEVEN, EPILOGUES[1], jnp.float16, (9, 3, 4), marks=SLOW),  # a padded batch
        pytest.param(THREE, EPILOGUES[3], jnp.float16, (16, 1, 5), marks=SLOW),
        pytest.param(UNEVEN, EPILOGUES[2], jnp.bfloat16, (64, 3, 1), marks=SLOW),
        pytest.param(ONE, EPILOGUES[0], jnp.float16, (1, 5, 5), marks=SLOW),
        pytest.param(UNEVEN, EPILOGUES[4], jnp.float32, (9, 2, 3), marks=SLOW),
    ],
)
def test_hopper_interpreted(geometry, epilogue, dtype, size, mosaic, monkeypatch):
    """Several tiles per block, with several pixels each, and more products than slots."""
    monkeypatch.setattr(persistent, "BLOCKS", 1)
    x, w, rows, *rest = arguments = operands(geometry, epilogue, 64, dtype, size)
    y = hopper.convolution(x, w, windowed(rows), *rest, interpret=mosaic)
    check(y, exact(*arguments))


@pytest.mark.slow
def test_hopper_with_several_tiles_of_each_kind(mosaic, monkeypatch):
    """Tiles of rows and of features in two blocks; each pixel of a 1x1 kernel is an image."""
    monkeypatch.setattr(persistent, "BLOCKS", 2)
    x, w, rows, *rest = arguments = operands(ONE, EPILOGUES[2], 128, jnp.bfloat16, (3, 8, 9))
    tile = hopper.Tile(64, 64)
    y = hopper.convolution(x, w, windowed(rows), *rest, tile=tile, interpret=mosaic)
    check(y, exact(*arguments))


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(
    ("image", "taps", "stride", "padding"),
    [
        ((4, 5), (3, 3), (1, 1), ((1, 1), (1, 1))),
        ((5, 6), (3, 3), (2, 2), ((0, 1), (1, 1))),
        ((7, 4), (2, 5), (3, 1), ((2, 0), (1, 4))),
        ((6, 6), (1, 1), (2, 2), ((0, 0), (0, 0))),  # three phases of the gradient have no taps
        ((5, 5), (1, 1), (1, 1), ((0, 0), (0, 0))),
        ((1, 9), (1, 4), (1, 2), ((0, 0), (3, 0))),
    ],
)
@pytest.mark.parametrize("batch", [8, 24, 136, 256])
def test_each_result_is_computed_once_from_its_windows(
    image, taps, stride, padding, batch, gradient
):
    """The plan of the kernel, followed in NumPy with one channel, against the reference."""
    direction = "data" if gradient else "forward"
    shapes = (batch, *image, 1), (*taps, 1, 1)
    problem = ConvProblem(direction, *shapes, stride, padding, (1, 1), 1, "float32")
    x, w = arguments(problem, np.random.default_rng(0))
    plan = hopper._Plan(windows_of(problem), 64, hopper.Tile(128, 64), Epilogue())
    outside = np.pad(x[..., 0], ((0, 0), (0, 1), (0, 1)))  # zeros beyond the last row and column
    y, visits = np.zeros(problem.result_shape[:3]), np.zeros(problem.result_shape[:3], int)
    flat, lines = w.reshape(-1), np.arange(plan.images)
    for phase in itertools.product(*map(range, plan.windows.apart)):
        first, counts = plan.windows.taps_of(phase)
        units = jnp.arange(plan.per_phase * hopper.GROUPS * plan.units)
        image_of, pixel, within = plan.unit(phase, units)
        sums = np.zeros((units.size, plan.images))
        places = np.asarray(image_of)[:, None] + lines
        inside = places < batch
        for tap in itertools.product(*(range(int(n)) for n in counts)):
            row, column = (np.asarray(s)[:, None] for s in plan.windows.source(pixel, first, tap))
            read = outside[np.where(inside, places, 0), row, column]
            sums += np.where(inside, read, 0) * flat[int(plan.windows.number(first, tap))]
        keep = inside & np.asarray(within)[:, None]
        where = tuple(np.broadcast_to(np.asarray(p)[:, None], keep.shape)[keep] for p in pixel)
        np.add.at(visits, (places[keep], *where), 1)
        y[(places[keep], *where)] = sums[keep]
    assert (visits == 1).all()
    np.testing.assert_allclose(y, reference(problem, (x, w))[..., 0], atol=1e-5)


@pytest.mark.parametrize(
    ("geometry", "epilogue", "dtype"),
    [
        (THREE, EPILOGUES[4], jnp.bfloat16),
        (UNEVEN, EPILOGUES[3], jnp.float32),
        pytest.param(ONE, EPILOGUES[0], jnp.float32, marks=SLOW),
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
    x, w, rows, *rest = operands(ONE, EPILOGUES[0], 24, jnp.bfloat16)
    place = rows if module is tpu else windowed(rows)
    with pytest.raises(NotImplementedError, match="24 channels, 24 features, bfloat16; wanted"):
        module.convolution(x, w, place, *rest)


@pytest.mark.parametrize(
    ("windows", "wanted"),
    [
        (Windows(8, (4, 4), (4, 4), (3, 3), before=(1, 1)), True),
        (Windows(7, (4, 4), (4, 4), (3, 3), before=(1, 1)), False),  # fewer than 8 images
        (Windows(1, (4, 4), (4, 4), (1, 1)), True),
        (Windows(1, (4, 4), (2, 2), (1, 1), (2, 2)), False),
        # TMA drops the only row and column, so nothing would be outside.
        (Windows(8, (1, 1), (1, 1), (3, 3), before=(1, 1)), False),
        (Windows(8, (1, 1), (1, 1), (1, 1)), True),
        (Windows(2**20, (64, 64), (64, 64), (3, 3), before=(1, 1)), False),  # 2^32 results
    ],
)
def test_sizes_of_images_that_hopper_supports(windows, wanted):
    assert hopper.applies(windows, 64, 64, "bfloat16") is wanted


def test_an_image_that_does_not_fit_in_the_memory_of_a_core():
    assert tpu.applies(Rows(8, 28, 28, *THREE), 128, 128, "bfloat16")
    assert not tpu.applies(Rows(8, 224, 224, *THREE), 128, 128, "bfloat16")


def test_the_grid_has_at_most_a_block_per_multiprocessor():
    """With a block per tile, a launch of more than 65,535 along an axis would abort the process."""
    windows = Windows(256, (224, 224), (224, 224), (3, 3), before=(1, 1))
    images = jax.ShapeDtypeStruct((256, 224, 224, 64), "bfloat16")
    w = jax.ShapeDtypeStruct((3, 3, 64, 64), "bfloat16")
    traced = jax.make_jaxpr(lambda x, w: hopper.convolution(x, w, windows, Epilogue()))(images, w)
    (grid,) = set(re.findall(r"Mesh\(grid=\((.*?)\)", str(traced)))
    assert grid == "132,"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_the_slots_fit_in_shared_memory(epilogue, dtype):
    windows, size = Windows(8, (28, 28), (28, 28), (3, 3), before=(1, 1)), jnp.dtype(dtype).itemsize
    fit = hopper.tiles(windows, 128, dtype, epilogue)
    large = size == 4 and epilogue.residual  # the residuals of 256 by 128 leave two slots
    assert set(fit) == set(hopper.TILES) - ({hopper.Tile(128, 128)} if large else set())
    for tile in fit:
        plan = hopper._Plan(windows, 128, tile, epilogue, size)
        rows = hopper.GROUPS * tile.rows
        results = rows * (size * tile.columns if epilogue.residual else 128)
        vectors = 1024 * (epilogue.scale + epilogue.shift)
        used = 128 * plan.slots * (rows + tile.columns) + results + vectors + 1024
        assert plan.slots >= 3 and used <= 227 * 1024


def test_the_default_tile_occupies_the_device():
    windows = Windows(256, (28, 28), (28, 28), (3, 3), before=(1, 1))
    assert hopper.tiles(windows, 256)[0] == hopper.Tile(128, 128)
    assert hopper.tiles(windows, 320)[0] == hopper.Tile(128, 64)  # no multiple of 128
    small = Windows(32, (7, 7), (7, 7), (3, 3), before=(1, 1))
    assert hopper.tiles(small, 512)[0] == hopper.Tile(64, 64)
    assert set(hopper.tiles(small, 512)) == set(hopper.TILES)


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
