"""Opens and prepares data sets by name: a source's, one prepared earlier, or one of TFDS."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import files
from jaxatr.data import cache, index, records, sources
from jaxatr.data.dataset import Dataset
from jaxatr.data.images import ImageError
from jaxatr.data.source import Contents, Feature, Request, Scan, Source
from jaxatr.data.sources import _tfds
from jaxatr.resolve import nearest, trust_names_in

REPORT = "report.json"


class NoSuchDatasetError(ValueError):
    """There is no data set with this name."""


def open_dataset(
    name: str,
    *,
    data_dir: str | os.PathLike | None = None,
    source: str | os.PathLike | None = None,
    options: Mapping[str, Any] | None = None,
    skip_corrupt: bool = False,
) -> Dataset:
    """Opens a data set, preparing it on first use; nothing is downloaded.

    Args:
      name: a source of :mod:`jaxatr.data.sources`, such as ``"simulated"`` or ``"image_folder"``
        (with ``source``); ``"my.module:Source"``, another :class:`jaxatr.data.source.Source`; the
        name under which a source was prepared; or a TFDS name that :func:`prepare` has prepared.
      data_dir: folder of the prepared sets; by default ``$JAXATR_DATA_DIR``, else ``jaxatr/data``
        in the user's cache folder.
      source: the folder or archive to read, for sources that take one. A set prepared from it is
        reused until a file in it is added, removed or changed.
      options: values of the source's options.
      skip_corrupt: leave corrupt images, clips and chips out and list them in ``Dataset.skipped``.

    Raises:
      ValueError: the set does not exist or has to be downloaded first, or its source is missing,
        empty or has only one class.
      ImageError: an image is corrupt; the message names it.
    """
    return index.load(*_found(name, data_dir, source, options, skip_corrupt))


def find_dataset(name: str, *, data_dir: str | os.PathLike | None = None) -> Path:
    """Returns the folder of a data set's records without reading its columns.

    Args:
      name: a source, a prepared set or a TFDS set, as for :func:`open_dataset`.
      data_dir: folder of the prepared sets.

    Raises:
      ValueError: the set does not exist or has to be prepared or downloaded first.
    """
    directory, _ = _found(name, data_dir, None, None, False)
    return directory


def prepare(
    name: str,
    *,
    data_dir: str | os.PathLike | None = None,
    source: str | os.PathLike | None = None,
    options: Mapping[str, Any] | None = None,
    skip_corrupt: bool = False,
    as_name: str | None = None,
) -> Dataset:
    """Opens a data set as :func:`open_dataset` does, downloading a TFDS set if necessary.

    Args:
      name: a source or a data set.
      data_dir: folder of the prepared sets.
      source: the folder or archive to read, for sources that take one.
      options: values of the source's options.
      skip_corrupt: leave damaged files out and list them.
      as_name: a name under which the set prepared from ``source`` can be opened later.

    Raises:
      ValueError: the set cannot be opened, or ``as_name`` is taken or is not a valid folder name.
      ImageError: an image is corrupt; the message names it.
    """
    trust_names_in(name)  # the user's own
    if as_name is not None:
        if not getattr(sources.find(name), "takes", ""):
            raise ValueError(
                f"only sets of {', '.join(sources.with_path())} can be given a name; {name!r} "
                "already has one"
            )
        sources.check_name(as_name)
        if as_name in sources.names() or _tfds.exists(as_name):
            raise ValueError(f"{as_name!r} is already the name of another data set: choose another")
    return index.load(
        *_found(name, data_dir, source, options, skip_corrupt, as_name, download=True)
    )


def _found(
    name: str,
    data_dir: str | os.PathLike | None,
    path: str | os.PathLike | None,
    options: Mapping[str, Any] | None,
    skip_corrupt: bool,
    as_name: str | None = None,
    *,
    download: bool = False,
) -> tuple[Path, str]:
    """Finds or prepares a data set; returns its folder and its name."""
    root = Path(data_dir).expanduser() if data_dir is not None else cache.default_data_dir()
    options = dict(options or {})
    source = sources.find(name)
    own_name = as_name or (source.name if source else name)
    place = root / own_name
    _check_path(name, source, path, is_prepared=not download and cache.current(place) is not None)
    if source and (path is not None or not source.takes):
        request = Request(Path(path or "").expanduser().absolute(), options, skip_corrupt)
        return _prepared(name, source, place, request), own_name
    if options:
        raise ValueError(f"{name!r} takes no options, got {sorted(options)}")
    if (last := cache.current(place)) is not None:
        return _renewed(last), own_name
    if _tfds.exists(name):
        return _tfds.prepared(name, root, download=download), name
    choices = sorted({*sources.names(), *cache.names(root)})
    if Path(name).exists():
        raise ValueError(f"{name!r} is a path, not a data set: image_folder takes it as its source")
    gone = "" if root.is_dir() else ", which does not exist"
    raise NoSuchDatasetError(
        f"there is no data set {name!r}{nearest(name, [*choices, *_tfds.names()])} "
        f"(there are {', '.join(choices)} in {root}{gone}, and those of TFDS)"
    )


def _check_path(name: str, source: Source | None, path: Any, *, is_prepared: bool) -> None:
    if path is not None and not (source and source.takes):
        known = sources.with_path()
        raise ValueError(f"{name!r} takes no source; {', '.join(known)} do{nearest(name, known)}")
    if path is None and source and source.takes and (source.any_data or not is_prepared):
        raise ValueError(
            f"{name} needs a source, {source.takes}: --data_source=PATH (data.source in a "
            "configuration, source= in Python)"
        )


def _prepared(name: str, source: Source, place: Path, request: Request) -> Path:
    """Returns the folder of a source's set for a request, preparing it if it is missing.

    Args:
      name: the name under which the source is found.
      source: the source.
      place: ``<data_dir>/<name of the set>``.
      request: the request to the source.
    """
    try:
        scan = source.scan(request)
    except ValueError as error:
        if not source.takes or request.path.exists() or str(request.path) not in str(error):
            raise
        raise ValueError(f"{error}; give its location by --data_source=PATH") from error
    key = name if scan.source is source else scan.source.name
    origin = {
        "builder": key,
        "source": str(request.path) if source.takes else "",
        "options": dict(request.options),
        "skip_corrupt": request.skip_corrupt,
        "settings": dict(scan.settings),
    }
    signature = _signature(key, scan.source.version, scan.state)
    found = cache.prepared(place, signature, lambda directory: _written(scan, origin, directory))
    left_out = (index.description(found) or {}).get("skipped")
    if left_out and not (request.skip_corrupt or scan.skips):
        path, why = left_out[0]
        named = why if path in why else f"{path}: {why}"
        raise ImageError(
            f"{named} ({len(left_out)} such files were left out when the set "
            "was prepared with skip_corrupt)"
        )
    return found


def _written(scan: Scan, origin: dict[str, Any], directory: Path) -> Path:
    contents = scan.contents(directory)
    _check_features(origin["builder"], contents.features)
    made = records.write(contents, directory)
    if contents.report is not None:
        report = {"source": origin["source"], "settings": origin["settings"], **contents.report()}
        report |= {
            "skipped": contents.left_out.as_dict(),
            "damaged": contents.skipped,
            "notes": contents.noted.as_dict(),
        }
        files.write_text(made / REPORT, json.dumps(report, indent=1))
    index.write_index(made, _facts(contents) | origin, {name: name for name in contents.features})
    return made


def _check_features(builder: str, features: Mapping[str, Feature]) -> None:
    """Checks the features that the package itself uses."""
    if lacks := sorted({"image", "label"}.difference(features)):
        raise ValueError(
            f"{builder}: its examples have the features {', '.join(features)}, "
            f"without {' and '.join(lacks)}"
        )
    for name, axes in (("image", 3), ("label", 0), ("id", 0)):
        given, shape = features.get(name, Feature(int))
        dtype = np.dtype(given)
        fits = dtype in (np.uint8, np.uint16, np.float32) if axes else dtype.kind in "iu"
        if len(shape) != axes or not fits:
            wanted = "[h, w, c] of uint8, uint16 or float32" if axes else "a whole number"
            raise ValueError(
                f"{builder}: {name}: got a feature of {dtype.name} and shape {shape}, "
                f"wanted {wanted}"
            )


def _facts(contents: Contents) -> dict[str, Any]:
    return {
        "classes": contents.classes,
        "coarse_classes": contents.coarse_classes,
        "fine_to_coarse": contents.fine_to_coarse,
        "skipped": contents.skipped,
        "notes": [f"left out: {line}" for line in contents.left_out.lines()]
        + [f"note: {line}" for line in contents.noted.lines()],
        "bands": contents.bands.as_dict(),
    }


def _renewed(directory: Path) -> Path:
    """Returns a named set's folder, prepared again if its source exists and has changed."""
    facts = index.description(directory) or {}
    path = Path(facts.get("source", ""))
    if not facts.get("source") or not path.exists():
        return directory
    # Early sets of image_folder have neither of these.
    name = facts.get("builder", "image_folder")
    skip_corrupt = facts.get("skip_corrupt", bool(facts["skipped"]))
    source = sources.find(name)
    if source is None:
        raise ValueError(
            f"{directory} was prepared from the source {name!r}, which no longer exists"
        )
    return _prepared(name, source, directory.parent, Request(path, facts["options"], skip_corrupt))


def _signature(*state: Any) -> str:
    text = json.dumps([index.INDEX_VERSION, *state], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
