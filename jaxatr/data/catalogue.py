"""A data set by its name: the embedded one, a folder of images, a prepared one, or any of TFDS."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from jaxatr.data import (
    aircraft,
    aircraft_records,
    archive,
    cache,
    dsiac_records,
    image_folder,
    index,
    mstar_records,
    simulated_records,
    tfds_sets,
    walk,
)
from jaxatr.data.dataset import Dataset
from jaxatr.data.images import ImageError
from jaxatr.resolve import nearest

IMAGE_FOLDER, DSIAC, MSTAR = "image_folder", "dsiac", "mstar"
AIRCRAFT = "fgvc_aircraft"
# Raised when a builder would write other records from the same source.
_IMAGE_FOLDER_VERSION = 1


def open_dataset(
    name: str,
    *,
    data_dir: str | os.PathLike | None = None,
    source: str | os.PathLike | None = None,
    options: Mapping[str, Any] | None = None,
    skip_corrupt: bool = False,
) -> Dataset:
    """Returns a data set, prepared on first use; nothing is ever downloaded.

    Args:
      name: ``"simulated"`` or ``"simulated_tracks"``; ``"image_folder"``, ``"dsiac"``,
        ``"mstar"`` or ``"fgvc_aircraft"`` (with ``source``); the name that one of these was
        prepared under; or a TFDS name that :func:`prepare` has prepared.
      data_dir: where prepared sets lie; by default ``$JAXATR_DATA_DIR``, else ``jaxatr/data`` in
        the user's cache folder.
      source: for ``image_folder``, the folder or archive of class folders; for ``dsiac``, the
        database's folder; for ``mstar``, a folder of raw chips, or class folders; for
        ``fgvc_aircraft``, the folder that its archive unpacks to. What was prepared from it is used
        again until a file in it is added, removed or changed.
      options: for ``simulated``, arguments of :func:`jaxatr.data.simulated.generate`; for
        ``simulated_tracks``, of :func:`jaxatr.data.simulated.generate_tracks`; for
        ``image_folder``, ``test_fraction`` (see :func:`jaxatr.data.image_folder.scan`); for
        ``dsiac``, ``mstar`` and ``fgvc_aircraft``, ``OPTIONS`` of
        :mod:`jaxatr.data.dsiac_records`, :mod:`jaxatr.data.mstar_records` and
        :mod:`jaxatr.data.aircraft_records`.
      skip_corrupt: leave corrupt images, clips and chips out and list them in ``Dataset.skipped``.

    Raises:
      ValueError: there is no such set, its source is missing, empty or of one class, or it has to
        be downloaded first.
      ImageError: an image is corrupt; the message names it.
    """
    return _open(name, data_dir, source, options, skip_corrupt)


def prepare(
    name: str,
    *,
    data_dir: str | os.PathLike | None = None,
    source: str | os.PathLike | None = None,
    options: Mapping[str, Any] | None = None,
    skip_corrupt: bool = False,
    as_name: str | None = None,
) -> Dataset:
    """Returns :func:`open_dataset`'s data set, and downloads one of TFDS if it has to.

    Args:
      name: as there.
      data_dir: as there.
      source: as there.
      options: as there.
      skip_corrupt: as there.
      as_name: name to open what is made of a ``source`` by from now on.

    Raises:
      ValueError: as there; or the name is taken, or cannot be a folder's.
      ImageError: as there.
    """
    if as_name is not None:
        if name not in _BUILDERS:
            raise ValueError(
                f"only one of {', '.join(_BUILDERS)} can be given a name, and {name!r} has one"
            )
        if not re.fullmatch(r"\w[\w.-]*", as_name):
            raise ValueError(f"a name is letters, digits, '_', '.' and '-', got {as_name!r}")
        if as_name in (*simulated_records.KINDS, *_BUILDERS) or tfds_sets.exists(as_name):
            raise ValueError(f"{as_name!r} is already the name of another data set: choose another")
    return _open(name, data_dir, source, options, skip_corrupt, as_name, download=True)


def _open(
    name: str,
    data_dir: str | os.PathLike | None,
    source: str | os.PathLike | None,
    options: Mapping[str, Any] | None,
    skip_corrupt: bool,
    as_name: str | None = None,
    *,
    download: bool = False,
) -> Dataset:
    root = Path(data_dir).expanduser() if data_dir is not None else cache.default_data_dir()
    options = dict(options or {})
    _check_source(name, source, root, prepares=download)
    if name in simulated_records.KINDS:
        return index.load(_simulated(name, root / name, options), name)
    if source is not None:
        place, build = root / (as_name or name), _BUILDERS[name]
        found = build(place, Path(source).expanduser().absolute(), options, skip_corrupt)
        return index.load(found, as_name or name)
    if options:
        raise ValueError(f"{name!r} takes no options, got {sorted(options)}")
    if (last := cache.current(root / name)) is not None:
        return index.load(_renewed(last), name)
    if tfds_sets.exists(name):
        return index.load(tfds_sets.prepared(name, root, download=download), name)
    choices = sorted({*simulated_records.KINDS, *_BUILDERS, *cache.names(root)})
    raise ValueError(
        f"there is no data set {name!r}{nearest(name, [*choices, *tfds_sets.names()])} "
        f"(there are {', '.join(choices)} in {root}, and those of TFDS)"
    )


def _check_source(name: str, source: Any, root: Path, *, prepares: bool) -> None:
    if source is not None and name not in _BUILDERS:
        raise ValueError(
            f"{name!r} takes no source; {', '.join(_BUILDERS)} do{nearest(name, _BUILDERS)}"
        )
    # The others are opened without one once they are prepared.
    needed = name == IMAGE_FOLDER or prepares or cache.current(root / name) is None
    if source is None and name in _BUILDERS and needed:
        what = "the folder or archive of class folders" if name == IMAGE_FOLDER else "its folder"
        raise ValueError(
            f"{name} needs a source, {what} "
            "(--config.data.source=PATH in a configuration, --source=PATH for jaxatr.prepare)"
        )


def _simulated(name: str, folder: Path, options: dict[str, Any]) -> Path:
    kind = simulated_records.KINDS[name]
    _check_options(name, options, kind.options)
    settings = {**kind.options, **options}
    signature = _signature(name, kind.version, settings)

    def make(directory: Path) -> Path:
        made, facts = simulated_records.write(name, directory, settings)
        index.write_index(made, facts, facts["keys"])
        return made

    return cache.prepared(folder, signature, make)


def _folder(folder: Path, source: Path, options: dict[str, Any], skip_corrupt: bool) -> Path:
    _check_options(IMAGE_FOLDER, options, ("test_fraction",))
    scanned = None
    if source.is_file() and archive.is_archive(source):
        status = source.stat()
        dates = [status.st_mtime_ns, status.st_ctime_ns]
        state: Any = [source.name, status.st_size, *dates, options]
    else:
        scanned = image_folder.scan(source, **options)
        state = scanned.signature()

    def make(directory: Path) -> Path:
        images = scanned or _unpacked(source, directory / "source", options)
        made, skipped = image_folder.write(images, directory, skip_corrupt=skip_corrupt)
        facts = {
            "classes": images.classes,
            "coarse_classes": images.coarse_classes,
            "fine_to_coarse": images.fine_to_coarse,
            "skipped": skipped,
            "source": str(source),
            "options": options,
        }
        index.write_index(made, facts, {key: key for key in images.keys()})
        return made

    found = cache.prepared(folder, _signature(IMAGE_FOLDER, _IMAGE_FOLDER_VERSION, state), make)
    left_out = (index.description(found) or {}).get("skipped")
    if left_out and not skip_corrupt:
        raise ImageError(
            f"{left_out[0][1]} ({len(left_out)} such files were left out when this "
            "was prepared with skip_corrupt)"
        )
    return found


def _dsiac(folder: Path, source: Path, options: dict[str, Any], skip_corrupt: bool) -> Path:
    paths = walk.files(source)
    return _of_files(DSIAC, dsiac_records, folder, source, paths, options, skip_corrupt)


def _mstar(folder: Path, source: Path, options: dict[str, Any], skip_corrupt: bool) -> Path:
    """Prepares raw chips, or class folders where there are none."""
    paths = mstar_records.raw_chips(source, walk.files(source)) if source.is_dir() else []
    if not paths:
        return _folder(folder, source, options, skip_corrupt)
    return _of_files(MSTAR, mstar_records, folder, source, paths, options, skip_corrupt)


def _aircraft(folder: Path, source: Path, options: dict[str, Any], skip_corrupt: bool) -> Path:
    source = aircraft.data_folder(source)
    paths = aircraft_records.used(walk.files(source))
    return _of_files(AIRCRAFT, aircraft_records, folder, source, paths, options, skip_corrupt)


def _of_files(
    name: str,
    builder: Any,
    folder: Path,
    source: Path,
    paths: list[PurePosixPath],
    options: dict[str, Any],
    skip_corrupt: bool,
) -> Path:
    """Prepares files by a module that has ``OPTIONS``, ``VERSION``, ``checked`` and ``write``."""
    _check_options(name, options, builder.OPTIONS)
    settings = builder.checked(options)
    state = [walk.state(source, paths), settings, skip_corrupt]
    origin = {
        "builder": name,
        "source": str(source),
        "options": options,
        "skip_corrupt": skip_corrupt,
    }

    def make(directory: Path) -> Path:
        made, facts = builder.write(source, paths, directory, settings, skip_corrupt=skip_corrupt)
        index.write_index(made, facts | origin, facts["keys"])
        return made

    return cache.prepared(folder, _signature(name, builder.VERSION, state), make)


_BUILDERS: dict[str, Callable[[Path, Path, dict[str, Any], bool], Path]] = {
    IMAGE_FOLDER: _folder,
    DSIAC: _dsiac,
    MSTAR: _mstar,
    AIRCRAFT: _aircraft,
}


def _unpacked(source: Path, directory: Path, options: dict[str, Any]) -> image_folder.ImageFolder:
    archive.extract(source, directory)
    return image_folder.scan(image_folder.single_folder(directory), **options)


def _renewed(directory: Path) -> Path:
    """Returns the named set, made anew from its source where that is there and has changed."""
    facts = index.description(directory) or {}
    source = Path(facts.get("source", ""))
    if not facts.get("source") or not source.exists():
        return directory
    skip_corrupt = facts.get("skip_corrupt", bool(facts["skipped"]))
    build = _BUILDERS[facts.get("builder", IMAGE_FOLDER)]
    return build(directory.parent, source, facts["options"], skip_corrupt)


def _signature(*state: Any) -> str:
    text = json.dumps([index.INDEX_VERSION, *state], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_options(name: str, options: Mapping[str, Any], known: Collection[str]) -> None:
    for option in options:
        if option not in known:
            raise ValueError(f"{name} has no option {option!r}{nearest(option, known)}")
