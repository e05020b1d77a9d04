"""Parquet tables of images: their content in a column, or the paths of their files."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from jaxatr.batch.sources.source import Found, Source, written
from jaxatr.data.extras import extra
from jaxatr.data.sources.image_folder.table import PATHS

_ROWS = 64  # that are decoded at a time


class Table(Source):
    """The images of a Parquet file, row by row.

    The content is in a column of bytes, or of ``{bytes, path}``, as Hugging Face's data sets have
    it. Without one, the files are those of a column of paths, from the table's folder.
    """

    def state(self) -> list:
        """Returns the size in bytes and the rows of each group."""
        with self._opened() as file:
            groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        return [self._path.stat().st_size, groups]

    def keys(self) -> Iterator[int]:
        """Yields the rows' numbers.

        Raises:
          ValueError: there is no row, no column of images, or no such table.
        """
        with self._opened() as file:
            self._column(file.schema_arrow)
            rows = file.metadata.num_rows
        if not rows:
            raise ValueError(f"{self.name}: there is no row in it")
        yield from range(rows)

    def read(self, keys: Sequence[int], scratch: Path) -> Iterator[Found]:
        """Yields files of the images; of the groups of rows that they are in, and no others."""
        wanted = iter(keys)
        key = next(wanted, None)
        with self._opened() as file:
            column = self._column(file.schema_arrow)
            start = 0
            for group in range(file.num_row_groups):
                end = start + file.metadata.row_group(group).num_rows
                if key is not None and key < end:
                    for number, cell in _cells(file, column, group, start):
                        if number == key:
                            yield self._found(number, cell, scratch)
                            if (key := next(wanted, None)) is None or key >= end:
                                break
                start = end

    def _found(self, number: int, cell: Any, scratch: Path) -> Found:
        name = str(PurePath(self.name, str(number)))
        if isinstance(cell, dict):
            cell = cell.get("bytes") or cell.get("path")
        if isinstance(cell, bytes):
            return written(scratch, number, name, cell)
        if not cell:
            return Found(name, "", ValueError("there is no image in this row"))
        path = PurePath(self.name).parent / cell
        return Found(str(path), str(self._path.parent / cell))

    def _opened(self) -> Any:
        parquet = extra("pyarrow.parquet", "parquet", f"{self.name}: a Parquet table")
        try:
            return parquet.ParquetFile(self._path)
        except (OSError, ValueError) as error:  # pyarrow's own errors are among these
            raise ValueError(f"{self.name}: not a readable Parquet table ({error})") from error

    def _column(self, schema: Any) -> str:
        types = extra("pyarrow", "parquet", f"{self.name}: a Parquet table").types
        for field in schema:
            kind = field.type
            if types.is_struct(kind) and (at := kind.get_field_index("bytes")) >= 0:
                kind = kind.field(at).type
            if types.is_binary(kind) or types.is_large_binary(kind):
                return field.name
        there = {name.strip().lower(): name for name in schema.names}
        for name in PATHS:
            if name in there:
                return there[name]
        raise ValueError(
            f"{self.name}: it has no column of images (it has {', '.join(schema.names)}); looked "
            f"for bytes, {{bytes, path}}, or paths named {', '.join(PATHS)}"
        )


def tables_of(name: str) -> list[Table]:
    """Finds the tables of a folder that holds Parquet files and nothing else; else none.

    Args:
      name: of a folder.
    """
    with os.scandir(name) as found:
        entries = sorted((e for e in found if e.name[0] not in "._"), key=lambda e: e.name)
    if not all(is_table(entry.path) for entry in entries):
        return []
    return [Table(str(PurePath(name, entry.name))) for entry in entries]


def is_table(name: str) -> bool:
    """Whether there is a file that is a Parquet table by its name."""
    return os.path.isfile(name) and name.lower().endswith(".parquet")


def _cells(file: Any, column: str, group: int, start: int) -> Iterator[tuple[int, Any]]:
    """Yields number and cell of the rows of a group, whose first is ``start``."""
    for batch in file.iter_batches(_ROWS, [group], [column]):
        for cell in batch.column(0):
            yield start, cell.as_py()
            start += 1
