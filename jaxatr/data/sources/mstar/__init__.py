"""The data source of MSTAR: raw chips (standard operating condition), or class folders."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import numpy as np

from jaxatr.data.decoder.phoenix import RawChip, SceneError, is_raw, read_chip
from jaxatr.data.files_below import add_dead_links, file_states, files_below
from jaxatr.data.reasons import Reasons
from jaxatr.data.source import (
    Contents,
    Example,
    Feature,
    Option,
    Request,
    Scan,
    Source,
    all_options,
)
from jaxatr.data.sources import image_folder

__all__ = ["PART", "Mstar", "RawChip", "SceneError", "is_raw", "read_chip"]

# Class to the serial number of its vehicle in the standard operating condition. The names are those
# of the class folders in which the chips are usually distributed.
_VEHICLES = {
    "2S1": "B01",
    "BMP2": "9563",
    "BRDM_2": "E71",
    "BTR60": "K10YT7532",
    "BTR70": "C71",
    "D7": "92V13015",
    "T62": "A51",
    "T72": "132",
    "ZIL131": "E12",
    "ZSU_23_4": "D08",
}
_SPLITS = {17: "train", 15: "test"}  # depression in degrees
_KINDS = r"_?(TANK|GUN|TRUCK|TRANSPORT|BULLDOZER)$"
_FEATURES = {
    "image": Feature(np.float32, (None, None, 1)),
    "label": Feature(np.int32),
    "path": Feature(str),
    "serial": Feature(str),
    "aspect_deg": Feature(np.float32),
    "depression_deg": Feature(np.float32),
}
_SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".txt", ".htm", ".html", ".c", ".m")


class Mstar(Source):
    """The magnitudes of the raw chips below a folder.

    The training split has 17° of depression and the test split 15°. Each class has only its vehicle
    of the standard operating condition, unless ``serials`` is ``"all"``; duplicates are used once.
    A folder or archive without raw chips is read as class folders.
    """

    name = "mstar"
    version = 1
    takes = "a folder of raw chips, or class folders"
    options = {
        "serials": Option(
            "standard",
            "standard: a class's vehicle of the standard operating condition; all: every vehicle",
        )
    }

    def scan(self, request: Request) -> Scan:
        """Finds the raw chips by their first bytes."""
        root = request.path
        likely = files_below(root) if root.is_dir() else []
        likely = [path for path in likely if path.suffix.lower() not in _SUFFIXES]
        paths = [path for path in likely if is_raw(root / path)]
        if not paths:
            return image_folder.PART.scan(request)
        settings = all_options(self, request.options)
        if settings["serials"] not in ("standard", "all"):
            raise ValueError(f"serials: got {settings['serials']!r}, wanted 'standard' or 'all'")
        state = [file_states(root, paths), settings, request.skip_corrupt]
        return Scan(self, settings, state, lambda _: _contents(request, paths, settings["serials"]))


PART = Mstar()


def _contents(request: Request, paths: list[PurePosixPath], serials: str) -> Contents:
    """Returns the magnitudes of the chosen chips.

    Raises:
      ValueError: a chip is damaged and must not be skipped, a split has no chip, or fewer than two
        classes are left.
    """
    root, left_out = request.path, Reasons()
    add_dead_links(root, left_out)
    chosen, damaged = _chosen(root, paths, serials, request.skip_corrupt, left_out)
    found = {kind for rows in chosen.values() for _, kind in rows}
    classes = [name for name in _VEHICLES if name in found]
    if not all(chosen.values()) or len(classes) < 2:
        counts = ", ".join(f"{len(rows)} of {split}" for split, rows in chosen.items())
        reasons = "; ".join(left_out.lines()[:3]) or "none"
        raise ValueError(
            f"{root}: chips of {len(classes)} classes are left, {counts} (left out: {reasons})"
        )

    def examples(split: str) -> Iterator[Example]:
        for path, kind in chosen[split]:
            yield _example(root, path, classes.index(kind))

    return Contents(
        classes=classes,
        features=_FEATURES,
        splits={split: lambda split=split: examples(split) for split in chosen},
        total=sum(map(len, chosen.values())),
        skipped=damaged,
        left_out=left_out,
        report=dict,
    )


def _chosen(
    root: Path, paths: list[PurePosixPath], serials: str, skip_corrupt: bool, left_out: Reasons
) -> tuple[dict[str, list[tuple[PurePosixPath, str]]], list[tuple[str, str]]]:
    """Returns path and class of the chosen chips by split, and (file, reason) of damaged ones."""
    chosen: dict[str, list[tuple[PurePosixPath, str]]] = {name: [] for name in _SPLITS.values()}
    seen: dict[bytes, PurePosixPath] = {}
    damaged = []
    for path in paths:
        try:
            chip = read_chip(root / path)
            split, kind = _place(chip.header, serials)
        except _LeftOut as reason:
            left_out.add(str(reason), str(path))
        except SceneError:
            left_out.add("whole scenes", str(path))
        except ValueError as error:
            if not skip_corrupt:
                raise
            damaged.append((str(path), str(error)))
        else:
            digest = hashlib.sha256(chip.magnitude.tobytes() + chip.phase.tobytes()).digest()
            if (first := seen.setdefault(digest, path)) != path:
                left_out.add("duplicate chips", str(path), f"= {first}")
            else:
                chosen[split].append((path, kind))
    return chosen, damaged


class _LeftOut(Exception):
    """An intact chip that was not requested."""


def _place(header: Mapping[str, str], serials: str) -> tuple[str, str]:
    """Returns a chip's split and class.

    Raises:
      _LeftOut: the chip was not requested.
    """
    plain_name = re.sub(_KINDS, "", header.get("TargetType", "").upper())
    plain = {re.sub("[^0-9A-Z]", "", name): name for name in _VEHICLES}
    kind = plain.get(re.sub("[^0-9A-Z]", "", plain_name))
    if kind is None:
        raise _LeftOut(
            f"chips of {header.get('TargetType', '')[:40]!r}, which is not one of the classes"
        )
    serial = re.sub("[^0-9A-Z]", "", header.get("TargetSerNum", "").upper())
    if serials == "standard" and serial != _VEHICLES[kind]:
        raise _LeftOut(
            f"chips of the {kind} {header.get('TargetSerNum', '')[:40]!r}, which is not of the "
            "standard operating condition"
        )
    depression = _degrees(header, "DesiredDepression", "MeasuredDepression")
    split = None if depression is None else _SPLITS.get(round(depression))
    if split is None:
        raise _LeftOut(f"chips at a depression of {depression}; wanted 17 (train) or 15 (test)")
    return split, kind


def _degrees(header: Mapping[str, str], *names: str) -> float | None:
    """Returns the first of these fields that is a number."""
    for name in names:
        if re.fullmatch(r"[+-]?\d{1,3}(\.\d*)?", header.get(name, "")):
            return float(header[name])
    return None


def _example(root: Path, path: PurePosixPath, label: int) -> Example:
    chip = read_chip(root / path)
    aspect = _degrees(chip.header, "TargetAz")
    depression = _degrees(chip.header, "MeasuredDepression", "DesiredDepression")
    return {
        "image": chip.magnitude[:, :, None],
        "label": label,
        "path": str(path),
        "serial": chip.header.get("TargetSerNum", ""),
        "aspect_deg": float("nan") if aspect is None else aspect % 360,
        "depression_deg": float("nan") if depression is None else depression,
    }
