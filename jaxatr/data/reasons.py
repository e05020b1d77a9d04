"""Counts of the reasons why data was left out or noted."""

from typing import Any


class Reasons:
    """Counts reasons over many files or clips, and records where each first occurred."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, int]] = {}
        self._first: dict[str, str] = {}

    def add(self, reason: str, name: str, where: str = "", count: int = 1) -> None:
        """Counts a reason.

        Args:
          reason: a fixed phrase that can follow a number, such as "frames without a box".
          name: the file or clip concerned.
          where: the frame or byte, shown for the first occurrence.
          count: number of occurrences.
        """
        names = self._found.setdefault(reason, {})
        names[name] = names.get(name, 0) + count
        self._first.setdefault(reason, f"{name} {where}".strip())

    def within(self, name: str) -> dict[str, int]:
        """Returns the reasons for a file or clip with their counts."""
        return {reason: names[name] for reason, names in self._found.items() if name in names}

    def lines(self) -> list[str]:
        """Returns one line per reason, in order of first occurrence."""
        lines = []
        for reason, names in self._found.items():
            count, first = sum(names.values()), self._first[reason]
            within = "" if count == len(names) else f", in {len(names)} clips"
            lines.append(f"{count} {reason}{within} (first: {first})")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Returns all counts as a JSON-compatible dictionary."""
        return {
            reason: {"count": sum(names.values()), "first": self._first[reason], "in": names}
            for reason, names in self._found.items()
        }
