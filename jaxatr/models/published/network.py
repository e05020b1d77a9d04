"""The description of a network whose weights are published."""

from typing import NamedTuple

import numpy as np

from jaxatr.typing import Float


class WeightFile(NamedTuple):
    """A file with a network's weights.

    Attributes:
      name: of the file; its ending says what it is, ``.pth`` or ``.onnx``.
      sha256: of its content.
    """

    name: str
    sha256: str


class PublishedNetwork(NamedTuple):
    """A network whose weights are published, and how images have to be brought to it.

    Attributes:
      name: what a configuration calls it.
      backbone: the built-in backbone that it is, a name of :data:`jaxatr.models.BACKBONES`.
      project: the Python package that carries its weights, on the package index.
      package: what that is imported as; it is not imported.
      folder: within it, where the weights lie.
      files: that hold the weights, the package's own first.
      mean: of each channel, red first, in units of 8-bit images.
      std: deviation of each channel, in the same units.
      size: side in pixels of the images that it was trained on.
      licence: of the weights.
      source: who trained it, on what, and how it got into the package.
    """

    name: str
    backbone: str
    project: str
    package: str
    folder: str
    files: tuple[WeightFile, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    licence: str
    source: str

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
