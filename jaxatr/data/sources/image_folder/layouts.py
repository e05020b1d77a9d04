"""Interpretation of folder names as splits, coarse classes and classes."""

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
"""Names of layouts to the meanings of their folders, from the outermost."""


class Listed(NamedTuple):
    """An image file with its class.

    Attributes:
      path: relative to the folder, or absolute.
      label: name of its class.
      split: name of its split, or None if it is still to be drawn.
      coarse: name of its coarse class, or None.
    """

    path: str
    label: str
    split: str | None = None
    coarse: str | None = None


def arranged(root: Path, paths: Sequence[PurePosixPath], layout: str, wanted: str) -> list[Listed]:
    """Assigns a class, and possibly a split and a coarse class, to images by their folders.

    Args:
      root: the folder, for messages.
      paths: paths of the files below it, at least one.
      layout: one of :data:`LAYOUTS`; empty to infer it. Three levels are split, coarse class and
        class. Of two levels, the outer one is a split if one of its folders has a usual split name,
        if it is the only one, or if a class occurs in several of them; otherwise a coarse class.
      wanted: a description of the expected layouts, for messages.

    Raises:
      ValueError: there is no such layout, or an image is misplaced.
    """
    if layout and layout not in LAYOUTS:
        raise ValueError(
            f"layout: got {layout!r}, wanted one of {', '.join(LAYOUTS)}{nearest(layout, LAYOUTS)}"
        )
    depths = Counter(len(path.parts) - 1 for path in paths)
    depth = len(LAYOUTS[layout]) if layout else depths.most_common(1)[0][0]
    odd = next((path for path in paths if len(path.parts) - 1 != depth), None)
    if odd is not None or not 1 <= depth <= 3:
        deep = "1 folder deep" if depth == 1 else f"{depth} folders deep"
        if odd:
            why = f"is misplaced: {depths[depth]} others are {deep}"
        else:
            why = f"is {deep}" if depth else "is in no class folder"
        raise ValueError(f"{root / (odd or paths[0])} {why}; looked for {wanted}")
    levels = LAYOUTS[layout or _layout(paths, depth)]
    splits = _split_names({path.parts[0] for path in paths}, root) if "split" in levels else {}
    listed = []
    for path in paths:
        parts = dict(zip(levels, path.parts, strict=False))
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
    """Returns the split name of each folder: letters, digits and underscores, in lower case."""
    names: dict[str, str] = {}
    first: dict[str, str] = {}
    for folder in sorted(folders):
        name = split_name(folder)
        if not name:
            raise ValueError(f"{root / folder}: a split's name needs a letter or a digit")
        if first.setdefault(name, folder).lower() != folder.lower():
            raise ValueError(f"{root}: {first[name]!r} and {folder!r} would both be split {name!r}")
        names[folder] = name
    return names


def split_name(text: str) -> str:
    """Converts text to a split's name; empty if the text has no letters or digits.

    >>> split_name("My Train-2")
    'my_train_2'
    """
    return re.sub(r"\W+", "_", text.strip()).strip("_").lower()
