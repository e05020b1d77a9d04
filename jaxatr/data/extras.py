"""Imports of optional packages: the extras of ``pip install 'jaxatr[…]'``."""

import importlib
from types import ModuleType


def extra(package: str, name: str, what: str) -> ModuleType:
    """Imports a package that belongs to an extra.

    Args:
      package: the module to import.
      name: the extra's name.
      what: the purpose, for the error message, such as "reading a.tar.zst".

    Raises:
      ImportError: the package is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        wanted = package.partition(".")[0]
        if (error.name or "").partition(".")[0] != wanted:
            raise  # the package is installed, one of its dependencies is not
        raise ImportError(
            f"{what} needs the package {wanted}: pip install 'jaxatr[{name}]'", name=wanted
        ) from error
