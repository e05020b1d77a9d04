"""The geometry in JAX operations against Pillow and NumPy, bit-exact where possible."""

import jax
import numpy as np
import pytest

from jaxatr.data.bands import Choice
from jaxatr.data.chip import Chip
from jaxatr.data.traced_chip import traced_chips

SIDE = 12

CASES = [
    (Chip(size=SIDE, channels=1), (12, 12, 1)),
    (Chip(size=SIDE, channels=1), (40, 31, 1)),
    (Chip(size=SIDE, channels=1), (5, 9, 1)),
    (Chip(size=SIDE, channels=1), (150, 7, 3)),
    (Chip(size=SIDE, square=True, channels=3), (30, 41, 3)),
    (Chip(size=SIDE, square=True, channels=3), (7, 4, 1)),
    (Chip(center_crop=SIDE, channels=1), (12, 12, 1)),
    (Chip(center_crop=SIDE, channels=1), (17, 30, 1)),
    (Chip(center_crop=20, size=SIDE, blank_center=5, channels=1), (25, 31, 1)),
    (Chip(size=SIDE, blank_center=50, channels=1), (25, 60, 1)),
    (Chip(size=SIDE, choice=Choice((4, 0, 1), 5)), (20, 31, 5)),
]


def image_of(shape, dtype):
    rng = np.random.default_rng(0)
    if dtype == np.float32:
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0, np.iinfo(dtype).max, shape, endpoint=True).astype(dtype)


def traced(chip, image, shape):
    """The chip of one image, compiled as a whole: operation by operation takes far longer."""
    return np.asarray(jax.jit(lambda x: traced_chips(chip, x, shape))(image[None]))[0]


@pytest.mark.parametrize(
    "dtype",
    [np.uint8, *(pytest.param(one, marks=pytest.mark.slow) for one in (np.uint16, np.float32))],
)
@pytest.mark.parametrize(("chip", "shape"), CASES)
def test_chips_are_those_of_the_host(chip, shape, dtype):
    image = image_of(shape, dtype)
    wanted = chip(image)
    found = traced(chip, image, wanted.shape)
    assert found.dtype == np.float32
    if dtype == np.uint8:
        np.testing.assert_array_equal(found, wanted)
    elif dtype == np.uint16:  # Pillow sums in double precision and rounds once
        apart = np.abs(found - wanted)
        assert apart.max() <= 1 and apart.mean() < 0.02
    else:
        np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.slow
def test_every_reduction_has_pillows_rounding():
    """Many sizes are tested, so that a weight that is off by 2⁻²² has an effect somewhere."""
    chip = Chip(size=9, channels=1)
    for side in range(1, 120, 9):
        image = image_of((side, 119 - side, 1), np.uint8)
        found = traced(chip, image, (9, 9, 1))
        np.testing.assert_array_equal(found, chip(image), err_msg=str(side))


def test_a_gray_midway_is_the_even_one():
    colours = np.array([[[500, 0, 0], [0, 500, 0]]], np.uint16)  # 149.5 and 293.5
    chip = Chip(channels=1)
    assert chip(colours).ravel().tolist() == [150, 294]
    found = traced(chip, colours, (1, 2, 1))
    assert np.ravel(found).tolist() == [150, 294]


def random_chip(rng):
    """A geometry of random fields without a resize, which may refuse an image."""
    return Chip(
        blank_center=int(rng.choice([0, 3, 9])),
        center_crop=int(rng.choice([0, 0, 7])),
        square=bool(rng.integers(2)),
        channels=[None, 1, 3][rng.integers(3)],
    )


def test_random_fields_give_the_chips_of_the_host():
    rng, refused = np.random.default_rng(0), 0
    for _ in range(12):
        chip, channels = random_chip(rng), int(rng.choice([1, 3]))
        image = image_of((*rng.integers(5, 13, 2), channels), np.uint8)
        try:
            wanted = chip(image)
        except ValueError:
            refused += 1
            with pytest.raises(ValueError, match="smaller than data.center_crop"):
                traced(chip, image, (7, 7, channels))
            continue
        found = traced(chip, image, wanted.shape)
        np.testing.assert_array_equal(found, wanted, err_msg=f"{chip} of {image.shape}")
    assert 0 < refused < 6


EXPORTED = [
    (Chip(square=True), (9, 9, 1), [(9, 9), (6, 9), (9, 4)], [(10, 9), (8, 7), (1, 1), (18, 18)]),
    (Chip(square=True, blank_center=3), (9, 9, 1), [(8, 9), (9, 1)], [(12, 3)]),
    (Chip(center_crop=6), (6, 6, 1), [(6, 6), (9, 8), (13, 7)], [(5, 6), (4, 9), (1, 36)]),
    (Chip(center_crop=6, choice=Choice((3, 1), 4)), (6, 6, 2), [(9, 8)], [(5, 6)]),
]


@pytest.mark.parametrize(("chip", "shape", "taken", "refused"), EXPORTED)
def test_an_exported_graph_takes_what_the_host_takes(tmp_path, chip, shape, taken, refused):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from jaxatr.onnx import export
    from jaxatr.onnx.writer.trace import FreeAxis

    bands = chip.choice.of if chip.choice else 1
    path, example = tmp_path / "chips.onnx", np.zeros((1, *shape[:2], bands), np.uint8)
    least = chip.center_crop or 1
    axes = {1: FreeAxis("height", least), 2: FreeAxis("width", least)}
    export(lambda _, x: traced_chips(chip, x, shape), {}, example, path, free_axes=[axes])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options)
    for sides in taken:
        images = np.stack([image_of((*sides, bands), np.uint8)] * 2)
        (found,) = session.run(None, {"x": images})
        np.testing.assert_array_equal(found, np.stack([chip(image) for image in images]))
    for sides in refused:
        with pytest.raises(Exception, match="out of data bounds"):
            session.run(None, {"x": image_of((1, *sides, bands), np.uint8)})
