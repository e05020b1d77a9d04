"""Writes the files of a container that serves an exported run: Dockerfile and server.

The container has no jaxatr: ``server.py`` imports only :mod:`jaxatr.data.decoder`, whose modules
are written beside it, so that the container reads the same images as the package does.
"""

import json
import os
from importlib import resources
from pathlib import Path

from jaxatr import files

MARK = "# Written by `jaxatr convert export`."
"""The first line of every written file."""

_COPIED = ("Dockerfile", "requirements.txt", "server.py")
_IGNORE = ".dockerignore"
_DECODER = "jaxatr.data.decoder"


def check_container(folder: str | os.PathLike) -> None:
    """Checks that writing the container's files would not overwrite other files.

    Raises:
      ValueError: a file of the same name exists that does not begin with :data:`MARK`.
    """
    for name in (*_COPIED, _IGNORE, *_decoder()):
        path = Path(folder) / name
        if path.is_file() and not path.read_text(encoding="utf-8").startswith(MARK):
            raise ValueError(f"{path} exists and was not written by an export: use another folder")


def write_container(model: str | os.PathLike) -> list[Path]:
    """Writes the files of a container beside an exported model.

    Returns:
      The paths of the written files.

    Raises:
      ValueError: a file of the same name exists that was not written by this function, or the
        server cannot serve the model.
    """
    path = Path(model)
    check_container(path.parent)
    _check_model(path)
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
        files.write_text(written[-1], text.replace(_DECODER, "decoder"))
    path.with_name("decoder").mkdir(exist_ok=True)
    for name, text in _decoder().items():
        written.append(path.with_name("decoder") / Path(name).name)
        files.write_text(written[-1], text)
    kept = "\n".join(f"!{name}" for name in ("requirements.txt", "server.py", "decoder", *names))
    written.append(path.with_name(_IGNORE))
    files.write_text(written[-1], f"{MARK}\n*\n{kept}\n")
    return written


def _check_model(path: Path) -> None:
    """Checks that a model takes what the server gives it, as the server does when it starts."""
    from jaxatr.onnx.reader.description import describe  # needs the extra onnx

    facts = describe(path)
    (given, *more), about = facts["inputs"], facts["metadata"]
    form = (about.get("takes"), about.get("layout"))
    if more or form != ("images", "NHWC") or given["shape"][0] not in ("batch", 1):
        raise ValueError(
            f"container: {path} is written, but a container serves single images only: export a "
            "run of single images without --batch, --takes=chips and --layout=NCHW"
        )


def _decoder() -> dict[str, str]:
    """Returns the decoder's modules: path below the container's folder to text."""
    return {
        f"decoder/{one.name}": f"{MARK}\n{text.replace(_DECODER, 'decoder')}"
        for one in sorted(resources.files(_DECODER).iterdir(), key=lambda one: one.name)
        if one.name.endswith(".py") and (text := one.read_text(encoding="utf-8"))
    }
