"""Reasons for which data was left out or is of note, and how often each was met."""

from typing import Any


class Reasons:
    """Counts reasons over many files or clips, and keeps where each was met first."""

    def __init__(self) -> None:
        """Starts with none."""
        self._found: dict[str, dict[str, int]] = {}
        self._first: dict[str, str] = {}

    def add(self, reason: str, name: str, where: str = "", count: int = 1) -> None:
        """Counts a reason.

        Args:
          reason: the same words for the same thing, with what is counted as their subject.
          name: of the file or clip in which it was met.
          where: the frame or the byte, for the example.
          count: how often.
        """
        names = self._found.setdefault(reason, {})
        names[name] = names.get(name, 0) + count
        self._first.setdefault(reason, f"{name} {where}".strip())

    def within(self, name: str) -> dict[str, int]:
        """Returns the reasons met in a file or clip and their counts."""
        return {reason: names[name] for reason, names in self._found.items() if name in names}

    def lines(self) -> list[str]:
        """Returns a line for each reason, the first met first."""
        lines = []
        for reason, names in self._found.items():
            count, first = sum(names.values()), self._first[reason]
            within = "" if count == len(names) else f", in {len(names)} clips"
            lines.append(f"{count} {reason}{within} (first: {first})")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Returns everything as JSON holds it."""
        return {
            reason: {"count": sum(names.values()), "first": self._first[reason], "in": names}
            for reason, names in self._found.items()
        }
