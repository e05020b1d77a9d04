"""FGVC-Aircraft's images as records, without the banners at their bottom."""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

from jaxatr.data import aircraft, records
from jaxatr.data.images import ImageError, read_image
from jaxatr.typing import Float, Shaped

# Raised when other records would be written from the same files.
VERSION = 1
OPTIONS: dict[str, Any] = {"level": "variant", "coarse": "", "size": 0}
_BANNER = 20  # rows at the bottom of every image, which name its photographer
_FEATURES = {"label": np.int32, "path": np.str_}


def used(paths: list[PurePosixPath]) -> list[PurePosixPath]:
    """Returns the images and lists of :func:`data_folder`'s files."""
    return [path for path in paths if path.parts[0] == "images" or path.suffix == ".txt"]


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all options; ``coarse`` is the level above where it is not given, or None.

    Raises:
      ValueError: an option has no such value.
    """
    settings = {**OPTIONS, **options}
    level, coarse, size = settings["level"], settings["coarse"], settings["size"]
    if level not in aircraft.LEVELS:
        raise ValueError(f"level: got {level!r}, wanted one of {', '.join(aircraft.LEVELS)}")
    levels = list(aircraft.LEVELS)
    above = levels[levels.index(level) + 1 :]
    if coarse and coarse not in above:
        raise ValueError(
            f"coarse: got {coarse!r}, wanted a level above {level}: {' or '.join(above) or 'none'}"
        )
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"size: got {size!r}, wanted a whole number from 0")
    return {**settings, "coarse": coarse or next(iter(above), None)}


def write(
    root: Path,
    paths: list[PurePosixPath],
    directory: Path,
    settings: dict[str, Any],
    *,
    skip_corrupt: bool,
) -> tuple[Path, dict[str, Any]]:
    """Writes the images and their boxes, and returns where they lie and what is known of them.

    Args:
      root: of :func:`jaxatr.data.aircraft.data_folder`.
      paths: of :func:`used`.
      directory: an empty folder.
      settings: of :func:`checked`.
      skip_corrupt: leave out and list images that are missing or damaged.

    Raises:
      ValueError: the lists contradict each other, or images are missing.
      ImageError: an image is damaged, or its box is not on it.
    """
    lists = aircraft.read_lists(root, settings["level"], settings["coarse"])
    skipped = _missing(root, paths, lists, skip_corrupt)
    scalars = _FEATURES | ({} if lists.fine_to_coarse is None else {"coarse": np.int32})
    features = {
        "image": records.tensor((None, None, None), np.uint8),
        "box": records.tensor((4,), np.float32),
        **{name: records.scalar(dtype) for name, dtype in scalars.items()},
    }

    left_out = {path for path, _ in skipped}

    def examples(split: str) -> Iterator[records.Example]:
        kept = 0
        for photograph in lists.photographs[split]:
            if photograph.path in left_out:
                continue
            try:
                example = _example(root, photograph, lists.fine_to_coarse, settings["size"])
            except ImageError as error:
                if not skip_corrupt:
                    raise
                skipped.append((photograph.path, str(error)))
                continue
            kept += 1
            yield example
        if not kept:
            raise ValueError(f"{root}: no image of split {split!r} is left")

    splits = {split: lambda split=split: examples(split) for split in lists.photographs}
    made = records.write(splits, features, directory, sum(map(len, lists.photographs.values())))
    facts = {
        "classes": lists.classes,
        "coarse_classes": lists.coarse_classes,
        "fine_to_coarse": lists.fine_to_coarse,
        "settings": settings,
        "skipped": skipped,
        "keys": {name: name for name in features},
    }
    return made, facts


def _missing(
    root: Path, paths: list[PurePosixPath], lists: aircraft.Lists, skip_corrupt: bool
) -> list[tuple[str, str]]:
    """Returns (file, why) of the images that are listed and not there."""
    there = set(map(str, paths))
    wanted = [photograph.path for split in lists.photographs.values() for photograph in split]
    missing = [path for path in wanted if path not in there]
    if missing and not skip_corrupt:
        told = ", ".join(missing[:10]) + (", …" if len(missing) > 10 else "")
        raise ValueError(f"{root}: {len(missing)} of {len(wanted)} images are missing: {told}")
    return [(path, "there is no such file") for path in missing]


def _example(
    root: Path, photograph: aircraft.Photograph, fine_to_coarse: list[int] | None, size: int
) -> records.Example:
    image, box = _without_banner(read_image(root / photograph.path), photograph.box)
    if box is None:
        raise ImageError(
            f"{root / photograph.path}: its box {photograph.box} is not on the "
            f"{image.shape[1]} columns and {image.shape[0]} rows above the banner"
        )
    if 0 < size < max(image.shape[:2]):
        image, box = _reduced(image, box, size)
    label = photograph.label
    coarse = {} if fine_to_coarse is None else {"coarse": fine_to_coarse[label]}
    return {"image": image, "box": box, "label": label, "path": photograph.path, **coarse}


def _without_banner(
    image: Shaped[np.ndarray, "h w c"], corners: tuple[int, int, int, int]
) -> tuple[Shaped[np.ndarray, "y w c"], Float[np.ndarray, " 4"] | None]:
    """Returns an image and its box ``y0, x0, y1, x1`` without the banner, or no box."""
    image = image[:-_BANNER]
    height, width = image.shape[:2]
    x0, y0, x1, y1 = corners
    # In the file a box holds its last row and column and counts from 1; here it ends before them.
    box = np.array([y0 - 1, x0 - 1, min(y1, height), min(x1, width)], np.float32)
    on_it = 0 <= box[0] < box[2] and 0 <= box[1] < box[3]
    return image, box if on_it else None


def _reduced(
    image: Shaped[np.ndarray, "h w c"], box: Float[np.ndarray, " 4"], size: int
) -> tuple[Shaped[np.ndarray, "y x c"], Float[np.ndarray, " 4"]]:
    """Returns an image whose longer side is ``size``, and its box."""
    height, width, channels = image.shape
    rows, columns = (max(1, round(side * size / max(height, width))) for side in (height, width))
    picture = Image.fromarray(image[:, :, 0] if channels == 1 else image)
    reduced = np.asarray(picture.resize((columns, rows), Image.Resampling.BILINEAR))
    scale = np.array([rows / height, columns / width] * 2, np.float32)
    return reduced.reshape(rows, columns, channels), box * scale
