"""A small FGVC-Aircraft: the published layout with random images above a banner."""

import numpy as np
import pytest
from PIL import Image

from jaxatr import data

# Number, split, variant, family, manufacturer and box (xmin, ymin, xmax, ymax from 1) of images
# of 30 columns and 44 rows, the lower 20 of which are the banner.
IMAGES = [
    ("0034309", "train", "707-320", "Boeing 707", "Boeing", (1, 1, 30, 24)),
    ("0034958", "train", "737-200", "Boeing 737", "Boeing", (3, 5, 20, 10)),
    ("0037511", "train", "737-300", "Boeing 737", "Boeing", (2, 2, 29, 40)),
    ("0037512", "train", "F/A-18", "F/A-18", "McDonnell Douglas", (4, 4, 5, 5)),
    ("0038598", "val", "737-200", "Boeing 737", "Boeing", (2, 2, 20, 20)),
    ("0038626", "val", "F/A-18", "F/A-18", "McDonnell Douglas", (2, 2, 20, 20)),
    ("1000001", "test", "737-300", "Boeing 737", "Boeing", (2, 2, 20, 20)),
    ("1000002", "test", "F/A-18", "F/A-18", "McDonnell Douglas", (2, 2, 31, 20)),
]
LISTS = {
    "variants": ["707-320", "737-200", "737-300", "A380", "F/A-18"],  # A380 has no image
    "families": ["Boeing 707", "Boeing 737", "A380", "F/A-18"],
    "manufacturers": ["Boeing", "Airbus", "McDonnell Douglas"],
}
LEVELS = ("variant", "family", "manufacturer")


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "fgvc-aircraft-2013b" / "data"
    (root / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number, *_ in IMAGES:
        pixels = rng.integers(0, 200, (44, 30, 3), np.uint8)
        pixels[-20:] = 255
        # JPEG in full colour resolution and blocks of 8 rows: the banner starts inside of one.
        Image.fromarray(pixels).save(root / f"images/{number}.jpg", quality=95, subsampling=0)
    for name, lines in LISTS.items():
        (root / f"{name}.txt").write_text("".join(f"{line} \n" for line in lines))
    for place, level in enumerate(LEVELS, 2):
        for split in ("train", "val", "test"):
            rows = [f"{row[0]} {row[place]}\n" for row in IMAGES if row[1] == split]
            (root / f"images_{level}_{split}.txt").write_text("".join(rows))
    boxes = [" ".join(map(str, (row[0], *row[5]))) for row in IMAGES]
    (root / "images_box.txt").write_text("\n".join(boxes))
    (root.parent / "evaluation.m").write_text("% not data")
    return root


def prepared(root, data_dir, **arguments):
    return data.prepare("fgvc_aircraft", source=root, data_dir=data_dir, **arguments)


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_every_image_comes_back_without_its_banner(root, data_dir):
    dataset = prepared(root.parent, data_dir)
    assert dataset.classes == ("707-320", "737-200", "737-300", "F/A-18")
    assert dataset.coarse_classes == ("Boeing 707", "Boeing 737", "F/A-18")
    assert dataset.fine_to_coarse == (0, 1, 1, 2) and dataset.skipped == dataset.notes == ()
    own = data.Hierarchy("fgvc_aircraft", dataset.coarse_classes, dataset.fine_to_coarse)
    assert data.coarse_of(dataset, "") == own
    assert {name: len(split) for name, split in dataset.splits.items()} == {
        "test": 2,
        "train": 4,
        "validation": 2,
    }
    found = {}
    for split in dataset.splits.values():
        for number in range(len(split)):
            example = split[number]
            found[example["path"][7:14]] = example
            whole = np.asarray(Image.open(root / example["path"]))
            np.testing.assert_array_equal(example["image"], whole[:24])
    assert sorted(found) == [row[0] for row in IMAGES]
    for number, _, variant, family, _, _ in IMAGES:
        assert dataset.classes[found[number]["label"]] == variant
        assert dataset.coarse_classes[found[number]["coarse"]] == family
    # y0, x0, y1, x1, from 0 and exclusive; the part on the banner is cut off.
    assert found["0034958"]["box"].tolist() == [4, 2, 10, 20]
    assert found["0037511"]["box"].tolist() == [1, 1, 24, 29]
    assert found["0037512"]["box"].tolist() == [3, 3, 5, 5]
    assert found["1000002"]["box"].tolist() == [1, 1, 20, 30]


def test_the_folder_of_the_data_will_do_and_the_name_opens_it(root, data_dir):
    first = prepared(root, data_dir)
    assert prepared(root.parent, data_dir).directory == first.directory
    assert data.open_dataset("fgvc_aircraft", data_dir=data_dir).directory == first.directory
    (root.parent / "evaluation.m").write_text("% changed")
    (root / "images/readme").write_text("notes")
    assert prepared(root, data_dir).fingerprint == first.fingerprint


@pytest.mark.parametrize(
    "options, classes, coarse, hierarchy",
    [
        ({"coarse": "manufacturer"}, 4, ("Boeing", "McDonnell Douglas"), (0, 0, 0, 1)),
        ({"level": "family"}, 3, ("Boeing", "McDonnell Douglas"), (0, 0, 1)),
        ({"level": "manufacturer"}, 2, None, None),
    ],
)
def test_levels(root, data_dir, options, classes, coarse, hierarchy):
    dataset = prepared(root, data_dir, options=options)
    assert len(dataset.classes) == classes
    assert (dataset.coarse_classes, dataset.fine_to_coarse) == (coarse, hierarchy)
    assert ("coarse" in dataset.splits["train"].columns) == (coarse is not None)


def test_a_level_is_chosen_with_the_source_as_in_configs_distill(root, data_dir):
    where = {"source": root, "data_dir": data_dir}
    families = data.open_dataset("fgvc_aircraft", options={"level": "family"}, **where)
    again = data.open_dataset("fgvc_aircraft", options={"level": "family"}, **where)
    assert again.directory == families.directory
    variants = data.open_dataset("fgvc_aircraft", options={"level": "variant"}, **where)
    assert variants.classes != families.classes
    with pytest.raises(ValueError, match=r"takes no options, got \['level'\]"):
        data.open_dataset("fgvc_aircraft", data_dir=data_dir, options={"level": "family"})


def test_larger_images_are_reduced_with_their_boxes(root, data_dir):
    Image.new("L", (10, 28), 7).save(root / "images/0034309.jpg")  # 10 columns, 8 rows, gray
    replace(root / "images_box.txt", "0034309 1 1 30 24", "0034309 1 1 10 8")
    split = prepared(root, data_dir, options={"size": 15}).splits["train"]
    assert split[0]["image"].shape == (8, 10, 1) and split[0]["box"].tolist() == [0, 0, 8, 10]
    assert split[1]["image"].shape == (12, 15, 3)
    assert split[1]["box"].tolist() == [2, 1, 5, 10]
    whole = Image.open(root / "images/0034958.jpg").crop((0, 0, 30, 24))
    mean = np.asarray(whole, np.float64).reshape(12, 2, 15, 2, 3).mean((1, 3))
    assert np.abs(split[1]["image"] - mean).mean() < 12  # a triangle of 4 pixels, and not of 2


def test_images_that_are_missing_are_named_at_once(root, data_dir):
    for number in ("0034309", "1000001"):
        (root / f"images/{number}.jpg").unlink()
    told = "2 of 8 images are missing: images/0034309.jpg, images/1000001.jpg$"
    with pytest.raises(ValueError, match=told):
        prepared(root, data_dir)
    (root / "images/0034958.jpg").write_bytes(b"broken")
    replace(root / "images_box.txt", "0037512 4 4 5 5", "0037512 4 25 5 30")
    dataset = prepared(root, data_dir, skip_corrupt=True)
    assert [path[7:14] for path, _ in dataset.skipped] == [
        "0034309",
        "1000001",
        "0034958",
        "0037512",
    ]
    assert [len(dataset.splits[name]) for name in ("train", "validation", "test")] == [1, 2, 1]


@pytest.mark.parametrize(
    "file, old, new, match",
    [
        ("images/0034309.jpg", None, b"broken", "0034309.jpg: not a readable image"),
        ("images_box.txt", "0037512 4 4 5 5", "0037512 4 25 5 30", "not within the 30 columns"),
        ("images_box.txt", "0037512 4 4 5 5", "0037512 0 4 5 5", "not within the 30 columns"),
        ("images_box.txt", "0037512 4 4 5 5", "0037512 4 4 5", "is not an image's number, xmin"),
        ("images_box.txt", "0037512", "0037513", "no box for image 0037512 .1 such"),
        ("images_variant_val.txt", "0038598", "0034958", "0034958 is already in the train split"),
        ("images_variant_val.txt", "0038598 737-200", "../../x 737", "not an image's number and"),
        ("images_variant_val.txt", "0038598 737-200", "0038598", "not an image's number and its"),
        ("images_variant_val.txt", "737-200", "737-20", "no variant '737-20'; did you mean '737-2"),
        ("images_family_val.txt", "0038598", "0038599", "differ in their images: 0038598"),
        (
            "images_family_val.txt",
            "Boeing 737",
            "Boeing 707",
            "'737-200' belongs to 'Boeing 737', but by image 0038598 to 'Boeing 707'",
        ),
        ("images_family_val.txt", None, None, "images_family_val.txt: No such file.*looked for"),
        ("variants.txt", None, None, "is not FGVC-Aircraft; looked for images/, images_var"),
    ],
)
def test_files_that_do_not_fit_are_named(root, data_dir, file, old, new, match):
    if new is None:
        (root / file).unlink()
    elif old is None:
        (root / file).write_bytes(new)
    else:
        replace(root / file, old, new)
    with pytest.raises(ValueError, match=match):
        prepared(root, data_dir)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"level": "model"}, "level: got 'model', wanted one of variant, family, manufacturer"),
        ({"coarse": "variant"}, "coarse: got 'variant', wanted a level above variant: family or"),
        ({"level": "manufacturer", "coarse": "family"}, "level above manufacturer: none"),
        ({"size": -1}, "size: got -1, wanted a whole number from 0"),
        ({"sise": 3}, "no option 'sise'; did you mean 'size'"),
    ],
)
def test_options_are_checked(root, data_dir, options, match):
    with pytest.raises(ValueError, match=match):
        prepared(root, data_dir, options=options)
    with pytest.raises(ValueError, match="fgvc_aircraft needs a source"):
        data.open_dataset("fgvc_aircraft", data_dir=data_dir)


def test_a_split_of_which_nothing_is_left(root, data_dir):
    for number in ("0038598", "0038626"):
        (root / f"images/{number}.jpg").unlink()
    with pytest.raises(ValueError, match="no image of split 'validation' is left"):
        prepared(root, data_dir, skip_corrupt=True)
