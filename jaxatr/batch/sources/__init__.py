"""Where inputs come from: files, folders, archives, Parquet tables and prepared data sets."""

import os
from collections.abc import Sequence

from jaxatr.batch.sources.archives import Archive, is_archive
from jaxatr.batch.sources.files import File, Folder
from jaxatr.batch.sources.records import PREFIX, splits_of
from jaxatr.batch.sources.source import Found, Key, Source
from jaxatr.batch.sources.tables import Table, is_table, tables_of

__all__ = ["Found", "Key", "Source", "sources_of"]


def sources_of(
    arguments: Sequence[str], *, folders: bool = False, data_dir: str | None = None
) -> list[Source]:
    """Finds the sources that arguments of the command line lead to.

    Args:
      arguments: files, folders, archives, Parquet tables, folders of these, and ``tfds:NAME`` or
        ``tfds:NAME:SPLIT`` of a prepared data set.
      folders: a folder is one input, as a track is.
      data_dir: where prepared sets lie; None for the default.

    Raises:
      ValueError: there is no such path or data set.
    """
    found: list[Source] = []
    for name in arguments:
        if name.startswith(PREFIX):
            found += splits_of(name, data_dir)
        elif not os.path.exists(name):
            raise ValueError(f"{name}: there is no such file or folder")
        elif folders:
            found.append(File(name))
        elif os.path.isdir(name):
            found += tables_of(name) or [Folder(name)]
        elif is_table(name):
            found.append(Table(name))
        else:
            found.append(Archive(name) if is_archive(name) else File(name))
    return found
