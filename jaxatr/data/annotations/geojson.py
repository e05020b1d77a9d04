"""GeoJSON: polygons in the coordinates of a georeferenced image."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr.data.annotations.scene import Collector
from jaxatr.data.decoder import ImageError
from jaxatr.data.scene_image import open_scene

_LABELS = ("label", "class", "class_name", "name")
_PATHS = ("path", "image", "file", "file_name")


def reads(content: Any) -> bool:
    """Whether a JSON file's content is GeoJSON."""
    return isinstance(content, Mapping) and content.get("type") == "FeatureCollection"


def read(path: Path, content: Mapping[str, Any], into: Collector, image: str | None) -> None:
    """Reads the boxes around polygons, converted from map coordinates to pixels.

    Coordinates must be of the image's own reference system; nothing is projected. The image has a
    world file beside it or is a GeoTIFF, unless a feature's property ``coordinates`` is ``pixels``.

    Args:
      path: the file.
      content: its content.
      into: takes the boxes.
      image: the only image, for features that name none.
    """
    transforms: dict[str, np.ndarray | None] = {}
    features = content.get("features", [])
    if not isinstance(features, list):
        into.problem(path.name, "wanted a list of features")
        return
    for place, feature in enumerate(features):
        where = f"{path.name}: features[{place}]"
        try:
            facts, shape = feature.get("properties") or {}, feature["geometry"]
            # An attribute without a value is null in the files of QGIS.
            facts = {key: value for key, value in facts.items() if value is not None}
            name = next((str(facts[key]) for key in _PATHS if key in facts), image)
            label = next((facts[key] for key in _LABELS if key in facts), "")
            points = np.array(list(_points(shape)), float)
        except (AttributeError, LookupError, TypeError, ValueError):
            into.problem(where, "wanted a feature with properties and a polygon of coordinates")
            continue
        if name is None:
            into.problem(where, "names no image (property path), and there are several")
            continue
        if points.ndim != 2 or len(points) < 3:
            into.problem(where, f"got a {shape.get('type')}, wanted a polygon")
            continue
        if facts.get("coordinates") == "pixels":  # as detect writes them of a scene without a map
            into.box(name, points[:, :2].ravel().tolist(), label, where)
            continue
        if name not in transforms:
            transforms[name] = _transform(into, name)
        transform = transforms[name]
        if transform is None:
            if into.has(name):
                into.problem(where, f"{name} has no map coordinates (GeoTIFF or world file)")
            continue
        pixels = np.linalg.solve(transform[:, :2], (points[:, :2] - transform[:, 2]).T).T
        into.box(name, pixels.ravel().tolist(), label, where)


def _points(shape: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the corners of the outer ring of a polygon, or of several."""
    rings = shape["coordinates"]
    if shape["type"] == "Polygon":
        rings = [rings]
    elif shape["type"] != "MultiPolygon":
        return
    for polygon in rings:
        yield from (point[:2] for point in polygon[0][:-1])


def _transform(into: Collector, name: str) -> np.ndarray | None:
    found = None
    try:
        if into.is_below(name):
            with open_scene(into.root / name) as opened:
                found = opened.transform
        else:
            into.scene(name)
    except (ImageError, ValueError):  # named with the scene
        into.scene(name)
    return None if found is None or abs(np.linalg.det(found[:, :2])) == 0 else found
