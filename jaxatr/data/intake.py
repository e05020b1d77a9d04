"""Preparation of images for a trained network."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxatr.data.bands import Bands, Choice, counted, shown
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
      bands: how files become images.
      preview: the channels of a chip that pictures show; empty for the usual ones.
    """

    chip: Chip
    shape: tuple[int, int, int]
    dtype: str
    bands: Bands = Bands()
    preview: tuple[int, ...] = ()

    @classmethod
    def of_run(cls, config: Config, record: Mapping[str, Any]) -> "Intake":
        """Creates the requirements of a run's network."""
        height, width, channels = record["image_shape"]
        fields = record.get("bands", {})  # of an older run, or of gray and RGB, none
        used = tuple(number - 1 for number in fields.get("used", ()))
        choice = Choice(used, fields["of"]) if used else None
        chip = Chip.configured(config.data, channels if channels in (1, 3) else None, choice)
        preview = tuple(number - 1 for number in fields.get("preview", ()))
        bands = Bands.of_fields(fields)
        return cls(chip, (height, width, channels), record["image_dtype"], bands, preview)

    def read(self, path: str | os.PathLike) -> Shaped[np.ndarray, "h w c"]:
        """Reads an image with the bands of all its files, as those of the training were read.

        Raises:
          ImageError: see :meth:`jaxatr.data.bands.Bands.read`.
        """
        return self.bands.read(path)

    def shown(self, chip: Shaped[np.ndarray, "h w c"]) -> Shaped[np.ndarray, "h w d"]:
        """Returns a chip as pictures show it: gray, RGB or the bands of the preview."""
        return shown(chip, self.preview)

    def picture(self, image: Shaped[np.ndarray, "h w c"]) -> Shaped[np.ndarray, "h w d"]:
        """Returns a whole image as pictures show it: as :meth:`shown`, of the bands it uses."""
        choice = self.chip.choice
        return self.shown(image if choice is None else image[:, :, list(choice.numbers)])

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Returns the network's chip of an image ``[h, w, c]``.

        Raises:
          ValueError: the chip does not have the trained shape, or the image does not have the bands
            or the dtype of the training images and therefore not their units.
        """
        self._check_bands(image.shape[2])
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

    def _check_bands(self, count: int) -> None:
        """Checks that an image has the bands of the training images, or can be converted to them.

        Raises:
          ValueError: it has another number.
        """
        wanted = self.chip.choice.of if self.chip.choice else self.shape[2]
        if count == wanted or (self.chip.choice is None and {count, wanted} <= {1, 3}):
            return
        named = f" ({', '.join(self.bands.names)})" if self.bands.names else ""
        text = f"got an image of {counted(count)}, wanted {counted(wanted)}{named} like the "
        text += "training images"
        if self.bands.files:
            text += (
                f": in files whose names end in {', '.join(self.bands.files)}, or in a single TIFF "
                "or .npy"
            )
        raise ValueError(text)

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
