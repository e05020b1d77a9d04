import functools
import importlib

import jax
import numpy as np
import pytest

# As an attribute, ``jaxatr.data.augment`` is the function, which hides its module.
augmentation = importlib.import_module("jaxatr.data.augment")
augment = jax.jit(
    augmentation.augment,
    static_argnames=(
        *("rotate_degrees", "flip_horizontal", "flip_vertical", "shift"),
        *("box_shift", "box_scale", "shape"),
    ),
)
rotate = jax.jit(augmentation.rotate)
flip_and_shift = jax.jit(augmentation.flip_and_shift)
cut = jax.jit(augmentation.cut, static_argnames="shape")

KEY = jax.random.key(3)
ALL = {"rotate_degrees": 20.0, "flip_horizontal": True, "flip_vertical": True, "shift": 3}


def images(count=6, height=10, width=10, channels=3):
    shape = (count, height, width, channels)
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def ids(count=6):
    return np.arange(count, dtype=np.int32) + 40


def zeros(count=6):
    return np.zeros(count, np.int32)


@pytest.mark.parametrize("size", [8, 9])
@pytest.mark.parametrize("turns", [0, 1, 2, 3, -1])
def test_quarter_turns_are_numpys(size, turns):
    x = images(2, size, size)
    turned = rotate(x, np.full(2, turns * np.pi / 2, np.float32))
    np.testing.assert_allclose(turned, np.rot90(x, turns, axes=(1, 2)), atol=1e-5)


def test_rotation_of_a_plane_is_the_plane_turned():
    # Bilinear interpolation is exact on a linear image, wherever no pixel comes from outside.
    y, x = np.mgrid[-8:9, -8:9].astype(np.float32)
    angle = 0.3
    turned = rotate(x[None, :, :, None], np.float32([angle]))[0, :, :, 0]
    inside = np.hypot(y, x) < 7
    expected = np.cos(angle) * x - np.sin(angle) * y
    np.testing.assert_allclose(turned[inside], expected[inside], atol=1e-5)


def test_rotation_matches_a_plain_loop():
    x = np.array(images(1, 7, 9, 1))[0, :, :, 0]
    angle = 0.7
    expected = np.zeros_like(x)

    def at(row, column):
        fold = lambda i, n: min(abs(i) % (2 * n - 2), 2 * n - 2 - abs(i) % (2 * n - 2))  # noqa: E731
        return x[fold(row, 7), fold(column, 9)]

    for r in range(7):
        for c in range(9):
            y, z = r - 3.0, c - 4.0
            row = np.cos(angle) * y + np.sin(angle) * z + 3
            column = np.cos(angle) * z - np.sin(angle) * y + 4
            i, j = int(np.floor(row)), int(np.floor(column))
            u, v = row - i, column - j
            expected[r, c] = (1 - u) * ((1 - v) * at(i, j) + v * at(i, j + 1)) + u * (
                (1 - v) * at(i + 1, j) + v * at(i + 1, j + 1)
            )
    turned = rotate(x[None, :, :, None], np.float32([angle]))
    np.testing.assert_allclose(turned[0, :, :, 0], expected, atol=1e-5)


def test_shift_is_a_window_of_the_reflected_image():
    x = images(3, 8, 6)
    shifts = np.array([[2, -1], [0, 3], [-2, 0]])
    moved = flip_and_shift(x, np.zeros((3, 2), bool), shifts)
    for image, (down, right), result in zip(np.array(x), shifts.tolist(), moved, strict=True):
        padded = np.pad(image, ((3, 3), (3, 3), (0, 0)), mode="reflect")
        expected = padded[3 - down : 3 - down + 8, 3 - right : 3 - right + 6]
        np.testing.assert_array_equal(result, expected)


def test_flips_mirror():
    x = images(4)
    flips = np.array([[False, False], [True, False], [False, True], [True, True]])
    y = flip_and_shift(x, flips, np.zeros((4, 2), int))
    for index, expected in enumerate([x[0], x[1, ::-1], x[2, :, ::-1], x[3, ::-1, ::-1]]):
        np.testing.assert_array_equal(y[index], expected)


def test_a_single_row_reflects_to_itself():
    x = images(1, 1, 5)
    moved = flip_and_shift(x, np.zeros((1, 2), bool), np.array([[2, 0]]))
    np.testing.assert_array_equal(moved, x)


def test_nothing_happens_by_default():
    x = images()
    np.testing.assert_array_equal(augment(KEY, x, ids(), zeros()), x)


def test_draws_depend_on_key_id_and_epoch():
    x = np.broadcast_to(images(1), (6, 10, 10, 3))
    first = augment(KEY, x, ids(), zeros(), **ALL)
    np.testing.assert_array_equal(augment(KEY, x, ids(), zeros(), **ALL), first)
    others = [
        augment(KEY, x, ids(), zeros() + 1, **ALL),
        augment(KEY, x, ids() + 100, zeros(), **ALL),
        augment(jax.random.key(4), x, ids(), zeros(), **ALL),
    ]
    for other in others:
        assert (abs(np.array(first) - other).max(axis=(1, 2, 3)) > 0.01).all()
    apart = abs(np.array(first)[:, None] - np.array(first)[None]).max(axis=(2, 3, 4))
    assert (apart[~np.eye(6, dtype=bool)] > 0.01).all()


def test_the_place_in_the_batch_does_not_matter():
    x, order = images(), np.array([4, 0, 5, 2, 1, 3])
    whole = np.asarray(augment(KEY, x, ids(), zeros(), **ALL))
    permuted = augment(KEY, x[order], ids()[order], zeros(), **ALL)
    np.testing.assert_allclose(permuted, whole[order], atol=1e-6)
    halves = [
        augment(KEY, x[part], ids()[part], zeros(3), **ALL) for part in (slice(3), slice(3, 6))
    ]
    np.testing.assert_allclose(np.concatenate(halves), whole, atol=1e-6)


@pytest.mark.slow  # runs op by op, each compiled separately
def test_jit_is_eager():
    given = images(2), np.array([[False, True]] * 2), np.array([[1, -2], [0, 3]])
    args = tuple(map(jax.device_put, given))
    np.testing.assert_array_equal(flip_and_shift(*args), augmentation.flip_and_shift(*args))


def test_amounts_are_spread_over_their_range():
    count = 4000
    ramp = np.broadcast_to(np.arange(9, dtype=np.float32)[None, :, None, None], (count, 9, 9, 1))
    moved = augment(KEY, ramp, np.arange(count), zeros(count), shift=2, flip_horizontal=True)
    down = 4 - np.asarray(moved)[:, 4, :, 0]
    assert (down == down[:, :1]).all()  # a mirrored ramp of rows is the same ramp
    values, counts = np.unique(down[:, 4], return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2]
    assert (np.abs(counts / count - 0.2) < 0.03).all()
    turned = np.array(
        augment(KEY, ramp, np.arange(count), zeros(count), rotate_degrees=10.0, flip_vertical=True)
    )[..., 0]
    upright = np.sign(turned[:, 5, 4] - turned[:, 3, 4])
    assert abs((upright < 0).mean() - 0.5) < 0.03
    sine = upright * (turned[:, 4, 5] - turned[:, 4, 3]) / 2  # a ramp turned is a plane
    degrees = np.rad2deg(np.arcsin(sine))
    assert np.abs(degrees).max() <= 10.001
    assert abs(degrees.mean()) < 0.5 and abs(degrees.std() - 10 / 3**0.5) < 0.3


def test_a_chip_is_the_middle_of_its_image():
    x = images(height=14, width=12)
    np.testing.assert_array_equal(augment(KEY, x, ids(), zeros(), shape=(8, 6)), x[:, 3:11, 3:9])
    # The draws are the same as without surroundings.
    alone = augment(KEY, x[:, 3:11, 3:9], ids(), zeros(), **ALL)
    np.testing.assert_array_equal(augment(KEY, x, ids(), zeros(), shape=(8, 6), **ALL), alone)


def test_a_box_off_by_whole_pixels_cuts_these_pixels():
    x = images(2, 12, 12)
    offsets = np.float32([[2.0, -1.0], [0.0, 3.0]])
    found = np.asarray(
        cut(x, np.zeros(2, np.float32), offsets, np.ones(2, np.float32), shape=(6, 6))
    )
    np.testing.assert_allclose(found[0], x[0, 5:11, 2:8], atol=1e-6)
    np.testing.assert_allclose(found[1], x[1, 3:9, 6:12], atol=1e-6)


def test_a_cut_matches_a_plain_loop():
    x, angle, scale = np.array(images(1, 9, 11, 1))[0, :, :, 0], 0.4, 1.3
    offset = (0.7, -1.2)
    expected = np.zeros((6, 6))

    def at(row, column):
        fold = lambda i, n: min(abs(i) % (2 * n - 2), 2 * n - 2 - abs(i) % (2 * n - 2))  # noqa: E731
        return x[fold(row, 9), fold(column, 11)]

    for r in range(6):
        for c in range(6):
            y, z = scale * (r - 2.5), scale * (c - 2.5)
            row = np.cos(angle) * y + np.sin(angle) * z + 4 + offset[0]
            column = np.cos(angle) * z - np.sin(angle) * y + 5 + offset[1]
            i, j = int(np.floor(row)), int(np.floor(column))
            u, v = row - i, column - j
            expected[r, c] = (1 - u) * ((1 - v) * at(i, j) + v * at(i, j + 1)) + u * (
                (1 - v) * at(i + 1, j) + v * at(i + 1, j + 1)
            )
    found = cut(
        x[None, :, :, None],
        np.float32([angle]),
        np.float32([offset]),
        np.float32([scale]),
        shape=(6, 6),
    )
    np.testing.assert_allclose(found[0, :, :, 0], expected, atol=1e-5)


def test_box_errors_stay_within_the_limit():
    """A ramp over the rows, which shows the position and size of a chip."""
    count = 4000
    ramp = np.broadcast_to(np.arange(30, dtype=np.float32)[None, :, None, None], (count, 30, 30, 1))
    asked = {"box_shift": 0.2, "box_scale": 0.1, "shape": (10, 10)}
    rows = np.array(augment(KEY, ramp, np.arange(count), zeros(count), **asked))[:, :, 0, 0]
    scales = (rows[:, -1] - rows[:, 0]) / 9
    offsets = rows.mean(axis=1) - 14.5
    for values, most in ((scales - 1, 0.1), (offsets, 2.0)):
        assert np.abs(values).max() <= most + 1e-4
        assert abs(values.mean()) < 0.05 * most
        assert values.std() == pytest.approx(most / 3**0.5, rel=0.05)
    assert abs(np.corrcoef(scales, offsets)[0, 1]) < 0.05


def test_boxes_draw_by_ids_of_their_own_and_leave_the_other_draws_alone():
    x = np.broadcast_to(images(1, 20, 20), (6, 20, 20, 3))
    asked = {"box_shift": 0.1, "shape": (10, 10)}
    one = np.asarray(augment(KEY, x, zeros(), zeros(), boxes=ids(), **asked))
    np.testing.assert_array_equal(one, augment(KEY, x, ids(), zeros(), **asked))
    assert np.all(abs(one[1:] - one[0]).max(axis=(1, 2, 3)) > 0.01)
    later = augment(KEY, x, ids(), zeros() + 1, **asked)
    assert np.all(abs(one - later).max(axis=(1, 2, 3)) > 0.01)
    flat = np.broadcast_to(np.arange(20, dtype=np.float32)[None, None, :, None], (400, 20, 20, 1))
    many = np.arange(400), zeros(400)
    mirrored = [
        np.array(augment(KEY, flat, *many, flip_horizontal=True, shape=(10, 10), **more))
        for more in ({}, {"box_shift": 0.05})
    ]
    np.testing.assert_array_equal(*(np.sign(m[:, 4, 5, 0] - m[:, 4, 4, 0]) for m in mirrored))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16"])
@pytest.mark.parametrize(
    "options", [{"rotate_degrees": 30.0}, {"box_shift": 0.1}, {"subpixel": 0.5}, {"gain": 2.0}]
)
def test_integers_count_as_floats(options, dtype):
    chips = np.random.default_rng(0).integers(0, 255, (4, 16, 16, 1))
    varied = jax.jit(functools.partial(augmentation.augment, **options))
    found, wanted = (varied(KEY, chips.astype(to), ids(4), zeros(4)) for to in (dtype, "float32"))
    np.testing.assert_array_equal(found, wanted)
