"""The bands of images: their names, the files that hold them, and a choice among them."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeVar

import numpy as np

from jaxatr.data import envi
from jaxatr.data.decoder import MOST_BANDS, ImageError, check_order, tiff
from jaxatr.data.images import content_of, decode_file, natural_order
from jaxatr.resolve import nearest
from jaxatr.typing import Shaped

Place = TypeVar("Place", bound=PurePath)

_COLOURS = ("red", "green", "blue")


class Bands(NamedTuple):
    """How files become images of several bands.

    Attributes:
      names: names of an image's bands; empty if they have none.
      files: endings of the names of the files that hold a chip's bands, such as ``("_vis.png",
        "_ir.png")``; empty if each file is an image.
      phase: whether complex values become two bands, magnitude and phase, instead of the magnitude.
    """

    names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    phase: bool = False

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> "Bands":
        """Creates it from :meth:`as_dict`; fields that are missing have their defaults."""
        return cls(
            tuple(fields.get("names", ())),
            tuple(fields.get("files", ())),
            fields.get("phase", False),
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        return {"names": list(self.names), "files": list(self.files), "phase": self.phase}

    def read(self, path: str | os.PathLike, name: str = "") -> Shaped[np.ndarray, "h w c"]:
        """Reads an image like :func:`jaxatr.data.read_image`, with the bands of all its files.

        Args:
          path: the image's file, the first of several; or one file that has all bands.
          name: the path as the user knows it; by default ``path``.

        Raises:
          ImageError: see :func:`jaxatr.data.read_image`; a further file is missing, or shows
            another number of pixels; or the bands' names have another order.
        """
        return self.read_named(path, name)[0]

    def read_named(
        self, path: str | os.PathLike, name: str = ""
    ) -> tuple[Shaped[np.ndarray, "h w c"], tuple[str, ...]]:
        """Reads an image and the names of its bands, which are empty if it has none."""
        images: list[np.ndarray] = []
        names: list[str] = []
        first = name or os.fspath(path)
        for file in self.files_of(Path(path), first):
            own = str(Path(first).with_name(file.name)) if images else first
            content = content_of(file, own)
            image = decode_file(file, content, own, phase=self.phase)
            if images and image.shape[:2] != images[0].shape[:2]:
                raise ImageError(
                    f"{own}: {image.shape[0]}x{image.shape[1]} pixels, wanted "
                    f"{images[0].shape[0]}x{images[0].shape[1]} as in {Path(first).name}, the "
                    "first file of this chip"
                )
            images.append(image)
            names += self._names(file, content, image.shape[2])
        image = images[0]
        if len(images) > 1:
            if sum(one.shape[2] for one in images) > MOST_BANDS:
                raise ImageError(f"{first}: its files have more than {MOST_BANDS} bands together")
            # Of uint8, uint16 and float32, the widest holds the values of all.
            image = np.concatenate(images, axis=2, dtype=np.result_type(*images))
        own = tuple(names) if len({*names}) == image.shape[2] else ()
        check_order(own, self.names, first)
        return image, own

    def _names(self, file: Path, content: bytes, count: int) -> list[str]:
        """Returns the names of a file's bands: its own, or those that its kind or ending has."""
        own = [*names_in(content)]
        if self.phase and count == 2 * max(len(own), 1):
            own = [
                f"{one} {part}".strip() for one in own or [""] for part in ("magnitude", "phase")
            ]
        ending = self._ending(file.name)
        if len(own) == count or not ending:
            return own if len(own) == count else []
        word = re.sub(r"\W+", " ", ending.rpartition(".")[0].replace("_", " ")).strip() or "first"
        return [word] if count == 1 else [f"{word} {number}" for number in range(1, count + 1)]

    def files_of(self, path: Path, name: str = "") -> list[Path]:
        """Returns the files of an image; a single one if its name has none of the endings.

        Args:
          path: the image's file.
          name: the path as the user knows it; by default ``path``.

        Raises:
          ImageError: one is missing, or ``path`` is not the first of them.
        """
        if not (ending := self._ending(path.name)):
            return [path]
        found = [_with_ending(path, ending, other) for other in self.files]
        for file in found:
            if file != path and not file.is_file():
                raise ImageError(
                    f"{name or path}: there is no {file.name} beside it, which belongs to this "
                    f"chip (files={','.join(self.files)})"
                )
        if ending != self.files[0]:
            raise ImageError(f"{name or path}: belongs to {found[0].name}, wanted this file")
        return found

    def files_beside(self, path: Path) -> list[Path]:
        """Returns the other files that an image is read from; none if one of them is missing."""
        try:
            return [*self.files_of(path)[1:], *envi.beside(path)]
        except ImageError:
            return []

    def firsts(self, paths: Sequence[Place]) -> list[Place]:
        """Returns paths without those of files that belong to another one among them."""
        there = set(paths)

        def alone(path: Place) -> bool:
            if there & {*envi.headers_of(path)}:
                return False
            ending = self._ending(path.name)
            first = _with_ending(path, ending, self.files[0]) if ending else path
            return first == path or first not in there

        return [path for path in paths if alone(path)]

    def is_further(self, path: Path) -> bool:
        """Whether a file belongs to another one beside it, the first of its chip."""
        ending = self._ending(path.name)
        if not ending or ending == self.files[0]:
            return False
        return _with_ending(path, ending, self.files[0]).is_file()

    def _ending(self, name: str) -> str:
        return max((one for one in self.files if name.endswith(one)), key=len, default="")


def _with_ending(path: Place, ending: str, other: str) -> Place:
    return path.with_name(path.name[: len(path.name) - len(ending)] + other)


PLAIN = Bands()
"""Each file is an image, whose bands have no names."""


def read_folder(path: str | os.PathLike, bands: Bands = PLAIN) -> list[Shaped[np.ndarray, "h w c"]]:
    """Reads the images of a folder, in the natural order of their names.

    Digits count as numbers, so ``frame2.png`` is before ``frame10.png``. Hidden files are left out.

    Args:
      path: the folder.
      bands: how files become images.

    Raises:
      ImageError: the folder does not exist or is empty, or a file cannot be used.
    """
    try:
        names = [entry.name for entry in os.scandir(path) if not entry.name.startswith(".")]
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror or error}; wanted a folder") from error
    if not names:
        raise ImageError(f"{path}: there is no image in this folder")
    files = bands.firsts([Path(path) / name for name in sorted(names, key=natural_order)])
    return [bands.read(file) for file in files]


def endings(text: str) -> tuple[str, ...]:
    """Splits the option of a source that names the endings of a chip's files.

    Raises:
      ValueError: there is only one, one is empty, or two are equal.
    """
    found = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
    if found and (len(found) < 2 or not all(found) or len({*found}) < len(found) or "/" in text):
        raise ValueError(
            f"files: got {text!r}, wanted two or more different endings of names, such as "
            "_vis.png,_ir.png"
        )
    return found


def listed_names(text: str) -> tuple[str, ...]:
    """Splits the option of a source that names the bands.

    Raises:
      ValueError: a name is empty, or two are equal.
    """
    found = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
    if not all(found) or len({*found}) < len(found):
        raise ValueError(f"band_names: got {text!r}, wanted different names with commas")
    return found


def names_in(content: bytes) -> tuple[str, ...]:
    """Returns the names of the bands in a file of ENVI or a TIFF of GDAL; none if it has none."""
    if envi.is_envi(content):
        return envi.band_names(content)
    return tiff.band_names(content) if content.startswith(tiff.START) else ()


class Choice(NamedTuple):
    """A choice of bands.

    Attributes:
      numbers: the chosen bands, counted from 0.
      of: number of bands of an image, of which some are chosen.
    """

    numbers: tuple[int, ...]
    of: int

    def check(self, count: int) -> None:
        """Checks the number of bands of an image.

        Raises:
          ValueError: it is another one.
        """
        if count != self.of:
            raise ValueError(
                f"got an image of {counted(count)}, wanted {self.of}, of which data.bands="
                f"{','.join(str(one + 1) for one in self.numbers)} are used"
            )


def counted(count: int) -> str:
    """Returns a number of bands in words, as in "4 bands"."""
    return "1 band" if count == 1 else f"{count} bands"


def chosen(field: str, text: str, names: Sequence[str], count: int) -> tuple[int, ...]:
    """Finds bands by their numbers from 1, or by their names.

    Args:
      field: the field's name, for errors.
      text: numbers or names with commas; empty for none.
      names: names of all bands; empty if they have none.
      count: number of all bands.

    Returns:
      The bands, counted from 0.

    Raises:
      ValueError: there is no such band, or one occurs twice.

    >>> chosen("data.bands", "4,red", ["red", "green", "blue", "nir"], 4)
    (3, 0)
    """
    found: list[int] = []
    for part in (part.strip() for part in text.split(",") if text.strip()):
        if part in names:
            place = list(names).index(part)
        elif part.isascii() and part.isdigit() and 1 <= int(part) <= count:
            place = int(part) - 1
        else:
            there = f"1 to {count}" + (f" or {', '.join(names)}" if names else "")
            raise ValueError(
                f"{field}: there is no band {part!r}, wanted {there}{nearest(part, names)}"
            )
        if place in found:
            raise ValueError(f"{field}: got band {part!r} twice in {text!r}")
        found.append(place)
    return tuple(found)


def preview_of(names: Sequence[str], count: int) -> tuple[int, ...]:
    """Chooses the bands that pictures show: red, green and blue, or the first three, or the first.

    >>> preview_of(["blue", "green", "red", "nir"], 4)
    (2, 1, 0)
    >>> preview_of([], 2)
    (0,)
    """
    lower = [name.lower() for name in names]
    if set(_COLOURS) <= set(lower):
        return tuple(lower.index(colour) for colour in _COLOURS)
    return tuple(range(3 if count >= 3 else 1))


def shown(
    chip: Shaped[np.ndarray, "h w c"], preview: Sequence[int] = ()
) -> Shaped[np.ndarray, "h w d"]:
    """Returns a chip as pictures show it: as it is if it is gray or RGB, otherwise some bands.

    The bands, which may have different units, are each stretched to 0 … 255 unless they have 8
    bits.

    Args:
      chip: ``[h, w, c]``.
      preview: the bands to show, one or three; empty for :func:`preview_of`.
    """
    if chip.shape[2] in (1, 3) and not preview:
        return chip
    picked = chip[:, :, list(preview or preview_of((), chip.shape[2]))]
    if picked.dtype == np.uint8:
        return picked
    low, high = (of(picked.astype(np.float64), axis=(0, 1)) for of in (np.min, np.max))
    span = np.where(high > low, high - low, 1.0)
    return np.rint((picked.astype(np.float64) - low) * (255 / span)).astype(np.uint8)
