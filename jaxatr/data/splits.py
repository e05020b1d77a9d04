"""Known/unknown splits as named, versioned records: they are data, and every result carries one."""

import csv
import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxatr.resolve import nearest

# Known classes by their number in the data set's own order.
_CIFAR10 = {
    # The five that the field reports. The first two are one and the same set: they are kept so
    # that a mean over the five can be compared with published means.
    "cifar10/osr-0": (0, 6, 4, 9, 1, 7),
    "cifar10/osr-1": (7, 6, 4, 9, 0, 1),
    "cifar10/osr-2": (1, 5, 7, 3, 9, 4),
    "cifar10/osr-3": (8, 6, 1, 9, 0, 7),
    "cifar10/osr-4": (2, 4, 1, 7, 9, 6),
    # The one split that the code published with the category-aware classifiers' paper uses.
    "cifar10/paper-code": (0, 1, 2, 6, 7, 8),
}
MSTAR_CLASSES = frozenset("2S1 BMP2 BRDM_2 BTR60 BTR70 D7 T62 T72 ZIL131 ZSU_23_4".split())
# The three that a PyTorch port was measured on, so that figures can be set side by side.
_MSTAR = {
    "mstar/reference-0": ("BMP2", "BRDM_2", "BTR70", "T62", "ZIL131", "ZSU_23_4"),
    "mstar/reference-1": ("2S1", "BRDM_2", "BTR60", "BTR70", "T62", "ZSU_23_4"),
    "mstar/reference-2": ("2S1", "BMP2", "BRDM_2", "BTR70", "D7", "T72"),
    # For retrieval of classes never trained on: two of each of three coarse classes are known.
    "mstar/retrieval": ("BMP2", "BRDM_2", "T62", "T72", "2S1", "ZSU_23_4"),
    # To choose what that is trained with: every class that trains still has its sibling.
    "mstar/retrieval-tuning": ("T62", "T72", "2S1", "ZSU_23_4"),
}
_UNKNOWN = {"mstar/retrieval-tuning": ("BMP2", "BRDM_2")}  # not all the others
NAMES = ("closed", *_CIFAR10, *_MSTAR, "first-5", "random-6/4", "random-5/3")
_FIRST = re.compile(r"first-(\d+)")
_REST = "rest/"
_RANDOM = re.compile(r"random-(\d+)/(\d+)")
_LISTED = re.compile(r"(?:known:(?P<known>.*?))?(?:(?:^|/)unknown:(?P<unknown>.*))?", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class KnownUnknown:
    """Which classes a recogniser is taught and which it meets for the first time when tested.

    Attributes:
      name: as given to :func:`known_unknown`.
      version: raised whenever the same name and seed would give other classes.
      known: class names in the data set's order; their position is the network's label.
      unknown: class names in the data set's order.
      seed: decides a random split, and is 0 for a fixed one.
    """

    name: str
    version: int
    known: tuple[str, ...]
    unknown: tuple[str, ...]
    seed: int

    def as_dict(self) -> dict[str, Any]:
        """Returns the record as JSON holds it."""
        return {**dataclasses.asdict(self), "known": [*self.known], "unknown": [*self.unknown]}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "KnownUnknown":
        """Returns the record that :meth:`as_dict` wrote.

        Raises:
          ValueError: a field is missing or is not one of the record's.
        """
        fields = {field.name for field in dataclasses.fields(cls)}
        if set(record) != fields:
            raise ValueError(f"a split has the fields {sorted(fields)}, got {sorted(record)}")
        lists = {"known": tuple(record["known"]), "unknown": tuple(record["unknown"])}
        return cls(**{**record, **lists})


def known_unknown(
    name: str,
    classes: Sequence[str],
    *,
    seed: int = 0,
    trainable: Collection[str] | None = None,
) -> KnownUnknown:
    """Returns the named split of a data set's classes.

    Args:
      name: ``"known:tank,car"`` (these known, the rest unknown); ``"unknown:bus"`` (the rest
        known); ``"known:tank,car/unknown:bus"`` (the others left out); a ``.json`` file of such
        lists, for :func:`listed`; ``"closed"`` (all known); ``"random-K/U"`` (K known and U
        unknown, drawn by ``seed``; further classes are left out); ``"first-K"`` (the first K in the
        data set's order known, the rest unknown: the field's zero-shot retrieval on Cars-196 is
        ``"first-98"`` and on CUB-200 ``"first-100"``); ``"cifar10/osr-0"`` to ``"cifar10/osr-4"``,
        the field's five (0 and 1 are the same set); ``"cifar10/paper-code"``;
        ``"mstar/reference-0"`` to ``-2``; ``"mstar/retrieval"``; ``"mstar/retrieval-tuning"`` (four
        of the former's known classes known, the other two unknown, the rest left out);
        ``"rest/NAME"`` (the classes that are unknown in the split NAME are all there are, and
        known: for training on what another network has not seen).
      classes: the data set's class names in its own order.
      seed: for the random splits. The draw orders the names by the SHA-256 of seed and name, so it
        depends on no library's random stream, nor on the order of ``classes``.
      trainable: classes that there are examples of to train on; by default all. The others are
        unknown in ``"closed"`` and wherever a rest is known.

    Raises:
      ValueError: there is no split of that name, or it does not fit these classes.

    >>> known_unknown("random-2/1", ("bus", "car", "van"), seed=1).known
    ('bus', 'car')
    >>> known_unknown("closed", ("bus", "car", "van"), trainable=("bus", "car")).unknown
    ('van',)
    """
    classes = tuple(classes)
    if len(set(classes)) != len(classes):
        raise ValueError(f"class names must differ from each other, got {classes}")
    name = listed(name)
    rest = {c for c in classes if trainable is None or c in trainable}
    known, unknown = _members(name, classes, seed, rest)
    return KnownUnknown(
        name=name,
        version=1,
        known=tuple(c for c in classes if c in known),
        unknown=tuple(c for c in classes if c in unknown),
        seed=seed if _RANDOM.fullmatch(name.removeprefix(_REST)) else 0,
    )


def hold_out_classes(split: KnownUnknown, count: int, turn: int = 0) -> KnownUnknown:
    """Returns a split in which some of the known classes stand in for the unknown ones.

    What is to tell known from unknown can be trained on it: the split's own unknown classes, which
    only a test may see, are not in it at all.

    Args:
      split: whose known classes are shared out.
      count: how many of them are held out, drawn by the split's seed.
      turn: 0 holds out the first ``count`` as drawn, 1 the next, and so on, round and round.

    Raises:
      ValueError: fewer than two known classes would be left.

    >>> hold_out_classes(known_unknown("random-3/1", ("bus", "car", "van", "tram")), 1).unknown
    ('bus',)
    """
    if count < 1 or len(split.known) - count < 2:
        raise ValueError(
            f"open_set.hold_out: got {count} of {len(split.known)} known classes, wanted at least "
            "1, and 2 to be left"
        )
    drawn = _drawn(split.known, f"hold-out/{split.seed}")
    held = {drawn[(turn * count + i) % len(drawn)] for i in range(count)}
    return dataclasses.replace(
        split,
        name=f"{split.name}, {count} held out" + (f", turn {turn}" if turn else ""),
        known=tuple(c for c in split.known if c not in held),
        unknown=tuple(c for c in split.known if c in held),
    )


def listed(name: str) -> str:
    """Writes the class names of a ``.json`` file out; returns any other name as it is.

    The file holds a list of the known classes, or an object with a list ``known``, a list
    ``unknown``, or both.

    Raises:
      ValueError: the file is missing, or holds something else.
    """
    if name.startswith(_REST):
        return _REST + listed(name.removeprefix(_REST))
    if not name.lower().endswith(".json") or _lists(name):
        return name
    try:
        found = json.loads(Path(name).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"open_set.split: {name}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"open_set.split: {name} is no JSON ({error})") from error
    lists = {"known": found} if isinstance(found, list) else found
    if (
        not isinstance(lists, dict)
        or not lists
        or not {*lists} <= {"known", "unknown"}
        or not all(isinstance(names, list) for names in lists.values())
        or not all(isinstance(c, str) for names in lists.values() for c in names)
    ):
        raise ValueError(
            f"open_set.split: {name}: wanted a list of the known classes' names, or "
            '{"known": […], "unknown": […]} with either or both'
        )
    return "/".join(f"{k}:{_row(lists[k])}" for k in ("known", "unknown") if k in lists)


def _row(names: Iterable[str]) -> str:
    """Writes names in one line, those with a comma in quotes."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def _lists(name: str) -> dict[str, list[str]]:
    """Reads ``known:…/unknown:…``; empty for any other name."""
    found = _LISTED.fullmatch(name)
    given = {
        k: text for k, text in (found.groupdict() if found else {}).items() if text is not None
    }
    return {
        k: [one.strip() for one in next(csv.reader([text]), []) if one.strip()]
        for k, text in given.items()
    }


def _listed_members(
    name: str, classes: tuple[str, ...], rest: set[str]
) -> tuple[set[str], set[str]]:
    """Parts the classes by lists of their names."""
    lists = {key: dict.fromkeys(names) for key, names in _lists(name).items()}
    for key, names in lists.items():
        for one in names:
            if one not in classes:
                raise ValueError(
                    f"open_set.split: {key}: there is no class {one!r}{nearest(one, classes)} "
                    f"(there are {', '.join(classes)})"
                )
    if both := sorted({*lists.get("known", ())} & {*lists.get("unknown", ())}):
        raise ValueError(f"open_set.split: {both[0]!r} cannot be known and unknown")
    unknown = {*lists["unknown"]} if "unknown" in lists else set(classes) - {*lists["known"]}
    known = {*lists["known"]} if "known" in lists else rest - unknown
    if not known:
        raise ValueError(f"open_set.split: {name!r} leaves no class to be known")
    return known, unknown if "known" in lists else set(classes) - known


def _members(
    name: str, classes: tuple[str, ...], seed: int, trainable: set[str]
) -> tuple[set[str], set[str]]:
    if name == "closed":
        return trainable, set(classes) - trainable
    if _lists(name):
        return _listed_members(name, classes, trainable)
    if name.startswith(_REST):
        _, rest = _members(name.removeprefix(_REST), classes, seed, trainable)
        if not rest:
            raise ValueError(f"split {name!r}: there are no unknown classes to be known")
        return rest, set()
    if match := _RANDOM.fullmatch(name):
        return _random(name, classes, seed, *map(int, match.groups()))
    if match := _FIRST.fullmatch(name):
        return _first(name, classes, int(match[1]))
    if name in _CIFAR10:
        if len(classes) != 10:
            raise ValueError(f"split {name!r} is of CIFAR-10's 10 classes, got {len(classes)}")
        known = {classes[index] for index in _CIFAR10[name]}
    elif name in _MSTAR:
        if set(classes) != MSTAR_CLASSES:
            raise ValueError(
                f"split {name!r} needs the ten MSTAR classes {sorted(MSTAR_CLASSES)}, "
                f"got {list(classes)}"
            )
        known = set(_MSTAR[name])
        if name in _UNKNOWN:
            return known, set(_UNKNOWN[name])
    else:
        raise ValueError(
            f"there is no split {name!r}{nearest(name, NAMES)} "
            f"(there are {', '.join(NAMES)}, first-K and random-K/U for any K and U, "
            "known:A,B, unknown:C, and a .json file of names)"
        )
    return known, set(classes) - known


def _first(name: str, classes: tuple[str, ...], known: int) -> tuple[set[str], set[str]]:
    if not 1 <= known < len(classes):
        raise ValueError(
            f"split {name!r} asks for the first {known} classes: at least one must be known and "
            f"one unknown, and there are {len(classes)} in all"
        )
    return set(classes[:known]), set(classes[known:])


def _random(
    name: str, classes: tuple[str, ...], seed: int, known: int, unknown: int
) -> tuple[set[str], set[str]]:
    if known < 1 or known + unknown > len(classes):
        raise ValueError(
            f"split {name!r} asks for {known} known and {unknown} unknown classes: at least one "
            f"must be known, and there are {len(classes)} in all"
        )
    drawn = _drawn(classes, seed)
    return set(drawn[:known]), set(drawn[known : known + unknown])


def _drawn(classes: Sequence[str], seed: int | str) -> list[str]:
    """Returns the classes in an order drawn by the seed, whatever order they came in."""
    return sorted(classes, key=lambda c: hashlib.sha256(f"{seed}/{c}".encode()).digest())
