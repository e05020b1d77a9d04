"""The part of the sensor's image shown by a chip: the target's box, or a fixed window.

The paper cuts its chips by the box (section 3.1): every target fills its chip at any range, and a
distant one merely lacks detail, because it covers few sensor pixels.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from PIL import Image

from jaxatr.data.chip import box_span
from jaxatr.data.sources.simulated import sensor
from jaxatr.typing import Float, UInt8

CROPS = ("box", "window")
MARGIN = 0.2  # share of the box's longer side that is added, half of it on either side
_REACH = 2.0  # support of the bicubic filter, in chip pixels or sensor pixels if larger
_SPARE = 1.05  # bounds from the solids' corners and from the rays differ by less than this factor


@dataclass(frozen=True)
class Window:
    """A window of 100 × 100 sensor pixels at every range: targets shrink with distance.

    Attributes:
      size: rows and columns of a chip.
      play: largest offset of the target from the frame's centre in sensor pixels, if it then fits.
    """

    size: int
    play: float = 5.0

    def frame_side(self, extent: Float[np.ndarray, " 2"]) -> int:
        """Returns the window's side; larger targets are cut.

        Args:
          extent: upper bounds of the target's width and height, in sensor pixels.
        """
        del extent
        return sensor.WINDOW

    def chip(
        self, levels: Float[np.ndarray, "h w"], box: Float[np.ndarray, " 4"]
    ) -> UInt8[np.ndarray, "s s"]:
        """Returns the chip of a frame's gray levels: the whole window, averaged over areas."""
        del box
        return sensor.quantise(sensor.chip(levels, self.size))

    def share(
        self, share: Float[np.ndarray, "h w"], box: Float[np.ndarray, " 4"]
    ) -> Float[np.ndarray, "s s"]:
        """Converts the target's share of each frame pixel to that of each chip pixel."""
        del box
        return sensor.chip(share, self.size)

    def facts(self, box: Float[np.ndarray, " 4"]) -> dict[str, np.ndarray]:
        """Returns the columns derived from the target's frame box: ``box`` in chip pixels."""
        return {"box": (box * self.size / sensor.WINDOW).astype(np.float32)}


@dataclass(frozen=True)
class ByBox:
    """A square around the target's box, a fifth larger than its longer side, resized.

    Attributes:
      size: rows and columns of a chip.
      surround: additional chip pixels on every side, so that chips of other boxes can be cut out.
      play: largest offset of the target from the frame's centre in sensor pixels: half a pixel,
        because boxes do not follow the sensor's grid.
    """

    size: int
    surround: int = 0
    play: float = 0.5

    def frame_side(self, extent: Float[np.ndarray, " 2"]) -> int:
        """Returns the side of a square with room for the chip and its resampling filter."""
        span = _SPARE * self._span(float(extent.max()))
        reach = _REACH * max(1.0, span / self._side)
        return math.ceil(span + 2 * (reach + self.play))

    def chip(
        self, levels: Float[np.ndarray, "h w"], box: Float[np.ndarray, " 4"]
    ) -> UInt8[np.ndarray, "s s"]:
        """Returns the sensor's 8-bit image around the box, resampled by a bicubic filter."""
        return self._resized(sensor.quantise(levels), box, Image.Resampling.BICUBIC)

    def share(
        self, share: Float[np.ndarray, "h w"], box: Float[np.ndarray, " 4"]
    ) -> Float[np.ndarray, "s s"]:
        """Resamples the target's shares; the filter is bilinear, so they stay within 0 to 1."""
        return self._resized(share, box, Image.Resampling.BILINEAR)

    def facts(self, box: Float[np.ndarray, " 4"]) -> dict[str, np.ndarray]:
        """Returns ``box`` in chip pixels and ``sensor_pixels`` along the box's longer side."""
        longer = _longer(box)
        start, scale = self._start(box), self._side / self._span(longer)
        corners = (box.reshape(2, 2) - start) * scale
        return {
            "box": corners.ravel().astype(np.float32),
            "sensor_pixels": np.array(longer, np.float32),
        }

    @property
    def _side(self) -> int:
        return self.size + 2 * self.surround

    def _span(self, longer: float) -> float:
        """Returns the sensor pixels across a chip and its surroundings."""
        return box_span(longer, MARGIN) * self._side / self.size

    def _start(self, box: np.ndarray) -> np.ndarray:
        """Returns the frame's row and column at which the chip begins."""
        return (box[:2] + box[2:]) / 2 - self._span(_longer(box)) / 2

    def _resized(self, image: np.ndarray, box: np.ndarray, how: Image.Resampling) -> np.ndarray:
        top, left = self._start(box)
        span = self._span(_longer(box))
        region = (left, top, left + span, top + span)
        return np.asarray(Image.fromarray(image).resize((self._side, self._side), how, box=region))


Framing: TypeAlias = Window | ByBox


def framing(crop: str, size: int, surround: int) -> Framing:
    """Creates the framing for the given options.

    Args:
      crop: one of :data:`CROPS`.
      size: rows and columns of a chip.
      surround: chip pixels to keep around the chip on every side, with the crop by the box.

    Raises:
      ValueError: there is no such crop, or a number is out of range.
    """
    if crop not in CROPS:
        raise ValueError(f"crop: got {crop!r}, wanted one of {', '.join(CROPS)}")
    if size < 1:
        raise ValueError(f"size: got {size}, wanted at least 1 pixel")
    if surround < 0 or (surround and crop == "window"):
        raise ValueError(
            f"surround: got {surround} with crop={crop!r}, wanted 0 or more pixels around the "
            "chips of crop='box', 0 for crop='window'"
        )
    return Window(size) if crop == "window" else ByBox(size, surround)


def _longer(box: np.ndarray) -> float:
    return float(np.max(box[2:] - box[:2]))
