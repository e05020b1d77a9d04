"""Resolution of dotted paths to Python objects, for configurations that name code."""

import difflib
import importlib
from typing import Any

FROM_FILE = "weight:"
"""Prefix of the weight names of networks read from an ONNX file."""


def resolve(path: str) -> Any:
    """Returns the object that ``"package.module:name"`` (or ``"package.module.name"``) names.

    Args:
      path: module and attribute, separated by a colon or by the last dot. After a colon, the
        attribute may itself contain dots (a nested class).

    Raises:
      ValueError: the path has no attribute, the module does not exist, or it has no such attribute;
        the message suggests the closest name.

    >>> resolve("math:sqrt")(9.0)
    3.0
    """
    module_name, separator, attributes = path.partition(":")
    if not separator:
        module_name, separator, attributes = path.rpartition(".")
    if not module_name or module_name.startswith(".") or not attributes:
        raise ValueError(f"{path!r} does not name an object: write 'package.module:name'")
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # the module exists, but one of its own imports fails
        raise ValueError(
            f"{path!r}: there is no module {error.name!r} on the import path"
        ) from error
    for name in attributes.split("."):
        if not hasattr(value, name):
            raise ValueError(f"{path!r}: no {name!r} in {module_name}{nearest(name, dir(value))}")
        value = getattr(value, name)
    return value


def nearest(name: str, choices) -> str:
    """Returns ``"; did you mean 'x'?"`` for the choice closest to ``name``, else ``""``.

    >>> nearest("resnet81", ["resnet18", "vgg"])
    "; did you mean 'resnet18'?"
    """
    close = difflib.get_close_matches(name, [str(choice) for choice in choices], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
