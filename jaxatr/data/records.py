"""TFDS as a store of records on disk: written and read without TensorFlow in the process."""

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging
from tqdm import tqdm

# Without it TFDS asks a metadata server of Google's cloud whether it runs there, and waits.
os.environ.setdefault("NO_GCE_CHECK", "true")
import tensorflow_datasets as tfds  # noqa: E402

Example = dict[str, Any]
Examples = Callable[[], Iterator[Example]]


class _RecordBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Writes the examples that it is given, in their order."""

    name = "records"
    VERSION = tfds.core.Version("1.0.0")
    # TFDS would look beside this file for checksums, with a package that it does not require.
    code_path = None  # type: ignore

    def __init__(self, splits: Mapping[str, Examples], features: Mapping[str, Any], data_dir: Path):
        self._splits, self._features = splits, features
        super().__init__(data_dir=data_dir, file_format="array_record")

    def _info(self) -> tfds.core.DatasetInfo:
        features = tfds.features.FeaturesDict(self._features)
        # Shuffling is the reader's, by a seed; on disk the order is the generator's, so that
        # record i of a split is always the same example.
        return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[int, Example]]]:
        return {name: iter(enumerate(examples())) for name, examples in self._splits.items()}

    def _generate_examples(self) -> Iterator[tuple[int, Example]]:
        raise NotImplementedError  # abstract in TFDS; the split generators are already iterators


def write(
    splits: Mapping[str, Examples], features: Mapping[str, Any], directory: Path, total: int
) -> Path:
    """Writes examples as array_record below ``directory`` and returns where they lie.

    Args:
      splits: name of the split to a function that yields its examples.
      features: name to TFDS feature; arrays are ``Tensor`` features, which need no TensorFlow.
      directory: an existing folder.
      total: how many examples there will be, for the progress bar.
    """
    bar = tqdm(  # at a terminal: in a log it would be a line of a thousand states
        total=total,
        unit="image",
        desc="preparing",
        leave=False,
        dynamic_ncols=True,
        disable=None,
    )

    def counted(examples: Examples) -> Examples:
        def run() -> Iterator[Example]:
            for example in examples():
                yield example
                bar.update()

        return run

    counting = {name: counted(examples) for name, examples in splits.items()}
    with bar, quiet():
        builder = _RecordBuilder(counting, features, directory)
        builder.download_and_prepare()
    return Path(builder.data_path)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps TFDS's nested progress bars and its announcements off the terminal."""
    tfds.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(verbosity)
        tfds.enable_progress_bar()


def tensor(shape: tuple[int | None, ...], dtype: Any) -> Any:
    """Returns the TFDS feature of an array; ``None`` is a length that varies."""
    return tfds.features.Tensor(shape=shape, dtype=np.dtype(dtype), encoding="bytes")


def scalar(dtype: Any) -> Any:
    """Returns the TFDS feature of a number, or of a string for a string dtype."""
    if np.dtype(dtype).kind == "U":
        return tfds.features.Text()
    return tfds.features.Scalar(np.dtype(dtype))
