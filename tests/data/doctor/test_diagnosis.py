import dataclasses

import numpy as np
import pytest
import tifffile
from PIL import Image

from jaxatr.data import doctor
from jaxatr.data.doctor.alike import equal, nearly_equal
from jaxatr.data.doctor.facts import gather
from jaxatr.data.doctor.leaks import leaks
from jaxatr.data.source import all_options
from jaxatr.data.sources import image_folder

RNG = np.random.default_rng(1)


def noise(count, side=24):
    return list(RNG.integers(0, 256, (count, side, side, 1), dtype=np.uint8))


def listed(pairs):
    return set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))


def test_equal_images_are_paired(subject):
    a, b, c, d = noise(4)
    facts = gather(subject([a, b, a, c, b, a, d], [0, 0, 0, 0, 1, 0, 0]))
    assert listed(equal(facts)) == {(0, 2), (0, 5), (1, 4)}
    none = equal(gather(subject([a, b, c, d])))
    assert none.total == 0 and listed(none) == set()


def test_redundant_images_of_every_kind_are_paired(subject):
    a = np.zeros((8, 8, 1), np.uint8)
    pairs = equal(gather(subject([a] * 5, parts=[0, 1, 1, 1, 0])))
    within = {(0, 4), (1, 2), (1, 3)}
    assert listed(pairs) == within | {(0, 1), (0, 2), (0, 3), (1, 4)}


def test_many_equal_images_show_every_pair_of_kinds(subject):
    a = noise(1)[0]
    labels, parts = [0, 0, 1, 1], [0, 1, 0, 1]
    facts = gather(subject([a] * 4, labels, parts))
    pairs = equal(facts)
    kinds = {frozenset([(labels[i], parts[i]), (labels[j], parts[j])]) for i, j in listed(pairs)}
    assert len(kinds) == 6
    classes, splits = doctor.relations(facts, pairs)
    assert [
        bool(labels[i] != labels[j]) for i, j in zip(pairs.first, pairs.second, strict=True)
    ] == classes.tolist()
    assert splits.sum() == 4


def test_nearly_equal_images_by_every_pair(subject, monkeypatch):
    monkeypatch.setattr("jaxatr.data.doctor.alike._BLOCK", 4)  # several blocks
    images = noise(6)
    images += [np.clip(images[0] * 0.8 + 9, 0, 255).astype(np.uint8), images[1], images[2][::-1]]
    images.append(np.full((24, 24, 1), 3, np.uint8))
    facts = gather(subject(images))
    for least in (0.98, 0.05):
        pairs = nearly_equal(facts, least)
        expected = {
            (i, j)
            for i in range(len(images))
            for j in range(i + 1, len(images))
            if facts.small[i] @ facts.small[j] >= least and facts.digest[i] != facts.digest[j]
        }
        assert listed(pairs) == expected and pairs.total == len(expected)
        assert (np.diff(pairs.correlation) <= 0).all()
    assert listed(nearly_equal(facts, 0.98)) == {(0, 6)}


def test_too_many_pairs_are_counted_and_not_kept(subject, monkeypatch):
    monkeypatch.setattr("jaxatr.data.doctor.alike._MOST", 5)
    monkeypatch.setattr("jaxatr.data.doctor.alike._BLOCK", 4)
    base = np.arange(576, dtype=np.uint16).reshape(24, 24, 1)
    pairs = nearly_equal(gather(subject([base + i for i in range(9)])), 0.9)
    assert len(pairs.first) == 5 and pairs.total == 36
    # Those between classes and splits are kept, however many others precede them.
    images, labels = [base + i for i in range(9)], [0] * 7 + [0, 1]
    facts = gather(subject(images, labels, [0] * 7 + [1, 0]))
    pairs = nearly_equal(facts, 0.9)
    classes, splits = doctor.relations(facts, pairs)
    assert (classes | splits).sum() == 5 and len(pairs.first) == 10 and pairs.total == 36


def labelled(make, count=40, classes=3):
    """Images of classes in both splits, made from the class and noise."""
    labels = np.tile(np.arange(classes), count)
    parts = np.repeat([0, 1], count * classes // 2)
    return [make(label) for label in labels], labels, parts


@pytest.mark.parametrize("fact", ["size", "mean", "spread", "border", "nothing"])
def test_each_leak_is_found_and_no_other(subject, fact):
    def make(label):
        image = RNG.normal(size=(24, 24, 1))
        if fact == "border":
            image[0, :, 0] += 3 * label * (-1) ** np.arange(24)
            image[1, :, 0] -= 3 * label * (-1) ** np.arange(24)
        image = (image - image.mean()) / image.std()
        image = image * (1 + label * (fact == "spread")) + 4 * label * (fact == "mean")
        side = 24 + 2 * label if fact == "size" else 24
        return np.resize(image.astype(np.float32), (side, side, 1))

    told = {leak.fact: leak for leak in leaks(gather(subject(*labelled(make))), 0, 1)}
    assert list(told) == ["size", "mean", "spread", "border"]
    assert all(leak.chance == pytest.approx(1 / 3) for leak in told.values())
    known = {name for name, leak in told.items() if min(leak.share, leak.share_within) > 0.5}
    # The whole image's mean and spread are also the border's.
    also = {"mean": {"border"}, "spread": {"border"}}.get(fact, set())
    assert known == ({fact} - {"nothing"}) | also
    if fact == "nothing":
        assert max(leak.share for leak in told.values()) < 0.3


def test_leaks_need_two_classes_of_five_and_a_test_split_of_all(subject):
    images = noise(12)
    assert leaks(gather(subject(images, [0] * 8 + [1] * 4)), 0, None) == []
    told = leaks(gather(subject(images, [0] * 6 + [1] * 6)), 0, None)
    assert all(leak.across is None for leak in told) and len(told) == 4
    parts = [0] * 5 + [1] + [0] * 6
    told = leaks(gather(subject(images, [0] * 6 + [1] * 6, parts)), 0, 1)
    assert all(leak.across is None for leak in told)


def test_an_accuracy_that_guessing_reaches_is_not_a_leak():
    few = doctor.Leak("mean", 0.7, 0.7, 0.5, (20, 20))
    many = doctor.Leak("mean", 0.7, 0.7, 0.5, (200, 20))
    assert (few.share, few.share_within) == (0, 0)
    assert many.share == 0 and many.share_within == pytest.approx(0.4)
    assert doctor.Leak("mean", 0.7, None, 0.5, (200, 0)).share == pytest.approx(0.4)
    assert doctor.Leak("mean", 0.2, 0.3, 0.5, (200, 200)).share == 0


def test_the_findings_name_the_fault(subject):
    images, labels, parts = labelled(lambda label: noise(1, 24 + 4 * int(label))[0])
    images[0] = None
    images[1] = images[4]  # same class and split
    images[2] = np.zeros((24, 24, 1), np.uint16)
    labels = labels.copy()
    labels[2] = 3
    images[-1] = images[5]  # other split
    images[-2] = images[3]  # other split and other class
    found = doctor.examine(subject(images, labels, parts))
    written = [f"{one.level}: {one.text}" for one in found.findings]
    expected = [
        "error: 1 file cannot be read",
        "error: 1 pair of equal images of two classes: labels contradict each other "
        "(image 3 and image 118)",
        "error: 1 pair of equal images of two splits (image 5 and image 119)",
        "error: bit depths differ: 1 uint16, 118 uint8 (uint16: image 2)",
        "warning: 1 pair of equal images of one class and split",
        "warning: the classes of train are uneven: b has 20 images, d 1",
        "warning: classes of fewer than 10 images in train: d 1",
        "warning: 1 image is constant",
    ]
    assert [line for line in written if line in expected] == expected
    assert any(line.startswith("warning: the size alone gives the class away:") for line in written)
    assert "note: not in test: d" in written
    assert "note: 3 sizes, 24 to 32 high and 24 to 32 wide" in written
    assert found.counts.tolist() == [[19, 20, 19, 1], [20, 20, 20, 0]]
    assert written == sorted(written, key=lambda line: "ewn".index(line[0]))


def test_a_clean_set_has_no_findings(subject):
    found = doctor.examine(subject(*labelled(lambda label: noise(1)[0])))
    assert [one for one in found.findings if one.level != "note"] == []


def test_a_class_of_the_test_split_alone_and_a_draw_are_noted(subject):
    images = noise(40)
    labels, parts = [0, 1] * 10 + [2] * 20, [0] * 20 + [1] * 20
    # A file that was left out when the set was prepared is not one of the 40.
    given = dataclasses.replace(subject(images, labels, parts), unreadable=(("a", "damaged"),))
    texts = [one.text for one in doctor.examine(given, limit=39).findings]
    assert "not in train, therefore unknown in a run without open_set.split: c" in texts
    assert "39 of 40 images were drawn and read" in texts


def test_alike_is_a_correlation(subject):
    with pytest.raises(ValueError, match=r"alike: got 1.5, wanted a correlation in \(0, 1\]"):
        doctor.examine(subject(noise(2)), alike=1.5)


def test_of_two_splits_of_other_names_the_larger_is_the_training_split(subject):
    labels = [0, 1] * 10 + [0, 1] * 20
    given = subject(noise(60), labels, [0] * 20 + [1] * 40)
    found = doctor.examine(dataclasses.replace(given, splits=("exam", "learn")))
    assert found.leaks and all(leak.across is not None for leak in found.leaks)
    assert not any("in exam" in one.text for one in found.findings)


def test_classes_are_counted_beyond_the_draw(subject):
    images = noise(40)
    found = doctor.examine(subject(images, labels=[0] * 20 + [1] * 20), limit=12)
    assert found.counts[0].tolist() == [20, 20]
    assert not [one for one in found.findings if "fewer than" in one.text]


def test_images_of_one_name_are_counted_one_by_one(subject):
    images = [np.full((8, 8, 1), number, np.uint8) for number in range(6)]
    given = subject([*images[:3], None, *images[4:]], labels=[0, 1] * 3)
    found = doctor.examine(dataclasses.replace(given, names=["clip 1"] * 4 + ["clip 2"] * 2))
    assert found.counts[0].tolist() == [3, 2]
    assert found.facts.unreadable == (("clip 1", "image 3 is damaged"),)


def folder_findings(root, tmp_path, **options):
    settings = all_options(image_folder.PART, options)
    folder = image_folder.image_folder(root, settings, tmp_path / "scratch")
    return [one.text for one in doctor.examine(doctor.of_folder(folder, "mine")).findings]


def test_what_files_and_folders_say_beside_the_pixels(tmp_path):
    root, exif = tmp_path / "set", Image.Exif()
    exif[274] = 6
    rng = np.random.default_rng(0)
    for outer in ("x", "y"):
        for inner in ("1", "Unknown"):
            (root / outer / f"{outer}{inner}").mkdir(parents=True)
    (root / "x/none").mkdir()
    (root / "z").mkdir()

    def made(*shape):
        return Image.fromarray(rng.integers(0, 255, shape, np.uint8))

    made(8, 8, 3).save(root / "x/x1/turned.jpg", exif=exif)
    made(8, 8, 3).save(root / "x/xUnknown/turned.png", exif=exif)
    made(8, 8, 4).save(root / "y/y1/alpha.png")
    made(8, 8, 3).save(root / "y/y1/plain.png")
    tifffile.imwrite(
        root / "y/yUnknown/band.tif", np.array(made(8, 8, 4)), photometric="rgb", extrasamples=[0]
    )
    (root / "x/xUnknown").rename(root / "x/unknown")
    found = folder_findings(root, tmp_path)
    assert "folders of classes without images: z, x/none" in found
    assert "2 images have an EXIF orientation, which is not applied" in found
    assert "1 image has an alpha plane, which is dropped" in found
    assert any(one.startswith("numbers of bands differ: 4 of 3, 1 of 4 (4: y/") for one in found)
    assert any(one.startswith("a class is called 'unknown', which is") for one in found)
    assert "the folders were read as coarse/class: coarse classes of fine ones" in found
    assert "all images have 8x8 pixels, the only size that a run then accepts" in found
    given = folder_findings(root, tmp_path, layout="coarse/class")
    assert [text for text in found if text not in given] == [
        "the folders were read as coarse/class: coarse classes of fine ones"
    ]


@pytest.mark.parametrize("scale", [1e-9, 1e-30, 1e9])
def test_the_units_of_the_images_do_not_matter(subject, scale):
    rng = np.random.default_rng(0)
    labels, parts = np.tile([0, 1], 24), np.repeat([0, 1], 24)
    images = [(rng.normal(10 + label, 1, (12, 12, 1))).astype(np.float32) for label in labels]
    images[5], images[7] = images[3] * np.float32(1.5), np.full((12, 12, 1), 3, np.float32)

    def findings(factor):
        scaled = [(one.astype(np.float64) * factor).astype(np.float32) for one in images]
        return [one.text for one in doctor.examine(subject(scaled, labels, parts)).findings]

    wanted = findings(1)
    assert any("gives the class away" in text for text in wanted)
    assert any("nearly equal" in text for text in wanted)
    assert "1 image is constant" in wanted
    assert findings(scale) == wanted
