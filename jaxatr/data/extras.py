"""Packages that only some formats need: the extras of ``pip install 'jaxatr[…]'``."""

import importlib
from types import ModuleType


def extra(package: str, name: str, what: str) -> ModuleType:
    """Imports a package of an extra.

    Args:
      package: module to import.
      name: of the extra.
      what: needs it, for the message: "reading a.tar.zst".

    Raises:
      ImportError: the package is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        wanted = package.partition(".")[0]
        if (error.name or "").partition(".")[0] != wanted:
            raise  # the package is there; what it imports is not
        raise ImportError(
            f"{what} needs the package {wanted}: pip install 'jaxatr[{name}]'", name=wanted
        ) from error
