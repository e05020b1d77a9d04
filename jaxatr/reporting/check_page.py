"""Writes the findings of a data set's check as lines, tables and a page with pictures."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxatr import files
from jaxatr.data.chip import Chip
from jaxatr.data.doctor import Diagnosis, Finding, Pairs, relations
from jaxatr.data.thumbnails import thumbnail
from jaxatr.reporting.environment import environment
from jaxatr.reporting.sprite import Thumbnail, sprite, squared
from jaxatr.reporting.tables import percent, text_table

_MARKS = {"error": "!!", "warning": " !", "note": "  "}
_SIDE = 96  # side of a picture on the page, in pixels
_EACH = 8  # pictures per class
_PAIRS = 24  # pairs of each kind
_LISTED = 20  # unreadable files listed in the terminal
_SHOWN = 200  # unreadable files listed on the page
_CLASSES = 60  # classes with pictures on the page


def lines(found: Diagnosis) -> list[str]:
    """Formats the findings, each with a line for its remedy."""
    if not found.findings:
        return [f"checked {len(found.facts.number)} images: nothing found"]
    return [f"checked {len(found.facts.number)} images:", *finding_lines(found.findings)]


def finding_lines(findings: Iterable[Finding]) -> list[str]:
    """Formats findings alone, each with a line for its remedy."""
    written = []
    for level, text, remedy in findings:
        written.append(f"{_MARKS[level]} {text}")
        if remedy:
            written.append(f"     {remedy}")
    return written


def tables(found: Diagnosis) -> list[str]:
    """Formats the tables of classes and leaks, the unreadable files, and the findings."""
    subject, facts = found.subject, found.facts
    rows = [
        [name, *map(str, found.counts[:, number])] for number, name in enumerate(subject.classes)
    ]
    if len(rows) > 1:
        rows.append(["all", *map(str, found.counts.sum(axis=1))])
    written = [f"{subject.name}: {_summary(found)}", ""]
    written.append(text_table(["class", *subject.splits], rows))
    if found.leaks:
        written += ["", _leak_table(found)]
    if facts.unreadable:
        written += ["", "cannot be read:"]
        written += [
            f"  {name}: {without_name(name, why)}" for name, why in facts.unreadable[:_LISTED]
        ]
        if len(facts.unreadable) > _LISTED:
            written.append(f"  and {len(facts.unreadable) - _LISTED} more (the page lists them)")
    written += [f"skipped: {line.removeprefix('left out: ')}" for line in subject.passed]
    return [*written, "", *lines(found)]


def write_page(found: Diagnosis, out: str | os.PathLike, chip: Chip | None = None) -> None:
    """Writes a self-contained page about a check.

    Args:
      found: result of a check.
      out: the HTML file.
      chip: geometry applied to the pictures, as in the check; None for whole images.
    """
    files.write_text(out, render_page(found, chip))


def render_page(found: Diagnosis, chip: Chip | None = None) -> str:
    """Renders the page of :func:`write_page`.

    Args:
      found: result of a check.
      chip: geometry applied to the pictures, as in the check; None for whole images.
    """
    subject, facts = found.subject, found.facts
    groups = [*_pair_groups(found), *_class_groups(found)]
    rows = sorted({row for group in groups for row in group.rows})
    thumbnails = {row: _picture(found, row, chip) for row in rows}
    return (
        environment()
        .get_template("check.html")
        .render(
            name=subject.name,
            summary=_summary(found),
            findings=found.findings,
            classes=subject.classes,
            splits=subject.splits,
            counts=found.counts.tolist(),
            most=max(1, int(found.counts.max())),
            leaks=found.leaks,
            sizes=_sizes(found),
            unreadable=[(n, without_name(n, why)) for n, why in facts.unreadable[:_SHOWN]],
            unlisted=max(0, len(facts.unreadable) - _SHOWN),
            passed=[line.removeprefix("left out: ") for line in subject.passed],
            groups=groups,
            names={row: _name(found, row) for row in rows},
            sprite=sprite(thumbnails),
        )
    )


class _Group(NamedTuple):
    """Pictures under a heading.

    Attributes:
      title: the heading.
      text: text below the heading.
      tuples: (rows of the facts, caption) for images that are shown together.
    """

    title: str
    text: str
    tuples: list[tuple[tuple[int, ...], str]]

    @property
    def rows(self) -> list[int]:
        """All rows that are shown."""
        return [row for together, _ in self.tuples for row in together]


def _summary(found: Diagnosis) -> str:
    facts = found.facts
    count, classes, splits = len(facts.number), len(found.subject.classes), found.subject.splits
    types = ", ".join(np.unique(facts.dtype))
    channels = " or ".join(map(str, np.unique(facts.size[:, 2])))
    of_all = f" of {facts.total}" if count < facts.total else ""
    return (
        f"{count}{of_all} images of {classes} classes in the splits {', '.join(splits)}; "
        f"{types}, {channels} channel{'' if channels == '1' else 's'}"
    )


def _leak_table(found: Diagnosis) -> str:
    rows = [
        [leak.fact, percent(leak.within), percent(leak.across), percent(leak.chance)]
        for leak in found.leaks
    ]
    header = ["class predicted from (% right)", "within train", "train to test", "by chance"]
    return text_table(header, rows)


def without_name(name: str, why: str) -> str:
    """Removes the file's name, and the folders in front of it, from the reason."""
    before, separator, after = why.partition(f"{name}: ")
    return after if separator and (not before or before.endswith(("/", os.sep))) else why


def _sizes(found: Diagnosis) -> list[tuple[str, int, str]]:
    """Lists the most common sizes, as (size, count, classes)."""
    sizes, which, counts = np.unique(
        found.facts.size, axis=0, return_inverse=True, return_counts=True
    )
    listed = []
    for number in np.argsort(-counts, kind="stable")[:12]:
        labels = np.unique(found.facts.label[which.ravel() == number])
        names = [found.subject.classes[label] for label in labels[:8]]
        more = f" and {len(labels) - 8} more" if len(labels) > 8 else ""
        height, width, channels = sizes[number]
        listed.append(
            (f"{height}×{width}×{channels}", int(counts[number]), ", ".join(names) + more)
        )
    return listed


def _pair_groups(found: Diagnosis) -> list[_Group]:
    groups = []
    for kind, pairs in (("Equal", found.equal), ("Nearly equal", found.alike)):
        classes, parts = relations(found.facts, pairs)
        chosen: Sequence[tuple[str, np.ndarray]] = (
            ("of two classes", classes),
            ("of two splits", parts & ~classes),
            ("of one class and split", ~classes & ~parts),
        )
        for where, which in chosen:
            if which.any():
                groups.append(_pair_group(f"{kind}, {where}", pairs.where(which)))
    return groups


def _pair_group(title: str, pairs: Pairs) -> _Group:
    count = len(pairs.first)
    shown = f"The first {_PAIRS} of {count} pairs." if count > _PAIRS else f"{count} pairs."
    shown = "One pair." if count == 1 else shown
    tuples = [
        ((int(a), int(b)), f"correlation {value:.3f}" if value < 1 else "equal")
        for a, b, value in zip(
            pairs.first[:_PAIRS], pairs.second[:_PAIRS], pairs.correlation[:_PAIRS], strict=True
        )
    ]
    return _Group(title, shown, tuples)


def _class_groups(found: Diagnosis) -> list[_Group]:
    """Makes a group of evenly spaced images for each class."""
    groups = []
    for label, name in enumerate(found.subject.classes[:_CLASSES]):
        rows = np.flatnonzero(found.facts.label == label)
        if len(rows):
            places = np.unique(np.linspace(0, len(rows) - 1, _EACH).round().astype(int))
            tuples = [((int(row),), "") for row in rows[places]]
            shown = f"{len(tuples)} of {len(rows)} images." if len(rows) > len(tuples) else ""
            groups.append(_Group(f"Class {name}", shown or _counted(len(rows)), tuples))
    return groups


def _counted(images: int) -> str:
    return "One image." if images == 1 else f"{images} images."


def _name(found: Diagnosis, row: int) -> tuple[str, str, str]:
    """Returns an image's class and split, its path, and its file name."""
    facts, subject = found.facts, found.subject
    where = f"{subject.classes[facts.label[row]]}, {subject.splits[facts.part[row]]}"
    name = subject.names[int(facts.number[row])]
    return where, name, name.rpartition("/")[2]


def _picture(found: Diagnosis, row: int, chip: Chip | None) -> Thumbnail:
    cut: Callable[[Any], Any] = chip if chip is not None else (lambda image: image)
    image = cut(found.subject.read(int(found.facts.number[row])))
    small = thumbnail(image, side=_SIDE)
    return Thumbnail(_name(found, row)[0], squared(small, _SIDE))
