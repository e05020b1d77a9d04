"""Part files: one Parquet file for each shard, written atomically with a checksum."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxatr import data, files
from jaxatr.data import Cell
from jaxatr.extras import extra

_KEY = "jaxatr"
_MARK = b'"sha256": "'
_LENGTH = 64
_BLANK = b"0" * _LENGTH


class Facts(NamedTuple):
    """The metadata of a part file.

    Attributes:
      shard: number of the shard.
      inputs: digest of the shard's list of inputs.
      run: digest of the run that predicted.
      rows: number of inputs: of rows, unless they are scenes, which have a row for each target.
      failed: number of inputs that could not be used.
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
    """Writes a part atomically.

    Args:
      out: the folder of the parts.
      facts: metadata of the part.
      columns: name of a column to the type of its cells.
      rows: rows, each a mapping from columns to cells.
      runtime: engine that ran the network, for the note.

    Raises:
      ValueError: the cells of a column differ in type.
      OSError: the file cannot be written.
    """
    path = path_of(out, facts.shard)
    note = json.dumps({**facts._asdict(), "runtime": runtime, "sha256": _BLANK.decode()})
    content = data.parquet_bytes(path, columns, rows, {_KEY: note})
    # The digest is computed with zeros in its own place.
    begin, _ = _split(content)
    digest = hashlib.sha256(content).hexdigest().encode()
    with files.replacing(path) as file:
        file.write(content[:begin] + digest + content[begin + _LENGTH :])


def check(path: Path) -> Facts:
    """Reads the metadata of a part, and verifies its checksum.

    Raises:
      ValueError: the file is damaged or not a part; the message does not name the file.
      OSError: the file cannot be read.
    """
    content = path.read_bytes()
    begin, digest = _split(content)
    blank = content[:begin] + _BLANK + content[begin + _LENGTH :]
    if hashlib.sha256(blank).hexdigest().encode() != digest:
        raise ValueError("its checksum does not match its content")
    parquet = extra("pyarrow.parquet", "parquet", f"{path}: a Parquet table")
    note: dict[str, Any] = json.loads(parquet.read_metadata(path).metadata[_KEY.encode()])
    return Facts(*(note[name] for name in Facts._fields))


def _split(content: bytes) -> tuple[int, bytes]:
    """Finds the digest near the end of a file; returns its position and its text."""
    at = content.rfind(_MARK)
    begin = at + len(_MARK)
    if at < 0 or len(content) < begin + _LENGTH:
        raise ValueError("it has no checksum")
    return begin, content[begin : begin + _LENGTH]
