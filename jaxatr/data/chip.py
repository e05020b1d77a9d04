"""Host-side geometry: turns an image of any size into the chip that a network sees."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from jax import lax
from PIL import Image

from jaxatr.data.bands import Choice
from jaxatr.data.decoder import MOST_BANDS
from jaxatr.data.decoder.luma import gray
from jaxatr.typing import Bool, Config, Float, Shaped


def margin(outer: Any, inner: Any) -> Any:
    """Returns the pixels of a centred crop or padding that precede the inner length.

    It is the one place that says where the odd pixel goes: behind. Sizes are numbers, symbols of
    :mod:`jax.export`, arrays, or traced values, for images on the host, their boxes, and graphs.

    >>> margin(9, 4)
    2
    """
    missing = outer - inner
    # An exported graph has a division of whole numbers, but none that rounds towards minus.
    return lax.div(missing, np.int32(2)) if isinstance(missing, jax.Array) else missing // 2


@dataclasses.dataclass(frozen=True)
class Chip:
    """The geometry from image to chip; steps run in this order and are off by default.

    Attributes:
      blank_center: side in pixels of the centre square that is set to zero, target included: a
        control of how much information the surroundings carry.
      center_crop: side in pixels of the centre square that is cut out. Smaller images are refused:
        padding would reveal their size, and perhaps their class, in the chip.
      square: pad the shorter side evenly with zeros, so that resizing keeps the aspect ratio.
      size: side in pixels to resize to, bilinear with antialiasing.
      channels: number of channels. RGB is converted to gray by its luma, gray to three equal
        channels; another number has to be the image's own.
      choice: the bands to use, before anything else; None for all.
    """

    blank_center: int = 0
    center_crop: int = 0
    square: bool = False
    size: int = 0
    channels: int | None = None
    choice: Choice | None = None

    def __post_init__(self):
        """Checks the values."""
        for name in ("blank_center", "center_crop", "size"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"data.{name} must be 0 (off) or a side in pixels, got {getattr(self, name)}"
                )
        if self.channels is not None and not 1 <= self.channels <= MOST_BANDS:
            raise ValueError(
                f"data.channels must be 0 (as they are) or 1 to {MOST_BANDS}, got {self.channels}"
            )

    @classmethod
    def configured(
        cls, fields: Config, channels: int | None, choice: Choice | None = None
    ) -> "Chip":
        """Creates the geometry of a run's configuration.

        Args:
          fields: ``config.data``.
          channels: the chip's channels.
          choice: the bands to use; None for all.
        """
        geometry = fields.blank_center, fields.center_crop, fields.square, fields.size
        return cls(*geometry, channels, choice)

    def __call__(self, image: Shaped[np.ndarray, "h w c"]) -> Shaped[np.ndarray, "y x d"]:
        """Returns the chip of an image ``[h, w, c]``, in the image's dtype and range.

        Raises:
          ValueError: the image is smaller than ``center_crop``, or its bands cannot be turned into
            ``channels`` or are not those of which ``choice`` is one.
        """
        self.output_shape(image.shape)
        if self.choice is not None:
            image = image[:, :, list(self.choice.numbers)]
        if self.blank_center:
            image = image.copy()
            _center(image, self.blank_center)[:] = 0
        if self.center_crop:
            image = _center(image, self.center_crop)
        if self.square:
            image = _pad_to_square(image)
        if self.size and image.shape[:2] != (self.size, self.size):
            image = _resize(image, self.size)
        if self.channels is not None and image.shape[2] != self.channels:
            image = gray(image) if self.channels == 1 else np.repeat(image, 3, axis=2)
        return image

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Returns the chip's ``(h, w, c)`` for an image's.

        Raises:
          ValueError: the call would refuse such an image.
        """
        height, width, channels = shape
        if self.choice is not None:
            self.choice.check(channels)
            channels = len(self.choice.numbers)
        if self.center_crop:
            if min(height, width) < self.center_crop:
                raise ValueError(
                    f"an image of {height}x{width} is smaller than data.center_crop="
                    f"{self.center_crop}, the side that is cut from its centre; a training may "
                    f"set it to {min(height, width)} or less"
                )
            height = width = self.center_crop
        if self.square:
            height = width = max(height, width)
        if self.size:
            height = width = self.size
        if self.channels is not None and self.channels != channels:
            if {channels, self.channels} != {1, 3}:
                raise ValueError(
                    f"an image of {channels} bands cannot be turned into "
                    f"data.channels={self.channels}, which converts only gray and RGB: "
                    "data.channels=0 keeps all bands, data.bands chooses some"
                )
            channels = self.channels
        return height, width, channels

    def surrounded(self, pixels: int) -> "Chip":
        """Returns the same geometry with additional pixels of the image on every side.

        Raises:
          ValueError: the chip is not a plain crop of the image.
        """
        if not self.cuts:
            raise ValueError(
                f"{self}: only a chip cut out by data.center_crop without a resize has surroundings"
            )
        return dataclasses.replace(self, center_crop=self.center_crop + 2 * pixels)

    @property
    def cuts(self) -> bool:
        """Whether the chip is a crop of its image at the image's own scale."""
        return bool(self.center_crop) and not self.size

    def mask(self, mask: Shaped[np.ndarray, "h w 1"]) -> Bool[np.ndarray, "y x"]:
        """Returns the chip's mask for an image's mask.

        The mask is resampled like the image, and a chip pixel belongs to it if at least half of it
        is covered. If a thin mask covers no pixel by half, the most covered pixels are kept; a mask
        that was cropped away stays empty.

        Raises:
          ValueError: the image of such a mask would be refused.
        """
        geometry = dataclasses.replace(self, channels=None, choice=None)
        shown = geometry((mask > 0).astype(np.float32))[:, :, 0]
        return (shown >= min(0.5, shown.max())) & (shown > 0)

    def box(self, box: Shaped[np.ndarray, " 4"], shape: tuple[int, ...]) -> Float[np.ndarray, " 4"]:
        """Transforms an image's box to the chip's pixels, clipped at the chip's edges.

        Args:
          box: y0, x0, y1, x1, in pixels of the image.
          shape: ``(h, w, c)`` of the image.

        Raises:
          ValueError: an image of this shape would be refused.
        """
        chip = np.array(self.output_shape(shape)[:2])
        sides, start = np.array(shape[:2]), np.zeros(2, int)
        if self.center_crop:
            start, sides = margin(sides, self.center_crop), np.full(2, self.center_crop)
        if self.square:
            start, sides = start - margin(sides.max(), sides), np.full(2, sides.max())
        corners = (np.reshape(box, (2, 2)) - start) * (chip / sides)
        return np.clip(corners, 0, chip).ravel().astype(np.float32)


def _center(image: np.ndarray, side: int) -> np.ndarray:
    """Returns a view of the centre square of an image, clipped to the image's sides."""
    top, left = (max(0, margin(length, side)) for length in image.shape[:2])
    return image[top : top + side, left : left + side]


def _pad_to_square(image: np.ndarray) -> np.ndarray:
    side = max(image.shape[:2])
    before = [(margin(side, length), length) for length in image.shape[:2]]
    return np.pad(image, [(gap, side - length - gap) for gap, length in before] + [(0, 0)])


def box_span(longer: float, margin: float) -> float:
    """Returns the side of a square chip around a box.

    Args:
      longer: the box's longer side.
      margin: how much larger the chip is, as a share of that side (``data.box_margin``).
    """
    return (1 + margin) * longer


def around(
    box: Shaped[np.ndarray, " 4"], *, margin: float, square: bool
) -> tuple[int, int, int, int]:
    """Returns the whole pixels that a chip of a box shows, which may extend beyond the image.

    Args:
      box: x0, y0, x1, y1, in pixels of the image, not empty.
      margin: how much larger the chip is than the box, as a share of the box's longer side.
      square: also show the box's surroundings on its shorter sides, up to a square.

    Returns:
      x0, y0, x1, y1.

    >>> around(np.array([10, 10, 20, 14]), margin=0.2, square=True)
    (9, 6, 21, 18)
    >>> around(np.array([10, 10, 20, 14]), margin=0.2, square=False)
    (9, 9, 21, 15)
    """
    x0, y0, x1, y1 = map(float, box)
    longer = max(x1 - x0, y1 - y0)
    more = box_span(longer, margin) - longer
    sides = (longer + more,) * 2 if square else (x1 - x0 + more, y1 - y0 + more)
    width, height = (max(1, round(side)) for side in sides)
    left, top = (x0 + x1 - width) / 2, (y0 + y1 - height) / 2
    left, top = math.floor(left + 0.5), math.floor(top + 0.5)
    return left, top, left + width, top + height


def cut_out(
    image: Shaped[np.ndarray, "h w c"], box: tuple[float, float, float, float], side: int
) -> Shaped[np.ndarray, "side side c"]:
    """Cuts a box out of an image as a square chip, bilinear with antialiasing.

    Args:
      image: uint8, uint16 or float32.
      box: y0, x0, y1, x1, in pixels of the image and within it.
      side: side of the chip in pixels.

    Raises:
      ValueError: the box extends beyond the image.
    """
    height, width = image.shape[:2]
    if not (0 <= box[0] < box[2] <= height and 0 <= box[1] < box[3] <= width):
        raise ValueError(f"got a box {tuple(box)}, wanted one inside of {height}x{width} pixels")
    return _resize(image, side, (box[1], box[0], box[3], box[2]))


def _resize(
    image: np.ndarray, side: int, box: tuple[float, float, float, float] | None = None
) -> np.ndarray:
    # Pillow's bilinear filter widens with the reduction (antialiasing) and never overshoots, so an
    # image keeps its range. Only mode F holds 16 bits, one plane at a time.
    if image.dtype == np.uint8 and image.shape[2] == 3:
        picture = Image.fromarray(image)
        return np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR, box))
    kind = np.uint8 if image.dtype == np.uint8 else np.float32
    planes = [
        np.asarray(
            Image.fromarray(np.ascontiguousarray(image[:, :, c], dtype=kind)).resize(
                (side, side), Image.Resampling.BILINEAR, box
            )
        )
        for c in range(image.shape[2])
    ]
    return _as_dtype(np.stack(planes, axis=2), image.dtype)


def _as_dtype(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return (np.rint(values) if np.issubdtype(dtype, np.integer) else values).astype(dtype)
