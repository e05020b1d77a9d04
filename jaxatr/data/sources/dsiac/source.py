"""The data source of the DSIAC database, with a report of the data left out and the reasons."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from jaxatr.data.files_below import add_dead_links, file_states, files_below
from jaxatr.data.reasons import Reasons
from jaxatr.data.source import (
    Contents,
    Example,
    Feature,
    Flag,
    Option,
    Request,
    Scan,
    Source,
    all_options,
    check_whole_number,
)
from jaxatr.data.sources.dsiac.arf import open_arf
from jaxatr.data.sources.dsiac.boxes import SOURCES
from jaxatr.data.sources.dsiac.chips import cut, image_dtype
from jaxatr.data.sources.dsiac.clips import Clip, find_clips
from jaxatr.data.sources.dsiac.names import BANDS, PAPER_CLASSES, RANGES_M, TARGETS
from jaxatr.data.sources.dsiac.survey import Survey, survey

_SPLITS = ("train", "test")  # the first and the second turn
_COLUMNS = {
    "label": np.int32,
    "range_m": np.int32,
    "band": str,
    "time": str,
    "aspect_deg": np.float32,
    "target_range_m": np.float32,
    "clip": str,
    "track": np.int32,
    "frame": np.int32,
    "box_source": str,
}
_BANDS, _TIMES = (*BANDS.values(), "both"), ("day", "night", "both")


def _metres(texts: Sequence[str]) -> list[int]:
    for text in texts:
        if not text.strip().isdecimal():
            raise ValueError(f"--ranges: got {text!r}, wanted metres, as in --ranges=1000,2000")
    return [*map(int, texts)]


class Dsiac(Source):
    """The targets of the requested frames; a clip's two turns are the train and test splits."""

    name = "dsiac"
    version = 2
    takes = "the folder of the database"
    options = {
        "band": Option("both", "the camera: visible, thermal or both", Flag("enum", _BANDS)),
        "ranges": Option(
            [*RANGES_M],
            "ranges in metres, from 1000 to 5000 in steps of 500",
            Flag("list", convert=_metres),
        ),
        "time": Option("both", "the time of day: day, night or both", Flag("enum", _TIMES)),
        "every": Option(1, "N keeps every Nth frame of a clip", Flag("integer")),
        "classes": Option([*PAPER_CLASSES], "the vehicles; by default the eight of the paper"),
        "size": Option(224, "side of a chip in pixels; 0 keeps the box's size"),
    }

    def scan(self, request: Request) -> Scan:
        """Lists all files of the database and checks the options."""
        paths = files_below(request.path)
        settings = all_options(self, request.options)
        _check_choice("band", [settings["band"]], _BANDS)
        _check_choice("time", [settings["time"]], _TIMES)
        for name, known in (("ranges", RANGES_M), ("classes", tuple(TARGETS.values()))):
            value = settings[name]
            settings[name] = [*value] if isinstance(value, list | tuple) else [value]
            _check_choice(name, settings[name], known)
        check_whole_number("every", settings["every"], least=1)
        check_whole_number("size", settings["size"], least=0)
        state = [file_states(request.path, paths), settings, request.skip_corrupt]
        return Scan(self, settings, state, lambda _: _contents(request, paths, settings))


PART = Dsiac()


def _check_choice(name: str, got: Sequence[Any], known: Collection[Any]) -> None:
    if not got or any(value not in known or got.count(value) > 1 for value in got):
        raise ValueError(f"{name}: got {list(got)}, wanted some of {list(known)}, each once")


def _contents(request: Request, paths: list[PurePosixPath], settings: dict[str, Any]) -> Contents:
    """Returns the targets of the requested clips.

    Raises:
      ValueError: a file is damaged and must not be skipped, no usable data is left, or the clips'
        pixels differ in dtype.
    """
    root, left_out, noted = request.path, Reasons(), Reasons()
    add_dead_links(root, left_out)
    clips = find_clips(root, paths, left_out)
    surveys, damaged = _surveys(root, clips, settings, request.skip_corrupt, left_out, noted)
    classes, dtype = _check(root, surveys, left_out.lines())
    size = settings["size"]
    targets = _Targets(root, surveys, classes, _tracks(surveys), size, left_out)
    return Contents(
        classes=classes,
        features={
            "image": Feature(dtype, (size or None, size or None, 1)),
            "frame_box": Feature(np.int32, (4,)),
            **{name: Feature(kind) for name, kind in _COLUMNS.items()},
        },
        splits={
            split: lambda turn=turn: targets.examples(turn) for turn, split in enumerate(_SPLITS)
        },
        total=sum(len(found.looks) for found in surveys),
        skipped=damaged,
        left_out=left_out,
        noted=noted,
        report=targets.report,
    )


def _surveys(
    source: Path,
    clips: list[Clip],
    settings: dict[str, Any],
    skip_corrupt: bool,
    left_out: Reasons,
    noted: Reasons,
) -> tuple[list[Survey], list[tuple[str, str]]]:
    """Surveys the requested clips, and lists (file, reason) of the damaged ones."""
    surveys, damaged = [], []
    for clip in clips:
        requested = (
            settings["band"] in (clip.name.band, "both")
            and clip.range_m in settings["ranges"]
            and settings["time"] in (clip.time, "both")
        )
        if not requested:
            continue
        try:
            found = survey(clip, tuple(settings["classes"]), settings["every"], left_out, noted)
        except ValueError as error:
            if not skip_corrupt:
                raise
            damaged.append((str(clip.arf.relative_to(source)), str(error)))
        else:
            surveys += [found] if found else []
    return surveys, damaged


def _check(source: Path, surveys: list[Survey], left_out: list[str]) -> tuple[list[str], np.dtype]:
    """Returns the classes present and the common dtype of the images."""
    surveys = [found for found in surveys if found.looks]
    kinds = {look.kind for found in surveys for look in found.looks}
    classes = [name for name in TARGETS.values() if name in kinds]
    if len(classes) < 2:
        reasons = "; ".join(left_out[:3])
        raise ValueError(
            f"{source}: the requested clips have usable targets of {len(classes)} classes "
            f"(left out: {reasons or 'nothing'})"
        )
    dtypes = {image_dtype(found.dtype): found.clip.name for found in surveys}
    if len(dtypes) > 1:
        kinds = ", ".join(f"{dtype} ({name.band}, {name.text})" for dtype, name in dtypes.items())
        raise ValueError(
            f"{source}: the clips' pixels are {kinds}, and a data set has one dtype: "
            "prepare one band at a time, --band=visible and --band=thermal"
        )
    return classes, next(iter(dtypes))


def _tracks(surveys: list[Survey]) -> dict[tuple[str, str, int], int]:
    """Numbers the tracks: a track is one turn of one target in front of one camera."""
    keys = {(s.clip.name.text, look.ply, look.turn) for s in surveys for look in s.looks}
    return {key: number for number, key in enumerate(sorted(keys))}


@dataclasses.dataclass
class _Targets:
    """Cuts the chips and counts them."""

    source: Path
    surveys: list[Survey]
    classes: list[str]
    tracks: dict[tuple[str, str, int], int]
    size: int
    left_out: Reasons
    used: Counter[tuple[str, str, str]] = dataclasses.field(default_factory=Counter)

    def examples(self, turn: int) -> Iterator[Example]:
        """Yields the targets of one turn, clip by clip."""
        any_left = False
        for found in self.surveys:
            for example in self._of_clip(found, turn):
                any_left = True
                self.used[example["clip"], _SPLITS[turn], example["box_source"]] += 1
                yield example
        if not any_left:
            raise ValueError(f"{self.source}: nothing is left of the {_SPLITS[turn]} split")

    def _of_clip(self, found: Survey, turn: int) -> Iterator[Example]:
        clip, name = found.clip, found.clip.name.text
        looks = [look for look in found.looks if look.turn == turn]
        if not looks:
            return
        arf = open_arf(clip.arf)
        for look in looks:
            try:
                image = cut(arf.frame(look.index), look.box, self.size)
            except ValueError as error:
                self.left_out.add(f"targets with {error}", name, f"frame {look.index + 1}")
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
        """Returns the number of images written, by split, by source of the box and by clip."""
        clips = [
            {
                "clip": found.clip.name.text,
                "frames": found.frames,
                "used": {split: self._count(found.clip.name.text, split) for split in _SPLITS},
                "skipped": self.left_out.within(found.clip.name.text),
            }
            for found in self.surveys
        ]
        return {
            "images": {split: self._count(split) for split in _SPLITS},
            "boxes": {name: self._count(name) for name in SOURCES},
            "clips": clips,
        }

    def _count(self, *wanted: str) -> int:
        return sum(count for key, count in self.used.items() if set(wanted) <= set(key))
