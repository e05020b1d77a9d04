"""Reader of AGT ground truth: the targets of each frame with position, range and aspect."""

import dataclasses
import re
from collections import Counter
from pathlib import Path

from jaxatr.data.sources.dsiac.agt_syntax import Block, Statement, parse

_NUMBER = re.compile(r"[+-]?(\d{1,12}(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?")
_FRAME = re.compile(r"frame ?#? ?(\d{1,9})", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class AgtTarget:
    """A target in one frame; values that are missing or ambiguous in the file are None.

    Attributes:
      at: byte offset of the target in the file.
      kind: its ``TgtType``.
      ply: its ``PlyId``, a number without leading zeros.
      aspect_deg: clockwise, 0 facing the sensor, in ``[0, 360)``.
      range_m: distance from the sensor.
      pixel: column and row of its centre, counted from 0 at the upper left.
      box: first and last column and row, ``(x0, y0, x1, y1)``, both inclusive.
    """

    at: int
    kind: str | None
    ply: str | None
    aspect_deg: float | None
    range_m: float | None
    pixel: tuple[float, float] | None
    box: tuple[float, float, float, float] | None


@dataclasses.dataclass(frozen=True)
class GroundTruth:
    """The content of an AGT file.

    Attributes:
      frames: frame numbers, counted from 1 as in the file, to targets.
      fov_deg: the sensor's horizontal and vertical field of view, or None.
      problems: parts of the file that could not be used, each with its byte offset.
      tree: the parsed file, including everything that is not interpreted here.
    """

    frames: dict[int, tuple[AgtTarget, ...]]
    fov_deg: tuple[float, float] | None
    problems: tuple[str, ...]
    tree: Block


def read_agt(path: Path) -> GroundTruth:
    """Reads an AGT file, tolerating deviations from the specification.

    Anything doubtful is ignored: a statement counts only if it is complete and unambiguous, a
    target only if its block is closed, a frame number only if no other update has it. If no update
    in the file has a frame number, the updates are numbered in order.

    Raises:
      ValueError: no frame can be used; the message names the file and the byte.
      OSError: the file cannot be opened.
    """
    content = path.read_bytes()
    tree, problems = parse(content.decode("latin-1"))
    updates = list(tree.walk("tgtupd"))
    numbers = _numbers(updates, problems)
    inside = {id(block) for update in updates for block in update.blocks}
    for block in tree.walk("tgt"):
        if id(block) not in inside:
            problems.append(f"byte {block.at}: a Tgt outside of every TgtUpd")
    repeated = {number for number, count in Counter(numbers).items() if count > 1}
    frames = {}
    for update, number in zip(updates, numbers, strict=True):
        if number in repeated:
            problems.append(f"byte {update.at}: frame {number} has several updates")
        elif number is not None:
            blocks = [block for block in update.blocks if block.name == "tgt"]
            targets = [_target(block, problems) for block in blocks]
            frames[number] = tuple(target for target in targets if target is not None)
    if not frames:
        why = problems[0] if problems else f"byte {len(content)}: no TgtUpd in the file"
        raise ValueError(f"{path}: {why}; none of its frames can be used")
    return GroundTruth(frames, _fov(tree, problems), tuple(problems), tree)


def _numbers(updates: list[Block], problems: list[str]) -> list[int | None]:
    if updates and not any(map(_names_frame, updates)):
        problems.append(f"byte {updates[0].at}: no update has a frame number: counted in order")
        return [*range(1, len(updates) + 1)]
    return [_frame_number(update, problems) for update in updates]


def _notes(update: Block) -> list[Statement]:
    return [s for s in update.statements if s.name in ("keyword", "comment")]


def _names_frame(update: Block) -> bool:
    return any("frame" in " ".join(s.values).lower() or not s.complete for s in _notes(update))


def _frame_number(update: Block, problems: list[str]) -> int | None:
    found = set()
    for statement in _notes(update):
        match = _FRAME.fullmatch(" ".join(" ".join(statement.values).split()))
        if match and statement.complete:
            found.add(int(match[1]))
    if len(found) == 1 and 0 not in found:
        return found.pop()
    claims = f"frame numbers {sorted(found)}" if found else "no frame number"
    problems.append(f"byte {update.at}: an update with {claims}")
    return None


def _target(block: Block, problems: list[str]) -> AgtTarget | None:
    if not block.closed:
        return None  # reported by the parser
    aspect = _values(block, "aspect", 1, problems)
    if aspect and abs(aspect[0]) > 360:
        problems.append(f"byte {block.at}: an aspect of {aspect[0]} degrees")
        aspect = None
    distance = _values(block, "range", 1, problems)
    pixel, box = (_values(block, name, n, problems) for name, n in (("pixloc", 2), ("pixbox", 4)))
    return AgtTarget(
        at=block.at,
        kind=_string(block, "tgttype", problems),
        ply=canonical_ply(_string(block, "plyid", problems)),
        aspect_deg=aspect[0] % 360 % 360 if aspect else None,  # -1e-99 % 360 is 360
        range_m=distance[0] if distance and distance[0] > 0 else None,
        pixel=(pixel[0], pixel[1]) if pixel else None,
        box=(box[0], box[1], box[2], box[3]) if box else None,
    )


def canonical_ply(text: str | None) -> str | None:
    """Normalises a target's number so that AGT and metric files agree: ``"054"`` is ``"54"``."""
    if text is None:
        return None
    text = text.strip(" \t")
    return text.lstrip("0") or "0" if re.fullmatch("[0-9]+", text) else text


def _only(block: Block, name: str, problems: list[str]) -> Statement | None:
    found = [statement for statement in block.statements if statement.name == name]
    if not found:
        return None
    if len({tuple(s.values) for s in found}) > 1 or not all(s.complete for s in found):
        problems.append(f"byte {found[0].at}: {name} is incomplete or ambiguous")
        return None
    return found[0]


def _string(block: Block, name: str, problems: list[str]) -> str | None:
    statement = _only(block, name, problems)
    if statement is None:
        return None
    if len(statement.values) != 1 or not statement.values[0].strip(" \t"):
        got = " ".join(statement.values)[:60]
        problems.append(f"byte {statement.at}: {name}: got {got!r}, wanted one string")
        return None
    return statement.values[0].strip(" \t")


def _values(block: Block, name: str, count: int, problems: list[str]) -> list[float] | None:
    statement = _only(block, name, problems)
    if statement is None:
        return None
    if len(statement.values) != count or not all(map(_NUMBER.fullmatch, statement.values)):
        got = " ".join(statement.values)[:60]
        problems.append(f"byte {statement.at}: {name}: got {got!r}, wanted {count} numbers")
        return None
    return [float(value) for value in statement.values]


def _fov(tree: Block, problems: list[str]) -> tuple[float, float] | None:
    """Returns the field of view if all statements of it in the file agree."""
    blocks = [*tree.walk("sensect"), *tree.walk("senupd")]
    found = {tuple(v) for block in blocks if (v := _values(block, "fov", 2, problems))}
    if not found:
        return None
    horizontal, vertical = max(found)
    if len(found) > 1 or not (0 < horizontal < 90 and 0 < vertical < 90):
        problems.append(f"byte {blocks[0].at}: fields of view {sorted(found)[:3]}: none is used")
        return None
    return horizontal, vertical
