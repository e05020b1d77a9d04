"""The data source for arrays in memory, which a training keeps in its run's folder."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jaxatr.data.class_names import class_name
from jaxatr.data.selection import holdout
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
from jaxatr.files import MissingFileError, load_arrays, replacing
from jaxatr.typing import Shaped

_DTYPES = ("uint8", "uint16", "float32")


class ArraySource(Source):
    """Images and the names of their classes, in one ``.npz`` file."""

    name = "arrays"
    version = 1
    takes = "an .npz file with images [n, h, w, c], labels [n] and perhaps parts [n]"
    any_data = True
    options = {
        "test_fraction": Option(
            0.2, "without parts: share of each class that is used for the test, drawn at random"
        ),
    }

    def scan(self, request: Request) -> Scan:
        """Reads the file and checks its arrays."""
        settings, path = all_options(self, request.options), request.path
        if not path.is_file():
            raise MissingFileError(f"there is no file {path}")
        found = load_arrays(path)
        if not {"images", "labels"} <= set(found):
            raise ValueError(f"{path}: got {', '.join(found)}, wanted images and labels")
        images, labels = checked(found["images"], found["labels"])
        parts = found.get("parts")
        if parts is None:
            numbers = np.unique(labels, return_inverse=True)[1]
            _, test = holdout(numbers, settings["test_fraction"], seed=0)
            parts = np.where(np.isin(np.arange(len(labels)), test), "test", "train")
        state = hashlib.sha256(images.tobytes() + "\0".join(labels).encode()).hexdigest()
        state = [state, images.shape, images.dtype.name, *map(str, parts)]
        return Scan(self, settings, state, lambda _: _contents(images, labels, parts))


PART = ArraySource()


def checked(
    images: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[Shaped[np.ndarray, "n h w c"], Shaped[np.ndarray, " n"]]:
    """Checks images and the names of their classes, and adds a missing axis of channels.

    Args:
      images: ``[n, h, w]`` or ``[n, h, w, c]``, uint8, uint16 or float32.
      labels: ``[n]``, names or numbers of the classes.

    Raises:
      ValueError: shapes, dtypes or values do not fit.
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or str(images.dtype) not in _DTYPES:
        raise ValueError(
            f"data: got images of shape {list(images.shape)} and {images.dtype}, wanted [n, h, w] "
            f"or [n, h, w, c] of {', '.join(_DTYPES)}"
        )
    if labels.shape != images.shape[:1] or not len(labels):
        raise ValueError(
            f"data: got {len(images)} images and labels of shape {list(labels.shape)}, wanted a "
            "label for each of at least one image"
        )
    if images.dtype == np.float32 and not np.isfinite(images).all():
        raise ValueError("data: got images with values that are not finite")
    names = [_named(label) for label in labels]
    if "" in names:
        row = names.index("")
        raise ValueError(f"data: label {row} is {str(labels[row])!r}, wanted the name of a class")
    return images, np.array(names)


def _named(label: object) -> str:
    """Returns the name of a class; empty for a label that is missing, None or NaN."""
    if isinstance(label, bytes):
        label = label.decode()
    return "" if label is None or label != label else class_name(str(label))


def write(
    path: str | os.PathLike,
    train: tuple[npt.ArrayLike, npt.ArrayLike],
    test: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    *,
    keep: bool = False,
) -> None:
    """Writes the file of this source.

    Args:
      path: the file.
      train: images and labels (:func:`checked`).
      test: images and labels of the test; None to draw it from ``train``.
      keep: whether a file that exists is in use, so that it has to have the same content.

    Raises:
      ValueError: shapes, dtypes or values do not fit, or the file is to be kept and has others.
    """
    images, labels = checked(*train)
    parts = np.repeat("train", len(images))
    if test is not None:
        more, names = checked(*test)
        if more.shape[1:] != images.shape[1:] or more.dtype != images.dtype:
            raise ValueError(
                f"test: got images of {list(more.shape[1:])} and {more.dtype}, wanted "
                f"{list(images.shape[1:])} and {images.dtype} as in data"
            )
        images, labels = np.concatenate([images, more]), np.concatenate([labels, names])
        parts = np.append(parts, np.repeat("test", len(more)))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    arrays = {"images": images, "labels": labels}
    if test is not None:
        arrays["parts"] = parts
    if keep and Path(path).exists():
        kept = load_arrays(path)
        if kept.keys() != arrays.keys() or not all(
            kept[name].dtype == own.dtype and np.array_equal(kept[name], own)
            for name, own in arrays.items()
        ):
            raise ValueError(
                f"data: {Path(path).parent} has a run on other images or labels: use another "
                "workdir"
            )
        return
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def _contents(images: np.ndarray, labels: np.ndarray, parts: np.ndarray) -> Contents:
    classes = sorted(set(labels.tolist()))
    if len(classes) == 1:
        raise ValueError(f"data: got only the class {classes[0]!r}, wanted two or more")
    number = {name: place for place, name in enumerate(classes)}

    def examples(part: str) -> Iterator[Example]:
        for row in np.flatnonzero(parts == part).tolist():
            yield {"image": images[row], "label": number[labels[row]], "id": row}

    features = {
        "image": Feature(images.dtype, (None, None, None)),
        "label": Feature(np.int32),
        "id": Feature(np.int32),
    }
    names = sorted(set(parts.tolist()))
    splits = {part: (lambda part=part: examples(part)) for part in names}
    return Contents(classes=classes, features=features, splits=splits, total=len(labels))
