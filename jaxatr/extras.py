"""Imports of optional packages: the extras of ``pip install 'jaxatr[…]'``."""

import importlib
import importlib.util
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
        raise _missing(wanted, name, what) from error


def require(*packages: str, extra: str, what: str) -> None:
    """Checks that packages of an extra are installed, without importing them.

    Raises:
      ImportError: a package is not installed; the message names the extra.
    """
    for package in packages:
        try:
            found = importlib.util.find_spec(package)
        except ValueError:  # sys.modules has None for it
            found = None
        if found is None:
            raise _missing(package, extra, what)


def _missing(package: str, extra: str, what: str) -> ImportError:
    return ImportError(
        f"{what} needs the package {package}: pip install 'jaxatr[{extra}]'", name=package
    )
