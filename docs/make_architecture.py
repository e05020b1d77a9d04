"""Draws the packages in jaxatr ("rooms") and their imports; writes images/rooms.svg.

    python docs/make_architecture.py

A room stands above every room that it imports. An arrow is an import that no other arrows imply.
The modules that everything may import, and the commands, which import only ``cli``, are one box
each. Requires the extra ``dev``.
"""

import html
from pathlib import Path

import grimp

PICTURE = Path(__file__).parent / "images" / "rooms.svg"
COMMANDS = "commands"
GROUND = "ground"
ROOT = Path(__file__).parents[1] / "jaxatr"
_COMMANDS = ("__main__", "train")
_GROUND = sorted(
    {"config"} | {path.stem for path in ROOT.glob("[!_]*.py") if path.stem not in _COMMANDS}
)
_NOTES = {
    COMMANDS: "train, evaluate, predict …",
    GROUND: ", ".join(_GROUND),
}
_WIDTH, _HEIGHT, _GAP, _RISE = 124, 44, 26, 46
_LETTER = 6  # width of one in a note


def imports() -> dict[str, set[str]]:
    """Returns the rooms that each room imports."""
    graph = grimp.build_graph("jaxatr")
    children = graph.find_children("jaxatr")
    rooms = {child: child.split(".")[1] for child in children}
    kind = {
        child: COMMANDS if room in _COMMANDS else GROUND if room in _GROUND else room
        for child, room in rooms.items()
    }
    found: dict[str, set[str]] = {room: set() for room in kind.values()}
    for importer in children:
        for imported in children:
            if kind[importer] != kind[imported] and graph.direct_import_exists(
                importer=importer, imported=imported, as_packages=True
            ):
                found[kind[importer]].add(kind[imported])
    found["explain"].discard("cli")  # the entry point of a command
    return found


def levels(found: dict[str, set[str]]) -> dict[str, int]:
    """Returns the floor of each room: one above the highest that it imports."""
    floors: dict[str, int] = {}

    def floor(room: str) -> int:
        if room not in floors:
            floors[room] = 1 + max((floor(below) for below in found[room]), default=-1)
        return floors[room]

    for room in found:
        floor(room)
    return floors


def reduced(found: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Returns the imports that no chain of other imports implies."""

    def below(room: str) -> set[str]:
        return found[room].union(*(below(other) for other in found[room]))

    return sorted(
        (room, other)
        for room in found
        for other in found[room]
        if not any(other in below(middle) for middle in found[room] - {other})
    )


def passage(wanted: float, boxes: list[tuple[float, float]]) -> float:
    """Returns the place nearest to the wanted one at which a line passes a floor beside its boxes.

    Args:
      wanted: where a straight line would cross the floor.
      boxes: middle and width of each box; other lines on the floor are boxes of width 0.
    """
    sides = [x + side * (width + _GAP) / 2 for x, width in boxes for side in (-1, 1)]
    free = [
        place
        for place in (wanted, *sides)
        if all(abs(place - x) >= (width + _GAP) / 2 for x, width in boxes)
    ]
    return min(free, key=lambda place: abs(place - wanted))


def bend(x1: float, y1: float, x2: float, y2: float) -> str:
    """Returns the curve of a path that leaves and arrives vertically."""
    half = (y1 + y2) / 2
    return f"C{x1},{half} {x2},{half} {x2},{y2}"


def drawing() -> str:
    """Returns the picture as SVG."""
    found = imports()
    floors = levels(found)
    rows: dict[int, list[str]] = {}
    for room in sorted(floors):
        rows.setdefault(floors[room], []).append(room)
    spans = {room: max(_WIDTH, _LETTER * len(_NOTES.get(room, "")) + _GAP) for room in floors}
    lengths = {floor: sum(spans[room] + _GAP for room in row) - _GAP for floor, row in rows.items()}
    width = max(lengths.values()) + 2 * _GAP
    height = (max(rows) + 1) * (_HEIGHT + _RISE) + _GAP
    place = {}  # the middle of each box's upper edge
    for floor, row in rows.items():
        x = (width - lengths[floor]) / 2
        for room in row:
            place[room] = (x + spans[room] / 2, height - _GAP - _HEIGHT - floor * (_HEIGHT + _RISE))
            x += spans[room] + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="14">',
        '<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#7c8aa5"/></marker>',
    ]
    boxes = {floor: [(place[room][0], spans[room]) for room in row] for floor, row in rows.items()}
    for importer, imported in reduced(found):
        (x1, y1), (x2, y2) = place[importer], place[imported]
        y1 += _HEIGHT
        line = f"M{x1},{y1}"
        for floor in range(floors[importer] - 1, floors[imported], -1):
            top = height - _GAP - _HEIGHT - floor * (_HEIGHT + _RISE)
            x = passage(x1 + (x2 - x1) * (top - y1) / (y2 - y1), boxes[floor])
            boxes[floor].append((x, 0))
            line += f" {bend(x1, y1, x, top)} V{top + _HEIGHT}"
            x1, y1 = x, top + _HEIGHT
        parts.append(
            f'<path d="{line} {bend(x1, y1, x2, y2 - 2)}" fill="none" '
            'stroke="#7c8aa5" stroke-width="1.5" marker-end="url(#tip)"/>'
        )
    for room, (x, y) in place.items():
        parts.append(
            f'<rect x="{x - spans[room] / 2}" y="{y}" width="{spans[room]}" height="{_HEIGHT}" '
            'rx="7" fill="#e8eef8" stroke="#44618f"/>'
        )
        note = _NOTES.get(room, "")
        text = f'<text x="{x}" text-anchor="middle" fill="#1b2a41" '
        parts.append(f'{text} y="{y + (19 if note else 27)}" font-weight="600">{room}</text>')
        if note:
            parts.append(f'{text} y="{y + 35}" font-size="11">{html.escape(note)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
    print(PICTURE)
