"""Chips of annotated scenes as image files in folders of parts and classes."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from jaxatr.data.source import Request
from jaxatr.data.sources.scenes import PART
from jaxatr.files import Scratch, replacing


class Written(NamedTuple):
    """The numbers of chips that were written, and of those left out.

    Attributes:
      counts: (part, class) to number of chips.
      skipped: (place, reason) of what could not be used.
      notes: lines about what was left out.
    """

    counts: Mapping[tuple[str, str], int]
    skipped: list[tuple[str, str]]
    notes: list[str]


def write_chips(
    scenes: Path, out: Path, options: Mapping[str, Any], *, skip_corrupt: bool
) -> Written:
    """Writes the chips of scenes as ``OUT/PART/CLASS/SCENE_NUMBER.png``.

    Floats, 16-bit colours and bands that are neither gray nor RGB become ``.npy``.

    Args:
      scenes: folder of the scenes, or one scene.
      out: a folder that is empty or does not exist yet.
      options: of the data source.
      skip_corrupt: leave damaged scenes out.

    Raises:
      ValueError: the folder has files, or the scenes or the boxes cannot be used.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"--out: {out} exists and is not an empty folder")
    scan = PART.scan(Request(scenes, options, skip_corrupt))
    with Scratch() as scratch:
        contents = scan.contents(Path(scratch))
    classes = list(contents.classes)
    folders = {label: _folder_name(label) for label in classes}
    if len(set(folders.values())) < len(folders):
        raise ValueError(f"classes of one folder's name: {', '.join(sorted(folders))}")
    counts: Counter[tuple[str, str]] = Counter()
    names: dict[str, str] = {}
    out.parent.mkdir(parents=True, exist_ok=True)
    is_new = not out.exists()  # else it may be a mounted disk, to which no file can be renamed
    with Scratch(str(out.parent if is_new else out)) as made:  # nothing is left if it is refused
        for part, examples in contents.splits.items():
            for example in examples():
                label = classes[example["label"]]
                folder = Path(made, part, folders[label])
                folder.mkdir(parents=True, exist_ok=True)
                scene, _, number = example["path"].rpartition("#")
                if scene not in names:
                    names[scene] = _file_name(scene, names.values())
                _write(folder / f"{names[scene]}_{int(number):04}", example["image"])
                counts[part, label] += 1
        if is_new:
            out.mkdir()  # not one that another process has written meanwhile
        for part in Path(made).iterdir():
            part.rename(out / part.name)
    return Written(counts, contents.skipped, contents.left_out.lines())


def _folder_name(label: str) -> str:
    """Returns a class's name as the name of a visible folder."""
    return re.sub(r'[\\/:*?"<>|\x00-\x1f]', "_", label).lstrip(".") or "_"


def _file_name(scene: str, taken: Collection[str]) -> str:
    """Returns a scene's path as a visible file's name that no other has, whatever its case."""
    name = shown = re.sub(r"[^\w.-]+", "_", scene).lstrip(".")
    others, number = {one.casefold() for one in taken}, 1
    while name.casefold() in others:
        number += 1
        name = f"{shown}-{number}"
    return name


def _write(path: Path, image: np.ndarray) -> None:
    plain = (np.uint8, 1), (np.uint8, 3), (np.uint16, 1)
    if (image.dtype, image.shape[2]) not in plain:
        with replacing(f"{path}.npy") as file:
            np.save(file, image)
        return
    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    with replacing(f"{path}.png") as file:
        picture.save(file, "PNG")
