"""Descriptions of networks with published weights."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from jaxatr.typing import Float


class WeightFile(NamedTuple):
    """A file with a network's weights.

    Attributes:
      name: file name; the suffix, ``.pth``, ``.onnx`` or ``.tgz``, determines the format.
      sha256: SHA-256 of the content.
    """

    name: str
    sha256: str


class PublishedNetwork(NamedTuple):
    """A network with published weights, and the preprocessing it expects.

    Attributes:
      name: name in configurations.
      backbone: the built-in backbone, a name from :func:`jaxatr.models.list`.
      command: shell command that downloads the package with the weights from a public index.
      package: import name of a Python package with the weights, which is never imported; empty if
        the command downloads a file that the user has to put into a folder.
      folder: folder of the weights within the package.
      files: files that contain the weights, the package's own first.
      mean: mean of each channel, red first, in units of 8-bit images.
      std: standard deviation of each channel, in the same units.
      size: side in pixels of the training images.
      licence: licence of the weights.
      source: who trained the network, on which data, and who packaged it.
      adapt: converts the file's tensors to the published names and layout of the backbone's
        weights; None if they have these already.
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
        """Returns the mean and standard deviation of each channel.

        Args:
          channels: c, channels of the images; if they are not RGB, each gets the average over RGB.
        """
        mean, std = np.array(self.mean), np.array(self.std)
        if channels == len(mean):
            return mean, std
        return np.full(channels, mean.mean()), np.full(channels, std.mean())
