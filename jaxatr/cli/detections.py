"""The work of ``jaxatr detect``: lines, JSON, tables, COCO, GeoJSON, and pictures."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from absl import flags
from PIL import Image
from tqdm import tqdm

from jaxatr import data, runs, training
from jaxatr.cli import command, images, inputs
from jaxatr.cli.scenes import Opened, each, tracked
from jaxatr.cli.terminal import grouped, one_line
from jaxatr.data.annotations.results import CORNERS, SCORE, SceneTargets, as_coco, as_geojson
from jaxatr.data.row_tables import SUFFIXES as TABLES
from jaxatr.files import Scratch, check_replaceable, replacing, write_text
from jaxatr.recognition import sightings
from jaxatr.reporting.scene_picture import scene_picture
from jaxatr.tasks.detection.finder import TRACK, Finder
from jaxatr.tasks.detection.predictor import Detector
from jaxatr.tasks.detection.recognised import Row

_JSON = {".json": as_coco, ".geojson": as_geojson}


def main(arguments: Sequence[str], options: dict[str, Any], of_recogniser: dict[str, Any]) -> int:
    """Finds the targets in the scenes.

    Returns:
      The exit code.
    """
    values = flags.FLAGS
    training.enable_compilation_cache()
    if values.out:
        _check_out(values.out)
        inputs.check_apart(values.out, *arguments)
    pictures = Pictures(values.pictures, arguments) if values.pictures else None
    with training.loading_once():
        finder = _finder(values.workdir, values.recogniser, options, of_recogniser)
    opened = Opened("warning" if values.out else "error")
    search = tracked if values.tracks else each
    done: dict[int, SceneTargets] = {}
    sources: dict[int, str] = {}
    seen = sightings.Seen(training.run_id(values.workdir, *values.recogniser), values.source_name)
    quiet = None if values.out and not values.json else True  # None: unless on a terminal
    with (
        Scratch() as scratch,
        tqdm(desc="detecting", unit=" scenes", leave=False, disable=quiet) as bar,
    ):
        paths = _noted(images.paths(arguments, scratch), sources)
        for number, found in search(finder, paths, opened):
            bar.update()
            done[number] = found
            faults = [(_place(row), str(row["error"])) for row in found.rows if row.get("error")]
            for line in grouped(faults):
                opened.say(f"{found.path.name}: {line}")
            if pictures is not None:
                pictures.write(number, found, finder.classes, opened)
            if values.json:
                line = {"path": found.path.name, "targets": list(found.rows)}
                print(json.dumps(line, ensure_ascii=False), flush=True)
            elif not values.out:
                print(one_line(_described(found)), flush=True)
    if values.out:
        origins = {number: seen.cells(source) for number, source in sources.items()}
        columns = finder.columns(tracks=values.tracks) | sightings.columns(facts=False)
        _write(values.out, done, opened.failed, origins, columns)
        return 0 if done else command.EXIT_USER_ERROR
    if opened.failed:
        print(f"{len(done)} searched, {len(opened.failed)} failed", file=sys.stderr)
    return 1 if opened.failed else 0


def _finder(
    workdir: str,
    recognisers: Sequence[str],
    options: dict[str, Any],
    of_recogniser: dict[str, Any],
) -> Finder:
    both: list[Any] = [Detector.load(workdir, **options)]
    if recognisers:
        which = recognisers if len(recognisers) > 1 else recognisers[0]
        both.append(runs.load_predictor(which, **of_recogniser))
    for note in dict.fromkeys(one.note for one in both if one.note):
        print(note, file=sys.stderr)
    return Finder(*both)


def _check_out(out: str) -> None:
    """Checks that the file can be written, before the search.

    Raises:
      ValueError: its suffix is not that of a format, or it is a folder, or in none.
    """
    suffix = Path(out).suffix.lower()
    if suffix in _JSON:
        check_replaceable(out)
    elif suffix in TABLES:
        data.check_table(out)
    else:
        wanted = ", ".join([*TABLES, *_JSON])
        raise ValueError(f"--out: got {out}, wanted a name that ends in one of {wanted}")


def _write(
    out: str,
    done: dict[int, SceneTargets],
    failed: dict[int, Row],
    origins: dict[int, Row],
    columns: dict[str, type],
) -> None:
    """Writes the file, in the order of the scenes, and says what is in it."""
    ordered = [done[number] for number in sorted(done)]
    if form := _JSON.get(Path(out).suffix.lower()):
        write_text(out, json.dumps(form(ordered), ensure_ascii=False))
    else:
        table: list[Row] = []
        for number in sorted(done.keys() | failed.keys()):
            if number not in done:
                table.append(failed[number] | origins[number])
                continue
            first: Row = {"path": done[number].path.name, "error": None}
            table += [first | dict(row) | origins[number] for row in done[number].rows]
        data.write_table(out, table, columns=columns)
    rows = [row for one in ordered for row in one.rows]
    undecided = sum(bool(row.get("error")) for row in rows)
    found = _targets(len(rows)) + (f" ({undecided} without a decision)" if undecided else "")
    print(f"{out}: {found} in {len(done)} scenes, {len(failed)} failed", file=sys.stderr)


def _noted(paths: Iterable[data.ImagePath], sources: dict[int, str]) -> Iterator[data.ImagePath]:
    """Yields paths, and notes the source of each by its number."""
    for number, path in enumerate(paths):
        sources[number] = sightings.source_of(path.argument)
        yield path


def _described(found: SceneTargets) -> str:
    listed = [f"{_named(row)} at {_place(row)}" for row in found.rows]
    return f"{found.path.name}: {'; '.join([_targets(len(listed)), *listed])}"


def _named(row: Any) -> str:
    track = f"#{row[TRACK]} " if TRACK in row else ""
    return f"{track}{row.get('label', 'error')} {row[SCORE]:.3f}"


def _place(row: Any) -> str:
    return ",".join(f"{row[name]:.0f}" for name in CORNERS)


def _targets(number: int) -> str:
    return "1 target" if number == 1 else f"{number or 'no'} targets"


class Pictures:
    """Writes pictures of scenes with boxes to a folder."""

    def __init__(self, folder: str, scenes: Sequence[str]):
        """Creates the folder.

        Raises:
          ValueError: it is a file, or the folder of the scenes, whose names the pictures have.
        """
        self._folder = Path(folder)
        if self._folder.exists() and not self._folder.is_dir():
            raise ValueError(f"--pictures: {folder} is a file, wanted a folder")
        for one in (Path(scene) for scene in scenes):
            place = one if one.is_dir() else one.parent
            if self._folder.exists() and place.exists() and place.samefile(self._folder):
                raise ValueError(f"--pictures: {folder} holds the scenes, wanted another folder")
        os.makedirs(folder, exist_ok=True)
        self._taken: set[PurePath] = set()

    def write(
        self, number: int, found: SceneTargets, classes: Sequence[str], opened: Opened
    ) -> None:
        """Writes the picture of a scene at its path below the folder, as a PNG file.

        If another scene has the path, the scene's number is appended.
        """

        def drawn(scene: Any) -> Image.Image:
            boxes = np.array([[row[name] for name in CORNERS] for row in found.rows], float)
            labels = [None if row.get("error") else str(row["label"]) for row in found.rows]
            texts = [_named(row) for row in found.rows]
            return scene_picture(scene, boxes.reshape(-1, 4), labels, texts, classes)

        picture = opened(number, found.path, drawn)
        if picture is None:
            return
        name = PurePath(found.path.below).with_suffix("")
        if name in self._taken:
            name = name.with_name(f"{name.name}-{number}")
        self._taken.add(name)
        target = self._folder / name.with_name(f"{name.name}.png")
        inputs.check_apart(str(target), found.path.file)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            picture.save(file, "PNG")
