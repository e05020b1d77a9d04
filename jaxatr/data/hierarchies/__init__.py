"""Written tables of coarse classes, by fine class name, for data sets that have none.

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
    """The assignment of fine classes to coarse classes.

    Attributes:
      name: the table's name, or that of the data set that has a hierarchy of its own.
      coarse_classes: names, each with at least one fine class.
      fine_to_coarse: for each fine class, in the data set's order, its index in ``coarse_classes``.
    """

    name: str
    coarse_classes: tuple[str, ...]
    fine_to_coarse: tuple[int, ...]


def hierarchy(name: str, classes: Sequence[str]) -> Hierarchy:
    """Looks up the coarse classes of fine classes in a written table.

    Args:
      name: ``"cifar100"`` (its 20 superclasses), ``"cub200"`` (37 families of birds), ``"mstar"``,
        ``"simulated"`` (also covers the DSIAC database's vehicles), ``"cars196"`` (22 types, the
        last words of the names, most likely those of the quadruplet paper) or ``"cars196/body"``
        (12 body styles); see :mod:`jaxatr.data.hierarchies.cars196`.
      classes: names of fine classes. Case, blanks and punctuation matter for the cars only.

    Returns:
      The hierarchy. Coarse classes are sorted by name; those without a given class are left out.

    Raises:
      ValueError: the table does not exist, or it lacks some classes; the message names them.
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
            f"{listed}{nearest(missing[0], table.spellings)} (expected names: {table.names})"
        )
    names = sorted(set(coarse.values()))
    return Hierarchy(name, tuple(names), tuple(names.index(coarse[fine]) for fine in classes))


def coarse_of(dataset: Dataset, name: str) -> Hierarchy:
    """Returns a data set's coarse classes, from a written table or its own hierarchy.

    Args:
      dataset: the data set.
      name: a table's name, see :func:`hierarchy`; ``""`` for the data set's own hierarchy
        (the outer folders or ``coarse.json`` of a folder of images, TFDS's ``coarse_label``, the
        next level in ``fgvc_aircraft``).

    Raises:
      ValueError: the table does not exist or does not fit, or the data set has no hierarchy.
    """
    if name:
        return hierarchy(name, dataset.classes)
    if dataset.coarse_classes is None or dataset.fine_to_coarse is None:
        raise ValueError(
            f"{dataset.name!r} has no coarse classes of its own: set data.coarse to one of "
            f"{', '.join(NAMES)}, or in a folder of images, put the folders of classes into "
            "those of their coarse classes, or put a coarse.json beside them"
        )
    return Hierarchy(dataset.name, dataset.coarse_classes, dataset.fine_to_coarse)
