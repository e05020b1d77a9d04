import numpy as np
import pytest

from jaxatr.data import Chip
from jaxatr.data.chip import cut_out

RNG = np.random.default_rng(0)


def image(height, width, channels=1, dtype=np.uint8):
    if np.issubdtype(dtype, np.integer):
        top = np.iinfo(dtype).max
        return RNG.integers(0, top, (height, width, channels), dtype=dtype, endpoint=True)
    return RNG.normal(0, 1000, (height, width, channels)).astype(dtype)


def test_nothing_happens_by_default():
    x = image(7, 9)
    assert Chip()(x) is x


@pytest.mark.parametrize(
    "height, width, top, left", [(158, 158, 15, 15), (9, 8, 2, 2), (4, 4, 0, 0)]
)
def test_center_crop_is_the_middle(height, width, top, left):
    side = 128 if height > 128 else 4
    x = image(height, width)
    expected = x[top : top + side, left : left + side]
    np.testing.assert_array_equal(Chip(center_crop=side)(x), expected)


def test_the_blanked_centre_is_that_of_the_image():
    x = image(11, 8) // 2 + 1
    chip = Chip(blank_center=3, center_crop=6)(x)
    around = np.ones((6, 6), bool)
    around[2:5, 1:4] = False  # rows 4 to 6 and columns 2 to 4 of the image
    np.testing.assert_array_equal(chip[around], x[2:8, 1:7][around])
    assert not chip[~around].any()
    np.testing.assert_array_equal(Chip(blank_center=20)(x), 0 * x)


def test_crop_larger_than_the_image_is_refused():
    with pytest.raises(ValueError, match="100x90 is smaller than data.center_crop=128"):
        Chip(center_crop=128)(image(100, 90))


def test_square_pads_evenly_and_keeps_pixels():
    x = image(4, 7)
    chip = Chip(square=True)(x)
    assert chip.shape == (7, 7, 1)
    np.testing.assert_array_equal(chip[1:5], x)
    assert not chip[:1].any() and not chip[5:].any()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
def test_resize_keeps_dtype_range_and_mean(dtype, channels):
    x = image(64, 64, channels, dtype)
    chip = Chip(size=16)(x)
    assert chip.dtype == dtype and chip.shape == (16, 16, channels)
    assert chip.min() >= x.min() and chip.max() <= x.max()
    spread = x.astype(float).std()
    np.testing.assert_allclose(chip.mean((0, 1)), x.mean((0, 1)), atol=0.05 * spread)
    # Antialiased: averages over 4x4 pixels vary far less than the pixels do.
    assert chip.astype(float).std() < 0.35 * spread


@pytest.mark.parametrize("dtype, value", [(np.uint8, 255), (np.uint16, 65535), (np.float32, 1e9)])
def test_resize_of_a_constant_is_the_constant(dtype, value):
    x = np.full((10, 20, 1), value, dtype)
    np.testing.assert_allclose(Chip(size=7)(x), np.full((7, 7, 1), value, dtype), rtol=1e-6)


def test_sixteen_bits_resize_as_eight_bits_do():
    x = image(40, 40, 3)
    wide = Chip(size=13)(x.astype(np.uint16) * 256)
    np.testing.assert_allclose(wide / 256, Chip(size=13)(x), atol=1)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_channels_both_ways(dtype):
    gray = image(5, 6, 1, dtype)
    colour = Chip(channels=3)(gray)
    assert colour.shape == (5, 6, 3) and colour.dtype == dtype
    back = Chip(channels=1)(colour)
    assert back.dtype == dtype
    np.testing.assert_allclose(back, gray, rtol=1e-5)


def test_gray_is_the_luma():
    pure = np.zeros((1, 3, 3), np.uint8)
    pure[0, range(3), range(3)] = 255
    assert Chip(channels=1)(pure)[0, :, 0].tolist() == [76, 150, 29]


@pytest.mark.parametrize(
    "chip",
    [Chip(), Chip(center_crop=5), Chip(square=True), Chip(size=9), Chip(channels=3),
     Chip(5, 6, True, 4, 3), Chip(square=True, size=3)],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(7, 9, 1), (8, 6, 3)])
def test_output_shape_is_the_shape(chip, shape):
    assert chip.output_shape(shape) == chip(image(*shape)).shape


@pytest.mark.parametrize(
    "fields", [{"center_crop": -1}, {"blank_center": -1}, {"size": -2}, {"channels": 17}]
)
def test_geometry_that_is_none_is_refused(fields):
    with pytest.raises(ValueError, match=f"data.{next(iter(fields))}"):
        Chip(**fields)


def test_two_channels_are_not_guessed():
    with pytest.raises(ValueError, match="2 bands cannot"):
        Chip(channels=3)(image(4, 4, 2))


GEOMETRIES = [
    Chip(), Chip(center_crop=20), Chip(square=True), Chip(size=16), Chip(size=48),
    Chip(center_crop=22, size=11), Chip(square=True, size=18), Chip(channels=3),
]  # fmt: skip


@pytest.mark.parametrize("chip", GEOMETRIES)
@pytest.mark.parametrize("shape", [(24, 36, 1), (36, 24, 3), (36, 36, 1)])
def test_masks_and_boxes_follow_the_image(chip, shape):
    """A white block, whose mask is where the chip exceeds half brightness, and whose box fits."""
    y0, x0, y1, x1 = 9, 7, 17, 23
    block = np.zeros(shape, np.float32)
    block[y0:y1, x0:x1] = 1
    mask = chip.mask(np.uint8(block[:, :, :1]))
    assert mask.dtype == bool and mask.shape == chip(block).shape[:2]
    bright = chip(block)[:, :, 0]
    np.testing.assert_array_equal(mask[np.abs(bright - 0.5) > 1e-3], bright[bright != 0.5] > 0.5)
    box = chip.box(np.array([y0, x0, y1, x1], np.float32), shape)
    assert box.dtype == np.float32
    rows, columns = np.nonzero(mask)
    found = [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]
    np.testing.assert_allclose(found, box, atol=0.51)


def test_boxes_by_hand():
    box = np.array([1, 2, 9, 11])
    shape = (10, 14, 1)
    assert Chip().box(box, shape).tolist() == [1, 2, 9, 11]
    # Rows 2 to 8, columns 4 to 10: cut off at the crop's edges.
    assert Chip(center_crop=6).box(box, shape).tolist() == [0, 0, 6, 6]
    assert Chip(square=True).box(box, shape).tolist() == [3, 2, 11, 11]
    assert Chip(square=True, size=7).box(box, shape).tolist() == [1.5, 1, 5.5, 5.5]
    assert Chip(size=28).box(box, shape).tolist() == pytest.approx([2.8, 4, 25.2, 22])
    with pytest.raises(ValueError, match="10x14 is smaller than data.center_crop=11"):
        Chip(center_crop=11).box(box, shape)


def test_a_thin_mask_keeps_its_fullest_pixels_and_a_lost_one_is_empty():
    thin = np.zeros((40, 40, 1), np.uint8)
    thin[20, 13] = 1
    small = Chip(size=10).mask(thin)
    assert 1 <= small.sum() <= 2 and small[5, 3]
    assert not Chip(center_crop=8).mask(thin).any()
    assert not Chip(size=10).mask(np.zeros_like(thin)).any()


def test_surroundings_are_concentric():
    x = image(15, 20)
    chip = Chip(center_crop=6)
    assert chip.cuts and not Chip(size=6).cuts and not Chip(center_crop=6, size=4).cuts
    np.testing.assert_array_equal(chip.surrounded(3)(x)[3:-3, 3:-3], chip(x))
    with pytest.raises(ValueError, match="only a chip cut out by data.center_crop"):
        Chip(center_crop=6, size=4).surrounded(1)


@pytest.mark.parametrize("dtype, channels", [(np.uint8, 1), (np.uint8, 3), (np.uint16, 1)])
def test_a_part_is_cut_out(dtype, channels):
    x = image(12, 14, channels, dtype)
    np.testing.assert_array_equal(cut_out(x, (2.0, 3.0, 8.0, 9.0), 6), x[2:8, 3:9])
    ramp = np.repeat(np.arange(0.0, 24)[:, None, None], 24, axis=1).astype(np.float32)
    # Pixels of one and a half: the first one's middle is 4.25 + 0.75, half a pixel below row 4.5.
    found = cut_out(ramp, (4.25, 4.25, 13.25, 13.25), 6)[:, 2, 0]
    np.testing.assert_allclose(found, 4.5 + 1.5 * np.arange(6), atol=1e-4)


def test_a_part_that_reaches_out_is_refused():
    with pytest.raises(ValueError, match="wanted one inside of 7x9 pixels"):
        cut_out(image(7, 9), (1.0, 1.0, 8.0, 8.0), 6)
