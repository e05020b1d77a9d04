"""A convolution's image as rows of a matrix, so that each tap of the kernel reads aligned tiles.

The padded image is flattened to one row per pixel, with a padded width that is a multiple of 8. A
tap further down then begins a multiple of 8 rows later, and for a tap further right there is a copy
of the rows that begins one pixel later. Results are computed for every pixel of the padded width;
those that no result belongs to are cut off afterwards.
"""

import dataclasses

import jax.numpy as jnp

from jaxatr.typing import Array, Float

ALIGNMENT = 8


@dataclasses.dataclass(frozen=True)
class Rows:
    """The geometry of a convolution of stride 1, for images ``[b, h, w, c]``.

    Attributes:
      batch: images.
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
            return self.width  # no tap needs an offset
        return -(-(self.width + self.taps[1] - 1) // ALIGNMENT) * ALIGNMENT

    @property
    def lines(self) -> int:
        """Lines of one padded image."""
        return self.height + self.taps[0] - 1

    @property
    def count(self) -> int:
        """Rows for which results are computed."""
        return self.batch * self.lines * self.pitch

    def copies(self, x: Float[Array, "b h w c"], tile: int) -> Float[Array, "s rows c"]:
        """Returns the rows, once per column of the kernel, and zeros for the last tile to read."""
        left = self.padding[1][0]
        right = self.pitch - left - x.shape[2]
        rows, columns = self.taps
        below = -(-self.count // tile) * tile + (rows - 1) * self.pitch - self.count
        x = jnp.pad(x, ((0, 0), self.padding[0], (left, right), (0, 0)))
        flat = x.reshape(self.count, x.shape[3])
        flat = jnp.pad(flat, ((0, below + columns - 1), (0, 0)))
        return jnp.stack([flat[j : j + self.count + below] for j in range(columns)])

    def spread(self, y: Float[Array, "b h2 w2 n"], tile: int) -> Float[Array, "rows n"]:
        """Returns an array of the result's shape at the rows that its results are computed in."""
        above = ((0, 0), (0, self.lines - self.height), (0, self.pitch - self.width), (0, 0))
        flat = jnp.pad(y, above).reshape(self.count, y.shape[3])
        return jnp.pad(flat, ((0, -self.count % tile), (0, 0)))

    def results(self, rows: Float[Array, "rows n"]) -> Float[Array, "b h2 w2 n"]:
        """Returns the results, without the rows that none belongs to."""
        y = rows[: self.count].reshape(self.batch, self.lines, self.pitch, rows.shape[1])
        return y[:, : self.height, : self.width]
