"""Bundled configuration files, found by name: ``cbc``, ``cbc:smoke``."""

import ast
import importlib.util
from pathlib import Path

from jaxatr.resolve import nearest
from jaxatr.typing import Config


def folder() -> Path:
    """Returns the folder of the bundled files.

    It is inside the package in an installed wheel, and beside the package in a checkout.
    """
    package = Path(__file__).parent
    installed = package / "configs"
    return installed if (installed / "cbc.py").is_file() else package.parent / "configs"


def names() -> list[str]:
    """Lists the names of the bundled files."""
    return sorted(path.stem for path in folder().glob("*.py"))


def locate(text: str) -> str:
    """Finds the file of a configuration.

    Args:
      text: a file or the name of a bundled configuration, optionally followed by ``:VARIANT``.

    Returns:
      The path of the file, followed by ``:VARIANT`` if ``text`` has one.

    Raises:
      ValueError: there is neither a file nor a bundled configuration of this name.
    """
    name, colon, variant = text.partition(":")
    if Path(name).is_file():
        return text
    if name in names():
        return f"{folder() / name}.py{colon}{variant}"
    if "/" not in name and not name.endswith(".py"):
        close = nearest(name, names())
        raise ValueError(f"got {name!r}, wanted a file or one of {', '.join(names())}{close}")
    stem = Path(name).stem
    hint = f"; the package has one: --config={stem}{colon}{variant}" if stem in names() else ""
    raise ValueError(f"there is no file {name!r}{hint}")


def load(text: str) -> Config:
    """Loads a configuration.

    Args:
      text: a file or the name of a bundled configuration, optionally followed by ``:VARIANT``.

    Raises:
      ValueError: there is no such file or variant.
    """
    path, _, variant = locate(text).partition(":")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(variant) if variant else module.get_config()


def described() -> list[tuple[str, str, list[str]]]:
    """Lists the bundled files as ``(name, first line of the docstring, variants)``."""
    return [(name, *_docstring(folder() / f"{name}.py")) for name in names()]


def _docstring(path: Path) -> tuple[str, list[str]]:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    lines = text.partition("Variants:\n")[2].partition("\n\n")[0].splitlines()
    return text.partition("\n")[0], [line.split()[0] for line in lines if line[2:3].strip()]
