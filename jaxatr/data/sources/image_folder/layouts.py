"""Interpretation of folder names as splits, coarse classes and classes."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from jaxatr.data.class_names import class_name
from jaxatr.data.files_below import as_utf8
from jaxatr.resolve import nearest

SPLIT_NAMES = (
    *("train", "test", "validation", "val", "valid"),
    *("training", "testing", "dev", "eval", "evaluation", "holdout"),
)
LAYOUTS = {
    "class": ("class",),
    "split/class": ("split", "class"),
    "coarse/class": ("coarse", "class"),
    "class/split": ("class", "split"),
    "split/coarse/class": ("split", "coarse", "class"),
    "coarse/class/split": ("coarse", "class", "split"),
}
"""Names of layouts to the meanings of their folders, from the outermost."""


class Listed(NamedTuple):
    """An image file with its class.

    Attributes:
      path: relative to the folder, or absolute.
      label: name of its class.
      split: name of its split, or None if it is still to be drawn.
      coarse: name of its coarse class, or None.
      group: name of what it belongs to, such as a flight or a vehicle; None if that is not stated.
    """

    path: str
    label: str
    split: str | None = None
    coarse: str | None = None
    group: str | None = None


class Arranged(NamedTuple):
    """Image files with their classes.

    Attributes:
      listed: the files, in the given order.
      layout: one of :data:`LAYOUTS`.
    """

    listed: list[Listed]
    layout: str


def arranged(root: Path, paths: Sequence[PurePosixPath], layout: str, wanted: str) -> Arranged:
    """Assigns a class, and possibly a split and a coarse class, to images by their folders.

    Args:
      root: the folder, for messages.
      paths: paths of the files below it, at least one, without :func:`wrapper`.
      layout: one of :data:`LAYOUTS`; empty to infer it. With two or three levels, the outermost is
        a split if one of its folders has a usual split name, and the innermost is a split if all of
        its folders have one. Otherwise, three levels are split, coarse class and class; with two
        levels, the outer one is a split if a class occurs in several of its folders, else a coarse
        class.
      wanted: a description of the expected layouts, for messages.

    Raises:
      ValueError: there is no such layout, it cannot be inferred, or an image is misplaced.
    """
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
    folders = [tuple(class_name(as_utf8(one)) for one in path.parts[:-1]) for path in paths]
    layout = layout or _layout(root, folders, depth)
    levels = LAYOUTS[layout]
    at = levels.index("split") if "split" in levels else None
    splits = {} if at is None else _split_names({one[at] for one in folders}, root)
    listed = []
    for path, names in zip(paths, folders, strict=True):
        parts = dict(zip(levels, names, strict=True))
        if not all(names):
            raise ValueError(f"{root / path} is in a folder whose name is empty but for spaces")
        split = splits[parts["split"]] if "split" in parts else None
        listed.append(Listed(str(path), parts["class"], split, parts.get("coarse")))
    return Arranged(listed, layout)


def check_layout(layout: str) -> None:
    """Checks that a layout exists; an empty one is inferred.

    Raises:
      ValueError: there is no such layout.
    """
    if layout and layout not in LAYOUTS:
        raise ValueError(
            f"layout: got {layout!r}, wanted one of {', '.join(LAYOUTS)}{nearest(layout, LAYOUTS)}"
        )


def wrapper(paths: Sequence[PurePosixPath], layout: str) -> PurePosixPath:
    """Returns the outermost folders that hold all the others and have no meaning, if any.

    A folder is not a wrapper if it has a usual split name, or if the images below it would be in
    fewer folders than the layout has.

    Args:
      paths: paths of the files, at least one.
      layout: one of :data:`LAYOUTS`; empty for one that is to be inferred.

    >>> str(wrapper([PurePosixPath("chips/car/0.png"), PurePosixPath("chips/van/0.png")], ""))
    'chips'
    """
    least = len(LAYOUTS[layout]) if layout else 1
    depth = min(len(path.parts) - 1 for path in paths)
    names: list[str] = []
    while depth - len(names) > least:
        found = {path.parts[len(names)] for path in paths}
        inner = {path.parts[len(names) + 1] for path in paths}
        # A single folder around split folders is not a wrapper, but the only class.
        alone = depth - len(names) == 2 and not layout and all(map(is_usual, inner))
        if len(found) > 1 or alone or any(map(is_usual, found)):
            break
        names += found
    return PurePosixPath(*names)


def is_usual(name: str) -> bool:
    """Whether a folder's name is a usual one of a split."""
    return name.lower() in SPLIT_NAMES


def _layout(root: Path, folders: Sequence[tuple[str, ...]], depth: int) -> str:
    """Infers the layout of images that are in one to three folders each."""
    choices = [name for name, levels in LAYOUTS.items() if len(levels) == depth]
    levels = [{names[level] for names in folders} for level in range(depth)]
    usual = [[*filter(is_usual, names)] for names in levels]
    outer, inner = bool(usual[0]), len(usual[-1]) == len(levels[-1])
    if depth == 1:
        if inner and len(levels[0]) > 1:
            raise _unclear(root, usual, choices)
        return "class"
    if outer and not inner:
        return "split/class" if depth == 2 else "split/coarse/class"
    if inner and not outer:
        return "class/split" if depth == 2 else "coarse/class/split"
    homes = set(folders)
    once = len(homes) == len({home[-1] for home in homes})
    several = any(len(names) > 1 for names in usual[1:])
    if outer or (several and not (depth == 2 and once)):
        raise _unclear(root, usual, choices)
    if depth == 3:
        return "split/coarse/class"
    return "coarse/class" if once else "split/class"


def _unclear(root: Path, usual: list[list[str]], choices: list[str]) -> ValueError:
    names = ", ".join(sorted({name for names in usual for name in names}))
    quoted = f"'\"{choices[-1]}\"'"
    return ValueError(
        f"layout: not clear from the folders of {root}, because {names} could be splits or "
        f"classes; wanted one of {', '.join(choices)}, such as --option=layout={quoted}, in a "
        f"training --config.data.options.layout={choices[-1]}, or a table of the images"
    )


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
    return re.sub(r"\W+", "_", class_name(text)).strip("_").lower()
