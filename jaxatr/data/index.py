"""The index stored with a set's records: its classes, columns and fingerprint."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr.data.bands import Bands
from jaxatr.data.class_names import class_name
from jaxatr.data.dataset import SCENE_ARRAYS, SHAPE_COLUMNS, Dataset, Split
from jaxatr.data.decoder.pillow import opened
from jaxatr.data.images import decode_image
from jaxatr.data.records import tfds
from jaxatr.files import replacing
from jaxatr.typing import Shaped

# Increase this when the index's content changes; indices of other versions are written again.
INDEX_VERSION = 1
_FILE = "jaxatr.json"


class _Records:
    """The records of one split with this package's feature names; images are ``[h, w, c]``.

    Args:
      builder: TFDS's builder of a prepared set.
      split: the split's name.
      keys: this package's feature names to those in the records.
      headers_only: return encoded images as bytes, without decoding them.
    """

    def __init__(
        self, builder: Any, split: str, keys: Mapping[str, str], *, headers_only: bool = False
    ):
        feature = builder.info.features[keys["image"]]
        # TFDS would decode with any library it finds; here it is always Pillow.
        self._encoded = _is_encoded(feature)
        self.channels = feature.shape[-1] if self._encoded else None
        decoders = {keys["image"]: tfds().decode.SkipDecoding()} if self._encoded else None
        self._source = builder.as_data_source(split, decoders=decoders)
        self._keys, self._headers_only = keys, headers_only
        self._directory, self._where = Path(builder.data_path), f"{builder.data_path} {split}"

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> dict[str, Any]:
        with _intact(self._directory):
            record = self._source[index]
        example = {name: record[key] for name, key in self._keys.items()}
        if self._encoded and not self._headers_only:
            example["image"] = self._decode(example["image"], index)
        return example

    def _decode(self, content: bytes, index: int) -> np.ndarray:
        image = decode_image(content, f"{self._where} record {index}")
        return np.repeat(image, 3, axis=2) if self.channels == 3 > image.shape[2] else image


def _is_encoded(feature: Any) -> bool:
    # TFDS stores a float image as a PNG of its bits, which only TFDS can read.
    return isinstance(feature, tfds().features.Image) and feature.np_dtype != np.float32


def write_index(directory: Path, facts: Mapping[str, Any], keys: Mapping[str, str]) -> None:
    """Reads every record once and writes the columns of each split and the set's description.

    Args:
      directory: folder of a set prepared by TFDS.
      facts: ``classes``, ``coarse_classes``, ``fine_to_coarse`` and any further entries to store.
      keys: this package's feature names to those in the records.
    """
    builder: Any = tfds().builder_from_directory(directory)
    digest = hashlib.sha256(json.dumps([facts["classes"], facts["coarse_classes"]]).encode())
    start, pairs = 0, set()
    for split in sorted(builder.info.splits):
        columns = _columns(_Records(builder, split, keys, headers_only=True), digest, start)
        with replacing(directory / f"jaxatr-{split}.npz") as file:
            np.savez(file, allow_pickle=False, **columns)
        start += len(columns["label"])
        if "coarse" in columns:
            pairs.update(zip(columns["label"].tolist(), columns["coarse"].tolist(), strict=True))
    description = {
        **facts,
        "fine_to_coarse": facts["fine_to_coarse"] or _in_order(pairs, facts),
        "index_version": INDEX_VERSION,
        "version": str(builder.version),
        "keys": dict(keys),
        "dtype": np.dtype(builder.info.features[keys["image"]].np_dtype).name,
        "splits": sorted(builder.info.splits),
        "fingerprint": digest.hexdigest(),
    }
    # Written last and atomically: if this file exists, the index is complete.
    with replacing(directory / _FILE) as file:
        file.write(json.dumps(description, indent=1).encode())


def _in_order(pairs: Set[tuple[int, int]], facts: Mapping[str, Any]) -> list[int] | None:
    """Returns the coarse class of each class, from the labels of all examples.

    Raises:
      ValueError: a class has no examples, or those of several coarse classes.
    """
    if facts["coarse_classes"] is None or not pairs:
        return None
    found: list[int] = []
    for label, name in enumerate(facts["classes"]):
        own = [coarse for fine, coarse in pairs if fine == label]
        if len(own) != 1:
            raise ValueError(
                f"coarse: the examples of {name} have {len(own)} coarse classes, wanted one; a "
                "source may give fine_to_coarse instead"
            )
        found += own
    return found


def _columns(records: _Records, digest: Any, start: int) -> dict[str, np.ndarray]:
    values: dict[str, list] = {}
    for index in range(len(records)):
        example = records[index]
        image = example.pop("image")
        digest.update(image)
        shape = image.shape if isinstance(image, np.ndarray) else _header(image, records.channels)
        example = {"id": start + index, **example, **dict(zip(SHAPE_COLUMNS, shape, strict=True))}
        for name, value in example.items():
            if not np.ndim(value):
                values.setdefault(name, []).append(value)
            elif name in SCENE_ARRAYS:
                digest.update(f"{name}{value.tolist()}".encode())
    columns = {name: _column(column) for name, column in values.items()}
    for name in sorted(columns):
        digest.update(f"{name}{columns[name].tolist()}".encode())
    return columns


def _column(values: list) -> np.ndarray:
    if isinstance(values[0], bytes):
        return np.array([value.decode() for value in values])
    column = np.array(values)
    if column.dtype.kind == "f" and not isinstance(values[0], np.ndarray):
        return column.astype(np.float32)  # float64 is stored as an array
    limits = np.iinfo(np.int32)
    fits = column.dtype.kind == "i" and limits.min <= column.min() and column.max() <= limits.max
    return column.astype(np.int32) if fits else column


def _header(content: bytes, channels: int | None) -> tuple[int, int, int]:
    with opened(content) as image:
        found = 1 if image.mode in ("1", "L", "LA", "I;16", "I;16B", "I") else 3
        return image.height, image.width, max(found, min(channels or 1, 3))


def description(directory: Path) -> dict[str, Any] | None:
    """Returns the description written by :func:`write_index`, or None without a current index.

    Raises:
      ValueError: it is damaged.
    """
    if not (directory / _FILE).exists():
        return None
    with _intact(directory):
        found = json.loads((directory / _FILE).read_bytes())
        return found if found["index_version"] == INDEX_VERSION else None


@contextlib.contextmanager
def _intact(directory: Path) -> Iterator[None]:
    """Names the folder of a set in the errors of its damaged files, which are of any kind.

    Raises:
      ValueError: the body raised an error that is due to the files.
    """
    try:
        yield
    except (ImportError, IndexError, MemoryError, PermissionError):
        raise
    except Exception as error:
        raise ValueError(
            f"{directory}: a damaged set ({type(error).__name__}: {error}): delete this folder and "
            "prepare the set again"
        ) from error


def images_of(directory: Path, split: str) -> Sequence[Shaped[np.ndarray, "h w c"]]:
    """Returns a split's images as a sequence that reads each one on access.

    No column is loaded, so memory use does not depend on the split's size.

    Raises:
      ValueError: the folder has no set, or the set has no such split.
    """
    found = _described(directory)
    if split not in found["splits"]:
        raise ValueError(f"{directory}: got split {split!r}, wanted one of {found['splits']}")
    keys = {"image": found["keys"]["image"]}
    with _intact(directory):
        return _Images(_Records(tfds().builder_from_directory(directory), split, keys))


class _Images(Sequence):
    def __init__(self, records: _Records):
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: Any) -> Any:
        return self._records[number]["image"]


def _described(directory: Path) -> dict[str, Any]:
    if (found := description(directory)) is None:
        raise ValueError(f"{directory} has no set that this version can read: prepare it again")
    return found


def load(directory: Path, name: str) -> Dataset:
    """Loads the data set in ``directory`` with its index.

    Raises:
      ValueError: it was written by another version, or is damaged.
    """
    found = _described(directory)
    with _intact(directory):
        return _loaded(directory, name, found)


def _loaded(directory: Path, name: str, found: Mapping[str, Any]) -> Dataset:
    builder = tfds().builder_from_directory(directory)
    classes = tuple(map(class_name, found["classes"]))
    coarse = found["coarse_classes"] and tuple(map(class_name, found["coarse_classes"]))
    splits = {}
    for split in found["splits"]:
        with np.load(directory / f"jaxatr-{split}.npz", allow_pickle=False) as file:
            columns = {key: file[key] for key in file.files}
        records = _Records(builder, split, found["keys"])
        splits[split] = Split(split, records, columns, classes, np.dtype(found["dtype"]))
    return Dataset(
        name=name,
        version=found["version"],
        classes=classes,
        coarse_classes=coarse,
        fine_to_coarse=None if coarse is None else tuple(found["fine_to_coarse"]),
        fingerprint=found["fingerprint"],
        splits=splits,
        skipped=tuple((path, why) for path, why in found.get("skipped", ())),
        directory=directory,
        notes=tuple(found.get("notes", ())),
        bands=Bands.of_fields(found.get("bands", {})),  # early sets have none
    )
