"""Output without the control characters that names of files and classes may contain."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

# Controls of C0 and C1, line separators, and the characters that reorder text (bidi), with which a
# name could move the cursor, hide text or look like another one. Surrogates are bytes of names
# that are not UTF-8.
_UNSAFE = "\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_UNSAFE}]")
_IN_NAME = re.compile(f"[\t\n{_UNSAFE}]")
_MOVES = re.compile("(?:\x1b\\[A)+|\n*")  # those of a progress bar, which writes them separately


@runtime_checkable  # the tests check annotations at run time
class Writes(Protocol):
    """A text stream, of which only ``write`` is needed."""

    def write(self, text: str, /) -> int:
        """Writes text; returns its length."""
        ...


class Plain:
    """A text stream that writes control characters as ``\\u001b``, as JSON does.

    Line breaks and tabs remain, and so do the carriage return and the upward moves with which a
    progress bar begins.
    """

    def __init__(self, stream: Writes):
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes text; returns its length."""
        if _MOVES.fullmatch(text):
            self._stream.write(text)
        else:
            begins = len(text) - len(text.lstrip("\r"))
            self._stream.write(text[:begins] + _IN_TEXT.sub(_escaped, text[begins:]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the stream."""
        return getattr(self._stream, name)


def one_line(name: str) -> str:
    """Returns a name with its control characters escaped, line breaks too.

    >>> print(one_line("a\\nb.png"))
    a\\u000ab.png
    """
    return _IN_NAME.sub(_escaped, name)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def grouped(faults: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yields a line for each reason, with the first place that has it and the number of others.

    >>> list(grouped([("a", "small"), ("b", "dark"), ("c", "small"), ("d", "small")]))
    ['a and 2 more: small', 'b: dark']
    """
    places: dict[str, list[str]] = {}
    for place, why in faults:
        places.setdefault(why, []).append(place)
    for why, (first, *others) in places.items():
        yield f"{first} and {len(others)} more: {why}" if others else f"{first}: {why}"
