"""The findings about a set: what to mend before a training, what to know, and how."""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from jaxatr.data.chip import Chip
from jaxatr.data.doctor.alike import Pairs, equal, nearly_equal
from jaxatr.data.doctor.facts import Facts, gather
from jaxatr.data.doctor.leaks import Leak, leaks
from jaxatr.data.doctor.subject import Subject
from jaxatr.typing import Int

ALIKE = 0.98
"""Correlation from which two images count as nearly equal."""
_UNEVEN = 10  # times as many examples in the largest class as in the smallest
_FEW = 10  # examples of a class
_KNOWN, _TOLD = 0.5, 0.15  # shares of the way from guessing to knowing the class
_REMEDIES = {
    "size": "cut the same window out of every image (data.center_crop) before any resize",
    "mean": "vary the brightness (augment.gain, augment.offset)",
    "spread": "vary the contrast (augment.gain)",
    "border": "crop closer (data.center_crop), or train on other backgrounds (augment.background)",
}
Level = Literal["error", "warning", "note"]


class Finding(NamedTuple):
    """A finding.

    Attributes:
      level: an error spoils a training or its figures, a warning may, a note is to be known.
      text: a sentence.
      remedy: what helps, or empty.
    """

    level: Level
    text: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """All that was found.

    Attributes:
      subject: that was checked.
      facts: about its images.
      counts: ``[splits, classes]``, images that were read.
      equal: pairs of equal images.
      alike: pairs of nearly equal ones, the most alike first.
      leaks: by kind of fact, none where there is too little to learn from.
      findings: the worst first.
    """

    subject: Subject
    facts: Facts
    counts: Int[np.ndarray, "s c"]
    equal: Pairs
    alike: Pairs
    leaks: list[Leak]
    findings: list[Finding]


def examine(
    subject: Subject, *, chip: Chip | None = None, alike: float = ALIKE, limit: int = 0
) -> Diagnosis:
    """Reads a set's images and says what is wrong with them.

    Args:
      subject: whose images.
      chip: geometry that each goes through first, as in a training with it.
      alike: correlation from which two images count as nearly equal.
      limit: more images than so many are not read, but as many drawn; 0 reads all.

    Raises:
      ValueError: no image can be read, or ``alike`` is no correlation.
    """
    if not 0 < alike <= 1:
        raise ValueError(f"alike: got {alike}, wanted a correlation in (0, 1]")
    facts = gather(subject, chip=chip, limit=limit)
    counts = np.zeros((len(subject.splits), len(subject.classes)), np.int64)
    np.add.at(counts, (facts.part, facts.label), 1)
    same, near = equal(facts), nearly_equal(facts, alike)
    train, test = _roles(subject.splits)
    told = leaks(facts, train, test)
    found = [
        *_damage(facts),
        *_pairs(subject, facts, same, "equal"),
        *_pairs(subject, facts, near, "nearly equal"),
        *_balance(subject, counts, train),
        *_formats(facts),
        *_told(told),
    ]
    if len(facts.number) + len(facts.unreadable) < facts.total:
        read = len(facts.number)
        found.append(Finding("note", f"{read} of {facts.total} images were drawn and read"))
    rank = {"error": 0, "warning": 1, "note": 2}
    found.sort(key=lambda one: rank[one.level])
    return Diagnosis(subject, facts, counts, same, near, told, found)


def relations(facts: Facts, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Returns ``[p]`` whether the images of each pair are of two classes, and of two splits."""
    a, b = pairs.first, pairs.second
    return facts.label[a] != facts.label[b], facts.part[a] != facts.part[b]


def _roles(splits: tuple[str, ...]) -> tuple[int, int | None]:
    """Returns the numbers of the split that trains and of the test split."""
    train = splits.index("train") if "train" in splits else 0
    test = splits.index("test") if "test" in splits else None
    return train, None if test == train else test


def _damage(facts: Facts) -> list[Finding]:
    if not facts.unreadable:
        return []
    count = len(facts.unreadable)
    text = f"{count} file{'s' if count > 1 else ''} cannot be read"
    flags = "left out by --skip_corrupt, in a training by --config.data.skip_corrupt=true"
    return [Finding("error", text, flags)]


def _pairs(subject: Subject, facts: Facts, pairs: Pairs, kind: str) -> list[Finding]:
    classes, parts = relations(facts, pairs)
    exact = kind == "equal"
    level: Level = "error" if exact else "warning"
    found = []
    if classes.any():
        where = _example(subject, facts, pairs, classes)
        means = "labels contradict each other" if exact else "a label may be wrong"
        text = f"{_count(classes)} of {kind} images of two classes: {means} ({where})"
        remedy = "correct or remove one of each" if exact else "look at them on the page"
        found.append(Finding(level, text, remedy))
    if (across := parts & ~classes).any():
        where = _example(subject, facts, pairs, across)
        text = f"{_count(across)} of {kind} images of two splits ({where})"
        found.append(Finding(level, text, "what is tested must not be trained on: remove one"))
    if (within := ~classes & ~parts).any():
        text = f"{_count(within)} of {kind} images of one class and split"
        found.append(Finding("warning" if exact else "note", text))
    if pairs.total > len(pairs.first):
        found.append(Finding("note", f"{pairs.total} pairs of {kind} images in all"))
    return found


def _count(chosen: np.ndarray) -> str:
    count = int(chosen.sum())
    return "1 pair" if count == 1 else f"{count} pairs"


def _example(subject: Subject, facts: Facts, pairs: Pairs, chosen: np.ndarray) -> str:
    """Names the first pair of some."""
    place = int(np.flatnonzero(chosen)[0])
    rows = pairs.first[place], pairs.second[place]
    return " and ".join(subject.names[int(facts.number[row])] for row in rows)


def _balance(subject: Subject, counts: Int[np.ndarray, "s c"], train: int) -> list[Finding]:
    found = []
    names = subject.classes
    of_train = counts[train]
    there = np.flatnonzero(of_train)
    split = subject.splits[train]
    if len(there) and of_train[there].max() >= _UNEVEN * of_train[there].min():
        most, least = there[of_train[there].argmax()], there[of_train[there].argmin()]
        text = (
            f"the classes of {split} are uneven: {names[most]} has {of_train[most]} images, "
            f"{names[least]} {of_train[least]}"
        )
        found.append(Finding("warning", text, "measure by class, and collect more of the rare"))
    few = [f"{names[c]} {of_train[c]}" for c in there if of_train[c] < _FEW]
    if few:
        text = f"classes of fewer than {_FEW} images in {split}: {_listed(few)}"
        found.append(Finding("warning", text))
    untrained = [names[c] for c in np.flatnonzero((of_train == 0) & (counts.sum(0) > 0))]
    if untrained:
        text = f"not in {split}, and so unknown to a run without open_set.split: "
        found.append(Finding("note", text + _listed(untrained)))
    for number, name in enumerate(subject.splits):
        absent = [names[c] for c in np.flatnonzero((counts[number] == 0) & (of_train > 0))]
        if number != train and absent:
            found.append(Finding("note", f"not in {name}: {_listed(absent)}"))
    return found


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def _formats(facts: Facts) -> list[Finding]:
    found = []
    types, counts = np.unique(facts.dtype, return_counts=True)
    if len(types) > 1:
        text = ", ".join(f"{count} {name}" for name, count in zip(types, counts, strict=True))
        found.append(Finding("error", f"bit depths differ: {text}", "a set has one: convert them"))
    channels, counts = np.unique(facts.size[:, 2], return_counts=True)
    if len(channels) > 1:
        text = ", ".join(f"{n} of {c}" for c, n in zip(channels, counts, strict=True))
        remedy = "data.channels=1 (gray) or 3"
        found.append(Finding("warning", f"channels differ: {text}", remedy))
    sizes = np.unique(facts.size[:, :2], axis=0)
    if len(sizes) > 1:
        (low, left), (high, right) = sizes.min(axis=0), sizes.max(axis=0)
        text = f"{len(sizes)} sizes, {low} to {high} high and {left} to {right} wide"
        found.append(Finding("note", text, "data.center_crop or data.size makes them one"))
    if flat := int(np.sum(~facts.small.any(axis=1))):
        found.append(Finding("warning", f"{flat} images are of one value, without any structure"))
    return found


def _told(told: list[Leak]) -> list[Finding]:
    found = []
    for leak in told:
        share = max(leak.share, leak.share_within)
        if share < _TOLD:
            continue
        level: Level = "warning" if leak.share >= _KNOWN else "note"
        verb = "gives the class away" if level == "warning" else "says something of the class"
        text = f"the {leak.fact} alone {verb}: {leak.within:.1%} right within the training split"
        if leak.across is not None:
            text += f", {leak.across:.1%} from it to the test split"
        text += f", {leak.chance:.1%} by guessing"
        found.append(Finding(level, text, _REMEDIES[leak.fact]))
    return found
