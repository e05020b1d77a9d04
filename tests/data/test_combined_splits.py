"""Images from a file as additional examples of a split."""

import numpy as np
import pytest

from jaxatr import data


class Images:
    """Records of constant images."""

    def __init__(self, count, side):
        self.images = np.full((count, side, side, 1), 0, np.uint8)
        self.images += np.arange(count, dtype=np.uint8)[:, None, None, None]

    def __getitem__(self, index):
        return {"image": self.images[index]}


def split_of(count, side=10):
    columns = {"label": np.arange(count) % 2, "id": 100 + np.arange(count)}
    columns |= {name: np.full(count, side) for name in ("height", "width")}
    columns["channels"] = np.ones(count, int)
    return data.Split("train", Images(count, side), columns, ("a", "b"), np.dtype(np.uint8))


def test_the_examples_come_first_and_nothing_is_cropped_twice():
    chip, indices = data.Chip(center_crop=8, size=4), np.array([5, 2])
    further = np.full((3, 4, 4, 1), 200, np.uint8)
    joined = data.chips_and_images(split_of(6), indices, chip, further)
    assert len(joined) == 5
    assert joined.chip_shape(np.arange(5), data.Chip()) == (4, 4, 1)
    found = joined.chips(np.arange(5), data.Chip(), (4, 4, 1))
    assert found[:, 0, 0, 0].tolist() == [5, 2, 200, 200, 200]
    assert joined.columns["label"].tolist() == [1, 0, -1, -1, -1]
    assert joined.columns["id"].tolist() == [105, 102, 106, 107, 108]  # none of the split's own


def test_a_batch_holds_both_kinds():
    joined = data.chips_and_images(
        split_of(6), np.arange(6), data.Chip(), np.full((2, 10, 10, 1), 9, np.uint8)
    )
    labels = np.array([0, 1, 0, 1, 0, 1, 2, 2])
    options = {"chip": data.Chip(), "batch_size": 8, "seed": 0}
    batch = next(data.train_batches(joined, np.arange(8), labels, **options))
    pixels = batch["image"][:, 0, 0, 0]
    assert sorted(pixels[batch["label"] == 2]) == [9, 9]
    assert sorted(pixels[batch["label"] != 2]) == [0, 1, 2, 3, 4, 5]


def test_a_written_split_is_read_back(tmp_path):
    images = np.random.default_rng(0).integers(0, 9, (3, 4, 4, 1)).astype(np.uint16)
    np.savez(tmp_path / "more.npz", images=images, mixtures=np.eye(3))
    found, fingerprint = data.read_images(tmp_path / "more.npz")
    np.testing.assert_array_equal(found, images)
    assert found.dtype == np.uint16 and [*tmp_path.iterdir()] == [tmp_path / "more.npz"]
    np.savez(tmp_path / "other.npz", images=images[::-1])
    assert data.read_images(tmp_path / "other.npz")[1] != fingerprint


def test_a_file_that_holds_no_images_is_named(tmp_path):
    with pytest.raises(ValueError, match="none.npz: there is no such file"):
        data.read_images(tmp_path / "none.npz")
    (tmp_path / "torn.npz").write_bytes(b"PK\3\4 no archive")
    with pytest.raises(ValueError, match="torn.npz: cannot read an array 'images'"):
        data.read_images(tmp_path / "torn.npz")
    np.savez(tmp_path / "other.npz", pictures=np.zeros(3))
    with pytest.raises(ValueError, match="other.npz: cannot read an array 'images'"):
        data.read_images(tmp_path / "other.npz")
    np.savez(tmp_path / "flat.npz", images=np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"flat.npz: got images of shape \(3, 4\)"):
        data.read_images(tmp_path / "flat.npz")


def test_a_sheet_has_a_row_for_each_title():
    dark, bright = np.zeros((8, 8, 1), np.uint8), np.full((8, 8, 1), 255, np.uint8)
    sheet = data.contact_sheet([("dark", [dark] * 3), ("bright", [bright]), ("", [dark])], side=20)
    pixels = np.asarray(sheet)
    assert sheet.mode == "L" and pixels.shape == (3 + 3 * 23 + 2 * 20, 3 + 3 * 23)
    assert pixels[20 + 10 + 3, 10] == 0 and pixels[20 + 10 + 3, 60] == 0
    assert pixels[3 + 20 + 23 + 20 + 10, 10] == 255
    assert pixels[-10, 10] == 0  # the untitled row follows closely
    colour = data.contact_sheet([("", [np.full((8, 8, 3), 7, np.uint8)])])
    assert colour.mode == "RGB"


def test_a_single_array_is_not_an_archive_of_arrays(tmp_path):
    np.save(tmp_path / "one.npy", np.zeros((1, 2, 2, 1)))
    with pytest.raises(ValueError, match="cannot read an array 'images'"):
        data.read_images(tmp_path / "one.npy")
