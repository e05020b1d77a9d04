"""A convolution's image as rows of a matrix, so that each tap of the kernel reads aligned tiles.

The padded image is flattened to one row per pixel, with a padded width that is a multiple of 8. The
next tap down then begins a multiple of 8 rows later; for the next tap to the right there is a copy
of the rows that begins one pixel later. Results are computed for every pixel of the padded width,
and the superfluous ones are cut off afterwards.
"""

import dataclasses

import jax.numpy as jnp

from jaxatr.typing import Array, Float

ALIGNMENT = 8


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
        if self.taps == (1, 1):
            return self.width  # a single tap needs no alignment
        return -(-(self.width + self.taps[1] - 1) // ALIGNMENT) * ALIGNMENT

    @property
    def lines(self) -> int:
        """Lines of one padded image."""
        return self.height + self.taps[0] - 1

    @property
    def count(self) -> int:
        """Number of rows for which results are computed."""
        return self.batch * self.lines * self.pitch

    def copies(self, x: Float[Array, "b h w c"], tile: int) -> Float[Array, "s rows c"]:
        """Returns the rows once per column of the kernel, padded with zeros to whole tiles."""
        left = self.padding[1][0]
        right = self.pitch - left - x.shape[2]
        rows, columns = self.taps
        below = -(-self.count // tile) * tile + (rows - 1) * self.pitch - self.count
        x = jnp.pad(x, ((0, 0), self.padding[0], (left, right), (0, 0)))
        flat = x.reshape(self.count, x.shape[3])
        flat = jnp.pad(flat, ((0, below + columns - 1), (0, 0)))
        return jnp.stack([flat[j : j + self.count + below] for j in range(columns)])

    def spread(self, y: Float[Array, "b h2 w2 n"], tile: int) -> Float[Array, "rows n"]:
        """Lays an array of the result's shape out in the rows in which its results are computed."""
        above = ((0, 0), (0, self.lines - self.height), (0, self.pitch - self.width), (0, 0))
        flat = jnp.pad(y, above).reshape(self.count, y.shape[3])
        return jnp.pad(flat, ((0, -self.count % tile), (0, 0)))

    def results(self, rows: Float[Array, "rows n"]) -> Float[Array, "b h2 w2 n"]:
        """Returns the results, without the superfluous rows."""
        y = rows[: self.count].reshape(self.batch, self.lines, self.pitch, rows.shape[1])
        return y[:, : self.height, : self.width]
