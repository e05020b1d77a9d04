"""Superpixels for LIME."""

import numpy as np

from jaxatr.typing import Float, Int


def quickshift(
    image: Float[np.ndarray, "h w c"],
    *,
    kernel_size: int = 4,
    max_dist: int = 200,
    ratio: float = 0.2,
    least_side: int = 224,
) -> Int[np.ndarray, "h w"]:
    """Returns scikit-image's quickshift superpixels, with the constants of LIME's own repository.

    Those constants are for photographs: kernel and distance are in pixels, so that at 64×64 they
    leave 4 superpixels, and at 32×32 one or two. A smaller image is therefore enlarged first, and
    gets about as many superpixels as a photograph of ``least_side`` would, some 30 to 50. The
    result is the same at each call.

    Args:
      image: ``[h, w, c]``, one channel (gray) or three (as red, green, blue), in any unit: it is
        scaled to [0, 1] by its own least and greatest value.
      kernel_size: width of the density's Gaussian, in pixels.
      max_dist: beyond it, no pixel joins another.
      ratio: weight of colour against place.
      least_side: pixels that the shorter side is enlarged to; 1 leaves the image as it is.

    Raises:
      ValueError: the image has neither one channel nor three.
    """
    from skimage import segmentation, transform  # takes a second, and a training has no use for it

    if image.ndim != 3 or image.shape[-1] not in (1, 3):
        raise ValueError(
            f"image: got shape {image.shape}, wanted [h, w, 1] or [h, w, 3]; for other channels, "
            "give LIME a segmentation of your own"
        )
    rows, columns = image.shape[:2]
    image = np.broadcast_to(np.asarray(image, np.float64), (rows, columns, 3))
    span = np.ptp(image)
    image = (image - image.min()) / (span if span > 0 else 1)
    factor = max(1, least_side / min(rows, columns))
    enlarged = transform.resize(image, (round(rows * factor), round(columns * factor)), order=1)
    labels = segmentation.quickshift(
        enlarged, kernel_size=kernel_size, max_dist=max_dist, ratio=ratio
    )
    return labels[np.ix_(_centres(rows, len(labels)), _centres(columns, labels.shape[1]))]


def _centres(count: int, enlarged: int) -> Int[np.ndarray, " n"]:
    """Returns the pixel of the enlarged side in which the centre of each pixel lies."""
    return ((np.arange(count) + 0.5) * enlarged / count).astype(int)
