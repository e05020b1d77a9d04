"""From images to the batches of chips that a trained network takes."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxatr.data.chip import Chip
from jaxatr.inference import filled_size
from jaxatr.typing import Array, ArrayLike, Config, Float, Shaped


def normalize(
    images: Shaped[ArrayLike, "... c"], mean: Float[np.ndarray, " c"], std: Float[np.ndarray, " c"]
) -> Float[Array, "... c"]:
    """Returns raw images as float32, less a mean and divided by a deviation of each channel."""
    return (jnp.asarray(images, jnp.float32) - np.float32(mean)) / np.float32(std)


class Intake(NamedTuple):
    """Requirements of a network for its images.

    Attributes:
      chip: geometry that every image goes through.
      shape: ``(h, w, c)`` of the chips that the network was trained on.
      dtype: of the images.
    """

    chip: Chip
    shape: tuple[int, int, int]
    dtype: str

    @classmethod
    def of_run(cls, config: Config, record: Mapping[str, Any]) -> "Intake":
        """Reads the requirements of a run's network.

        Args:
          config: the run's.
          record: the content of its ``record.json``.
        """
        height, width, channels = record["image_shape"]
        chip = Chip.configured(config.data, channels if channels in (1, 3) else None)
        return cls(chip, (height, width, channels), record["image_dtype"])

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Returns the chip that the network sees of an image ``[h, w, c]``.

        Raises:
          ValueError: the image does not lead to a chip of the trained shape, or is of another type
            than the training images, so that its units cannot be theirs.
        """
        if image.dtype != self.dtype:
            raise ValueError(
                f"got an image of {image.dtype}, wanted {self.dtype}, as the training images were"
            )
        chip = self.chip(image)
        if chip.shape != self.shape:
            raise ValueError(
                f"got an image that makes a chip of shape {list(chip.shape)}, "
                f"wanted {list(self.shape)}, which the network was trained on"
            )
        return chip

    def resized(self, image: np.ndarray) -> np.ndarray:
        """Returns the chip of an image ``[h, w, c]`` of any size, such as one of other data.

        Where the run's own geometry does not lead to a chip of the trained shape, as the image is
        smaller than the centre that is cut out or is not resized, all of it is resized to the chip.

        Raises:
          ValueError: as the call, but for the size of an image for square chips.
        """
        try:
            fits = self.chip.output_shape(image.shape) == self.shape
        except ValueError:
            fits = False
        if fits:
            return self(image)
        whole = dataclasses.replace(self.chip, center_crop=0, size=self.shape[0])
        return self._replace(chip=whole)(image)

    def batches(
        self, images: Iterable[np.ndarray], batch_size: int
    ) -> Iterator[tuple[Shaped[np.ndarray, "b h w c"], int]]:
        """Yields batches of chips, and how many of each are images.

        The last batch is filled up to the size of those before it, and one that is the only one
        to one of few sizes: so few programs are compiled, and one image is computed as one.
        """
        chips: list[np.ndarray] = []
        full = False
        for image in images:
            chips.append(self(image))
            if len(chips) == batch_size:
                yield np.stack(chips), batch_size
                chips, full = [], True
        if chips:
            size = batch_size if full else filled_size(len(chips), batch_size)
            yield np.stack(chips + [chips[-1]] * (size - len(chips))), len(chips)
