"""Named, versioned splits into known and unknown classes, recorded with every result."""

import csv
import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxatr.data.class_names import class_name
from jaxatr.files import read_regular
from jaxatr.resolve import nearest

# Known classes by number in the data set's order.
_CIFAR10 = {
    # The five splits commonly reported. The first two have the same classes; both are kept so that
    # a mean over the five can be compared with published means.
    "cifar10/osr-0": (0, 6, 4, 9, 1, 7),
    "cifar10/osr-1": (7, 6, 4, 9, 0, 1),
    "cifar10/osr-2": (1, 5, 7, 3, 9, 4),
    "cifar10/osr-3": (8, 6, 1, 9, 0, 7),
    "cifar10/osr-4": (2, 4, 1, 7, 9, 6),
    # The only split in the code published with the paper on category-aware binary classifiers.
    "cifar10/paper-code": (0, 1, 2, 6, 7, 8),
}
MSTAR_CLASSES = frozenset("2S1 BMP2 BRDM_2 BTR60 BTR70 D7 T62 T72 ZIL131 ZSU_23_4".split())
# The three splits used by a PyTorch port, so that figures can be compared.
_MSTAR = {
    "mstar/reference-0": ("BMP2", "BRDM_2", "BTR70", "T62", "ZIL131", "ZSU_23_4"),
    "mstar/reference-1": ("2S1", "BRDM_2", "BTR60", "BTR70", "T62", "ZSU_23_4"),
    "mstar/reference-2": ("2S1", "BMP2", "BRDM_2", "BTR70", "D7", "T72"),
    # For retrieval of unseen classes: two classes of each of three coarse classes are known.
    "mstar/retrieval": ("BMP2", "BRDM_2", "T62", "T72", "2S1", "ZSU_23_4"),
    # For tuning the training for mstar/retrieval: each trained class still has its sibling.
    "mstar/retrieval-tuning": ("T62", "T72", "2S1", "ZSU_23_4"),
}
_UNKNOWN = {"mstar/retrieval-tuning": ("BMP2", "BRDM_2")}  # instead of all other classes
NAMES = ("closed", *_CIFAR10, *_MSTAR, "first-5", "random-6/4", "random-5/3")
_FIRST = re.compile(r"first-(\d+)")
_REST = "rest/"
_RANDOM = re.compile(r"random-(\d+)/(\d+)")
_LISTED = re.compile(r"(?:known:(?P<known>.*?))?(?:(?:^|/)unknown:(?P<unknown>.*))?", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class KnownUnknown:
    """A split into known classes, for training, and unknown ones, first seen in the test.

    Attributes:
      name: the split's name, as passed to :func:`known_unknown`.
      version: increased whenever the same name and seed would give other classes.
      known: class names in the data set's order; their index is the network's label.
      unknown: class names in the data set's order.
      seed: seed of a random split; 0 for a fixed one.
    """

    name: str
    version: int
    known: tuple[str, ...]
    unknown: tuple[str, ...]
    seed: int

    def as_dict(self) -> dict[str, Any]:
        """Returns the split as a JSON-compatible dictionary."""
        return {**dataclasses.asdict(self), "known": [*self.known], "unknown": [*self.unknown]}


def known_unknown(
    name: str,
    classes: Sequence[str],
    *,
    seed: int = 0,
    trainable: Collection[str] | None = None,
) -> KnownUnknown:
    """Creates the named split of a data set's classes.

    Args:
      name: one of

        - ``"known:tank,car"``: these are known, all others unknown;
        - ``"unknown:bus"``: these are unknown, all others known;
        - ``"known:tank,car/unknown:bus"``: classes in neither list are left out;
        - a ``.json`` file with such lists, see :func:`listed`;
        - ``"closed"``: all are known;
        - ``"random-K/U"``: K known and U unknown classes drawn by ``seed``; others are left out;
        - ``"first-K"``: the first K in the data set's order are known, the others unknown (the
          usual zero-shot retrieval is ``"first-98"`` on Cars-196 and ``"first-100"`` on CUB-200);
        - ``"cifar10/osr-0"`` to ``"cifar10/osr-4"``: the five common splits (0 and 1 are the same);
        - ``"cifar10/paper-code"``;
        - ``"mstar/reference-0"`` to ``"mstar/reference-2"``;
        - ``"mstar/retrieval"``;
        - ``"mstar/retrieval-tuning"``: of the known classes of ``"mstar/retrieval"``, four are
          known and two unknown; the rest is left out;
        - ``"rest/NAME"``: the unknown classes of split NAME are known and all others left out, for
          training on classes that another network has not seen.
      classes: class names in the data set's order.
      seed: seed of random splits. Names are ordered by the SHA-256 of seed and name, so that the
        draw depends neither on a library's random stream nor on the order of ``classes``.
      trainable: classes with training examples; by default all. The others are unknown in
        ``"closed"`` and wherever all remaining classes would be known.

    Raises:
      ValueError: there is no split of that name, or it does not fit these classes, or a known class
        is called ``"unknown"``.

    >>> known_unknown("random-2/1", ("bus", "car", "van"), seed=1).known
    ('bus', 'car')
    >>> known_unknown("closed", ("bus", "car", "van"), trainable=("bus", "car")).unknown
    ('van',)
    """
    classes = tuple(map(class_name, classes))
    if len(set(classes)) != len(classes):
        raise ValueError(f"classes: got {classes}, wanted distinct names")
    name = listed(name)
    trained = None if trainable is None else {*map(class_name, trainable)}
    rest = {c for c in classes if trained is None or c in trained}
    known, unknown = _members(name, classes, seed, rest)
    if "unknown" in known:
        raise ValueError(
            "open_set.split: a known class is called 'unknown', which is the answer for images of "
            "no known class: --config.open_set.split=unknown:unknown makes it one of the unknown"
        )
    return KnownUnknown(
        name=name,
        version=1,
        known=tuple(c for c in classes if c in known),
        unknown=tuple(c for c in classes if c in unknown),
        seed=seed if _RANDOM.fullmatch(name.removeprefix(_REST)) else 0,
    )


def hold_out_classes(split: KnownUnknown, count: int, turn: int = 0) -> KnownUnknown:
    """Returns a split in which some known classes stand in for the unknown ones.

    Open-set decisions can be tuned on it, because it does not contain the split's own unknown
    classes, which only the test may see.

    Args:
      split: the split whose known classes are divided.
      count: the number of classes to hold out, drawn by the split's seed.
      turn: 0 holds out the first ``count`` classes drawn, 1 the next ones, and so on cyclically.

    Raises:
      ValueError: fewer than two known classes would remain.

    >>> hold_out_classes(known_unknown("random-3/1", ("bus", "car", "van", "tram")), 1).unknown
    ('bus',)
    """
    if count < 1 or len(split.known) - count < 2:
        raise ValueError(
            f"open_set.hold_out: got {count} of {len(split.known)} known classes, wanted at least "
            "1 and at least 2 remaining"
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
    """Expands the name of a ``.json`` file to its class lists; returns other names unchanged.

    The file holds a list of the known classes, or an object with a list ``known``, a list
    ``unknown``, or both.

    Raises:
      ValueError: the file is missing or has other content.
    """
    if name.startswith(_REST):
        return _REST + listed(name.removeprefix(_REST))
    if not name.lower().endswith(".json") or _lists(name):
        return name
    try:
        found = json.loads(read_regular(Path(name).expanduser()))
    except OSError as error:
        raise ValueError(f"open_set.split: {name}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"open_set.split: {name} is not valid JSON ({error})") from error
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
    """Formats names as one comma-separated line, quoting those with a comma."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def _lists(name: str) -> dict[str, list[str]]:
    """Parses ``known:…/unknown:…``; returns an empty dictionary for other names."""
    found = _LISTED.fullmatch(name)
    given = {
        k: text for k, text in (found.groupdict() if found else {}).items() if text is not None
    }
    return {
        k: [name for one in next(csv.reader([text]), []) if (name := class_name(one))]
        for k, text in given.items()
    }


def _listed_members(
    name: str, classes: tuple[str, ...], rest: set[str]
) -> tuple[set[str], set[str]]:
    """Returns the known and unknown classes given by lists of names."""
    lists = {key: dict.fromkeys(names) for key, names in _lists(name).items()}
    for key, names in lists.items():
        for one in names:
            if one not in classes:
                commas = next((name for name in classes if "," in name), None)
                quoted = f'; quote a name with a comma: {key}:"{commas}"' if commas else ""
                raise ValueError(
                    f"open_set.split: {key}: there is no class {one!r}{nearest(one, classes)} "
                    f"(there are {', '.join(classes)}){quoted}"
                )
    if both := sorted({*lists.get("known", ())} & {*lists.get("unknown", ())}):
        raise ValueError(f"open_set.split: {both[0]!r} is both known and unknown")
    unknown = {*lists["unknown"]} if "unknown" in lists else set(classes) - {*lists["known"]}
    known = {*lists["known"]} if "known" in lists else rest - unknown
    if not known:
        raise ValueError(f"open_set.split: {name!r} leaves no known class")
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
            raise ValueError(f"split {name!r}: the split it refers to has no unknown classes")
        return rest, set()
    if match := _RANDOM.fullmatch(name):
        return _random(name, classes, seed, *map(int, match.groups()))
    if match := _FIRST.fullmatch(name):
        return _first(name, classes, int(match[1]))
    if name in _CIFAR10:
        if len(classes) != 10:
            raise ValueError(f"split {name!r} needs CIFAR-10's 10 classes, got {len(classes)}")
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
            f"split {name!r} asks for the first {known} of {len(classes)} classes: at least one "
            f"must be known and one unknown"
        )
    return set(classes[:known]), set(classes[known:])


def _random(
    name: str, classes: tuple[str, ...], seed: int, known: int, unknown: int
) -> tuple[set[str], set[str]]:
    if known < 1 or known + unknown > len(classes):
        raise ValueError(
            f"split {name!r} asks for {known} known and {unknown} unknown of {len(classes)} "
            f"classes: at least one must be known"
        )
    drawn = _drawn(classes, seed)
    return set(drawn[:known]), set(drawn[known : known + unknown])


def _drawn(classes: Sequence[str], seed: int | str) -> list[str]:
    """Returns the classes in an order drawn by the seed, independent of their given order."""
    return sorted(classes, key=lambda c: hashlib.sha256(f"{seed}/{c}".encode()).digest())
