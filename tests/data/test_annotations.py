"""Boxes of scenes in every format, what is wrong with them, and the chips around them."""

import errno
import json
import os
import shutil
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from jaxatr import data
from jaxatr.data.annotations import examined, read_annotations
from jaxatr.data.annotations.results import SceneTargets, as_geojson, of_scene
from jaxatr.data.chip import around
from jaxatr.data.decoder import ImageError
from jaxatr.data.image_paths import ImagePath
from jaxatr.data.images import decode_image, read_image
from jaxatr.data.scene_image import is_world_file, open_scene, read_scene
from jaxatr.data.source import Request
from jaxatr.data.sources.scenes import PART, Framing
from jaxatr.data.sources.scenes import files as chip_files
from jaxatr.data.sources.scenes.files import write_chips

SIZE = (40, 60)


@pytest.fixture
def scenes(tmp_path):
    """Two scenes of 60 x 40 pixels, each pixel of its own value."""
    folder = tmp_path / "scenes"
    folder.mkdir()
    pixels = np.add.outer(2 * np.arange(SIZE[0]), np.arange(SIZE[1])).astype(np.uint8)
    for name in ("a.png", "b.png"):
        Image.fromarray(pixels).save(folder / name)
    return folder


def a_coco(**changes):
    content = {
        "images": [
            {"id": 7, "file_name": "a.png", "width": 60, "height": 40},
            {"id": 8, "file_name": "b.png"},
        ],
        "categories": [{"id": 1, "name": "car"}, {"id": 2, "name": "DontCare"}],
        "annotations": [
            {"id": 0, "image_id": 7, "category_id": 1, "bbox": [10, 20, 6, 4]},
            {"id": 1, "image_id": 7, "category_id": 2, "bbox": [0, 0, 9, 9]},
            {"id": 2, "image_id": 8, "category_id": 1, "bbox": [55, 30, 9, 5], "iscrowd": 1},
        ],
    }
    return content | changes


def written(folder, name, content):
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def a_voc(name="a.png", box=(11, 21, 16, 24), extra=""):
    sides = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    inner = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
    return (
        f"<annotation><filename>{name}</filename><object><name>car</name>{extra}"
        f"<bndbox>{inner}</bndbox></object></annotation>"
    )


WORLD = "0.5\n0\n0\n-0.5\n100.25\n199.75\n"  # half a metre a pixel, from (100, 200) down


def of_format(kind, folder, boxes):
    """Writes the box 10, 20, 16, 24 of a car in a.png in a format; returns what to read."""
    if kind == "coco":
        return written(boxes, "val.json", a_coco())
    if kind == "voc":
        written(boxes, "a.xml", a_voc())
    elif kind == "yolo":
        written(boxes, "classes.txt", "person\ncar\n")
        written(boxes, "a.txt", "1 0.21666666666666667 0.55 0.1 0.1\n")
    elif kind == "dota":
        written(boxes, "a.txt", "imagesource:x\ngsd:1\n10 20 16 20 16 24 10 24 car 0\n")
    elif kind == "table":
        return written(boxes, "t.csv", "path,x,y,width,height,label\na.png,10,20,6,4,car\n")
    elif kind == "geojson":
        written(folder, "a.pgw", WORLD)
        ring = [[105, 190], [108, 190], [108, 188], [105, 188], [105, 190]]
        feature = {
            "type": "Feature",
            "properties": {"label": "car", "path": "a.png"},
            "geometry": {"type": "Polygon", "coordinates": [ring]},
        }
        return written(boxes, "t.geojson", {"type": "FeatureCollection", "features": [feature]})
    return boxes


@pytest.mark.parametrize("kind", ["coco", "voc", "yolo", "dota", "table", "geojson"])
def test_every_format_gives_the_same_box(scenes, tmp_path, kind):
    found = read_annotations(scenes, of_format(kind, scenes, tmp_path / "boxes"))
    (scene, *_) = found.scenes
    assert scene.path == "a.png" and scene.size == SIZE
    np.testing.assert_allclose(scene.boxes[0], [10, 20, 16, 24], atol=1e-9)
    assert scene.labels[0] == "car" and not scene.crowd[0] and not scene.difficult[0]
    assert scene.part == ("val" if kind == "coco" else "")


def test_flags_parts_and_clipping(scenes, tmp_path):
    first, second = read_annotations(scenes, written(tmp_path, "val.json", a_coco())).scenes
    assert first.crowd.tolist() == [False, True] and first.targets.tolist() == [0]
    assert second.boxes.tolist() == [[55, 30, 60, 35]] and second.cut.tolist() == [True]
    assert second.crowd.tolist() == [True]
    boxes = tmp_path / "voc/Annotations"
    written(boxes, "a.xml", a_voc(extra="<difficult>1</difficult>"))
    written(tmp_path / "voc/ImageSets/Main", "test.txt", "\ufeffa\r\n")
    (scene,) = read_annotations(scenes, boxes).scenes
    assert scene.difficult.tolist() == [True] and scene.part == "test"
    table = "path;x;y;width;height;label;angle;split\na.png;10;20;6;4;car;90;train\n"
    (scene,) = read_annotations(scenes, written(tmp_path, "t.csv", table)).scenes
    np.testing.assert_allclose(scene.boxes, [[11, 19, 15, 25]])
    assert scene.part == "train"


def test_a_name_may_have_another_form_of_unicode(scenes, tmp_path):
    """As in a list that was written on macOS, beside files that were copied from there."""
    (scenes / "a.png").rename(scenes / "e\u0301.png")
    named = [{"id": 7, "file_name": "\u00e9.png"}, {"id": 8, "file_name": "b.png"}]
    for part in ("train", "test"):
        used = [one | {"file_name": f"{part}/{one['file_name']}"} for one in named]
        written(tmp_path / "boxes", f"{part}.json", a_coco(images=used))
        shutil.copytree(scenes, tmp_path / "all" / part)
    boxes = tmp_path / "boxes"
    found = read_annotations(tmp_path / "all", boxes)
    texts = [one.text for one in examined.examine(found, tmp_path / "all")]
    assert any(text.startswith("1 scene in two parts") for text in texts)
    made = data.open_dataset(
        "scenes", source=tmp_path / "all", data_dir=tmp_path, options={"boxes": str(boxes)}
    )
    assert {name: len(split) for name, split in made.splits.items()} == {"train": 1, "test": 1}


def test_flags_that_are_texts(scenes, tmp_path):
    content = a_coco(**annotation(iscrowd="0", ignore="1"))
    first, _ = read_annotations(scenes, written(tmp_path, "t.json", content)).scenes
    assert first.crowd.tolist() == [False, False] and first.difficult.tolist() == [False, True]


def test_folders_of_parts_have_letters_of_any_case(scenes, tmp_path):
    """As for class folders; scenes in ``Test`` were trained on."""
    rows = "path,x,y,width,height,label\n"
    for name, folder in (("a.png", "Train"), ("b.png", "TEST")):
        (scenes / folder).mkdir()
        (scenes / name).rename(scenes / folder / name)
        rows += f"{folder}/{name},10,20,6,4,car\n"
    found = read_annotations(scenes, written(tmp_path, "t.csv", rows)).scenes
    assert {scene.path: scene.part for scene in found} == {
        "Train/a.png": "train",
        "TEST/b.png": "test",
    }


def test_a_scene_in_two_parts_is_named(scenes, tmp_path):
    """By files of COCO, by a table, and by the lists of VOC."""
    boxes = written(tmp_path / "coco", "train.json", a_coco()).parent
    written(boxes, "test.json", a_coco())
    table = "path,x,y,width,height,part\na.png,1,2,3,4,train\nb.png,1,2,3,4,train\n"
    table += "a.png,5,6,7,8,test\n"
    written(tmp_path / "voc/Annotations", "a.xml", a_voc())
    written(tmp_path / "voc/Annotations", "b.xml", a_voc("b.png"))
    for part in ("train", "test"):
        written(tmp_path / "voc/ImageSets/Main", f"{part}.txt", "a\n")
    for given in (boxes, written(tmp_path, "t.csv", table), tmp_path / "voc"):
        with pytest.raises(ValueError, match="a.png: is in 2 parts: test, train"):
            read_annotations(scenes, given)
        if given != boxes:
            found = read_annotations(scenes, given, bad_boxes="skip")
            assert [scene.path for scene in found.scenes] == ["b.png"]


def test_an_image_has_one_place_however_its_path_is_written(scenes, tmp_path):
    table = "path,x,y,width,height,part\na.png,1,2,3,4,train\n./a.png,5,6,7,8,test\n"
    path = written(tmp_path, "t.csv", table)
    with pytest.raises(ValueError, match="a.png: is in 2 parts: test, train"):
        read_annotations(scenes, path)
    path.write_text(table.replace("test", ""))
    for given in (scenes, scenes / "a.png"):
        (scene,) = read_annotations(given, path).scenes
        assert scene.path == "a.png" and len(scene.boxes) == 2


@pytest.mark.parametrize("kind", ["voc", "yolo"])
def test_images_of_one_name_in_several_folders_keep_their_boxes(scenes, tmp_path, kind):
    for number, folder in enumerate(("", "one", "two")):
        if folder:
            shutil.copytree(scenes, scenes / folder, ignore=lambda *_: ["one", "b.png"])
        if kind == "voc":
            written(tmp_path / "boxes" / folder, "a.xml", a_voc(box=(number + 1, 2, 9, 9)))
        else:
            line = f"0 {(number + 9) / 120} 0.1375 {(9 - number) / 60} 0.2\n"
            written(tmp_path / "boxes" / folder, "a.txt", line)
    found = read_annotations(scenes, tmp_path / "boxes").scenes
    assert [(scene.path, len(scene.boxes)) for scene in found] == [
        ("a.png", 1),
        ("one/a.png", 1),
        ("two/a.png", 1),
    ]
    assert [round(scene.boxes[0, 0]) for scene in found] == [0, 1, 2]


def test_a_list_of_a_part_may_have_names_with_spaces(scenes, tmp_path):
    shutil.copy(scenes / "a.png", scenes / "a 1.png")
    written(tmp_path / "voc/Annotations", "a 1.xml", a_voc("a 1.png"))
    written(tmp_path / "voc/ImageSets/Main", "test.txt", "a 1\n")
    (scene,) = read_annotations(scenes, tmp_path / "voc/Annotations").scenes
    assert (scene.path, scene.part) == ("a 1.png", "test")


def test_an_image_beside_its_text_may_have_a_suffix_of_large_letters(scenes, tmp_path):
    (scenes / "a.png").rename(scenes / "a.PNG")
    written(tmp_path / "boxes", "a.txt", "0 0.5 0.5 0.5 0.5\n")
    assert [one.path for one in read_annotations(scenes, tmp_path / "boxes").scenes] == ["a.PNG"]


def test_a_backslash_of_a_table_separates_folders_only(scenes, tmp_path):
    table = "path;x;y;width;height;label\n.\\a.png;10;20;6;4;T\\72\n"
    (scene,) = read_annotations(scenes, written(tmp_path, "t.csv", table)).scenes
    assert (scene.path, scene.labels) == ("a.png", ("T\\72",))


@pytest.mark.parametrize("below", ["labels", "labels/train"])
def test_boxes_in_the_folder_of_labels_are_of_the_images_beside_it(scenes, tmp_path, below):
    (scenes / "images/train").mkdir(parents=True)
    shutil.copy(scenes / "a.png", scenes / "images/train")  # another a.png lies further out
    written(scenes / "labels/train", "a.txt", "0 0.5 0.5 0.5 0.5\n")
    assert [one.path for one in read_annotations(scenes, scenes / below).scenes] == [
        "images/train/a.png"
    ]


def test_annotations_without_numbers_are_not_the_same_one(scenes, tmp_path):
    annotations = [{"image_id": 7, "category_id": 1, "bbox": [n, 1, 5, 5]} for n in range(4)]
    for one in annotations[2:]:
        one["id"] = None
    path = written(tmp_path, "t.json", a_coco(annotations=annotations))
    assert [len(scene.boxes) for scene in read_annotations(scenes, path).scenes] == [4, 0]


def test_the_folders_of_dota(scenes, tmp_path):
    for part in ("train", "val"):
        (tmp_path / part / "images").mkdir(parents=True)
        shutil.copy(scenes / "a.png", tmp_path / part / "images")
        corners = "10 20 16 20 16 24 10 24"
        written(tmp_path / part / "labelTxt", "a.txt", f"gsd:1\n{corners} car 1\n")
    found = read_annotations(tmp_path, tmp_path).scenes
    assert [(one.path, one.part) for one in found] == [
        ("train/images/a.png", "train"),
        ("val/images/a.png", "val"),
    ]
    assert all(one.boxes.tolist() == [[10, 20, 16, 24]] for one in found)
    assert all(one.difficult.tolist() == [True] for one in found)
    (one,) = read_annotations(tmp_path, tmp_path / "val/labelTxt").scenes
    assert one.path == "val/images/a.png"


def annotation(**changes):
    one = {"id": 5, "image_id": 7, "category_id": 1, "bbox": [1, 2, 3, 4]}
    return {
        "annotations": [
            {"id": 4, "image_id": 7, "category_id": 1, "bbox": [1, 2, 3, 4]},
            one | changes,
        ]
    }


GONE = {"id": 9, "file_name": "gone.png"}
FAULTS = [
    (annotation(bbox=[1, float("nan"), 3, 4]), r"annotations\[1\].*is not of finite numbers"),
    (annotation(bbox=[1, 2, -3, 4]), "ends before it begins"),
    (annotation(bbox=[1, 2, 0, 4]), "has no size"),
    (annotation(bbox=[-9, 2, 3, 4]), "outside of its image of 60x40 pixels"),
    (annotation(bbox=[70, 2, 3, 4]), "outside of its image"),
    (annotation(bbox=[1, 2, 3]), "wanted image_id, category_id and a bbox of 4 numbers"),
    (annotation(image_id=99), "no image with the id 99"),
    (annotation(category_id=99), "no category with the id 99"),
    (annotation(id=4), "the id 4 is already that of another annotation"),
    ({"images": [*a_coco()["images"], {"id": 7, "file_name": "b.png"}]}, "already that of a.png"),
    ({"images": [*a_coco()["images"], {"id": 9, "file_name": "c.png"}]}, "c.png: No such file"),
    ({"images": [*a_coco()["images"], {"id": 9, "file_name": "../a.png"}]}, "is not below"),
    ({"images": [*a_coco()["images"], {"id": 9, "file_name": 300 * "a"}]}, "name too long"),
    ({"images": [*a_coco()["images"], {"id": 9, "file_name": "a\0.png"}]}, "null byte"),
    ({"images": [*a_coco()["images"], {"id": [9], "file_name": "a.png"}]}, "wanted id and file"),
    ({"categories": [*a_coco()["categories"], {"id": {}, "name": "a"}]}, "wanted id and name"),
    (annotation(image_id=[7]), "wanted image_id, category_id"),
    (annotation(bbox="1234"), '"1234".*, wanted image_id, category_id and a bbox of 4 numbers'),
    ({"images": [*a_coco()["images"], {"id": 9, "file_name": None}]}, "wanted id and file_name"),
    ({"categories": [*a_coco()["categories"], {"id": 9, "name": None}]}, "wanted id and name"),
    (
        {"images": [a_coco()["images"][0] | {"width": 50}, a_coco()["images"][1]]},
        "states 50x40 pixels, but it has 60x40",
    ),
]  # fmt: skip


@pytest.mark.parametrize("changes,why", FAULTS)
def test_what_cannot_be_used_is_named_and_refused_or_skipped(scenes, tmp_path, changes, why):
    path = written(tmp_path, "t.json", a_coco(**changes))
    with pytest.raises(ValueError, match=f"1 annotations cannot be used.*--bad_boxes=skip.*{why}"):
        read_annotations(scenes, path)
    found = read_annotations(scenes, path, bad_boxes="skip")
    assert len(found.problems) == 1 and len(found.scenes) >= 1
    assert "\n" not in str(found.problems[0])


@pytest.mark.parametrize(
    "name,content,why",
    [
        ("t.json", '{"images": [', "not a readable JSON file"),
        ("a.xml", "<annotation><object>", "not a readable XML file"),
        ("a.txt", "1 2 3\n", r"line 1: got 3 words, wanted 5 \(YOLO\) or 9 to 10 \(DOTA\)"),
        ("a.txt", "x 0.5 0.5 0.1 0.1\n", "wanted a class's number and 4 numbers"),
        ("a.txt", "10 20 16 20 16 24 10 y car 0\n", "wanted numbers"),
        ("c.txt", "0 0.5 0.5 0.1 0.1\n", "no image of this name"),
        ("a.xml", a_voc(box=(1, 2, "x", 4)), "object 0: got a box"),
        ("a.xml", a_voc(box=(9, 9, 2, 4)), "ends before it begins"),
        ("t.csv", "path,x,y,width,height\na.png,1,2,x,4\n", "line 2: wanted numbers"),
        ("t.csv", "path,x,y,width,height\n,1,2,3,4\n", "line 2: has no path"),
        (
            "t.csv",
            "path,x,y,width,height,part\na.png,1,2,3,4,train\nb.png,1,2,3,4,testing\n",
            "line 3: got the part 'testing', wanted train, val or test",
        ),
        (
            "t.csv",
            "path,x,y,width,height,angle\na.png,1,2,3,4,inf\n",
            "got an angle of inf",
        ),
        ("a.txt", "0 .1 .1 .2 .1 .2 .2 .1 .2\n", "line 1: got YOLO's rotated box"),
        ("t.geojson", '{"type": "FeatureCollection", "features": {}}', "wanted a list of features"),
        ("a.xml", "<?xml version='1.0' encoding='odd'?>" + a_voc(), "unknown encoding"),
        ("ImageSets/Main/train.txt", b"\xe9", "train.txt: not a readable text file"),
        ("a.txt", None, "a device or a pipe, wanted a regular file"),
        ("a.xml", None, "a device or a pipe, wanted a regular file"),
    ],
)
def test_faults_of_the_other_formats(scenes, tmp_path, name, content, why):
    boxes = tmp_path / "boxes"
    written(boxes, "b.xml", a_voc("b.png"))
    (boxes / name).parent.mkdir(exist_ok=True, parents=True)
    if content is None:
        os.mkfifo(boxes / name)
    else:
        (boxes / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    given = boxes / name if name.endswith((".csv", "json")) else boxes
    with pytest.raises(ValueError, match=why):
        read_annotations(scenes, given)
    if given == boxes:
        found = read_annotations(scenes, boxes, bad_boxes="skip")
        assert [scene.path for scene in found.scenes if len(scene.boxes)] == ["b.png"]


@pytest.mark.parametrize(
    "name,content,why",
    [
        ("classes.txt", b"\xe9", "'utf-8' codec can't decode"),
        ("data.yaml", b"names: [a, b", "while parsing a flow sequence"),
        ("data.yaml", b"a: &a [x]\nnames: [*a, *a]", "a class's name is a list"),
        ("data.yaml", b"names: {a: b}", "got 'a', wanted the number of a class"),
        ("data.yaml", b"- a", "has no attribute"),
    ],
)
def test_names_of_classes_that_cannot_be_read_are_named(scenes, tmp_path, name, content, why):
    boxes = written(tmp_path / "boxes", "a.txt", "0 0.5 0.5 0.1 0.1\n").parent
    (boxes / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}: wanted the names of classes \(.*{why}"):
        read_annotations(scenes, boxes)


def test_the_names_of_classes_may_lie_above_the_boxes(scenes, tmp_path):
    boxes = written(tmp_path / "set/labels/train", "a.txt", "1 0.5 0.5 0.1 0.1\n").parent
    written(tmp_path / "set", "data.yaml", "names: [person, car]\n")
    assert read_annotations(scenes, boxes).scenes[0].labels == ("car",)


def test_of_one_image_only_its_own_boxes_are_read(scenes, tmp_path):
    boxes = written(tmp_path, "val.json", a_coco(**{"images": [*a_coco()["images"], GONE]}))
    (scene,) = read_annotations(scenes / "a.png", boxes).scenes
    assert scene.path == "a.png" and len(scene.boxes) == 2


def test_a_blank_line_names_no_class(scenes, tmp_path):
    boxes = written(tmp_path / "boxes", "a.txt", "1 0.5 0.5 0.1 0.1\n").parent
    (boxes / "classes.txt").write_bytes("\ufeffS\u030ckoda\r\n\r\n".encode())
    with pytest.raises(ValueError, match="no class of number 1"):
        read_annotations(scenes, boxes)
    written(boxes, "a.txt", "0 0.5 0.5 0.1 0.1\n")
    (first, *_) = read_annotations(scenes, boxes).scenes
    assert first.labels == ("\u0160koda",)


def test_attributes_of_geojson_without_a_value(scenes, tmp_path):
    """QGIS writes null for them; a polygon may be empty."""
    path = of_format("geojson", scenes, tmp_path)
    (feature,) = json.loads(path.read_text())["features"]
    no_label = feature | {"properties": {"label": None, "path": "a.png"}}
    no_path = feature | {"properties": {"label": "car", "path": None}}
    empty = feature | {"geometry": {"type": "Polygon", "coordinates": []}}
    features = [feature, no_label, no_path, empty]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    found = read_annotations(scenes, path, bad_boxes="skip")
    assert found.scenes[0].labels == ("car", "")
    assert [one.where for one in found.problems] == [f"t.geojson: features[{n}]" for n in (2, 3)]
    assert "names no image" in found.problems[0].why
    assert "wanted a feature with properties and a polygon" in found.problems[1].why


def test_geojson_of_a_scene_without_a_map_is_read_as_it_is_written(scenes, tmp_path):
    row = {"x0": 10.5, "y0": 20.0, "x1": 16.0, "y1": 24.0, "label": "car"}
    found = SceneTargets(ImagePath("a.png", "a.png", "a.png"), SIZE, [row])
    (scene,) = read_annotations(scenes, written(tmp_path, "t.geojson", as_geojson([found]))).scenes
    assert scene.boxes.tolist() == [[10.5, 20, 16, 24]] and scene.labels == ("car",)


def test_map_coordinates_are_asked_for(scenes, tmp_path):
    path = of_format("geojson", scenes, tmp_path)
    (scenes / "a.pgw").unlink()
    with pytest.raises(ValueError, match="a.png has no map coordinates"):
        read_annotations(scenes, path)
    (scenes / "a.png").unlink()
    with pytest.raises(ValueError, match="leaves them out\\): a.png: No such file or directory$"):
        read_annotations(scenes, path)


def test_chips_are_cut_by_the_training_s_function(scenes, tmp_path):
    path = written(tmp_path, "val.json", a_coco())
    options = {"boxes": str(path), "box_margin": 0.5}
    scan = PART.scan(Request(scenes, options, False))
    contents = scan.contents(tmp_path)
    (example,) = list(contents.splits["val"]())
    assert contents.classes == ["car"] and example["path"] == "a.png#0"
    window = around(np.array([10, 20, 16, 24]), margin=0.5, square=True)
    assert window == (9, 18, 18, 27) or window == (8, 17, 17, 26)
    x0, y0, x1, y1 = window
    scene = np.array(Image.open(scenes / "a.png"))
    assert (example["image"][:, :, 0] == scene[y0:y1, x0:x1]).all()
    assert example["box"].tolist() == [20 - y0, 10 - x0, 24 - y0, 16 - x0]
    assert sum(line.startswith("2 regions") for line in contents.left_out.lines()) == 1


def test_beyond_the_scene_chips_are_zero_and_sizes_are_resampled(scenes):
    with open_scene(scenes / "a.png") as scene:
        chip, inside = Framing(margin=1.0).chip(scene, np.array([0, 0, 4.0, 4]))
        assert chip.shape == (8, 8, 1) and inside.tolist() == [2, 2, 6, 6]
        assert not chip[:2].any() and not chip[:, :2].any() and chip[7, 7, 0] == 15
        resized, inside = Framing(1.0, True, 16).chip(scene, np.array([0, 0, 4.0, 4]))
        assert resized.shape == (16, 16, 1) and inside.tolist() == [4, 4, 12, 12]
        with pytest.raises(ValueError, match="outside of 60x40 pixels"):
            scene.window(60, 0, 70, 5)


def test_chips_as_files_keep_their_parts(scenes, tmp_path):
    path = written(tmp_path, "boxes.csv", "path,x,y,width,height,label,part\n"
                   "a.png,10,20,6,4,car,train\nb.png,1,1,4,4,big/car,test\n")  # fmt: skip
    found = write_chips(scenes, tmp_path / "out", {"boxes": str(path)}, skip_corrupt=False)
    assert found.counts == {("train", "car"): 1, ("test", "big/car"): 1}
    files = sorted(
        p.relative_to(tmp_path / "out").as_posix() for p in tmp_path.glob("out/**/*.png")
    )
    assert files == ["test/big_car/b.png_0000.png", "train/car/a.png_0000.png"]
    with pytest.raises(ValueError, match="not an empty folder"):
        write_chips(scenes, tmp_path / "out", {"boxes": str(path)}, skip_corrupt=False)


@pytest.mark.parametrize(
    ("shape", "dtype", "suffix"),
    [
        ((), np.uint8, ".png"),
        ((), np.uint16, ".png"),
        ((3,), np.uint8, ".png"),
        ((3,), np.uint16, ".npy"),
        ((2,), np.uint8, ".npy"),
        ((4,), np.uint8, ".npy"),
        ((6,), np.uint8, ".npy"),
        ((4,), np.float32, ".npy"),
    ],
)
def test_chips_as_files_have_every_band(tmp_path, shape, dtype, suffix):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 20, *shape)).astype(dtype)
    (tmp_path / "scenes").mkdir()
    np.save(tmp_path / "scenes/a.npy", pixels)
    path = written(tmp_path, "boxes.csv", "path,x,y,width,height,label\na.npy,3,4,5,5,car\n")
    options = {"boxes": str(path), "box_margin": 0.0}
    write_chips(tmp_path / "scenes", tmp_path / "out", options, skip_corrupt=False)
    (file,) = tmp_path.glob("out/*/car/*")
    assert file.suffix == suffix
    np.testing.assert_array_equal(read_image(file), pixels.reshape(20, 20, -1)[4:9, 3:8])


def test_chips_are_written_to_a_mounted_disk_and_by_one_command_only(scenes, tmp_path, monkeypatch):
    mounted, rename = tmp_path / "mounted", Path.rename
    mounted.mkdir()

    def of_disks(path, target):
        if (mounted in path.parents) != (mounted in Path(target).parents):
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", of_disks)
    path = written(tmp_path, "boxes.csv", "path,x,y,width,height,label\na.png,10,20,6,4,car\n")
    write_chips(scenes, mounted, {"boxes": str(path)}, skip_corrupt=False)
    assert [one.name for one in mounted.iterdir()] == ["train"]

    def written_meanwhile(*_):
        (tmp_path / "out/train").mkdir(parents=True)

    monkeypatch.setattr(chip_files, "_write", written_meanwhile)
    with pytest.raises(FileExistsError, match="out"):
        write_chips(scenes, tmp_path / "out", {"boxes": str(path)}, skip_corrupt=False)


def test_refused_chips_leave_no_files(scenes, tmp_path):
    path = written(tmp_path, "boxes.csv", "path,x,y,width,height,label\n"
                   "a.png,10,20,6,4,car\nb.png,1,1,4,4,car\n")  # fmt: skip
    content = (scenes / "b.png").read_bytes()
    (scenes / "b.png").write_bytes(content[: len(content) - 20])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"b\.png"):
        write_chips(scenes, tmp_path / "out", {"boxes": str(path)}, skip_corrupt=False)
    assert sorted(tmp_path.rglob("*")) == before
    found = write_chips(scenes, tmp_path / "out", {"boxes": str(path)}, skip_corrupt=True)
    assert sum(found.counts.values()) == 1 and len(list(tmp_path.glob("out/*/car/a.png_*"))) == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["boxes.csv", "out", "scenes"]


def test_an_option_gives_another_data_set_and_faults_are_left_out(scenes, tmp_path):
    """A set that was prepared before, with other options, is not taken for it."""
    boxes = a_coco(**annotation(bbox=[1, float("nan"), 3, 4]))
    options = {"boxes": str(written(tmp_path, "train.json", boxes)), "bad_boxes": "skip"}

    def side(**more):
        made = data.open_dataset(
            "scenes", source=scenes, data_dir=tmp_path / "made", options=options | more
        )
        assert [place for place, _ in made.skipped] == ["train.json: annotations[1] (a.png)"]
        (chip,) = [example["image"] for example in made.splits["train"]]
        return chip.shape[0]

    assert [side(), side(box_margin=1.0), side(size=16), side()] == [5, 8, 16, 5]
    with pytest.raises(ValueError, match="is not of finite numbers"):
        side(bad_boxes="refuse")


def test_chips_of_scenes_whose_names_are_alike_are_all_kept(tmp_path):
    scenes, out = tmp_path / "scenes", tmp_path / "out"
    scenes.mkdir()
    rows = ["path,x,y,width,height,label,part"]
    for name in ("a b.png", "a_b.png", "A_B.png", "\u00e4.png", "\u00f6.png"):
        Image.new("L", (20, 20)).save(scenes / name)
        rows.append(f"{name},1,1,4,4,car,train")
    path = written(tmp_path, "boxes.csv", "\n".join(rows))
    found = write_chips(scenes, out, {"boxes": str(path)}, skip_corrupt=False)
    files = {file.name.casefold() for file in out.glob("train/car/*")}
    assert found.counts == {("train", "car"): 5} and len(files) == 5


def test_scenes_without_parts_are_held_out_whole(scenes, tmp_path):
    rows = "".join(f"{name}.png,{x},9,5,5,car\n" for name in "ab" for x in (1, 20, 40))
    path = written(tmp_path, "t.csv", f"path,x,y,width,height,label\n{rows}")
    scan = PART.scan(Request(scenes, {"boxes": str(path), "test_fraction": 0.5}, False))
    parts = {
        part: {example["path"][0] for example in examples()}
        for part, examples in scan.contents(tmp_path).splits.items()
    }
    assert sorted(map(len, parts.values())) == [1, 1]


TIFFS = {
    "tiles": {"tile": (16, 16)},
    "deflate": {"tile": (16, 32), "compression": "zlib"},
    "strips": {"rowsperstrip": 7},
    "one strip": {},
    "big endian": {"byteorder": ">", "rowsperstrip": 7, "compression": "zlib"},
    "bigtiff": {"bigtiff": True, "tile": (32, 16)},
}


@pytest.mark.parametrize("how", TIFFS)
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "rgb"])
def test_windows_of_a_tiff_are_those_of_the_whole(tmp_path, how, dtype):
    shape = (45, 61, 3) if dtype == "rgb" else (45, 61)
    kind = "u1" if dtype == "rgb" else dtype
    values = np.random.default_rng(0).integers(1, 200, shape).astype(kind)
    options = dict(TIFFS[how])
    bigendian = {k: options.pop(k) for k in ("byteorder", "bigtiff") if k in options}
    photometric = "rgb" if dtype == "rgb" else "minisblack"
    with tifffile.TiffWriter(tmp_path / "t.tif", **bigendian) as file:
        if how == "deflate" and dtype != "f4":
            options["predictor"] = True
        file.write(values, photometric=photometric, metadata=None, **options)
        file.write(values[::2, ::2], photometric=photometric, subfiletype=1, metadata=None)
    whole = values.reshape(45, 61, -1)
    with open_scene(tmp_path / "t.tif") as scene:
        assert (scene.height, scene.width) == (45, 61)
        for x0, y0, x1, y1 in ((0, 0, 61, 45), (3, 5, 40, 39), (15, 16, 17, 17), (60, 44, 61, 45)):
            part = scene.window(x0, y0, x1, y1)
            assert part.dtype == whole.dtype.newbyteorder("=")
            assert (part == whole[y0:y1, x0:x1]).all()


def test_map_coordinates_and_missing_values_of_a_geotiff(tmp_path):
    values = np.full((8, 8), 3.0, np.float32)
    values[0, 0], values[1, 1] = -9999, np.nan
    tags = [
        (33550, "d", 3, (0.5, 0.5, 0.0)),
        (33922, "d", 6, (0, 0, 0, 100, 200, 0)),
        (42113, "s", 0, "-9999"),
    ]
    tifffile.imwrite(tmp_path / "t.tif", values, extratags=tags, metadata=None)
    with open_scene(tmp_path / "t.tif") as scene:
        assert scene.transform.tolist() == [[0.5, 0, 100], [0, -0.5, 200]]
        part = scene.window(0, 0, 8, 8)
    assert part[0, 0] == part[1, 1] == 0 and part.sum() == 62 * 3


@pytest.mark.parametrize(
    ("image", "world"),
    [
        ("w.png", "w.pgw"),
        ("w.tiff", "w.tfw"),
        ("w.jp2", "w.j2w"),
        ("w.bmp", "w.bpw"),
        ("w.npy", "w.wld"),
        ("W.TIF", "W.TFW"),
        ("W.JPG", "W.jgw"),
        ("w.jp2", "w.jp2w"),
    ],
)
def test_a_world_file_has_one_of_three_names(tmp_path, image, world):
    if image.endswith("npy"):
        np.save(tmp_path / image, np.zeros((4, 4), np.uint8))
    else:
        Image.new("L", (4, 4)).save(tmp_path / image)
    written(tmp_path, world, WORLD)
    with open_scene(tmp_path / image) as scene:
        assert scene.transform.tolist() == [[0.5, 0, 100], [0, -0.5, 200]]
    assert is_world_file(tmp_path / world)


GEO = [
    (33550, "d", 3, (0.5, 0.5, 0.0)),
    (33922, "d", 6, (0, 0, 0, 100, 200, 0)),
    (42113, "s", 0, "7"),
]


def of_geotiff(path, values, keys=(), **options):
    tags = [*GEO, (34735, "H", 4 * (1 + len(keys)), (1, 1, 0, len(keys), *sum(keys, ())))]
    tifffile.imwrite(path, values, extratags=tags, metadata=None, **options)
    with open_scene(path) as scene:
        return scene, scene.window(0, 0, scene.width, scene.height)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["geotiff", "world file"])
def test_every_pixel_of_a_turned_tiff_keeps_its_place_on_the_map(tmp_path, orientation, kind):
    values = np.arange(1, 7, dtype=np.uint16).reshape(2, 3)
    tags = [(274, "H", 1, orientation, True), *(GEO[:2] if kind == "geotiff" else ())]
    tifffile.imwrite(tmp_path / "t.tif", values, extratags=tags, metadata=None)
    if kind == "world file":
        written(tmp_path, "t.tfw", WORLD)
    with open_scene(tmp_path / "t.tif") as scene:
        found = scene.window(0, 0, scene.width, scene.height)[:, :, 0]
        for (row, column), value in np.ndenumerate(found):
            y, x = divmod(int(value) - 1, 3)
            place = scene.transform @ [column + 0.5, row + 0.5, 1]
            np.testing.assert_allclose(place, [100 + 0.5 * (x + 0.5), 200 - 0.5 * (y + 0.5)])


def test_pixels_have_no_reference_system(tmp_path):
    """A GeoTIFF with points on the ground, as Sentinel-1's, has one without a transformation."""
    points = (33922, "d", 12, (0, 0, 0, 10.1, 50.2, 0, 7, 7, 0, 10.3, 50.1, 0))
    keys = (34735, "H", 8, (1, 1, 0, 1, 2048, 0, 1, 4326))
    tifffile.imwrite(
        tmp_path / "t.tif", np.ones((8, 8), np.uint8), extratags=[points, keys], metadata=None
    )
    with open_scene(tmp_path / "t.tif") as scene:
        rows = [{"x0": 1, "y0": 2, "x1": 3, "y1": 5, "label": "car"}]
        path = ImagePath("t.tif", str(tmp_path / "t.tif"), "t.tif")
        found = as_geojson([of_scene(scene, path, rows)])
    (feature,) = found["features"]
    assert feature["properties"]["coordinates"] == "pixels" and "crs" not in found


def test_a_geotiff_that_is_decoded_whole_has_its_map_and_missing_values(tmp_path):
    values = np.arange(8 * 8 * 4, dtype=np.uint8).reshape(8, 8, 4)
    values[2, 3], values[4, 5] = 7, (7, 8, 9, 255)
    options = {"photometric": "rgb", "extrasamples": ["unassalpha"]}
    scene, got = of_geotiff(tmp_path / "t.tif", values, [(3072, 0, 1, 32632)], **options)
    assert scene.transform.tolist() == [[0.5, 0, 100], [0, -0.5, 200]] and scene.epsg == 32632
    values[2, 3] = 0
    np.testing.assert_array_equal(got, values[:, :, :3])
    np.testing.assert_array_equal(read_scene(tmp_path / "t.tif"), got)


def test_missing_values_are_zero_however_a_geotiff_is_read(tmp_path):
    """By windows, as a whole (several bands), and from an upload's bytes."""
    for bands in (1, 4):
        values = np.full((8, 8, bands), 3.0, np.float32)
        values[0, 0], values[1, 1], values[2, 2, 0] = 7, np.nan, np.inf
        wanted = np.where(np.isfinite(values), values, 0)
        wanted[0, 0] = 0
        options = {"planarconfig": "contig"} if bands > 1 else {}
        pixels = np.squeeze(values)
        _, got = of_geotiff(tmp_path / "t.tif", pixels, photometric="minisblack", **options)
        np.testing.assert_array_equal(got, wanted)
        content = (tmp_path / "t.tif").read_bytes()
        np.testing.assert_array_equal(decode_image(content, "t", fill=True), wanted)
        with pytest.raises(ImageError, match="not finite"):
            decode_image(content, "t")


def test_a_colour_is_missing_where_all_of_its_bands_are(tmp_path):
    values = np.full((4, 4, 3), 9, np.uint8)
    values[0, 0], values[1, 1] = 7, (7, 1, 2)
    _, got = of_geotiff(tmp_path / "t.tif", values, photometric="rgb")
    assert got[0, 0].tolist() == [0, 0, 0] and got[1, 1].tolist() == [7, 1, 2]


def test_coordinates_of_pixels_as_points_are_those_of_their_middles(tmp_path):
    values = np.ones((4, 4), np.uint8)
    scene, _ = of_geotiff(tmp_path / "t.tif", values, [(1025, 0, 1, 2)])
    assert scene.transform.tolist() == [[0.5, 0, 99.75], [0, -0.5, 200.25]]


def test_a_scene_of_envi(tmp_path):
    header = "ENVI\nsamples = 3\nlines = 2\nbands = 1\ndata type = 1\ninterleave = bsq\n"
    written(tmp_path, "t.hdr", header + "byte order = 0\nheader offset = 0\n")
    (tmp_path / "t.img").write_bytes(bytes(range(6)))
    for name in ("t.hdr", "t.img"):
        assert read_scene(tmp_path / name)[:, :, 0].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_damaged_scenes_are_named(tmp_path):
    with tifffile.TiffWriter(tmp_path / "o.tif") as file:
        for subfile in (0, 1):
            file.write(np.ones((64, 64), np.uint8), subfiletype=subfile, metadata=None)
    content = (tmp_path / "o.tif").read_bytes()
    (tmp_path / "o.tif").write_bytes(content[:4300])  # within the pixels of the second image
    with pytest.raises(ImageError, match="o.tif: not a readable image .the file is truncated"):
        with open_scene(tmp_path / "o.tif"):
            pass
    whole = tmp_path / "t.tif"
    values = np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8)
    tifffile.imwrite(whole, values, tile=(16, 16), compression="zlib", metadata=None)
    content = whole.read_bytes()
    whole.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="t.tif"), open_scene(whole) as scene:
        scene.window(0, 0, 64, 64)
    (tmp_path / "e.png").write_bytes(b"")
    with pytest.raises(ValueError, match="e.png"), open_scene(tmp_path / "e.png") as scene:
        pass
    # A header of 60,000 x 60,000 pixels, in a small file.
    start = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR"
    (tmp_path / "h.png").write_bytes(
        start + struct.pack(">II", 60000, 60000) + b"\x08\0\0\0\0" * 20
    )
    with pytest.raises(ValueError, match="h.png"), open_scene(tmp_path / "h.png") as scene:
        pass


@pytest.mark.parametrize(
    "tag, changed, why",
    [
        (33550, (33550, 12, 1, 8), ""),  # one number of a scale, instead of three
        (257, (257, 4, 1, 0), "states no size"),
        (258, (258, 2, 1, 8), ""),
    ],
)
def test_damaged_tags_of_a_scene_are_its_error(tmp_path, tag, changed, why):
    path = tmp_path / "t.tif"
    scale = [(33550, "d", 3, (0.5, 0.5, 0.0)), (33922, "d", 6, (0, 0, 0, 1, 2, 0))]
    tifffile.imwrite(path, np.ones((9, 9), np.uint8), extratags=scale, metadata=None)
    content = bytearray(path.read_bytes())
    content[(at := content.index(struct.pack("<H", tag), 8)) : at + 12] = struct.pack(
        "<HHLL", *changed
    )
    path.write_bytes(content)
    with pytest.raises(ImageError, match=rf"t\.tif: .*{why}"), open_scene(path):
        pass


def test_directories_that_do_not_end_are_not_followed(tmp_path):
    path = tmp_path / "t.tif"
    with tifffile.TiffWriter(path) as file:
        for _ in range(2):
            file.write(np.ones((9, 9), np.uint8), metadata=None)
    content = bytearray(path.read_bytes())
    (first,) = struct.unpack_from("<L", content, 4)
    (count,) = struct.unpack_from("<H", content, first)
    (second,) = struct.unpack_from("<L", content, first + 2 + 12 * count)
    struct.pack_into("<L", content, second + 2 + 12 * count, first)
    path.write_bytes(content)
    with pytest.raises(ImageError, match="its directories do not end"), open_scene(path):
        pass


def test_a_scene_is_unpacked_within_a_bound_and_is_no_pipe(tmp_path):
    packer = zlib.compressobj()
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(100)) + packer.flush()
    tifffile.imwrite(
        tmp_path / "t.tif", iter([packed]), shape=(64, 64), dtype="u1", compression="zlib"
    )
    tracemalloc.start()
    with pytest.raises(ValueError, match="unpacks to more than"):
        with open_scene(tmp_path / "t.tif") as scene:
            scene.window(0, 0, 64, 64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
    os.mkfifo(tmp_path / "p.png")
    with pytest.raises(ValueError, match="a device or a pipe"), open_scene(tmp_path / "p.png"):
        pass


@pytest.mark.parametrize(
    "options, tag",
    [
        ({}, (317, 2)),
        ({"tile": (16, 16)}, (317, 2)),
        ({}, (266, 2)),
        ({}, (254, 4)),
        ({"photometric": "miniswhite"}, None),
    ],
)
def test_windows_and_whole_images_agree_about_tags(tmp_path, options, tag):
    values = np.arange(32 * 32, dtype=np.uint16).reshape(32, 32)
    tags = [] if tag is None else [(65317, "H", 1, tag[1], True)]
    tifffile.imwrite(tmp_path / "t.tif", values, metadata=None, extratags=tags, **options)
    content = (tmp_path / "t.tif").read_bytes()
    if tag is not None:
        content = content.replace(struct.pack("<H", 65317), struct.pack("<H", tag[0]))
    (tmp_path / "t.tif").write_bytes(content)
    try:
        wanted = decode_image(content, "t.tif")
    except ValueError as error:
        wanted = str(error)
    try:
        with open_scene(tmp_path / "t.tif", "t.tif") as scene:
            got = scene.window(0, 0, 32, 32)
    except ValueError as error:
        got = str(error)
    np.testing.assert_array_equal(got, wanted)


def test_a_gigapixel_is_read_by_windows(tmp_path):
    """A sparse file: 30,000 x 30,000 pixels, of which a few are on the disk."""
    path = tmp_path / "large.npy"
    values = np.lib.format.open_memmap(path, "w+", np.uint16, (30000, 30000))
    values[29000, 29000] = 7
    del values
    with open_scene(path) as scene:
        part = scene.window(28990, 28990, 29010, 29010)
        assert part.shape == (20, 20, 1) and part.sum() == 7
