"""The configuration files that come with the package, by name, such as ``cbc`` or ``cbc:smoke``."""

import ast
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from jaxatr.resolve import nearest

if TYPE_CHECKING:
    from jaxatr.typing import Config
else:  # the same class, without the arrays of jaxatr.typing, which are slow to import
    Config = ConfigDict

_MODULE = "jaxatr_configuration"  # dataclasses look for the module of their annotations


def folder() -> Path:
    """Returns the files' folder: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    installed = package / "configs"
    return installed if (installed / "cbc.py").is_file() else package.parent / "configs"


def names() -> list[str]:
    """Returns the sorted names of the files."""
    return sorted(path.stem for path in folder().glob("*.py"))


def locate(text: str) -> str:
    """Finds the file of a configuration.

    Args:
      text: a file or the name of a bundled one, optionally followed by a colon and a variant.

    Returns:
      The file, followed by a colon and the variant if there is one.

    Raises:
      ValueError: neither a file nor a bundled configuration has this name.
    """
    name, colon, variant = text.partition(":")
    if Path(name).is_file():
        return text
    if name in names():
        return f"{folder() / name}.py{colon}{variant}"
    if "/" not in name and not name.endswith(".py"):
        close = nearest(name, names())
        raise ValueError(f"got {name!r}, wanted a file or one of {', '.join(names())}{close}")
    own = Path(name).stem
    hint = f"; the package has one: --config={own}{colon}{variant}" if own in names() else ""
    from jaxatr.files import MissingFileError  # it loads NumPy, which --help does not need

    raise MissingFileError(f"there is no file {name!r}{hint}")


def load(text: str) -> Config:
    """Loads a configuration.

    Args:
      text: a file or the name of a bundled one, optionally followed by a colon and a variant.

    Raises:
      ValueError: the file or the variant does not exist, or the file has no ``get_config``, or this
        does not return a ``ConfigDict``.
    """
    path, _, variant = locate(text).partition(":")
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = sys.modules[_MODULE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
        raise ValueError(f"{path} has no function get_config")
    if variant and not inspect.signature(module.get_config).parameters:
        raise ValueError(f"{path} has no variants, got {variant!r}")
    config = module.get_config(variant) if variant else module.get_config()
    if not isinstance(config, ConfigDict):
        raise ValueError(f"{path}: get_config returned {config!r}, wanted a ConfigDict")
    return config


def described() -> list[tuple[str, str, list[str]]]:
    """Returns the name of each file with the first line and the variants of its docstring."""
    return [(name, *_docstring(folder() / f"{name}.py")) for name in names()]


def _docstring(path: Path) -> tuple[str, list[str]]:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    lines = text.partition("Variants:\n")[2].partition("\n\n")[0].splitlines()
    return text.partition("\n")[0], [line.split()[0] for line in lines if line[2:3].strip()]
