"""Reader of metric files (``*.bbox_met``): the upper left corner of each target's box per frame."""

import dataclasses
import re
from pathlib import Path

from jaxatr.data.sources.dsiac.agt import canonical_ply

# Site, NA, Base, Sensor, Scenario, Frame, Ply_id, SNR, NULL, UL_x, UL_y, Mean_tgt, Std_tgt, POT,
# Eff_pot, Mean_bkg, Std_bkg, POB; there is no header line.
_COLUMNS, _FRAME, _PLY, _LEFT, _TOP = 18, 5, 6, 9, 10
_NUMBER = re.compile(r"[+-]?(\d{1,9}(\.\d*)?|\.\d+)")

Corner = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Corners:
    """The content of a metric file.

    Attributes:
      of: (frame from 1, ply id) to column and row of the box's upper left corner.
      problems: lines that could not be used, each with its byte offset.
    """

    of: dict[tuple[int, str], Corner]
    problems: tuple[str, ...]


def read_corners(path: Path) -> Corners:
    """Reads a metric file, ignoring lines that are unusable or contradictory.

    An empty file means that there are no targets.

    Raises:
      ValueError: the file has lines, but none can be used; the message names the file and the byte.
      OSError: the file cannot be opened.
    """
    found: dict[tuple[int, str], Corner] = {}
    doubtful, problems, at = set(), [], 0
    for line in path.read_bytes().splitlines(keepends=True):
        text = line.decode("latin-1").strip(" \t\r\n")
        row = _row(text)
        if isinstance(row, str):
            problems.append(f"byte {at}: {row}")
        elif row is not None:
            key, corner = row
            if found.setdefault(key, corner) != corner:
                doubtful.add(key)
                problems.append(f"byte {at}: another box of target {key[1]} in frame {key[0]}")
        at += len(line)
    corners = {key: corner for key, corner in found.items() if key not in doubtful}
    if problems and not corners:
        raise ValueError(f"{path}: {problems[0]}; none of its lines can be used")
    return Corners(corners, tuple(problems))


def _row(text: str) -> tuple[tuple[int, str], Corner] | str | None:
    """Parses a line: its key and corner, a message if it is invalid, or None if it is empty."""
    if not text:
        return None
    values = [value.strip(' \t"') for value in text.split(",")]
    if len(values) != _COLUMNS:
        return f"a line of {len(values)} columns, wanted {_COLUMNS}"
    frame, left, top = values[_FRAME], values[_LEFT], values[_TOP]
    if not re.fullmatch("[0-9]{1,9}", frame) or int(frame) < 1:
        return f"frame: got {frame[:20]!r}, wanted a number from 1"
    if not (_NUMBER.fullmatch(left) and _NUMBER.fullmatch(top)):
        return f"corner: got {left[:20]!r}, {top[:20]!r}, wanted two numbers"
    return (int(frame), canonical_ply(values[_PLY]) or ""), (float(left), float(top))
