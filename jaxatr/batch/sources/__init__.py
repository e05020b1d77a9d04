"""Sources of inputs: files, folders, archives, tables and prepared data sets."""

import os
from collections.abc import Sequence
from pathlib import Path

from jaxatr.batch.sources.archives import Archive, is_archive
from jaxatr.batch.sources.files import File, Folder
from jaxatr.batch.sources.records import PREFIX, splits_of
from jaxatr.batch.sources.source import Found, Key, Source
from jaxatr.batch.sources.tables import Paths, Table, is_table, tables_of
from jaxatr.data import archive
from jaxatr.data.bands import PLAIN, Bands
from jaxatr.data.image_paths import TABLES
from jaxatr.files import MissingFileError
from jaxatr.recognition.sightings import source_of

__all__ = ["Found", "Key", "Source", "sources_of"]


def sources_of(
    arguments: Sequence[str],
    *,
    folders: bool = False,
    data_dir: str | None = None,
    bands: Bands = PLAIN,
    scenes: bool = False,
) -> list[Source]:
    """Opens the sources that arguments of the command line name.

    Args:
      arguments: files, folders, archives, tables (.csv, .tsv, .parquet), folders of Parquet tables,
        and ``tfds:NAME`` or ``tfds:NAME:SPLIT`` for a prepared data set.
      folders: treat each folder as one input (a track).
      data_dir: folder of prepared data sets; None for the default.
      bands: how files become images.
      scenes: whether the inputs are scenes, whose map coordinates are wanted.

    Raises:
      ValueError: there is no such path or data set, or an archive is of a kind that cannot be read
        or holds chips of several files.
    """
    sources: list[Source] = []
    for name in arguments:
        if name.startswith(PREFIX):
            sources += splits_of(name, data_dir)
        elif not os.path.exists(name):
            raise MissingFileError(f"{name}: there is no such file or folder")
        elif folders:
            sources.append(File(name))
        elif os.path.isdir(name):
            tables = tables_of(name)
            for table in tables:
                table.counted_as = source_of(name)
            sources += tables or [Folder(name, bands)]
        elif is_table(name):
            sources.append(Table(name))
        elif name.lower().endswith(TABLES):
            sources.append(Paths(name))
        elif is_archive(name):
            if bands.files:
                raise ValueError(
                    f"{name}: a chip is in several files (files={','.join(bands.files)}), which "
                    "are read from folders: unpack the archive"
                )
            sources.append(Archive(name, scenes=scenes))
        else:
            archive.check_kind(Path(name))
            sources.append(File(name))
    return sources
