import numpy as np
import pytest
from PIL import Image

from jaxatr import data
from jaxatr.data.doctor.facts import SIDE, border, gather, small
from jaxatr.data.doctor.subject import of_dataset, of_folder
from jaxatr.data.sources.image_folder.folder import divided, find

RNG = np.random.default_rng(0)


def test_the_facts_are_those_of_the_pixels(subject):
    images = [
        RNG.integers(0, 256, (10, 14, 3), dtype=np.uint8),
        None,
        RNG.integers(0, 9999, (16, 16, 1), dtype=np.uint16),
    ]
    facts = gather(subject(images, [1, 0, 0], [0, 1, 1]))
    assert facts.number.tolist() == [0, 2] and facts.unreadable == (
        ("image 1", "image 1 is damaged"),
    )
    assert facts.label.tolist() == [1, 0] and facts.part.tolist() == [0, 1]
    assert facts.size.tolist() == [[10, 14, 3], [16, 16, 1]]
    assert facts.dtype.tolist() == ["uint8", "uint16"] and facts.total == 3
    gray = images[0].mean(axis=2)
    np.testing.assert_allclose(facts.mean[0], gray.mean())
    np.testing.assert_allclose(facts.spread[0], gray.std())
    ring = [gray[y, x] for y in range(10) for x in range(14) if y in (0, 9) or x in (0, 13)]
    expected = [np.mean(ring), np.std(ring), *np.quantile(ring, [0.1, 0.5, 0.9])]
    sides = [gray[0], gray[-1], gray[:, 0], gray[:, -1]]
    np.testing.assert_allclose(facts.border[0], expected + [side.mean() for side in sides])


def test_small_images_correlate_as_images_do():
    block = RNG.normal(size=(SIDE, SIDE))
    large = np.kron(block, np.ones((3, 3)))
    np.testing.assert_allclose(small(block) @ small(5 * large + 100), 1, rtol=1e-5)
    np.testing.assert_allclose(small(block) @ small(-large), -1, rtol=1e-5)
    other = RNG.normal(size=(SIDE, SIDE))
    expected = np.corrcoef(block.ravel(), other.ravel())[0, 1]
    np.testing.assert_allclose(small(block) @ small(other), expected, atol=1e-5)
    assert not small(np.full((9, 9), 7.0)).any() and not small(np.full((9, 9), 1e7 / 3)).any()


def test_a_border_of_one_pixel_and_an_image_that_is_all_border():
    assert len(border(np.ones((1, 1)))) == len(border(np.ones((64, 48)))) == 9


def test_a_limit_draws_and_a_chip_cuts(subject):
    images = [np.full((9, 9, 1), number, np.uint8) for number in range(40)]
    images[5] = np.zeros((3, 3, 1), np.uint8)
    first = gather(subject(images), limit=10)
    assert len(first.number) == 10 and (np.diff(first.number) > 0).all() and first.total == 40
    assert gather(subject(images), limit=10).number.tolist() == first.number.tolist()
    cut = gather(subject(images), chip=data.Chip(center_crop=5))
    assert {tuple(size) for size in cut.size} == {(5, 5, 1)}
    assert [name for name, _ in cut.unreadable] == ["image 5"]


def test_nothing_to_read_is_an_error(subject):
    with pytest.raises(ValueError, match="mine: none .*image 0 is damaged"):
        gather(subject([None, None]))


def test_a_folder_equals_its_prepared_set(tmp_path):
    for name in "ab":
        for number in range(4):
            path = tmp_path / "chips" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(RNG.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    (tmp_path / "chips/a/x.txt").write_text("")
    dataset = data.open_dataset("image_folder", source=tmp_path / "chips", data_dir=tmp_path / "d")
    raw, made = of_folder(divided(find(tmp_path / "chips"), 0.2), "chips"), of_dataset(dataset)
    assert raw.classes == made.classes and raw.splits == made.splits
    one, other = gather(raw), gather(made)
    assert one.digest.tolist() == other.digest.tolist() and one.part.tolist() == other.part.tolist()
    assert made.names == raw.names
    assert raw.passed == ("1 of type .txt (first: a/x.txt)",)
    assert made.passed == ("left out: 1 of type .txt (first: a/x.txt)",)
