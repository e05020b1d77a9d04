"""Preparation of images for a trained network."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxatr.data.chip import Chip
from jaxatr.typing import Array, ArrayLike, Config, Float, Shaped


def normalize(
    images: Shaped[ArrayLike, "... c"], mean: Float[np.ndarray, " c"], std: Float[np.ndarray, " c"]
) -> Float[Array, "... c"]:
    """Normalises raw images to float32 with the mean and standard deviation of each channel."""
    return (jnp.asarray(images, jnp.float32) - np.float32(mean)) / np.float32(std)


class Intake(NamedTuple):
    """A network's requirements on its input images.

    Attributes:
      chip: the geometry applied to every image.
      shape: ``(h, w, c)`` of the chips that the network was trained on.
      dtype: name of the images' dtype.
    """

    chip: Chip
    shape: tuple[int, int, int]
    dtype: str

    @classmethod
    def of_run(cls, config: Config, record: Mapping[str, Any]) -> "Intake":
        """Creates the requirements of a run's network."""
        height, width, channels = record["image_shape"]
        chip = Chip.configured(config.data, channels if channels in (1, 3) else None)
        return cls(chip, (height, width, channels), record["image_dtype"])

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Returns the network's chip of an image ``[h, w, c]``.

        Raises:
          ValueError: the chip does not have the trained shape, or the image does not have the dtype
            of the training images and therefore not their units.
        """
        if image.dtype != self.dtype:
            raise ValueError(
                f"got an image of {image.dtype}, wanted {self.dtype} like the training images"
            )
        chip = self.chip(image)
        if chip.shape != self.shape:
            raise ValueError(
                f"got an image that makes a chip of shape {list(chip.shape)}, "
                f"wanted {list(self.shape)} like the training chips: {self._remedy(chip.shape)}"
            )
        return chip

    def _remedy(self, shape: tuple[int, ...]) -> str:
        """Says how an image that makes a chip of another shape can be used."""
        height, width, channels = self.shape
        if shape[:2] != (height, width):
            side = max(height, width)
            return (
                f"resize the image to {height}x{width} pixels, or train with "
                f"--config.data.size={side}, which resizes every image"
            )
        return f"convert the image, or train with --config.data.channels={channels}"

    def resized(self, image: np.ndarray) -> np.ndarray:
        """Returns the network's chip of an image of any size, such as one of other data.

        If the run's geometry does not give a chip of the trained shape (because the image is
        smaller than the centre crop, or there is no resize), the whole image is resized to the
        chip.

        Raises:
          ValueError: the dtype or the channels do not fit, or the trained chips are not square.
        """
        try:
            fits = self.chip.output_shape(image.shape) == self.shape
        except ValueError:
            fits = False
        if fits:
            return self(image)
        uncropped = dataclasses.replace(self.chip, center_crop=0, size=self.shape[0])
        return self._replace(chip=uncropped)(image)
