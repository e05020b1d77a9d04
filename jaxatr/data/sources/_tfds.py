"""Public data sets by their TFDS name, which TFDS prepares and stores in its own folders.

TensorFlow is needed only to prepare a set.
"""

import importlib.util
from pathlib import Path
from typing import Any

from jaxatr.data import index
from jaxatr.data.records import quiet, tfds


def names() -> list[str]:
    """Returns the names known to TFDS without network access."""
    return tfds().list_builders(with_community_datasets=False)


def exists(name: str) -> bool:
    """Whether TFDS has a data set of that name, which may carry ``/config`` and ``:version``."""
    try:
        tfds().builder_cls(name.split("/")[0].split(":")[0])
    except ValueError:  # TFDS's DatasetNotFoundError, or a name that it cannot parse
        return False
    return True


def prepared(name: str, data_dir: Path, *, download: bool) -> Path:
    """Returns the folder of a TFDS set, after adding an index.

    Args:
      name: TFDS's name of the set.
      data_dir: TFDS's data folder.
      download: download and prepare the set if it is missing.

    Raises:
      ValueError: the set is missing and must not be downloaded, TensorFlow is not installed to
        prepare it, or it does not hold labelled images.
    """
    with quiet():
        builder = tfds().builder(name, data_dir=data_dir, file_format="array_record")
    facts, keys = _describe(name, builder.info.features)
    if not builder.is_prepared():
        _prepare(name, builder, data_dir, download)
    directory = Path(builder.data_path)
    if index.description(directory) is None:
        index.write_index(directory, facts, keys)
    return directory


def _prepare(name: str, builder: Any, data_dir: Path, download: bool) -> None:
    if not download:
        raise ValueError(
            f"{name!r} is not in {data_dir}, and nothing is downloaded automatically: run "
            f"jaxatr prepare {name} --data_dir={data_dir}"
        )
    if importlib.util.find_spec("tensorflow") is None:
        raise ValueError(
            f"preparing {name!r} needs TensorFlow (reading it does not): pip install 'jaxatr[tfds]'"
        )
    builder.download_and_prepare()


def _describe(name: str, features: Any) -> tuple[dict[str, Any], dict[str, str]]:
    wanted = {"image": tfds().features.Image, "label": tfds().features.ClassLabel}
    for key, kind in wanted.items():
        if key not in features or not isinstance(features[key], kind):
            raise ValueError(
                f"{name!r} is not a set of labelled images: its features are {', '.join(features)}"
            )
    keys, coarse = {"image": "image", "label": "label"}, None
    if "coarse_label" in features:
        keys["coarse"], coarse = "coarse_label", features["coarse_label"].names
    facts = {"classes": features["label"].names, "coarse_classes": coarse, "fine_to_coarse": None}
    return facts, keys
