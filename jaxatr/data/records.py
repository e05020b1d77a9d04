"""Storage of records on disk by TFDS, without importing TensorFlow."""

import contextlib
import functools
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging
from tqdm import tqdm

from jaxatr.data.files_below import as_utf8
from jaxatr.data.source import Contents, Example, Feature

Examples = Callable[[], Iterator[Example]]

_LOCK = threading.RLock()


@functools.cache
def tfds() -> Any:
    """Imports ``tensorflow_datasets``, which is slow, on first use."""
    # Otherwise TFDS waits for a metadata server of Google Cloud, to find out if it runs there.
    os.environ.setdefault("NO_GCE_CHECK", "true")
    import tensorflow_datasets

    return tensorflow_datasets


@functools.cache
def _builder_class() -> Any:
    core = tfds().core
    base: Any = core.GeneratorBasedBuilder

    class RecordBuilder(base, skip_registration=True):  # type: ignore
        """Writes the given examples in their order."""

        name = "records"
        VERSION = core.Version("1.0.0")
        # TFDS would look for checksums beside this file, with a package that it does not require.
        code_path = None

        def __init__(self, splits: dict[str, Examples], features: dict[str, Any], data_dir: Path):
            self._splits, self._features = splits, features
            super().__init__(data_dir=data_dir, file_format="array_record")

        def _info(self) -> Any:
            features = tfds().features.FeaturesDict(self._features)
            # The reader shuffles, by a seed; on disk the generator's order is kept, so that record
            # i of a split is always the same example.
            return core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

        def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[int, Example]]]:
            return {name: iter(enumerate(examples())) for name, examples in self._splits.items()}

        def _generate_examples(self) -> Iterator[tuple[int, Example]]:
            raise NotImplementedError  # abstract in TFDS, not used with split iterators

    return RecordBuilder


def write(contents: Contents, directory: Path) -> Path:
    """Writes examples as array_record below ``directory`` and returns the records' folder.

    Raises:
      ValueError: a split is empty, or an example has other features than stated, pixels that are
        not finite, a label of no class, or the id of another one.
    """
    bar = tqdm(  # shown on terminals only
        total=contents.total,
        unit="image",
        desc="preparing",
        leave=False,
        dynamic_ncols=True,
        disable=None,
    )

    ids: set[int] = set()

    def counted(split: str, examples: Examples) -> Iterator[Example]:
        number = -1
        for number, example in enumerate(examples()):
            _check(f"example {number} of {split!r}", example, contents, ids)
            yield {k: as_utf8(v) if isinstance(v, str) else v for k, v in example.items()}
            bar.update()
        if number < 0:
            raise ValueError(f"the source has no examples of the split {split!r}")

    splits = {
        name: functools.partial(counted, name, examples)
        for name, examples in contents.splits.items()
    }
    features = {name: _tfds_feature(feature) for name, feature in contents.features.items()}
    with bar, quiet():
        builder = _builder_class()(splits, features, directory)
        builder.download_and_prepare()
    return Path(builder.data_path)


def _check(name: str, example: Example, contents: Contents, ids: set[int]) -> None:
    """Checks an example's values, and adds its id to those of the examples before."""
    if example.keys() != contents.features.keys():
        got, wanted = (", ".join(one) or "nothing" for one in (example, contents.features))
        raise ValueError(f"{name}: got {got}, wanted the features {wanted}")
    classes = len(contents.classes)
    if not np.isfinite(example["image"]).all():
        raise ValueError(f"{name}: its image has pixels that are not finite numbers")
    if not -1 <= example["label"] < classes:
        raise ValueError(
            f"{name}: label: got {example['label']}, wanted 0 to {classes - 1}, or -1 for no class"
        )
    if example.get("id") in ids:
        raise ValueError(
            f"{name}: id: got {example['id']}, which an earlier example has, wanted a number of "
            "its own for each example of all splits"
        )
    if "id" in example:
        ids.add(int(example["id"]))


def _tfds_feature(feature: Feature) -> Any:
    dtype = np.dtype(feature.dtype)
    # Unlike Image, Tensor does not need TensorFlow; unlike Scalar, it keeps all digits.
    if feature.shape or dtype == np.float64:
        return tfds().features.Tensor(shape=feature.shape, dtype=dtype, encoding="bytes")
    return tfds().features.Text() if dtype.kind == "U" else tfds().features.Scalar(dtype)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses TFDS's progress bars and messages.

    One thread at a time, as each puts back the process's output as it found it.
    """
    with _LOCK:
        tfds().disable_progress_bar()
        verbosity = logging.get_verbosity()
        logging.set_verbosity(logging.ERROR)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        finally:
            logging.set_verbosity(verbosity)
            tfds().enable_progress_bar()
