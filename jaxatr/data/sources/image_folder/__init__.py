"""The data source for class folders, a table of image files, or an archive of either."""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr.data import archive
from jaxatr.data.bands import PLAIN, Bands, endings, listed_names
from jaxatr.data.image_paths import describe_kind
from jaxatr.data.images import ImageError
from jaxatr.data.reasons import Reasons
from jaxatr.data.source import (
    Contents,
    Example,
    Feature,
    Option,
    Request,
    Scan,
    Source,
    all_options,
)
from jaxatr.data.sources.image_folder import table
from jaxatr.data.sources.image_folder.folder import (
    Found,
    ImageFolder,
    divided,
    find,
)
from jaxatr.data.sources.image_folder.layouts import LAYOUTS

_LISTED = 10  # damaged files listed in an error
_READING = 2  # raised when the folders in an archive are read differently


class ImageFolderSource(Source):
    """A user's images, with classes and splits given by folders or by a table."""

    name = "image_folder"
    version = 1
    takes = "the folder or archive of class folders, or a table of images"
    any_data = True
    options = {
        "test_fraction": Option(
            0.2, "if there are no split folders: share of each class that is used for the test"
        ),
        "layout": Option("", f"meaning of the folders: {', '.join(LAYOUTS)}; empty: inferred"),
        "table": Option(
            "", "CSV or Parquet file that lists the images; a path inside the folder or archive"
        ),
        "files": Option(
            "",
            "endings of the files that hold a chip's bands, such as _vis.png,_ir.png; empty: each "
            "file is a chip",
        ),
        "band_names": Option("", "names of the bands, with commas; empty: those in the files"),
        "phase": Option(False, "make two bands of complex values, magnitude and phase"),
    }

    def scan(self, request: Request) -> Scan:
        """Lists a folder's images; for an archive, checks only its name, size and dates."""
        path, skip_corrupt = request.path, request.skip_corrupt
        settings = all_options(self, request.options)
        if path.is_file() and archive.is_archive(path):
            status = path.stat()
            state = [path.name, status.st_size, status.st_mtime_ns, status.st_ctime_ns]

            def unpacked(scratch: Path) -> Contents:
                return _contents(image_folder(path, settings, scratch / "source"), skip_corrupt)

            _bands(settings)  # before the archive is unpacked
            return Scan(self, settings, [*state, dict(request.options), _READING], unpacked)
        found = image_folder(path, settings)
        return Scan(self, settings, found.signature(), lambda _: _contents(found, skip_corrupt))


PART = ImageFolderSource()


def image_folder(
    path: Path, settings: Mapping[str, Any], scratch: Path | None = None
) -> ImageFolder:
    """Lists the images at a path with their classes and splits.

    Args:
      path: the folder, table or archive.
      settings: all options of the source.
      scratch: folder to extract an archive into; without it, archives are refused.

    Raises:
      ValueError: there is no usable data at the path, or an option does not fit.
    """
    bands = _bands(settings)
    found = labelled_images(
        path, scratch, layout=settings["layout"], table_name=settings["table"], bands=bands
    )
    if bands.files and not any(one.path.endswith(bands.files) for one in found.listed):
        raise ValueError(
            f"files: got {','.join(bands.files)}, but no image in {found.shown} ends so, "
            f"for example {found.listed[0].path}; upper and lower case differ"
        )
    with archive.naming(found.root, found.shown):
        return divided(found, settings["test_fraction"])


def _bands(settings: Mapping[str, Any]) -> Bands:
    """Reads the options about bands, which early sets lack."""
    names, files = settings.get("band_names", ""), settings.get("files", "")
    return Bands(listed_names(names), endings(files), settings.get("phase", False))


def labelled_images(
    path: Path,
    scratch: Path | None = None,
    *,
    layout: str = "",
    table_name: str = "",
    bands: Bands = PLAIN,
) -> Found:
    """Lists the images at a path with their classes, of which there may be only one.

    Args:
      path: the folder, table or archive.
      scratch: folder to extract an archive into; without it, archives are refused.
      layout: the folders' meaning; empty to infer it.
      table_name: path of a table inside the folder or archive.
      bands: how files become images.

    Raises:
      ValueError: there is no usable data at the path, or an option does not fit.
    """
    if scratch is not None and path.is_file() and archive.is_archive(path):
        archive.extract(path, scratch)
        with archive.naming(scratch, path):
            found = find(scratch, layout=layout, table_name=table_name, inside=True, bands=bands)
        found = found._replace(shown=path / found.root.relative_to(scratch))
    else:
        root = path
        if path.is_file() and table.is_table(path):
            if table_name:
                raise ValueError(f"table: {path} is a table itself: leave the option out")
            root, table_name = path.parent, path.name
        found = find(root, layout=layout, table_name=table_name, bands=bands)
    if found.assumed:
        warnings.warn(
            f"{path}: taken for {found.assumed}; the option layout sets another meaning",
            stacklevel=2,
        )
    return found


def labelled_truth(path: Path, scratch: Path, bands: Bands = PLAIN) -> Found:
    """Lists the images at a path with their true classes (:func:`labelled_images`).

    Args:
      path: the folder, table or archive.
      scratch: folder to extract an archive into.
      bands: how files become images.

    Raises:
      ValueError: there is no usable data at the path, or its labels are predictions.
    """
    if path.is_file() and table.is_table(path):
        table.check_truth(path)
    return labelled_images(path, scratch, bands=bands)


def unreadable(folder: ImageFolder) -> list[tuple[str, str]]:
    """Reads all images of a folder, and returns (path, reason) of those that cannot be read."""
    found = []
    for _, files in sorted(folder.files.items()):
        for path, _ in files:
            try:
                read(folder, path)
            except ImageError as error:
                found.append((path, _reason(folder, path, error)))
    return found


def _reason(folder: ImageFolder, path: str, error: ImageError) -> str:
    """Returns an error's message without the image's path."""
    return str(error).removeprefix(f"{folder.shown / path}: ")


def _refused(folder: ImageFolder) -> ImageError:
    """Creates an error that names the images that cannot be read."""
    found = unreadable(folder)
    hint = "--skip_corrupt, in a training --config.data.skip_corrupt=true, leaves"
    if len(found) == 1:
        path, why = found[0]
        return ImageError(f"{folder.shown / path}: {why}; {hint} it out")
    listed = "; ".join(f"{folder.shown / path}: {why}" for path, why in found[:_LISTED])
    more = f"; and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return ImageError(f"{len(found)} images cannot be read ({hint} them out): {listed}{more}")


def _contents(folder: ImageFolder, skip_corrupt: bool) -> Contents:
    """Returns the images of a folder, with corrupt ones left out and listed on request.

    Raises:
      ImageError: an image is corrupt and must not be left out.
      ValueError: all images are corrupt.
    """
    first, names = _first(folder, skip_corrupt)
    dtype, count = first.dtype, first.shape[2]
    given = folder.bands.names
    if given and len(given) != count:
        raise ValueError(
            f"band_names: got {len(given)} names, {', '.join(given)}, but the images have {count} "
            "bands"
        )
    skipped: list[tuple[str, str]] = []

    def examples(split: str, start: int) -> Iterator[Example]:
        kept = 0
        for number, (path, label) in enumerate(folder.files[split], start):
            try:
                image, own = folder.bands.read_named(folder.root / path, str(folder.shown / path))
            except ImageError as error:
                if not skip_corrupt:
                    raise _refused(folder) from error
                skipped.append((path, _reason(folder, path, error)))
                continue
            if {image.shape[2], count} - {1, 3} and (image.shape[2] != count or own != names):
                raise ValueError(
                    f"{folder.shown / path} has {_described(image, own)} and others have "
                    f"{_described(first, names)}, but a data set has the same bands in all images; "
                    "jaxatr check counts them by bands"
                )
            if image.dtype != dtype:
                raise ValueError(
                    f"{folder.shown / path} is {image.dtype} and others are {dtype}, but a data "
                    "set has one dtype: convert the images; jaxatr check counts them by dtype"
                )
            example = {"image": image, "label": label, "id": number, "path": path}
            if folder.fine_to_coarse is not None:
                example["coarse"] = folder.fine_to_coarse[label]
            if folder.groups:
                example["group"] = folder.groups[path]
            kept += 1
            yield example
        if not kept:
            raise ValueError(
                f"{folder.shown}: no image of split {split!r} can be read ({skipped[-1][1]})"
            )

    features = {
        "image": Feature(dtype, (None, None, None)),
        "label": Feature(np.int32),
        "id": Feature(np.int32),
        "path": Feature(str),
    }
    if folder.fine_to_coarse is not None:
        features["coarse"] = Feature(np.int32)
    if folder.groups:
        features["group"] = Feature(str)
    splits, total = {}, 0
    for split, files in sorted(folder.files.items()):
        splits[split] = lambda split=split, start=total: examples(split, start)
        total += len(files)
    return Contents(
        classes=folder.classes,
        coarse_classes=folder.coarse_classes,
        fine_to_coarse=folder.fine_to_coarse,
        features=features,
        splits=splits,
        total=total,
        skipped=skipped,
        left_out=passed_over(folder),
        bands=folder.bands._replace(names=given or names),
    )


def _described(image: np.ndarray, names: tuple[str, ...]) -> str:
    count = image.shape[2]
    named = f" ({', '.join(names)})" if names else ""
    return f"{count} band{'s' if count > 1 else ''}{named}"


def passed_over(folder: ImageFolder) -> Reasons:
    """Counts a folder's skipped files by kind."""
    reasons = Reasons()
    for kind, paths in folder.passed:
        for path in paths:
            reasons.add(describe_kind(kind), path)
    return reasons


def read(folder: ImageFolder | Found, path: str) -> np.ndarray:
    """Reads an image of a folder.

    Raises:
      ImageError: the image cannot be read.
    """
    return folder.bands.read(folder.root / path, str(folder.shown / path))


def _first(folder: ImageFolder, skip_corrupt: bool) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns the first image that can be read, and the names of its bands."""
    reason = ""
    for files in folder.files.values():
        for path, _ in files:
            try:
                return folder.bands.read_named(folder.root / path, str(folder.shown / path))
            except ImageError as error:
                if not skip_corrupt:
                    raise _refused(folder) from error
                reason = str(error)
    raise ValueError(f"{folder.shown}: none of its images can be read ({reason})")
