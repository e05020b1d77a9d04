"""The package's backbones: each module of this folder declares one as ``BACKBONE``.

The module's name is the backbone's name. A backbone is imported on first use.
"""

import functools
import importlib
import pkgutil

from jaxatr.models.backbones.backbone import Backbone
from jaxatr.resolve import nearest

__all__ = ["Backbone", "find", "names"]


def names() -> list[str]:
    """Returns the names of the backbones without importing them."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if name != "backbone")


@functools.cache
def _imported(name: str) -> Backbone:
    return importlib.import_module(f"{__name__}.{name}").BACKBONE


def find(name: str) -> Backbone:
    """Returns a backbone by name.

    Raises:
      ValueError: there is no backbone of this name.
    """
    if name not in names():
        raise ValueError(
            f"backbone: got {name!r}, wanted one of {', '.join(names())}{nearest(name, names())}"
        )
    return _imported(name)
