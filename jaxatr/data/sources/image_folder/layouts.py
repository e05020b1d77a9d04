"""Folders of image files: which of them is a split, which a class, which a coarse class."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from jaxatr.resolve import nearest

SPLIT_NAMES = (
    *("train", "test", "validation", "val", "valid"),
    *("training", "testing", "dev", "eval", "evaluation", "holdout"),
)
LAYOUTS = {
    "class": ("class",),
    "split/class": ("split", "class"),
    "coarse/class": ("coarse", "class"),
    "split/coarse/class": ("split", "coarse", "class"),
}
"""Name of a layout to what its folders are, from the outermost."""


class Listed(NamedTuple):
    """An image file and what is said of it.

    Attributes:
      path: below the folder, or absolute.
      label: name of its class.
      split: of the data set, or None where it is yet to be drawn.
      coarse: name of its coarse class, or None.
    """

    path: str
    label: str
    split: str | None = None
    coarse: str | None = None


def arranged(root: Path, paths: Sequence[PurePosixPath], layout: str, wanted: str) -> list[Listed]:
    """Says of image files in class folders which class, split and coarse class each is of.

    Args:
      root: the folder, for messages.
      paths: of the files below it, at least one.
      layout: of :data:`LAYOUTS`, or empty: three folders deep they are a split, a coarse class and
        a class. Two deep the outer one is a split if one has a split's usual name, or if a class
        is in several of them; else it is a coarse class.
      wanted: what was looked for, for messages.

    Raises:
      ValueError: there is no such layout, an image is out of place, or a class is in two coarse
        classes.
    """
    if layout and layout not in LAYOUTS:
        raise ValueError(
            f"layout: got {layout!r}, wanted one of {', '.join(LAYOUTS)}{nearest(layout, LAYOUTS)}"
        )
    depths = Counter(len(path.parts) - 1 for path in paths)
    depth = len(LAYOUTS[layout]) if layout else depths.most_common(1)[0][0]
    odd = next((path for path in paths if len(path.parts) - 1 != depth), None)
    if odd is not None or not 1 <= depth <= 3:
        beside = f", as {depths[depth]} others are {depth} folders deep" if odd else ""
        raise ValueError(f"{root / (odd or paths[0])} is out of place{beside}; looked for {wanted}")
    found = LAYOUTS[layout or _layout(paths, depth)]
    splits = _split_names({path.parts[0] for path in paths}, root) if "split" in found else {}
    listed = []
    for path in paths:
        parts = dict(zip(found, path.parts, strict=False))
        split = splits[parts["split"]] if "split" in parts else None
        listed.append(Listed(str(path), parts["class"], split, parts.get("coarse")))
    return listed


def _layout(paths: Sequence[PurePosixPath], depth: int) -> str:
    if depth != 2:
        return "class" if depth == 1 else "split/coarse/class"
    outer = {path.parts[0] for path in paths}
    if len(outer) == 1 or any(name.lower() in SPLIT_NAMES for name in outer):
        return "split/class"
    homes = {path.parts[:2] for path in paths}
    once = len(homes) == len({name for _, name in homes})
    return "coarse/class" if once else "split/class"


def _split_names(folders: set[str], root: Path) -> dict[str, str]:
    """Names the splits after their folders: letters, digits and underscores, in lower case."""
    names: dict[str, str] = {}
    first: dict[str, str] = {}
    for folder in sorted(folders):
        name = split_name(folder)
        if not name:
            raise ValueError(f"{root / folder}: a split's name has a letter or a digit")
        if first.setdefault(name, folder).lower() != folder.lower():
            raise ValueError(f"{root}: {first[name]!r} and {folder!r} would both be split {name!r}")
        names[folder] = name
    return names


def split_name(text: str) -> str:
    """Returns a split's name for any text, empty where nothing is left of it.

    >>> split_name("My Train-2")
    'my_train_2'
    """
    return re.sub(r"\W+", "_", text.strip()).strip("_").lower()
