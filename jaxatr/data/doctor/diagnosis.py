"""The diagnosis of a data set: problems to fix before training, notes, and remedies."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxatr.data.chip import Chip
from jaxatr.data.doctor.alike import Pairs, equal, nearly_equal
from jaxatr.data.doctor.facts import Facts, gather
from jaxatr.data.doctor.leaks import Leak, leaks
from jaxatr.data.doctor.subject import Subject
from jaxatr.data.sources.image_folder.layouts import LAYOUTS
from jaxatr.typing import Int

ALIKE = 0.98
"""The correlation at which two images count as nearly equal."""
_UNEVEN = 10  # ratio of the largest class's size to the smallest's
_FEW = 10  # examples in a class
_NAMED = 3  # images of the rarest kind
_KNOWN, _LEAKING = 0.5, 0.15  # shares of the way from guessing to knowing the class
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
      level: an error spoils a training or its figures, a warning may do so, a note informs.
      text: the finding as a sentence.
      remedy: how to fix it; may be empty.
    """

    level: Level
    text: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The result of :func:`examine`.

    Attributes:
      subject: the set that was checked.
      facts: facts about its images.
      counts: ``[splits, classes]``, the number of images that were read.
      equal: pairs of equal images.
      alike: pairs of nearly equal images, the most correlated first.
      leaks: one per kind of fact; empty if there are too few images to learn from.
      findings: in order of severity.
    """

    subject: Subject
    facts: Facts
    counts: Int[np.ndarray, "s c"]
    equal: Pairs
    alike: Pairs
    leaks: list[Leak]
    findings: list[Finding]


def examine(
    subject: Subject,
    *,
    chip: Chip | None = None,
    alike: float = ALIKE,
    limit: int = 0,
    begins: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Reads a set's images and diagnoses problems.

    Args:
      subject: the set to check.
      chip: geometry applied to each image first, as in training.
      alike: the correlation at which two images count as nearly equal.
      limit: the largest number of images, a random sample if there are more; 0 for all.
      begins: called with a description of each step before it begins.

    Raises:
      ValueError: no image can be read, or ``alike`` is not in (0, 1].
    """
    if not 0 < alike <= 1:
        raise ValueError(f"alike: got {alike}, wanted a correlation in (0, 1]")
    say = begins or (lambda _: None)
    say(f"reading {min(limit or len(subject), len(subject))} images")
    facts = gather(subject, chip=chip, limit=limit)
    say("comparing the images with each other")
    counts = np.zeros((len(subject.splits), len(subject.classes)), np.int64)
    # All images, not only those drawn; some, such as decoys, are of no class.
    known = subject.labels >= 0
    known[facts.refused] = False
    np.add.at(counts, (subject.parts[known], subject.labels[known]), 1)
    same, near = equal(facts), nearly_equal(facts, alike)
    train, test = _roles(subject.splits, counts.sum(1))
    say("measuring how far size, mean, spread and border reveal the class")
    leaking = leaks(facts, train, test)
    findings = [
        *_damage(facts),
        *_names(subject),
        *_marks(facts),
        *_pairs(subject, facts, same, "equal"),
        *_pairs(subject, facts, near, "nearly equal"),
        *_balance(subject, counts, train),
        *_formats(subject, facts),
        *_leaks(leaking),
    ]
    read = len(facts.number)
    if read + len(facts.refused) < facts.total:
        findings.append(Finding("note", f"{read} of {facts.total} images were drawn and read"))
    rank = {"error": 0, "warning": 1, "note": 2}
    findings.sort(key=lambda one: rank[one.level])
    return Diagnosis(subject, facts, counts, same, near, leaking, findings)


def relations(facts: Facts, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Returns, ``[p]`` each, whether a pair's images differ in class, and in split."""
    a, b = pairs.first, pairs.second
    return facts.label[a] != facts.label[b], facts.part[a] != facts.part[b]


def _roles(splits: tuple[str, ...], sizes: Int[np.ndarray, " s"]) -> tuple[int, int | None]:
    """Returns the numbers of the training split and of the test split (None without one).

    They are found by their names. Without ``train``, the training split is the largest one that is
    not ``test``. Without ``test``, the test split is the other one of two splits.
    """
    test = splits.index("test") if "test" in splits and len(splits) > 1 else None
    others = [number for number in range(len(splits)) if number != test]
    train = splits.index("train") if "train" in splits else max(others, key=lambda n: sizes[n])
    if test is None and len(splits) == 2:
        test = 1 - train
    return train, test


def _damage(facts: Facts) -> list[Finding]:
    if not facts.unreadable:
        return []
    count = len(facts.unreadable)
    text = f"{count} file{'s' if count > 1 else ''} cannot be read"
    flags = "left out by prepare --skip_corrupt, in a training by --config.data.skip_corrupt=true"
    return [Finding("error", text, flags)]


def _names(subject: Subject) -> list[Finding]:
    """Returns findings about the folders and the names of classes."""
    found = []
    if subject.empty:
        found.append(
            Finding("warning", f"folders of classes without images: {_listed([*subject.empty])}")
        )
    for name in subject.classes:
        if name.casefold() == "unknown":
            text = f"a class is called {name!r}, which is the answer for images of no known class"
            remedy = f"rename it, or --config.open_set.split=unknown:{name} makes it unknown"
            found.append(Finding("warning", text, remedy))
    if "coarse" in subject.layout.split("/"):
        text = f"the folders were read as {subject.layout}: coarse classes of fine ones"
        wanted = ", ".join(name for name in LAYOUTS if name != subject.layout)
        remedy = f"--option=layout sets another meaning: {wanted}"
        found.append(Finding("note", text, remedy))
    return found


def _marks(facts: Facts) -> list[Finding]:
    """Returns findings about what reading the files leaves out."""
    found = []
    if turned := int(facts.turned.sum()):
        text = f"{_images(turned)} an EXIF orientation, which is not applied"
        found.append(Finding("warning", text, "save the images as they are to be seen"))
    if alpha := int(facts.alpha.sum()):
        found.append(Finding("note", f"{_images(alpha)} an alpha plane, which is dropped"))
    return found


def _images(count: int) -> str:
    return "1 image has" if count == 1 else f"{count} images have"


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
        found.append(Finding(level, text, "test images must not be trained on: remove one"))
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
    """Names the images of the first chosen pair."""
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
        found.append(
            Finding("warning", text, "measure per class, and collect more of the rare ones")
        )
    few = [f"{names[c]} {of_train[c]}" for c in there if of_train[c] < _FEW]
    if few:
        text = f"classes of fewer than {_FEW} images in {split}: {_listed(few)}"
        found.append(Finding("warning", text))
    untrained = [names[c] for c in np.flatnonzero((of_train == 0) & (counts.sum(0) > 0))]
    if untrained:
        text = f"not in {split}, therefore unknown in a run without open_set.split: "
        found.append(Finding("note", text + _listed(untrained)))
    for number, name in enumerate(subject.splits):
        absent = [names[c] for c in np.flatnonzero((counts[number] == 0) & (of_train > 0))]
        if number != train and absent:
            found.append(Finding("note", f"not in {name}: {_listed(absent)}"))
    return found


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def _formats(subject: Subject, facts: Facts) -> list[Finding]:
    found = []
    types, counts = np.unique(facts.dtype, return_counts=True)
    if len(types) > 1:
        text = ", ".join(f"{count} {name}" for name, count in zip(types, counts, strict=True))
        text += _rarest(subject, facts, facts.dtype, types[counts.argmin()])
        found.append(Finding("error", f"bit depths differ: {text}", "convert them to one type"))
    channels, counts = np.unique(facts.size[:, 2], return_counts=True)
    if len(channels) > 1:
        text = ", ".join(f"{n} of {c}" for c, n in zip(channels, counts, strict=True))
        text += _rarest(subject, facts, facts.size[:, 2], channels[counts.argmin()])
        if {*channels.tolist()} == {1, 3}:
            remedy = "data.channels=1 (gray) or 3"
            found.append(Finding("warning", f"channels differ: {text}", remedy))
        else:
            remedy = "a set has the same bands in all images: save them so, or leave some out"
            found.append(Finding("error", f"numbers of bands differ: {text}", remedy))
    sizes = np.unique(facts.size[:, :2], axis=0)
    if len(sizes) > 1:
        (low, left), (high, right) = sizes.min(axis=0), sizes.max(axis=0)
        text = f"{len(sizes)} sizes, {low} to {high} high and {left} to {right} wide"
        found.append(Finding("note", text, "data.center_crop or data.size gives all the same size"))
    else:
        height, width = sizes[0]
        text = f"all images have {height}x{width} pixels, the only size that a run then accepts"
        found.append(Finding("note", text, "data.size or data.center_crop accepts others, too"))
    if flat := int(np.sum(~facts.small.any(axis=1))):
        found.append(Finding("warning", f"{flat} image{'s are' if flat > 1 else ' is'} constant"))
    return found


def _rarest(subject: Subject, facts: Facts, values: np.ndarray, value: Any) -> str:
    """Names images with the rarest value."""
    rows = facts.number[values == value]
    names = [subject.names[int(row)] for row in rows[:_NAMED]]
    more = ", …" if len(rows) > len(names) else ""
    return f" ({value}: {', '.join(names)}{more})"


def _leaks(leaking: list[Leak]) -> list[Finding]:
    found = []
    for leak in leaking:
        share = max(leak.share, leak.share_within)
        if share < _LEAKING:
            continue
        level: Level = "warning" if leak.share >= _KNOWN else "note"
        verb = "gives the class away" if level == "warning" else "partly predicts the class"
        text = f"the {leak.fact} alone {verb}: {leak.within:.1%} right within the training split"
        if leak.across is not None:
            text += f", {leak.across:.1%} from it to the test split"
        text += f", {leak.chance:.1%} by guessing"
        found.append(Finding(level, text, _REMEDIES[leak.fact]))
    return found
