"""Reading of Parquet tables in pieces of bounded size."""

from collections.abc import Iterator, Sequence
from typing import Any

from jaxatr.data.archive import MOST_TIMES, ROOM

_ROWS = 64  # rows decoded at a time


def batches(
    file: Any, size: int, group: int, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """Yields the rows of a row group in record batches.

    Args:
      file: a ``pyarrow.parquet.ParquetFile``.
      size: the file's size in bytes.
      group: number of the row group.
      columns: the columns to read; None for all.

    Raises:
      ValueError: the group is damaged, or unpacks to many times the file's size.
    """
    unpacked = file.metadata.row_group(group).total_byte_size
    if unpacked > MOST_TIMES * size + ROOM:
        raise ValueError(f"row group {group} unpacks to {unpacked} bytes, the file has {size}")
    # A value that many rows share is stored once, but each row gets a copy.
    rows = max(1, min(_ROWS, ROOM // max(unpacked, 1)))
    return file.iter_batches(rows, [group], columns)
