"""Users' marks on predictions: wrong ones, and groups of chips that belong together."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from jaxatr import forms
from jaxatr.forms import BOOLEAN, FIGURE, TEXT, Form
from jaxatr.serving.kept_rows import KeptRows

MOST = 10_000
"""Largest number of marks; a file of that size is written in well under a second."""

FILE = "marks.jsonl"


_FORM: Form = {"wrong": BOOLEAN, **dict.fromkeys(("score", "threshold"), FIGURE), "*": TEXT}


class Marks(KeptRows):
    """A JSON Lines file with one mark per image."""

    key = "id"

    def _read(self) -> dict[str, dict[str, Any]]:
        marks: dict[str, dict[str, Any]] = {}
        if not self.path.is_file():
            return marks
        # Bytes, because a line may not be UTF-8, which json then reports.
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                mark = json.loads(line)
                forms.check(mark, _FORM, self.path)
                marks[mark["id"]] = mark
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{self.path}: line {number} is not a mark") from error
        return marks

    def _text(self, rows: Iterable[Mapping[str, Any]]) -> str:
        lines = [json.dumps(mark, ensure_ascii=False) + "\n" for mark in rows]
        if len(lines) > MOST:
            raise ValueError(f"there would be {len(lines)} marks; the limit is {MOST}")
        return "".join(lines)
