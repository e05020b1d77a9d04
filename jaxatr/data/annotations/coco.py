"""COCO's JSON: images, categories and annotations, linked by numbers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxatr.data.annotations.scene import PARTS, Collector

_MOST = 80
"""Characters of an entry in a message."""


def reads(content: Any) -> bool:
    """Whether a JSON file's content is COCO's."""
    return isinstance(content, Mapping) and "images" in content and "annotations" in content


def read(path: Path, content: Mapping[str, Any], into: Collector) -> None:
    """Reads the boxes of one file; the part is its name, such as ``val.json``.

    An image is looked for at its ``file_name`` below the scenes' folder, and in a folder of the
    part's name.
    """
    part = PARTS.get(path.stem.removeprefix("instances_").rstrip("0123456789").lower(), "")
    lists = [content.get(name, []) for name in ("images", "categories", "annotations")]
    if not all(isinstance(one, list) for one in lists):
        into.problem(path.name, "wanted lists of images, categories and annotations")
        return
    images, categories, annotations = lists
    paths: dict[Any, str] = {}
    for place, image in enumerate(images):
        where = f"{path.name}: images[{place}]"
        try:
            number, name = _key(image["id"]), _name(image["file_name"])
            stated = "height" in image and "width" in image
            size = (int(image["height"]), int(image["width"])) if stated else None
        except (KeyError, TypeError, ValueError, OverflowError):
            into.problem(where, f"got {_shown(image)}, wanted id and file_name, and whole sizes")
            continue
        if number in paths:
            into.problem(where, f"the id {number} is already that of {paths[number]}")
            continue
        beside = f"{path.stem}/{name}"
        paths[number] = beside if not into.has(name) and into.has(beside) else name
        into.scene(paths[number], part, size)
    names: dict[Any, str] = {}
    for place, category in enumerate(categories):
        try:
            number, name = _key(category["id"]), _name(category["name"])
        except (KeyError, TypeError):
            where = f"{path.name}: categories[{place}]"
            into.problem(where, f"got {_shown(category)}, wanted id and name")
            continue
        if names.setdefault(number, name) != name:
            into.problem(
                f"{path.name}: categories[{place}]",
                f"the id {number} is already that of {names[number]}",
            )
    seen: set[str] = set()
    for place, one in enumerate(annotations):
        where = f"{path.name}: annotations[{place}]"
        try:
            image, category, box = _key(one["image_id"]), _key(one["category_id"]), one["bbox"]
            if isinstance(box, str):
                raise TypeError("a text is no box, even one of four digits")
            x, y, width, height = (float(str(value)) for value in box)
        except (KeyError, TypeError, ValueError):
            wanted = "image_id, category_id and a bbox of 4 numbers"
            into.problem(where, f"got {_shown(one)}, wanted {wanted}")
            continue
        number = json.dumps(one.get("id"))
        if one.get("id") is not None and number in seen:
            into.problem(where, f"the id {number} is already that of another annotation")
            continue
        seen.add(number)
        if image not in paths:
            into.problem(where, f"there is no image with the id {image}")
        elif category not in names:
            into.problem(where, f"there is no category with the id {category}")
        else:
            into.box(
                paths[image],
                (x, y, x + width, y + height),
                names[category],
                where,
                difficult=_flag(one.get("ignore")),
                crowd=_flag(one.get("iscrowd")),
            )


def _shown(entry: Any) -> str:
    """Returns the beginning of an entry as it is in the file."""
    text = json.dumps(entry, ensure_ascii=False)
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def _flag(value: Any) -> bool:
    """Whether a flag is set; some programs write numbers as text."""
    return bool(value) and value not in ("0", "0.0", "false", "False")


def _name(text: Any) -> str:
    """Returns a name.

    Raises:
      TypeError: it is not a text, such as null.
    """
    if not isinstance(text, str):
        raise TypeError(f"got {text!r}")
    return text


def _key(number: Any) -> Any:
    """Returns a number that links entries.

    Raises:
      TypeError: it is a list or an object, which links nothing.
    """
    hash(number)
    return number
