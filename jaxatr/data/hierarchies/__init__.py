"""Coarse classes of data sets that come without: written tables, by the names of the fine classes.

>>> hierarchy("mstar", ("T62", "T72", "ZIL131"))
Hierarchy(name='mstar', coarse_classes=('tank', 'utility'), fine_to_coarse=(0, 0, 1))
"""

import dataclasses
from collections.abc import Sequence

from jaxatr.data.dataset import Dataset
from jaxatr.data.hierarchies import cars196, cub200, groups
from jaxatr.resolve import nearest

__all__ = ["NAMES", "Hierarchy", "coarse_of", "hierarchy"]

_TABLES = {
    "cars196": cars196.TYPES,
    "cars196/body": cars196.BODIES,
    "cifar100": groups.CIFAR100,
    "cub200": cub200.FAMILIES,
    "mstar": groups.MSTAR,
    "simulated": groups.SIMULATED,
}
NAMES = tuple(_TABLES)


@dataclasses.dataclass(frozen=True)
class Hierarchy:
    """Which coarse class each fine one belongs to.

    Attributes:
      name: of the table, or of the data set that has it of its own.
      coarse_classes: names, each with at least one fine class.
      fine_to_coarse: for each fine class, in the data set's order, its place in ``coarse_classes``.
    """

    name: str
    coarse_classes: tuple[str, ...]
    fine_to_coarse: tuple[int, ...]


def hierarchy(name: str, classes: Sequence[str]) -> Hierarchy:
    """Returns the coarse classes of a data set's classes, or of some of them, by a written table.

    Args:
      name: ``"cifar100"`` (its 20 superclasses), ``"cub200"`` (37 families of birds), ``"mstar"``,
        ``"simulated"`` (the DSIAC database's vehicles too), ``"cars196"`` (22 types, the last
        words of the names, as the quadruplet paper has most likely done) or ``"cars196/body"``
        (12 real bodies); see :mod:`jaxatr.data.hierarchies.cars196`.
      classes: names of fine classes. Only in the cars' do case, blanks and punctuation count.

    Returns:
      The hierarchy. Coarse classes are sorted by name; those of no class given are left out.

    Raises:
      ValueError: there is no such table, or some classes are not in it; the message names them.
    """
    if name not in _TABLES:
        raise ValueError(
            f"there is no hierarchy {name!r}{nearest(name, NAMES)} (there are {', '.join(NAMES)})"
        )
    table = _TABLES[name]
    found = {fine: table.coarse(fine) for fine in classes}
    coarse = {fine: name for fine, name in found.items() if name is not None}
    if missing := [fine for fine in found if fine not in coarse]:
        listed = ", ".join(map(repr, missing[:5])) + (", …" if len(missing) > 5 else "")
        raise ValueError(
            f"hierarchy {name!r} has no coarse class for {len(missing)} of {len(classes)} classes, "
            f"{listed}{nearest(missing[0], table.spellings)} (its names are {table.names})"
        )
    names = sorted(set(coarse.values()))
    return Hierarchy(name, tuple(names), tuple(names.index(coarse[fine]) for fine in classes))


def coarse_of(dataset: Dataset, name: str) -> Hierarchy:
    """Returns the coarse classes of a data set's classes.

    Args:
      dataset: the data set.
      name: of :func:`hierarchy`; ``""`` for what the data set has of its own (``coarse.json`` in a
        folder of images, TFDS's ``coarse_label``, the level above in ``fgvc_aircraft``).

    Raises:
      ValueError: as there; or the data set has none of its own.
    """
    if name:
        return hierarchy(name, dataset.classes)
    if dataset.coarse_classes is None or dataset.fine_to_coarse is None:
        raise ValueError(
            f"{dataset.name!r} has no coarse classes of its own: set data.coarse to one of "
            f"{', '.join(NAMES)}, or put a coarse.json into a folder of images"
        )
    return Hierarchy(dataset.name, dataset.coarse_classes, dataset.fine_to_coarse)
