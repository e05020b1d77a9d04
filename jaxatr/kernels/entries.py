"""The entries of the kernel database and its two file formats.

Format 1, for the user's file, is one object per problem, by its key. Format 2, for the files that
come with the package, writes shared values once and all directions of a problem in one line::

    {"format": 2, "device": {"platform": "cpu", "kind": "..."}, "jax_version": "0.10.2",
     "choices": [["taps", {}, 1], ...],
     "directions": ["convolution data", "convolution forward", ...],
     "problems": [["16x14x14x256 1x1x256x256 ... float32", 0, 0.932, null, null, ...], ...]}

An item of ``choices`` is the algorithm, the configuration and the version of the solver.
``directions`` are the first two words of the keys. An item of ``problems`` is the rest of the key,
followed by an index into ``choices`` and the milliseconds for each direction.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxatr.kernels.device import Device
from jaxatr.kernels.solver import Choice, choice_from_json


class Entry(NamedTuple):
    """The fastest choice measured for a problem.

    Attributes:
      choice: the algorithm and its configuration.
      milliseconds: its median time.
      solver_version: the version of the solver that was measured.
      jax_version: the version of jax that was used.
    """

    choice: Choice
    milliseconds: float
    solver_version: int
    jax_version: str

    def to_json(self) -> dict[str, Any]:
        """Returns the entry as a JSON object of format 1."""
        return self.choice.to_json() | {
            "milliseconds": round(self.milliseconds, 6),
            "solver_version": self.solver_version,
            "jax_version": self.jax_version,
        }


def entry_from_json(value: Any) -> Entry:
    """Parses an entry written by this or an earlier version of :meth:`Entry.to_json`.

    Raises:
      ValueError: a part is missing or of another type.
    """
    choice = choice_from_json(value)
    kinds = {"milliseconds": int | float, "solver_version": int, "jax_version": str}
    for name, kind in kinds.items():
        if not isinstance(value.get(name), kind):
            raise ValueError(f"{name}: got {value.get(name)!r}")
    return Entry(choice, *(value[name] for name in kinds))


def to_text(device: Device, entries: Mapping[str, Entry]) -> str:
    """Returns the text of a file of format 1."""
    listed = {key: entry.to_json() for key, entry in sorted(entries.items())}
    content = {"format": 1, "device": device._asdict(), "entries": listed}
    return json.dumps(content, indent=1) + "\n"


def to_compact_text(device: Device, entries: Mapping[str, Entry]) -> str:
    """Returns the text of a file of format 2, with times rounded to four digits.

    Raises:
      ValueError: the entries were measured with different versions of jax.
    """
    versions = {entry.jax_version for entry in entries.values()}
    if len(versions) != 1:
        raise ValueError(f"jax_version: got {sorted(versions)}, wanted one for all entries")
    choices, directions, problems = [], [], {}
    for key, entry in sorted(entries.items()):
        operation, direction, problem = key.split(" ", 2)
        choice = [entry.choice.algorithm, dict(entry.choice.config), entry.solver_version]
        if choice not in choices:
            choices.append(choice)
        if (column := f"{operation} {direction}") not in directions:
            directions.append(column)
        milliseconds = float(f"{entry.milliseconds:.4g}")
        problems.setdefault(problem, {})[column] = [choices.index(choice), milliseconds]
    head = {"format": 2, "device": device._asdict(), "jax_version": versions.pop()}
    rows = [
        json.dumps([problem, *(x for name in directions for x in row.get(name, [None, None]))])
        for problem, row in problems.items()
    ]
    shared = json.dumps(head | {"choices": choices, "directions": directions})
    return shared[:-1] + ', "problems": [\n' + ",\n".join(rows) + "\n]}\n"


def from_compact(content: Mapping[str, Any]) -> dict[str, Entry]:
    """Returns the entries of a file of format 2.

    Raises:
      ValueError, KeyError, IndexError or TypeError: ``content`` is malformed.
    """
    choices = [
        (choice_from_json({"algorithm": algorithm, "config": config}), version)
        for algorithm, config, version in content["choices"]
    ]
    entries = {}
    for problem, *cells in content["problems"]:
        pairs = zip(content["directions"], cells[::2], cells[1::2], strict=True)
        for direction, number, milliseconds in pairs:
            if number is not None:
                choice, version = choices[number]
                entry = Entry(choice, milliseconds, version, content["jax_version"])
                entries[f"{direction} {problem}"] = entry
    return entries
