"""A folder from which a container is built that serves an exported run: Dockerfile and server.

``server.py`` is copied as it is, and imports nothing of this package.
"""

import json
import os
from importlib import resources
from pathlib import Path

from jaxatr import files

MARK = "# Written by `jaxatr convert export`."
"""The first line of every file."""

_COPIED = ("Dockerfile", "requirements.txt", "server.py")
_IGNORE = ".dockerignore"


def check_container(folder: str | os.PathLike) -> None:
    """Refuses to write over files that this package has not written.

    Args:
      folder: of the container.

    Raises:
      ValueError: there is one, or one that was changed by hand; it is named.
    """
    for name in (*_COPIED, _IGNORE):
        path = Path(folder) / name
        if path.is_file() and not path.read_text(encoding="utf-8").startswith(MARK):
            raise ValueError(f"{path} is there, and not of an export: take another folder")


def write_container(model: str | os.PathLike) -> list[Path]:
    """Writes what a container is built of beside an exported file.

    Args:
      model: path of the file.

    Returns:
      The paths of what was written.

    Raises:
      ValueError: as :func:`check_container`.
    """
    path = Path(model)
    check_container(path.parent)
    names = [path.name]
    if (data := path.with_name(f"{path.name}.data")).is_file():
        names.append(data.name)
    written = []
    for name in _COPIED:
        text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
        if name == "Dockerfile":
            listed = json.dumps(["server.py", *names, "./"], ensure_ascii=False)
            text = text.replace("{files} ./", listed).replace("{model}", json.dumps(path.name))
        written.append(path.with_name(name))
        files.write_text(written[-1], text)
    kept = "\n".join(f"!{name}" for name in ("requirements.txt", "server.py", *names))
    written.append(path.with_name(_IGNORE))
    files.write_text(written[-1], f"{MARK}\n*\n{kept}\n")
    return written
