"""Annotated scenes: images of any size with the boxes of targets, in the usual formats.

COCO's JSON, Pascal VOC's XML, YOLO's and DOTA's text, a table, and GeoJSON are read as
:class:`AnnotatedScene`. Annotations that cannot be used are named, one line each.
"""

import json
from pathlib import Path

from jaxatr.data.annotations import coco, geojson, table, text, voc
from jaxatr.data.annotations.scene import (
    IGNORED,
    AnnotatedScene,
    Annotations,
    BoxProblem,
    Collector,
)
from jaxatr.data.images import SUFFIXES
from jaxatr.files import MissingFileError, read_regular

__all__ = [
    "IGNORED",
    "AnnotatedScene",
    "Annotations",
    "Collector",
    "BoxProblem",
    "read_annotations",
]

_LISTED = 10


def read_annotations(scenes: Path, boxes: Path, *, bad_boxes: str = "refuse") -> Annotations:
    """Reads the boxes of scenes.

    Args:
      scenes: folder of the images, or one image.
      boxes: a file (COCO's or GeoJSON, a table), or a folder of COCO, VOC, YOLO or DOTA files.
      bad_boxes: ``"skip"`` to leave out what cannot be used, and return it as problems; or
        ``"refuse"``.

    Raises:
      ValueError: there is nothing to read, or something cannot be used and is not to be skipped.
    """
    if bad_boxes not in ("refuse", "skip"):
        raise ValueError(f"bad_boxes: got {bad_boxes!r}, wanted refuse or skip")
    if not scenes.exists():
        raise MissingFileError(f"there is no folder or image {scenes}")
    only = scenes.name if scenes.is_file() else None
    into = Collector(scenes.parent if only else scenes, only)
    if boxes.is_dir():
        files = [path for path in sorted(boxes.rglob("*")) if path.suffix.lower() in _FILES]
        files = [path for path in files if "ImageSets" not in path.parts and not text.is_list(path)]
        if not files:
            raise ValueError(f"{boxes}: got a folder without {', '.join(_FILES)} files of boxes")
        for path in files:
            _read(path, into, boxes, only, inside=True)
    elif boxes.is_file():
        _read(boxes, into, boxes.parent, only, inside=False)
    else:
        raise MissingFileError(f"there is no file or folder of boxes {boxes}")
    found = into.finished()
    if found.problems and bad_boxes == "refuse":
        lines = [str(one) for one in found.problems[:_LISTED]]
        if len(found.problems) > _LISTED:
            lines.append(f"and {len(found.problems) - _LISTED} more")
        raise ValueError(
            f"{len(found.problems)} annotations cannot be used (--bad_boxes=skip leaves them out): "
            + "; ".join(lines)
        )
    if not found.scenes:
        why = f" ({found.problems[0]})" if found.problems else ""
        raise ValueError(f"{boxes}: no image of {scenes} has annotations that can be used{why}")
    return found


_FILES = (".json", ".geojson", voc.SUFFIX, text.SUFFIX)


def _read(path: Path, into: Collector, below: Path, only: str | None, *, inside: bool) -> None:
    suffix = path.suffix.lower()
    if suffix in (".json", ".geojson"):
        try:
            content = json.loads(read_regular(path))
        except (OSError, ValueError, RecursionError) as error:
            into.problem(path.name, f"not a readable JSON file ({error})")
            return
        if coco.reads(content):
            coco.read(path, content, into)
        elif geojson.reads(content):
            geojson.read(path, content, into, only or _single(into.root))
        elif not inside:  # other JSON files may lie beside
            raise ValueError(
                f"{path}: wanted COCO's images and annotations, or GeoJSON's FeatureCollection"
            )
    elif suffix == voc.SUFFIX:
        voc.read(path, into, below)
    elif suffix == text.SUFFIX:
        text.read(path, into, below)
    elif table.reads(path):
        table.read(path, into)
    else:
        raise ValueError(
            f"{path}: wanted boxes as .json (COCO), .geojson, .csv, .tsv, .parquet, .xml (VOC) or "
            ".txt (YOLO, DOTA), or a folder of such files"
        )


def _single(root: Path) -> str | None:
    """Returns the only image of a folder."""
    images = [path.name for path in root.iterdir() if path.suffix.lower() in SUFFIXES]
    return images[0] if len(images) == 1 else None
