"""The examples of a run."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tifffile

from jaxatr.data import Intake
from jaxatr.tasks.examples import Examples


def test_images_are_normalised_unless_they_are_not_to_be(small_config):
    config = small_config.copy_and_resolve_references()
    examples = Examples(config)
    train = examples.parts["train"]
    chips = train.chips(np.arange(len(train.indices))).astype(np.float32)
    normal = np.asarray(examples.normalize(chips))
    np.testing.assert_allclose([normal.mean(), normal.std()], [0, 1], atol=1e-3)
    config.data.normalize = False
    raw = Examples(config)
    np.testing.assert_array_equal(raw.normalize(chips), chips)
    assert raw.record["normalization"] == {"mean": [0.0], "std": [1.0]}


@pytest.mark.parametrize("name", ["offset", "erase", "background", "gain"])
def test_augmentations_do_not_depend_on_who_normalises(small_config, name):
    config = small_config.copy_and_resolve_references()
    config.augment[name] = 2.0 if name == "gain" else 1.0
    examples = Examples(config)
    images = examples.parts["train"].chips(np.arange(4)).astype(np.float32)
    ids, epochs = jnp.arange(4), jnp.zeros(4, int)
    normal = examples.augment(jax.random.key(0), examples.normalize(images), ids, epochs)
    config.data.normalize = False
    found = Examples(config).augment(jax.random.key(0), jnp.asarray(images), ids, epochs)
    np.testing.assert_allclose(found, normal * examples.std + examples.mean, rtol=1e-4, atol=1e-3)
    assert np.abs(found - images).max() > 1


def test_chips_of_added_classes_are_neither_tested_nor_validated_on(small_config, tmp_path):
    before = Examples(small_config)
    held, tested = (before.parts[name].chips(np.arange(3)) for name in ("validation", "test"))
    known = [before.split.known[label] for label in before.parts["validation"].labels[:3]]
    names = np.array([*known, *["new"] * 3])
    np.savez(tmp_path / "more.npz", images=np.concatenate([held, tested]), names=names)
    examples = Examples(small_config)
    examples.add_classes(str(tmp_path / "more.npz"))
    for part in ("validation", "test"):
        gone = set(before.fingerprints(part)[:3])
        left = examples.fingerprints(part)[: len(before.parts[part].indices) - 3]
        assert not gone & set(left)  # what follows are added chips that are held out


def test_chips_that_are_added_later_do_not_move_those_that_are_held_out(small_config, tmp_path):
    images = Examples(small_config).parts["test"].chips(np.arange(24))
    held = []
    for count in (12, 24):
        names, rounds = np.resize(["new", "newer"], count), np.arange(count) // 12
        np.savez(tmp_path / "more.npz", images=images[:count], names=names, rounds=rounds)
        examples = Examples(small_config)
        own = {*examples.fingerprints("validation")}
        examples.add_classes(str(tmp_path / "more.npz"))
        held.append({*examples.fingerprints("validation")} - own)
    first = {hashlib.sha256(image.tobytes()).hexdigest() for image in images[:12]}
    assert held[0] and held[1] & first == held[0] and len(held[1]) == 2 * len(held[0])


def test_truth_is_empty_where_the_data_says_none(small_config):
    test = Examples(small_config).parts["test"]
    assert test.truth(np.arange(2)) == (None, None)


GDAL = "".join(
    f'<Item name="DESCRIPTION" sample="{place}" role="description">{name}</Item>'
    for place, name in enumerate(("blue", "green", "red", "nir"))
)


@pytest.fixture
def banded(small_config, tmp_path):
    """A configuration for two classes of images of four named bands of 16 bits."""
    rng, config = np.random.default_rng(0), small_config.copy_and_resolve_references()
    for name in ("car", "tank"):
        (tmp_path / name).mkdir()
        for number in range(6):
            values = rng.integers(0, 4000, (24, 24, 4)).astype(np.uint16)
            options = {"photometric": "minisblack", "planarconfig": "contig", "metadata": None}
            tags = [(42112, "s", 0, GDAL, True)]
            tifffile.imwrite(tmp_path / f"{name}/{number}.tif", values, **options, extratags=tags)
    config.data.source, config.open_set.split = str(tmp_path), "closed"
    return config


def test_bands_are_chosen_shown_and_recorded(banded):
    banded.data.bands = "nir,red,green"
    banded.data.preview_bands = "2"
    examples = Examples(banded)
    assert examples.image_shape == (24, 24, 3) and examples.preview == (2,)
    assert examples.record["bands"] == {
        **{"names": ["blue", "green", "red", "nir"], "files": [], "phase": False},
        **{"of": 4, "used": [4, 3, 2], "preview": [3]},
    }
    test = examples.parts["test"]
    image, chip = test.split.image(test.indices[0]), test.chips(np.array([0]))[0]
    np.testing.assert_array_equal(chip, image[..., [3, 2, 1]])
    assert examples.thumbnails("test", np.array([0]))["image"].shape == (1, 24, 24, 1)
    assert len(examples.record["normalization"]["mean"]) == 3
    intake = Intake.of_run(banded, examples.record)
    np.testing.assert_array_equal(intake(image), chip)
    np.testing.assert_array_equal(intake.shown(chip).ravel()[[chip[..., 2].argmax()]], [255])
    with pytest.raises(ValueError, match="got an image of 3 bands, wanted 4 bands"):
        intake(image[..., :3])


def test_all_bands_are_used_by_default(banded):
    examples = Examples(banded)
    assert examples.image_shape == (24, 24, 4) and examples.preview == (2, 1, 0)
    assert examples.record["bands"]["used"] == []
    batch = next(examples.train_batches())
    ids, epochs = jnp.asarray(batch["id"]), jnp.zeros(len(batch["id"]), jnp.int32)
    images = examples.normalize(batch["image"])
    made = examples.augment(jax.random.key(0), images, ids, epochs)
    assert made.shape == batch["image"].shape


@pytest.mark.parametrize(
    "fields, why",
    [
        ({"bands": "5"}, "data.bands: there is no band '5', wanted 1 to 4 or blue"),
        ({"bands": "rad"}, "data.bands: there is no band 'rad'"),
        ({"channels": 3}, "4 bands cannot be turned into data.channels=3"),
        ({"preview_bands": "1,2"}, "data.preview_bands: got '1,2', wanted one band or three"),
        ({"bands": "1,2", "preview_bands": "3"}, "band 3 is none of those that the chips have"),
    ],
)
def test_bands_that_are_not_there(banded, fields, why):
    banded.data.update(fields)
    with pytest.raises(ValueError, match=why):
        Examples(banded)


def test_gray_images_record_no_bands(small_config):
    assert "bands" not in Examples(small_config).record
