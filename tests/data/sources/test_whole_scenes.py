"""Annotated scenes as they are: classes, parts and regions in which nothing counts."""

import json

import numpy as np
import pytest
from PIL import Image

from jaxatr import data
from jaxatr.data.annotations import examined, read_annotations

CATEGORIES = [{"id": 1, "name": "car"}, {"id": 2, "name": "DontCare"}, {"id": 3, "name": "bus"}]


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "scenes"
    images, annotations = [], []
    for number, part in enumerate(("train", "train", "test")):
        (root / part).mkdir(parents=True, exist_ok=True)
        path = f"{part}/{number}.png"
        Image.fromarray(np.full((40, 50), number, np.uint8)).save(root / path)
        images.append({"id": number, "file_name": path, "width": 50, "height": 40})
    for image, category, box, crowd in (
        (0, 1, [5, 6, 10, 8], 0),
        (0, 2, [0, 0, 50, 4], 0),
        (0, 3, [20, 20, 9, 9], 1),
        (2, 3, [1, 2, 3, 4], 0),
    ):
        row = {"id": len(annotations), "image_id": image, "category_id": category}
        annotations.append({**row, "bbox": box, "iscrowd": crowd, "area": box[2] * box[3]})
    content = {"images": images, "annotations": annotations, "categories": CATEGORIES}
    (root / "boxes.json").write_text(json.dumps(content))
    return root


def test_scenes_keep_their_boxes_and_parts(folder, tmp_path):
    made = data.open_dataset("whole_scenes", source=folder, data_dir=tmp_path / "data")
    assert made.classes == ("bus", "car")
    train, test = made.splits["train"], made.splits["test"]
    assert (len(train), len(test)) == (2, 1)
    first = train[0]
    assert first["image"].shape == (40, 50, 1) and first["path"] == "train/0.png"
    np.testing.assert_array_equal(first["boxes"], [[5, 6, 15, 14], [0, 0, 50, 4], [20, 20, 29, 29]])
    assert first["labels"].tolist() == [1, -1, -1]  # DontCare and a crowd count for nothing
    assert train[1]["boxes"].shape == (0, 4)
    assert test[0]["labels"].tolist() == [0]


def test_a_table_of_labels_leaves_scenes_out_and_corrects_no_boxes(folder, tmp_path):
    made = data.open_dataset("whole_scenes", source=folder, data_dir=tmp_path / "data")
    table = tmp_path / "labels.csv"
    table.write_text("path,label\ntrain/0.png,\n")
    assert len(data.corrected(made, table).splits["train"]) == 1
    table.write_text("path,label\ntrain/0.png,bus\n")
    with pytest.raises(ValueError, match="those of boxes: correct them in the file of the boxes"):
        data.corrected(made, table)


def test_scenes_without_parts_are_divided(folder, tmp_path):
    for part in ("train", "test"):
        for path in (folder / part).glob("*.png"):
            path.rename(folder / path.name)
    text = (folder / "boxes.json").read_text().replace("train/", "").replace("test/", "")
    (folder / "boxes.json").write_text(text)
    made = data.open_dataset(
        "whole_scenes", source=folder, data_dir=tmp_path, options={"test_fraction": 0.34}
    )
    assert {name: len(split) for name, split in made.splits.items()} == {"test": 1, "train": 2}
    with pytest.raises(ValueError, match="test_fraction: got 2.0"):
        data.open_dataset(
            "whole_scenes", source=folder, data_dir=tmp_path, options={"test_fraction": 2.0}
        )


def test_a_damaged_scene_is_named_or_left_out(folder, tmp_path):
    path = folder / "train" / "1.png"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ValueError, match="1.png"):
        data.open_dataset("whole_scenes", source=folder, data_dir=tmp_path / "a")
    made = data.open_dataset(
        "whole_scenes",
        source=folder,
        data_dir=tmp_path / "b",
        options={"bad_boxes": "skip"},
    )
    assert len(made.splits["train"]) == 1 and "1.png" in made.skipped[0][0]


def test_the_pixels_beside_a_header_of_envi_belong_to_the_scene(folder, tmp_path):
    text = (folder / "boxes.json").read_text().replace(".png", ".hdr")
    (folder / "boxes.json").write_text(text)
    header = "ENVI\nsamples = 50\nlines = 40\nbands = 1\ndata type = 1\n"
    paths = [folder / one for one in ("train/0", "train/1", "test/2")]
    for path in paths:
        path.with_suffix(".hdr").write_text(header)
    for start in (10, 20):
        for number, path in enumerate(paths, start):
            path.with_suffix(".img").write_bytes(np.full((40, 50), number, np.uint8).tobytes())
        made = data.open_dataset("whole_scenes", source=folder, data_dir=tmp_path / "data")
        found = [made.splits[part][0]["image"].max() for part in ("train", "test")]
        assert found == [start, start + 2]
    problems = examined.examine(read_annotations(folder, folder), folder)
    assert not [one for one in problems if one.level == "error"]  # equal headers, other pixels
