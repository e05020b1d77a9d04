"""Superpixels for LIME."""

import numpy as np

from jaxatr.extras import extra
from jaxatr.typing import Float, Int

_LIGHTNESS = 100.0  # range of CIELAB's first channel


def quickshift(
    image: Float[np.ndarray, "h w c"],
    *,
    kernel_size: int = 4,
    max_dist: int = 200,
    ratio: float = 0.2,
    least_side: int = 224,
) -> Int[np.ndarray, "h w"]:
    """Segments an image by scikit-image's quickshift, with the constants of LIME's own repository.

    The constants are meant for photographs: kernel and distance are in pixels, so that an image of
    64×64 gives 4 superpixels, and one of 32×32 one or two. Smaller images are therefore enlarged
    first, and give about as many superpixels as a photograph of ``least_side``, some 30 to 50. The
    result is deterministic.

    Args:
      image: ``[h, w, c]``, in any unit. Gray and colours (three channels) are scaled to [0, 1] by
        the image's minimum and maximum, and compared as CIELAB; each of other bands is scaled by
        its own to a share of CIELAB's range.
      kernel_size: width of the density's Gaussian, in pixels.
      max_dist: largest distance at which pixels are joined.
      ratio: weight of colour relative to position.
      least_side: smaller images are enlarged until the shorter side has this many pixels; 1 leaves
        the image unchanged.

    Raises:
      ValueError: the image has other axes.
    """
    # Slow to import, and not needed for training.
    segmentation, transform = (
        extra(f"skimage.{name}", "lime", "LIME") for name in ("segmentation", "transform")
    )
    if image.ndim != 3:
        raise ValueError(f"image: got shape {image.shape}, wanted [h, w, c]")
    rows, columns, bands = image.shape
    seen = bands in (1, 3)
    image = np.asarray(image, np.float64)
    if seen:
        image = np.broadcast_to(image, (rows, columns, 3))
    axes = None if seen else (0, 1)
    span = np.ptp(image, axis=axes)
    image = (image - image.min(axis=axes)) / np.where(span > 0, span, 1)
    if not seen:
        image = image * (_LIGHTNESS / np.sqrt(bands))
    factor = max(1, least_side / min(rows, columns))
    enlarged = transform.resize(image, (round(rows * factor), round(columns * factor)), order=1)
    labels = segmentation.quickshift(
        enlarged, kernel_size=kernel_size, max_dist=max_dist, ratio=ratio, convert2lab=seen
    )
    return labels[np.ix_(_centres(rows, len(labels)), _centres(columns, labels.shape[1]))]


def _centres(count: int, enlarged: int) -> Int[np.ndarray, " n"]:
    """Finds the pixels of the enlarged side that contain the centres of the original pixels."""
    return ((np.arange(count) + 0.5) * enlarged / count).astype(int)
