"""Targets that were found, as COCO's JSON and as GeoJSON."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from jaxatr.data.image_paths import ImagePath
from jaxatr.data.row_tables import Cell
from jaxatr.data.scene_image import SceneImage

CORNERS = ("x0", "y0", "x1", "y1")
SCORE = "detection_score"


class SceneTargets(NamedTuple):
    """The targets of a scene.

    Attributes:
      path: the scene.
      size: its height and width in pixels.
      rows: a row of cells for each target: its corners (:data:`CORNERS`) in pixels, ``label``, and
        others.
      transform: see :class:`~jaxatr.data.scene_image.SceneImage`.
      epsg: likewise.
    """

    path: ImagePath
    size: tuple[int, int]
    rows: Sequence[Mapping[str, Cell]]
    transform: np.ndarray | None = None
    epsg: int | None = None


def map_place(
    transform: np.ndarray | None, corners: Sequence[float] | np.ndarray
) -> dict[str, Cell]:
    """Returns the map coordinates of a box's middle as cells; none without a transformation."""
    if transform is None:
        return {}
    x0, y0, x1, y1 = corners
    x, y = transform @ np.array([(x0 + x1) / 2, (y0 + y1) / 2, 1.0])
    return {"map_x": float(x), "map_y": float(y)}


def as_coco(scenes: Sequence[SceneTargets]) -> dict[str, Any]:
    """Returns the content of a COCO file: images, categories, and annotations with scores.

    ``file_name`` is the path below the folder that was given, or the whole path if two scenes have
    the same one. Cells beyond COCO's are further fields of an annotation.
    """
    labels = sorted({_label(row) for scene in scenes for row in scene.rows})
    numbers = {label: number for number, label in enumerate(labels, 1)}
    images, annotations = [], []
    for image, (scene, name) in enumerate(zip(scenes, _names(scenes), strict=True), 1):
        height, width = scene.size
        images.append({"id": image, "file_name": name, "height": height, "width": width})
        for row in scene.rows:
            x0, y0, x1, y1 = _corners(row)
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image,
                    "category_id": numbers[_label(row)],
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": (x1 - x0) * (y1 - y0),
                    "iscrowd": 0,
                    "score": row.get(SCORE),
                    "attributes": _others(row),
                }
            )
    categories = [{"id": number, "name": label} for label, number in numbers.items()]
    return {"images": images, "categories": categories, "annotations": annotations}


def as_geojson(scenes: Sequence[SceneTargets]) -> dict[str, Any]:
    """Returns the content of a GeoJSON file: a polygon for each target.

    Its coordinates are those of the scene's map, in the scene's own reference system; of a scene
    without them, pixels. The property ``coordinates`` says which, and ``path`` is the ``file_name``
    of COCO's file. If all scenes have the same reference system, it is named by the member ``crs``
    of GeoJSON 2008, which QGIS and GDAL read.
    """
    named = zip(scenes, _names(scenes), strict=True)
    features = [_feature(scene, name, row) for scene, name in named for row in scene.rows]
    content: dict[str, Any] = {"type": "FeatureCollection", "features": features}
    systems = {scene.epsg for scene in scenes}
    number = systems.pop() if len(systems) == 1 else None
    if number is not None:
        name = f"urn:ogc:def:crs:EPSG::{number}"
        content["crs"] = {"type": "name", "properties": {"name": name}}
    return content


def _names(scenes: Sequence[SceneTargets]) -> list[str]:
    """Returns the paths by which the readers of annotations find the scenes in their folder."""
    below = [PurePath(scene.path.below).as_posix() for scene in scenes]
    return below if len(set(below)) == len(below) else [scene.path.name for scene in scenes]


def _feature(scene: SceneTargets, name: str, row: Mapping[str, Cell]) -> dict[str, Any]:
    x0, y0, x1, y1 = _corners(row)
    ring = np.array([[x0, y0], [x0, y1], [x1, y1], [x1, y0], [x0, y0]])
    if scene.transform is not None:
        ring = ring @ scene.transform[:, :2].T + scene.transform[:, 2]
    kind = "pixels" if scene.transform is None else "map"
    facts: dict[str, Cell] = {"path": name, "coordinates": kind} | dict(row)
    shape = {"type": "Polygon", "coordinates": [ring.tolist()]}
    return {"type": "Feature", "properties": facts, "geometry": shape}


def of_scene(
    scene: SceneImage, path: ImagePath, rows: Sequence[Mapping[str, Cell]]
) -> SceneTargets:
    """Returns the targets of an open scene."""
    return SceneTargets(path, (scene.height, scene.width), rows, scene.transform, scene.epsg)


def _corners(row: Mapping[str, Cell]) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = (float(str(row[name])) for name in CORNERS)
    return x0, y0, x1, y1


def _label(row: Mapping[str, Cell]) -> str:
    """Returns the class of a row; that of a target that could not be decided about is ``error``."""
    return str(row["label"]) if row.get("label") is not None else "error"


def _others(row: Mapping[str, Cell]) -> dict[str, Cell]:
    return {name: cell for name, cell in row.items() if name not in (*CORNERS, SCORE, "label")}
