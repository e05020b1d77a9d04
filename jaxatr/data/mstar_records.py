"""MSTAR's raw chips as records, by the standard operating condition."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from jaxatr.data import phoenix, records
from jaxatr.data.tally import Tally

# Raised when other records would be written from the same files.
VERSION = 1
OPTIONS: dict[str, Any] = {"serials": "standard"}
# Class to the one vehicle of it that the standard operating condition has, as a serial number.
# The names are those of the class folders that the chips are usually handed on in.
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
    "label": np.int32,
    "path": np.str_,
    "serial": np.str_,
    "aspect_deg": np.float32,
    "depression_deg": np.float32,
}
REPORT = "report.json"
KEYS = ("image", *_FEATURES)
_SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".txt", ".htm", ".html", ".c", ".m")


def raw_chips(root: Path, paths: list[PurePosixPath]) -> list[PurePosixPath]:
    """Returns those of a folder's files that are raw chips, told by how they start."""
    likely = [path for path in paths if path.suffix.lower() not in _SUFFIXES]
    return [path for path in likely if phoenix.is_raw(root / path)]


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all options, with the defaults of those not given.

    Raises:
      ValueError: an option has no such value.
    """
    settings = {**OPTIONS, **options}
    if settings["serials"] not in ("standard", "all"):
        raise ValueError(f"serials: got {settings['serials']!r}, wanted 'standard' or 'all'")
    return settings


def write(
    root: Path,
    paths: list[PurePosixPath],
    directory: Path,
    settings: dict[str, Any],
    *,
    skip_corrupt: bool,
) -> tuple[Path, dict[str, Any]]:
    """Writes the magnitudes of raw chips as float32 records, and returns what is known of them.

    17° of depression are the training split and 15° the test split. Of each class the one vehicle
    of the standard operating condition is taken, unless ``serials`` is ``"all"``; a chip that is
    there twice is taken once. What is left out is listed in ``report.json`` beside the records.

    Args:
      root: the folder.
      paths: of :func:`raw_chips`.
      directory: an empty folder.
      settings: of :func:`checked`.
      skip_corrupt: leave damaged chips out and list them.

    Raises:
      ValueError: a chip is damaged and ``skip_corrupt`` is off, or a split has no chip.
    """
    skipped = Tally()
    chosen, damaged = _chosen(root, paths, settings["serials"], skip_corrupt, skipped)
    found = {kind for rows in chosen.values() for _, kind in rows}
    classes = [name for name in _VEHICLES if name in found]
    if not all(chosen.values()) or len(classes) < 2:
        counts = ", ".join(f"{len(rows)} of {split}" for split, rows in chosen.items())
        told = "; ".join(skipped.lines()[:3]) or "none"
        raise ValueError(
            f"{root}: chips of {len(classes)} classes are left, {counts} (left out: {told})"
        )

    def examples(split: str) -> Iterator[records.Example]:
        for path, kind in chosen[split]:
            yield _example(root, path, classes.index(kind))

    features = {
        "image": records.tensor((None, None, 1), np.float32),
        **{name: records.scalar(dtype) for name, dtype in _FEATURES.items()},
    }
    splits = {split: lambda split=split: examples(split) for split in chosen}
    made = records.write(splits, features, directory, sum(map(len, chosen.values())))
    report = {"settings": settings, "skipped": skipped.as_dict(), "damaged": damaged}
    (made / REPORT).write_text(json.dumps(report, indent=1))
    facts = {
        "classes": classes,
        "coarse_classes": None,
        "fine_to_coarse": None,
        "settings": settings,
        "skipped": damaged,
        "notes": [f"left out: {line}" for line in skipped.lines()],
        "keys": {name: name for name in KEYS},
    }
    return made, facts


def _chosen(
    root: Path, paths: list[PurePosixPath], serials: str, skip_corrupt: bool, skipped: Tally
) -> tuple[dict[str, list[tuple[PurePosixPath, str]]], list[tuple[str, str]]]:
    """Returns path and class of the chips to take, by split, and (file, why) of damaged ones."""
    chosen: dict[str, list[tuple[PurePosixPath, str]]] = {name: [] for name in _SPLITS.values()}
    seen: dict[bytes, PurePosixPath] = {}
    damaged = []
    for path in paths:
        try:
            chip = phoenix.read_chip(root / path)
            split, kind = _place(chip.header, serials)
        except _LeftOut as reason:
            skipped.add(str(reason), str(path))
        except phoenix.SceneError:
            skipped.add("whole scenes", str(path))
        except ValueError as error:
            if not skip_corrupt:
                raise
            damaged.append((str(path), str(error)))
        else:
            digest = hashlib.sha256(chip.magnitude.tobytes() + chip.phase.tobytes()).digest()
            if (first := seen.setdefault(digest, path)) != path:
                skipped.add("chips that are there already", str(path), f"= {first}")
            else:
                chosen[split].append((path, kind))
    return chosen, damaged


class _LeftOut(Exception):
    """A chip that is whole and not asked for."""


def _place(header: Mapping[str, str], serials: str) -> tuple[str, str]:
    """Returns a chip's split and class."""
    told = re.sub(_KINDS, "", header.get("TargetType", "").upper())
    plain = {re.sub("[^0-9A-Z]", "", name): name for name in _VEHICLES}
    kind = plain.get(re.sub("[^0-9A-Z]", "", told))
    if kind is None:
        raise _LeftOut(
            f"chips of {header.get('TargetType', '')[:40]!r}, which is none of the classes"
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


def _example(root: Path, path: PurePosixPath, label: int) -> records.Example:
    chip = phoenix.read_chip(root / path)
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
