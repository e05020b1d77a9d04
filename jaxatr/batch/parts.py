"""The files that are made of shards: there whole or not at all, with a checksum of every byte."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxatr import data, files
from jaxatr.data import Cell
from jaxatr.data.extras import extra

_KEY = "jaxatr"
_MARK = b'"sha256": "'
_LENGTH = 64
_BLANK = b"0" * _LENGTH


class Facts(NamedTuple):
    """The note in a part about itself.

    Attributes:
      shard: its number.
      inputs: digest of the shard's list of inputs.
      run: digest of the run that predicted.
      rows: of the part, one for each input.
      failed: of these, inputs that could not be used.
    """

    shard: int
    inputs: str
    run: str
    rows: int
    failed: int


def path_of(out: Path, number: int) -> Path:
    """Returns the path of a shard's part."""
    return out / f"part-{number:05}.parquet"


def write(
    out: Path,
    facts: Facts,
    columns: Mapping[str, type | None],
    rows: Sequence[Mapping[str, Cell]],
    runtime: str,
) -> None:
    """Writes a part, all of it or nothing.

    Args:
      out: the folder.
      facts: about the part.
      columns: name to the type of its cells.
      rows: column to cell.
      runtime: what ran the network, for the note.

    Raises:
      ValueError: the cells of a column differ in type.
      OSError: it cannot be written.
    """
    path = path_of(out, facts.shard)
    note = json.dumps({**facts._asdict(), "runtime": runtime, "sha256": _BLANK.decode()})
    content = data.parquet_bytes(path, columns, rows, {_KEY: note})
    # The digest is that of the file with zeros in its place.
    begin, _ = _split(content)
    digest = hashlib.sha256(content).hexdigest().encode()
    with files.replacing(path) as file:
        file.write(content[:begin] + digest + content[begin + _LENGTH :])


def check(path: Path) -> Facts:
    """Reads the note of a part, if every byte is as it was written.

    Raises:
      ValueError: it is damaged, or is no part; the message does not name it.
      OSError: it cannot be read.
    """
    content = path.read_bytes()
    begin, digest = _split(content)
    blank = content[:begin] + _BLANK + content[begin + _LENGTH :]
    if hashlib.sha256(blank).hexdigest().encode() != digest:
        raise ValueError("its checksum is not that of its content")
    parquet = extra("pyarrow.parquet", "parquet", f"{path}: a Parquet table")
    noted: dict[str, Any] = json.loads(parquet.read_metadata(path).metadata[_KEY.encode()])
    return Facts(*(noted[name] for name in Facts._fields))


def _split(content: bytes) -> tuple[int, bytes]:
    """Finds where the digest begins, which is in the file's last part, and the digest."""
    at = content.rfind(_MARK)
    begin = at + len(_MARK)
    if at < 0 or len(content) < begin + _LENGTH:
        raise ValueError("there is no checksum in it")
    return begin, content[begin : begin + _LENGTH]
