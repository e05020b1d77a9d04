"""Resolution of dotted paths to Python objects, for configurations that name code.

A file can name any function of any module, so a run's folder from somebody else could run what its
author likes. :func:`resolve` therefore imports only the package's own objects, and those that the
user named: in a configuration, by a flag, as an argument, or by :func:`trust`.
"""

import contextlib
import difflib
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

FROM_FILE = "weight:"
"""Prefix of the weight names of networks read from an ONNX file."""
EVERYTHING = "*"
"""The name for :func:`trust` that stands for every path."""

_OWN = __name__.partition(".")[0]
_PATH = re.compile(r"[^\W\d][\w.]*:[\w.]+|[^\W\d]\w*(?:\.\w+)+")
_trusted: set[str] = set()
_trusting: ContextVar[bool] = ContextVar("whether every name is trusted", default=False)


def trust(*names: str) -> None:
    """Allows names outside the package, for the rest of the process, wherever they are read.

    Args:
      *names: dotted paths (``"my.module:name"``), or modules or packages, for all that is in them.
    """
    _trusted.update(names)


def trust_names_in(value: object) -> None:
    """Allows the dotted paths in what a user gave, such as a configuration or arguments.

    Args:
      value: text, which may contain several paths, or a mapping or iterable of such values; other
        values name nothing.
    """
    if isinstance(value, str):
        trust(*_PATH.findall(value))
    elif isinstance(value, Mapping):
        trust_names_in(list(value.values()))
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for one in value:
            trust_names_in(one)


@contextlib.contextmanager
def trusting(every: bool) -> Iterator[None]:
    """Allows every name that is resolved in this context, then and later, if ``every`` is true."""
    before = _trusting.set(_trusting.get() or every)
    try:
        yield
    finally:
        _trusting.reset(before)


def trusted() -> frozenset[str]:
    """Returns the names that :func:`trust` allowed, to allow them in another process."""
    return frozenset(_trusted)


def resolve(path: str) -> Any:
    """Returns the object that ``"package.module:name"`` (or ``"package.module.name"``) names.

    Args:
      path: module and attribute, separated by a colon or by the last dot. After a colon, the
        attribute may itself contain dots (a nested class).

    Raises:
      ValueError: the path has no attribute, the module does not exist, or it has no such attribute;
        the message suggests the closest name. Or the object is not the package's, and nobody
        trusted its name; nothing outside the package is imported then.

    >>> resolve("jaxatr.resolve:nearest")("sin", ["sine"])
    "; did you mean 'sine'?"
    """
    module_name, _ = _parts(path)
    if _trusting.get():
        trust(path)
    if _is_trusted(path, module_name):
        return imported(path)
    if module_name.partition(".")[0] == _OWN:
        value = imported(path)
        # What a module of the package imports is not the package's: jaxatr.files:os.system.
        owner = getattr(value, "__module__", None) or type(value).__module__
        if owner.partition(".")[0] == _OWN:
            return value
    raise ValueError(
        f"{path!r} is not code of {_OWN}, and a file could name any function, so it is not used: "
        "if you trust the origin of the run, --trust (in Python, trust=True or "
        f"{_OWN}.trust({module_name!r})) allows it"
    )


def _is_trusted(path: str, module_name: str) -> bool:
    parts = module_name.split(".")
    packages = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return not _trusted.isdisjoint({EVERYTHING, path} | packages)


def _parts(path: str) -> tuple[str, str]:
    """Splits a path into module and attribute."""
    module_name, separator, attributes = path.partition(":")
    if not separator:
        module_name, separator, attributes = path.rpartition(".")
    if not module_name or module_name.startswith(".") or not attributes:
        raise ValueError(f"{path!r} does not name an object: write 'package.module:name'")
    return module_name, attributes


def imported(path: str) -> Any:
    """Returns the object that a path in the code names, as :func:`resolve` without its check.

    Raises:
      ValueError: there is no such object.

    >>> imported("math:sqrt")(9.0)
    3.0
    """
    module_name, attributes = _parts(path)
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
