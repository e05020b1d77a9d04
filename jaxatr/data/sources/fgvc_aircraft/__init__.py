"""The data source of FGVC-Aircraft (Maji et al. 2013), with the images' bottom banners removed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from jaxatr.data.files_below import file_states, files_below
from jaxatr.data.images import ImageError, read_image
from jaxatr.data.source import (
    Contents,
    Example,
    Feature,
    Option,
    Request,
    Scan,
    Source,
    all_options,
    check_whole_number,
)
from jaxatr.data.sources.fgvc_aircraft.lists import (
    LEVELS,
    Lists,
    Photograph,
    data_folder,
    read_lists,
)
from jaxatr.typing import Float, Shaped

_BANNER = 20  # rows at the bottom of every image with the photographer's name


class FgvcAircraft(Source):
    """FGVC-Aircraft as published: its lists and images."""

    name = "fgvc_aircraft"
    version = 1
    takes = "the folder extracted from its archive"
    options = {
        "level": Option("variant", "level of the classes: variant, family or manufacturer"),
        "coarse": Option(
            "", "level of the coarse classes; by default the next above that of the classes"
        ),
        "size": Option(
            0, "reduce larger images until their longer side has this many pixels; 0: off"
        ),
    }

    def scan(self, request: Request) -> Scan:
        """Finds the images and the lists, and checks the options."""
        root = data_folder(request.path)
        found = files_below(root)
        paths = [path for path in found if path.parts[0] == "images" or path.suffix == ".txt"]
        settings = all_options(self, request.options)
        level, coarse = settings["level"], settings["coarse"]
        if level not in LEVELS:
            raise ValueError(f"level: got {level!r}, wanted one of {', '.join(LEVELS)}")
        above = [*LEVELS][[*LEVELS].index(level) + 1 :]
        if coarse and coarse not in above:
            wanted = " or ".join(above) or "none"
            raise ValueError(f"coarse: got {coarse!r}, wanted a level above {level}: {wanted}")
        check_whole_number("size", settings["size"], least=0)
        settings["coarse"] = coarse or next(iter(above), None)
        state = [file_states(root, paths), settings, request.skip_corrupt]

        def contents(scratch: Path) -> Contents:
            del scratch
            lists = read_lists(root, level, settings["coarse"])
            return _contents(root, {*map(str, paths)}, lists, settings["size"], request)

        return Scan(self, settings, state, contents)


PART = FgvcAircraft()


def _contents(root: Path, there: set[str], lists: Lists, size: int, request: Request) -> Contents:
    """Returns the images and their boxes.

    Args:
      root: the folder of :func:`data_folder`.
      there: paths of the files in it.
      lists: the lists of :func:`read_lists`.
      size: longer side to which larger images are reduced, or 0.
      request: states whether images that are missing or damaged are left out and listed.
    """
    skipped = _missing(root, there, lists, request.skip_corrupt)
    left_out = {path for path, _ in skipped}

    def examples(split: str) -> Iterator[Example]:
        kept = 0
        for photograph in lists.photographs[split]:
            if photograph.path in left_out:
                continue
            try:
                example = _example(root, photograph, lists.fine_to_coarse, size)
            except ImageError as error:
                if not request.skip_corrupt:
                    raise
                skipped.append((photograph.path, str(error)))
                continue
            kept += 1
            yield example
        if not kept:
            raise ValueError(f"{root}: no image of split {split!r} is left")

    features = {
        "image": Feature(np.uint8, (None, None, None)),
        "box": Feature(np.float32, (4,)),
        "label": Feature(np.int32),
        "path": Feature(str),
    }
    if lists.fine_to_coarse is not None:
        features["coarse"] = Feature(np.int32)
    return Contents(
        classes=lists.classes,
        coarse_classes=lists.coarse_classes,
        fine_to_coarse=lists.fine_to_coarse,
        features=features,
        splits={split: lambda split=split: examples(split) for split in lists.photographs},
        total=sum(map(len, lists.photographs.values())),
        skipped=skipped,
    )


def _missing(
    root: Path, there: set[str], lists: Lists, skip_corrupt: bool
) -> list[tuple[str, str]]:
    """Returns (file, reason) of the listed images that do not exist."""
    wanted = [photograph.path for split in lists.photographs.values() for photograph in split]
    missing = [path for path in wanted if path not in there]
    if missing and not skip_corrupt:
        listed = ", ".join(missing[:10]) + (", …" if len(missing) > 10 else "")
        raise ValueError(f"{root}: {len(missing)} of {len(wanted)} images are missing: {listed}")
    return [(path, "there is no such file") for path in missing]


def _example(
    root: Path, photograph: Photograph, fine_to_coarse: list[int] | None, size: int
) -> Example:
    image, box = _without_banner(read_image(root / photograph.path), photograph.box)
    if box is None:
        raise ImageError(
            f"{root / photograph.path}: its box {photograph.box} is not within the "
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
    """Removes an image's banner; returns the image and its box ``y0, x0, y1, x1``, or no box."""
    image = image[:-_BANNER]
    height, width = image.shape[:2]
    x0, y0, x1, y1 = corners
    # In the file, boxes count from 1 and include their last row and column; here the ends are
    # exclusive.
    box = np.array([y0 - 1, x0 - 1, min(y1, height), min(x1, width)], np.float32)
    valid = 0 <= box[0] < box[2] and 0 <= box[1] < box[3]
    return image, box if valid else None


def _reduced(
    image: Shaped[np.ndarray, "h w c"], box: Float[np.ndarray, " 4"], size: int
) -> tuple[Shaped[np.ndarray, "y x c"], Float[np.ndarray, " 4"]]:
    """Resizes an image to a longer side of ``size``, and scales its box."""
    height, width, channels = image.shape
    rows, columns = (max(1, round(side * size / max(height, width))) for side in (height, width))
    picture = Image.fromarray(image[:, :, 0] if channels == 1 else image)
    reduced = np.asarray(picture.resize((columns, rows), Image.Resampling.BILINEAR))
    scale = np.array([rows / height, columns / width] * 2, np.float32)
    return reduced.reshape(rows, columns, channels), box * scale
