"""Class folders of image files, or an archive of them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jaxatr.data.images import ImageError, decode_image
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
from jaxatr.data.sources.image_folder import archive
from jaxatr.data.sources.image_folder.folder import ImageFolder, scan, single_folder


class ImageFolderSource(Source):
    """Anybody's images, their classes and splits by the folders they are in."""

    name = "image_folder"
    version = 1
    takes = "the folder or archive of class folders"
    any_data = True
    options = {
        "test_fraction": Option(
            0.2, "share of each class that becomes the test split where there are no split folders"
        )
    }

    def scan(self, request: Request) -> Scan:
        """Lists a folder's images; of an archive, it looks at name, size and dates alone."""
        path, skip_corrupt = request.path, request.skip_corrupt
        settings = all_options(self, request.options)
        if path.is_file() and archive.is_archive(path):
            status = path.stat()
            state = [path.name, status.st_size, status.st_mtime_ns, status.st_ctime_ns]

            def unpacked(scratch: Path) -> Contents:
                archive.extract(path, scratch / "source")
                return _contents(scan(single_folder(scratch / "source"), **settings), skip_corrupt)

            return Scan(self, settings, [*state, dict(request.options)], unpacked)
        found = scan(path, **settings)
        return Scan(self, settings, found.signature(), lambda _: _contents(found, skip_corrupt))


SOURCE = ImageFolderSource()


def _contents(folder: ImageFolder, skip_corrupt: bool) -> Contents:
    """Returns the images of a folder, corrupt ones left out and listed on request.

    Raises:
      ImageError: no image's type can be told, as the first is corrupt.
      ValueError: all images are.
    """
    dtype = _first_dtype(folder, skip_corrupt)
    skipped: list[tuple[str, str]] = []

    def examples(split: str, start: int) -> Iterator[Example]:
        kept = 0
        for number, (path, label) in enumerate(folder.files[split], start):
            try:
                image = _read(folder.root, path)
            except ImageError as error:
                if not skip_corrupt:
                    raise
                skipped.append((path, str(error)))
                continue
            if image.dtype != dtype:
                raise ValueError(
                    f"{folder.root / path} is {image.dtype} and others are {dtype}: "
                    "a data set has one dtype"
                )
            example = {"image": image, "label": label, "id": number, "path": path}
            if folder.fine_to_coarse is not None:
                example["coarse"] = folder.fine_to_coarse[label]
            kept += 1
            yield example
        if not kept:
            raise ValueError(
                f"{folder.root}: no image of split {split!r} can be read ({skipped[-1][1]})"
            )

    features = {
        "image": Feature(dtype, (None, None, None)),
        "label": Feature(np.int32),
        "id": Feature(np.int32),
        "path": Feature(str),
    }
    if folder.fine_to_coarse is not None:
        features["coarse"] = Feature(np.int32)
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
    )


def _read(root: Path, path: str) -> np.ndarray:
    try:
        content = (root / path).read_bytes()
    except OSError as error:
        raise ImageError(f"{root / path}: {error.strerror}") from error
    return decode_image(content, str(root / path))


def _first_dtype(folder: ImageFolder, skip_corrupt: bool) -> np.dtype:
    reason = ""
    for files in folder.files.values():
        for path, _ in files:
            try:
                return _read(folder.root, path).dtype
            except ImageError as error:
                if not skip_corrupt:
                    raise
                reason = str(error)
    raise ValueError(f"{folder.root}: none of its images can be read ({reason})")
