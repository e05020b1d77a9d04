"""A convolution's image as rows of a matrix, so that each tap of the kernel reads aligned tiles.

The padded image is flattened to one row per pixel, with a padded width that is a multiple of 16.
The next tap down then begins a multiple of 16 rows later; for the next tap to the right there is a
copy of the rows that begins one pixel later. Results are computed for every pixel of the padded
width, and the superfluous ones are cut off afterwards.
"""

import dataclasses

ALIGNMENT = 16  # a tile has 8 rows, and those of bfloat16 are packed in pairs


@dataclasses.dataclass(frozen=True)
class Rows:
    """The geometry of a convolution of stride 1, for images ``[b, h, w, c]``.

    Attributes:
      batch: number of images.
      height: rows of the result.
      width: columns of the result.
      taps: rows and columns of the kernel.
      padding: ``((top, bottom), (left, right))`` zeros around the image.
    """

    batch: int
    height: int
    width: int
    taps: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]

    @property
    def pitch(self) -> int:
        """Rows of the matrix per line of the image."""
        return -(-(self.width + self.taps[1] - 1) // ALIGNMENT) * ALIGNMENT

    @property
    def lines(self) -> int:
        """Lines of one padded image."""
        return self.height + self.taps[0] - 1
