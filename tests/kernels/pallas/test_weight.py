"""Hopper's weight gradient: its plan in NumPy, interpreted against float64, and its limits."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels.benchmark import relative_error
from jaxatr.kernels.device import of_platform
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.reference import arguments, reference
from jaxatr.kernels.ops.convolution.solvers import SOLVERS
from jaxatr.kernels.ops.convolution.solvers.hopper import run, windows_of
from jaxatr.kernels.pallas.hopper import persistent, weight
from jaxatr.kernels.pallas.hopper.units import viewed
from jaxatr.kernels.pallas.windows import Windows

NONE, ONES, UNEVEN = ((0, 0), (0, 0)), ((1, 1), (1, 1)), ((1, 0), (0, 2))
SLOW = pytest.mark.slow
LAYER = Windows(32, (28, 28), (28, 28), (3, 3), before=(1, 1))


def problem(size, taps, stride, padding, channels=64, features=64, dtype="bfloat16"):
    shapes = (*size, channels), (*taps, channels, features)
    return ConvProblem("weight", *shapes, stride, padding, (1, 1), 1, dtype)


def compare(one, tile, interpret):
    given = OPERATION.arguments(one, np.random.default_rng(0))
    config = () if tile is None else tuple(vars(tile).items())
    result = run(one, config, *map(jnp.asarray, given), interpret=interpret)
    assert result.shape == one.w_shape and result.dtype == one.dtype
    error = relative_error(result, OPERATION.reference(one, given))
    assert error <= OPERATION.tolerance(one, of_platform("cpu"))
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "taps", "stride", "padding", "channels", "features", "dtype", "tile"),
    [
        ((8, 3, 3), (3, 3), (1, 1), ONES, 64, 64, "bfloat16", (64, 64, 3)),
        ((13, 5, 4), (3, 3), (2, 2), ONES, 64, 128, "float16", (128, 128, 2)),  # a padded batch
        ((3, 5, 6), (1, 1), (1, 1), NONE, 128, 64, "bfloat16", None),  # each pixel is an image
        pytest.param((16, 5, 5), (1, 1), (2, 2), NONE, 192, 64, "float16", None, marks=SLOW),
        pytest.param((72, 4, 1), (2, 3), (1, 2), UNEVEN, 64, 64, "float16", None, marks=SLOW),
        pytest.param((8, 3, 3), (3, 3), (1, 1), NONE, 64, 192, "bfloat16", None, marks=SLOW),
        pytest.param((9, 1, 1), (1, 1), (1, 1), NONE, 64, 64, "bfloat16", None, marks=SLOW),
    ],
)
def test_interpreted(
    size, taps, stride, padding, channels, features, dtype, tile, mosaic, monkeypatch
):
    """Several tiles per block, with several bands each, and more steps than slots."""
    monkeypatch.setattr(persistent, "BLOCKS", 2)
    one = problem(size, taps, stride, padding, channels, features, dtype)
    compare(one, tile and weight.Tile(*tile), mosaic)


@pytest.mark.slow
def test_empty_pieces_add_zeros(mosaic, monkeypatch):
    monkeypatch.setattr(persistent, "BLOCKS", 1)
    one = problem((8, 2, 2), (1, 2), (1, 1), NONE)  # a single step
    whole = compare(one, weight.Tile(64, 64, 1), mosaic)
    np.testing.assert_array_equal(whole, compare(one, weight.Tile(64, 64, 3), mosaic))


@pytest.mark.parametrize(("pieces", "kind"), [(1, "bf16[128,64]"), (3, "f32[384,64]")])
def test_only_partial_sums_are_float32(pieces, kind):
    one, tile = problem((8, 2, 2), (1, 2), (1, 1), NONE), weight.Tile(64, 64, pieces)
    given = [jax.ShapeDtypeStruct(shape, one.dtype) for shape in one.argument_shapes]
    traced = jax.make_jaxpr(partial(run, one, tuple(vars(tile).items())))(*given)
    assert f"{kind} = mpmd_map" in str(traced)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "taps", "stride", "padding"),
    [
        ((4, 5), (3, 3), (1, 1), ONES),
        ((5, 6), (3, 3), (2, 2), ((0, 1), (1, 1))),
        ((7, 4), (2, 5), (3, 1), ((2, 0), (1, 4))),
        ((6, 6), (1, 1), (2, 2), NONE),
        ((5, 5), (1, 1), (1, 1), NONE),
        ((1, 9), (1, 4), (1, 2), ((0, 0), (3, 0))),
        ((3, 3), (3, 3), (1, 1), NONE),  # a single result
    ],
)
@pytest.mark.parametrize("batch", [8, pytest.param(24, marks=SLOW), 136])
def test_each_product_is_added_once(image, taps, stride, padding, batch):
    """The steps of the kernel, followed in NumPy with one number per band, and the reference."""
    parts = 3  # of 64 channels
    one = problem((batch, *image), taps, stride, padding, parts, 1, "float32")
    windows = viewed(windows_of(one))
    x, y = given = arguments(one, np.random.default_rng(0))
    x, y = (
        x.reshape(windows.batch, *windows.image, parts),
        y.reshape(windows.batch, *windows.result),
    )
    plan = weight._Plan(windows, 64 * parts, 64, weight.Tile(128, 64, 1))
    image_of, pixel, within = plan.unit((0, 0), jnp.arange(plan.steps * plan.units))
    row, column, channel = plan.source(
        tuple(p[:, None] for p in pixel), jnp.arange(plan.bands)[None]
    )
    keep = np.asarray(within)
    places = np.asarray(image_of)[keep, None] + np.arange(plan.images)
    inside, places = places < windows.batch, np.minimum(places, windows.batch - 1)
    results = y[places, *(np.asarray(p)[keep, None] for p in pixel)] * inside
    outside = np.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)))  # zeros beyond the last row and column
    row, column = (np.asarray(p)[keep][:, None] for p in (row, column))
    read = outside[places[..., None], row, column, np.asarray(channel) // 64]
    sums = np.einsum("uib,ui->b", read, results)
    wanted = reference(one, given)
    np.testing.assert_allclose(sums.reshape(one.w_shape), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pieces", [1, 3, 40])
@pytest.mark.parametrize(("rows", "columns"), weight._SIZES)
def test_the_tiles_and_the_pieces_cover_everything_once(rows, columns, pieces):
    plan = weight._Plan(LAYER, 192, 256, weight.Tile(rows, columns, pieces))
    piece, first, feature = map(np.asarray, plan.place(jnp.arange(plan.tiles)))
    bands = first[:, None] + np.arange(2 * rows // 64)
    done = zip(*np.broadcast_arrays(piece[:, None], bands, feature[:, None]), strict=True)
    stored = [t for group in done for t in zip(*map(np.ndarray.tolist, group), strict=True)]
    stored = [(piece, band, feature) for piece, band, feature in stored if band < plan.bands]
    assert len(set(stored)) == len(stored) == pieces * 27 * 256 // columns
    steps = np.asarray(plan.steps_of(jnp.arange(pieces)))
    assert steps.sum() == plan.steps and (steps[:-1] == plan.length).all()


@pytest.mark.parametrize(
    ("windows", "wanted"),
    [
        (LAYER, True),
        (Windows(7, (4, 4), (4, 4), (3, 3), before=(1, 1)), False),  # fewer than 8 images
        (Windows(8, (1, 1), (1, 1), (3, 3), before=(1, 1)), False),
        (Windows(8, (3, 3), (1, 1), (3, 3)), True),
        (Windows(8, (1, 1), (1, 1), (1, 1)), False),  # nothing is outside of 8 images of one pixel
        (Windows(9, (1, 1), (1, 1), (1, 1)), True),
        (Windows(1, (4, 4), (4, 4), (1, 1)), True),
        (Windows(8, (4, 4), (4, 4), (3, 3), before=(1, 1), gradient=True), False),
        (Windows(2**20, (64, 64), (64, 64), (3, 3), before=(1, 1)), False),  # 2^32 results
        (Windows(8, (512, 512), (1, 1), (512, 512)), False),  # 2^31 rows of partial sums
    ],
)
def test_sizes_that_the_kernel_supports(windows, wanted):
    assert weight.applies(windows, 64, 64, "bfloat16") is wanted


def test_sizes_that_do_not_fit():
    x = jnp.zeros((8, 4, 4, 24), "bfloat16")
    with pytest.raises(NotImplementedError, match="24 channels, 24 features, bfloat16; wanted"):
        weight.weight_gradient(x, x, Windows(8, (4, 4), (4, 4), (1, 1)))
    assert not weight.applies(LAYER, 64, 64, "float32")


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("columns", [64, 128])
def test_the_slots_fit_in_shared_memory(rows, columns):
    plan = weight._Plan(LAYER, 128, 128, weight.Tile(rows, columns, 1))
    results = 2 * 2 * 64 * 128
    used = 2 * 64 * plan.slots * (2 * rows + columns) + results + 1024
    assert plan.slots >= 4 and used <= 227 * 1024


@pytest.mark.parametrize("width", [32, 64])  # of partial sums, and of a result in bfloat16
@pytest.mark.parametrize(("rows", "columns"), weight._SIZES)
def test_the_buffers_of_results_are_used_in_turn(rows, columns, width):
    """Otherwise a tile would overwrite the buffer that the tile before is still stored from.

    The interpreter, which stores immediately, would not find that.
    """
    plan = weight._Plan(LAYER, 128, 128, weight.Tile(rows, columns, 1))
    stores = (rows // 64) * (columns // width)
    assert plan.buffers(width) == (1 if stores == 1 else 2)
    assert stores % plan.buffers(width) == 0


def test_the_default_tile():
    """It has few empty rows, and the pieces occupy the device without a second round of tiles."""
    assert weight.tiles(LAYER, 256, 256)[0] == weight.Tile(128, 128, 7)  # 18 tiles
    assert weight.tiles(LAYER, 64, 64)[0] == weight.Tile(64, 64, 25)  # 9 bands in 5 tiles
    assert weight.tiles(LAYER, 1024, 1024)[0] == weight.Tile(128, 128, 1)  # 288 tiles
    point = Windows(32, (14, 14), (14, 14), (1, 1))
    assert weight.tiles(point, 64, 64)[0].rows == 64  # the least of two empty bands
    chosen = weight.tiles(LAYER, 256, 256)
    assert {(tile.rows, tile.columns) for tile in chosen} == set(weight._SIZES)
    assert {tile.pieces for tile in chosen[:3]} == {3, 7, 14}
    assert all(tile.columns == 64 for tile in weight.tiles(LAYER, 64, 192))


def test_no_piece_is_empty():
    tiny = Windows(8, (4, 4), (2, 2), (3, 3))
    for tile in weight.tiles(tiny, 64, 64):
        plan = weight._Plan(tiny, 64, 64, tile)
        steps = [int(plan.steps_of(piece)) for piece in range(tile.pieces)]
        assert min(steps) > 0 and sum(steps) == plan.steps == 1


def test_the_memory_of_partial_sums():
    solver = SOLVERS["hopper"]
    one = problem((32, 28, 28), (3, 3), (1, 1), ONES, 256, 256)
    assert solver.workspace_bytes(one) == 4 * 7 * math.prod(one.w_shape)
    wide = problem((32, 28, 28), (3, 3), (1, 1), ONES, 1024, 1024)
    assert solver.workspace_bytes(wide) == 0
    odd = problem((36, 28, 28), (3, 3), (1, 1), ONES, 1024, 1024)
    assert solver.workspace_bytes(odd) == odd.bytes(odd.x_shape) + odd.bytes(odd.y_shape)
