"""The images that folders, archives, tables and files hold, of which some may be unusable."""

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from jaxatr import data
from jaxatr.data import ImagePath
from jaxatr.files import Scratch
from jaxatr.recognition.recogniser import Recogniser


class Pool:
    """Images for a recogniser. Use it as a context, at whose end unpacked archives are removed.

    Attributes:
      sources: paths of the folders, archives, tables and files.
      paths: the images, opened or not.
      used: those that :meth:`chips` has yielded so far.
      left_out: (path, reason) for each image, folder or archive that cannot be used.
    """

    def __init__(
        self,
        recogniser: Recogniser,
        sources: Sequence[str | os.PathLike],
        without: Collection[Path] = (),
    ):
        """Lists the images, each once, even if sources overlap.

        Args:
          recogniser: reads and prepares them.
          sources: folders, archives, tables and files.
          without: resolved paths of files to pass over.

        Raises:
          ValueError: a source does not exist or has no image.
        """
        self.sources = [os.fspath(one) for one in sources]
        self.used: list[ImagePath] = []
        self.left_out: list[tuple[str, str]] = []
        self._recogniser = recogniser
        self._scratch = Scratch()
        found: dict[tuple[Path, str], ImagePath] = {}
        try:
            for place, one in enumerate(self.sources):
                unpacked = os.path.join(self._scratch.name, str(place))
                for path in data.image_paths(one, unpacked, recogniser.bands).images:
                    whole = Path(path.name).resolve()
                    if whole not in without:
                        found.setdefault((whole, str(path.error)), path)
            self.paths = list(found.values())
        except BaseException:
            self._scratch.cleanup()
            raise

    def __enter__(self) -> "Pool":
        """Returns the pool."""
        return self

    def __exit__(self, *_: object) -> None:
        """Removes unpacked archives."""
        self._scratch.cleanup()

    def chips(self) -> Iterator[np.ndarray]:
        """Yields the chip of each usable image.

        Raises:
          ValueError: no image can be used.
        """
        # disable=None: shown on terminals only
        bar = tqdm(self.paths, desc="predicting", unit="image", leave=False, disable=None)
        for path in bar:
            try:
                if path.error is not None:
                    raise path.error
                chip = self.chip(path)
            except (ValueError, OSError, ImportError) as error:
                self.left_out.append((path.name, data.reason_of(error, path.name, path.file)))
                continue
            self.used.append(path)
            yield chip
        if not self.used:
            reason = f" ({self.left_out[0][0]}: {self.left_out[0][1]})" if self.left_out else ""
            raise ValueError(f"no image can be used{reason}")

    def chip(self, path: ImagePath) -> np.ndarray:
        """Reads an image as a chip."""
        return self._recogniser.prepare(self._recogniser.read(path.file))

    def is_unpacked(self, path: ImagePath) -> bool:
        """Whether an image is in an archive, so that its file is removed at the end."""
        return Path(path.file).is_relative_to(self._scratch.name)
