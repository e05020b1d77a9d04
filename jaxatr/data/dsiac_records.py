"""The DSIAC database's targets as records, with a report of what was left out and why."""

import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from jaxatr.data import dsiac, records
from jaxatr.data.tally import Tally

# Raised when other records would be written from the same files.
VERSION = 2
OPTIONS: dict[str, Any] = {
    "band": "both",
    "ranges": list(dsiac.RANGES_M),
    "time": "both",
    "every": 1,
    "classes": list(dsiac.PAPER_CLASSES),
    "size": 224,
}
REPORT = "report.json"
_SPLITS = ("train", "test")  # the first turn and the second
_FEATURES = {
    "label": np.int32,
    "range_m": np.int32,
    "band": np.str_,
    "time": np.str_,
    "aspect_deg": np.float32,
    "target_range_m": np.float32,
    "clip": np.str_,
    "track": np.int32,
    "frame": np.int32,
    "box_source": np.str_,
}
_KEYS = ("image", "frame_box", *_FEATURES)


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all options, with the defaults of those not given.

    Raises:
      ValueError: an option has no such value.
    """
    settings = {**OPTIONS, **options}
    _one_of("band", [settings["band"]], (*dsiac.BANDS.values(), "both"))
    _one_of("time", [settings["time"]], ("day", "night", "both"))
    for name, known in (("ranges", dsiac.RANGES_M), ("classes", tuple(dsiac.TARGETS.values()))):
        value = settings[name]
        settings[name] = [*value] if isinstance(value, list | tuple) else [value]
        _one_of(name, settings[name], known)
    for name, least in (("every", 1), ("size", 0)):
        value = settings[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name}: got {value!r}, wanted a whole number from {least}")
    return settings


def _one_of(name: str, got: Sequence[Any], known: Collection[Any]) -> None:
    if not got or any(value not in known or got.count(value) > 1 for value in got):
        raise ValueError(f"{name}: got {list(got)}, wanted of {list(known)}, each once")


def write(
    source: Path,
    paths: list[PurePosixPath],
    directory: Path,
    settings: dict[str, Any],
    *,
    skip_corrupt: bool,
) -> tuple[Path, dict[str, Any]]:
    """Writes the targets as records, and returns where they lie and what is known of them.

    Beside the records lies ``report.json``: what was used of each clip, and what was not and why.

    Args:
      source: the folder of the database.
      paths: of the files in it.
      directory: an empty folder.
      settings: of :func:`checked`.
      skip_corrupt: leave damaged clips out and list them.

    Raises:
      ValueError: a file is damaged and ``skip_corrupt`` is off, nothing is left to use, or the
        clips' pixels differ in type.
    """
    skipped, notes = Tally(), Tally()
    clips = dsiac.find_clips(source, paths, skipped)
    surveys, damaged = _surveys(source, clips, settings, skip_corrupt, skipped, notes)
    classes, dtype = _check(source, surveys, skipped.lines())
    size = settings["size"]
    features = {
        "image": records.tensor((size or None, size or None, 1), dtype),
        "frame_box": records.tensor((4,), np.int32),
        **{name: records.scalar(kind) for name, kind in _FEATURES.items()},
    }
    writer = _Writer(source, surveys, classes, _tracks(surveys), size, skipped)
    splits = {split: lambda turn=turn: writer.examples(turn) for turn, split in enumerate(_SPLITS)}
    total = sum(len(found.looks) for found in surveys)
    made = records.write(splits, features, directory, total)
    report = {
        "source": str(source),
        "settings": settings,
        **writer.report(),
        "skipped": skipped.as_dict(),
        "damaged": damaged,
        "notes": notes.as_dict(),
    }
    (made / REPORT).write_text(json.dumps(report, indent=1))
    facts = {
        "classes": classes,
        "coarse_classes": None,
        "fine_to_coarse": None,
        "settings": settings,
        "skipped": damaged,
        "notes": [f"left out: {line}" for line in skipped.lines()]
        + [f"note: {line}" for line in notes.lines()],
        "keys": {name: name for name in _KEYS},
    }
    return made, facts


def _surveys(
    source: Path,
    clips: list[dsiac.Clip],
    settings: dict[str, Any],
    skip_corrupt: bool,
    skipped: Tally,
    notes: Tally,
) -> tuple[list[dsiac.Survey], list[tuple[str, str]]]:
    """Returns what the clips that were asked for give, and (file, why) of the damaged ones."""
    surveys, damaged = [], []
    for clip in clips:
        asked = (
            settings["band"] in (clip.name.band, "both")
            and clip.range_m in settings["ranges"]
            and settings["time"] in (clip.time, "both")
        )
        if not asked:
            continue
        try:
            found = dsiac.survey(
                clip, tuple(settings["classes"]), settings["every"], skipped, notes
            )
        except ValueError as error:
            if not skip_corrupt:
                raise
            damaged.append((str(clip.arf.relative_to(source)), str(error)))
        else:
            surveys += [found] if found else []
    return surveys, damaged


def _check(
    source: Path, surveys: list[dsiac.Survey], skipped: list[str]
) -> tuple[list[str], np.dtype]:
    """Returns the classes that there are, and the one dtype of the images."""
    surveys = [found for found in surveys if found.looks]
    kinds = {look.kind for found in surveys for look in found.looks}
    classes = [name for name in dsiac.TARGETS.values() if name in kinds]
    if len(classes) < 2:
        told = "; ".join(skipped[:3])
        raise ValueError(
            f"{source}: of the clips asked for, {len(classes)} classes are left "
            f"(left out: {told or 'nothing'})"
        )
    dtypes = {dsiac.image_dtype(found.dtype): found.clip.name for found in surveys}
    if len(dtypes) > 1:
        told = ", ".join(f"{dtype} ({name.band}, {name.text})" for dtype, name in dtypes.items())
        raise ValueError(
            f"{source}: the clips' pixels are {told}, and a data set has one dtype: "
            "prepare one band at a time, --band=visible and --band=thermal"
        )
    return classes, next(iter(dtypes))


def _tracks(surveys: list[dsiac.Survey]) -> dict[tuple[str, str, int], int]:
    """Numbers the turns: a track is one target going round once before one camera."""
    keys = {(s.clip.name.text, look.ply, look.turn) for s in surveys for look in s.looks}
    return {key: number for number, key in enumerate(sorted(keys))}


@dataclasses.dataclass
class _Writer:
    """Cuts the chips, and counts those that come of it."""

    source: Path
    surveys: list[dsiac.Survey]
    classes: list[str]
    tracks: dict[tuple[str, str, int], int]
    size: int
    skipped: Tally
    used: Counter[tuple[str, str, str]] = dataclasses.field(default_factory=Counter)

    def examples(self, turn: int) -> Iterator[records.Example]:
        """Yields one turn's targets, clip by clip."""
        any_left = False
        for found in self.surveys:
            for example in self._of_clip(found, turn):
                any_left = True
                self.used[example["clip"], _SPLITS[turn], example["box_source"]] += 1
                yield example
        if not any_left:
            raise ValueError(f"{self.source}: nothing is left of the {_SPLITS[turn]} split")

    def _of_clip(self, found: dsiac.Survey, turn: int) -> Iterator[records.Example]:
        clip, name = found.clip, found.clip.name.text
        looks = [look for look in found.looks if look.turn == turn]
        if not looks:
            return
        arf = dsiac.open_arf(clip.arf)
        for look in looks:
            try:
                image = dsiac.cut(arf.frame(look.index), look.box, self.size)
            except ValueError as error:
                self.skipped.add(f"targets with {error}", name, f"frame {look.index + 1}")
                continue
            yield {
                "image": image,
                "frame_box": np.array(look.box[:4], np.int32),
                "label": self.classes.index(look.kind),
                "range_m": clip.range_m,
                "band": clip.name.band,
                "time": clip.time,
                "aspect_deg": look.aspect_deg,
                "target_range_m": look.target_range_m,
                "clip": name,
                "track": self.tracks[name, look.ply, turn],
                "frame": look.index + 1,
                "box_source": look.box.source,
            }

    def report(self) -> dict[str, Any]:
        """Returns how many images were written, by split, by box and by clip."""
        clips = [
            {
                "clip": found.clip.name.text,
                "frames": found.frames,
                "used": {split: self._count(found.clip.name.text, split) for split in _SPLITS},
                "skipped": self.skipped.within(found.clip.name.text),
            }
            for found in self.surveys
        ]
        return {
            "images": {split: self._count(split) for split in _SPLITS},
            "boxes": {name: self._count(name) for name in dsiac.SOURCES},
            "clips": clips,
        }

    def _count(self, *wanted: str) -> int:
        return sum(count for key, count in self.used.items() if set(wanted) <= set(key))
