"""The Gaussian blur that an insertion curve starts from."""

import functools
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.typing import Array, ArrayLike, Float


@dataclass(frozen=True)
class Blur:
    """A separable Gaussian blur with a finite kernel, for images of any size.

    Attributes:
      size: rows and columns of the kernel, odd.
      sigma: standard deviation in pixels.
      kernel: ``"truncated"`` is the Gaussian cut off at the kernel's edge. ``"reflected"`` is the
        kernel of RISE's own code, which folds the tails beyond the edge back into the kernel; at
        11 × 11 with σ 5 it is nearly a box.
      border: ``"reflect"`` extends the image by its mirror image (repeating the edge pixel), which
        preserves the mean and leaves a constant image unchanged; ``"zeros"``, as in RISE's own
        code, lets the edges fade towards 0.

    >>> weights = Blur().weights()
    >>> round(float((weights[5] / weights[0]) ** 2), 2)  # centre to corner: e
    2.72
    """

    size: int = 11
    sigma: float = 5.0
    kernel: Literal["truncated", "reflected"] = "truncated"
    border: Literal["reflect", "zeros"] = "reflect"

    def __post_init__(self):
        """Checks the fields."""
        if self.size < 1 or self.size % 2 == 0:
            raise ValueError(f"blur.size: got {self.size}, wanted an odd number of pixels")
        if not self.sigma > 0:
            raise ValueError(f"blur.sigma: got {self.sigma}, wanted more than 0")
        if self.kernel not in ("truncated", "reflected"):
            raise ValueError(f"blur.kernel: got {self.kernel!r}, wanted 'truncated' or 'reflected'")
        if self.border not in ("reflect", "zeros"):
            raise ValueError(f"blur.border: got {self.border!r}, wanted 'reflect' or 'zeros'")

    def weights(self) -> Float[np.ndarray, " s"]:
        """Computes the kernel's weights along one axis, which sum to 1."""
        from scipy import ndimage  # slow to import

        middle = self.size // 2
        if self.kernel == "reflected":
            return ndimage.gaussian_filter1d(np.eye(self.size)[middle], self.sigma, mode="reflect")
        weights = np.exp(-0.5 * ((np.arange(self.size) - middle) / self.sigma) ** 2)
        return weights / weights.sum()

    def __call__(self, images: Float[np.ndarray, "b h w c"]) -> Float[np.ndarray, "b h w c"]:
        """Blurs images over rows and columns."""
        from scipy import ndimage

        mode, weights = {"reflect": "reflect", "zeros": "constant"}[self.border], self.weights()
        for axis in (1, 2):
            images = ndimage.correlate1d(images, weights, axis=axis, mode=mode)
        return images

    def traced(self, images: Float[ArrayLike, "b h w c"]) -> Float[Array, "b h w c"]:
        """Blurs images inside a jitted function; equal to :meth:`__call__` up to rounding."""
        images = jnp.asarray(images)
        mode = {"reflect": "symmetric", "zeros": "constant"}[self.border]
        for axis in (1, 2):
            beyond = [(0, 0)] * 4
            beyond[axis] = (self.size // 2, self.size // 2)
            padded, size = jnp.pad(images, beyond, mode=mode), images.shape[axis]
            shifted = (
                weight * jax.lax.slice_in_dim(padded, first, first + size, axis=axis)
                for first, weight in enumerate(self.weights().tolist())
            )
            images = functools.reduce(jnp.add, shifted)
        return images


RISE_BLUR = Blur(kernel="reflected", border="zeros")  # Petsiuk et al. 2018, as published in code
