"""Facts of an image that need no network, by which a change of the sensor or the boxes shows."""

import numpy as np

from jaxatr.typing import Float, Shaped

FACTS = ("brightness", "contrast", "sharpness", "noise", "offset", "extent")
"""Names of the facts, in the order of :func:`image_facts`."""


def image_facts(image: Shaped[np.ndarray, "h w c"]) -> Float[np.ndarray, " f"]:
    """Computes the facts of an image, the mean of its channels.

    ``brightness`` is the mean and ``contrast`` the standard deviation, in the image's units.
    ``sharpness`` is the root mean square of the differences between neighbouring pixels, as a
    multiple of the contrast. ``noise`` is Immerkær's estimate of the standard deviation of the
    noise (1996, "Fast noise variance estimation"). ``offset`` is the distance of the centroid of
    the squared differences from the image's centre, and ``extent`` their root mean square distance
    from that centroid, both as shares of the diagonal: they change with the boxes.

    Args:
      image: at least 3 × 3 pixels; smaller images have no noise.

    Returns:
      ``[f]``, in the order of :data:`FACTS`; a flat image has only a brightness.

    >>> image_facts(np.full((4, 4, 1), 7)).tolist()
    [7.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    gray = image[..., 0].astype(np.float32)
    for channel in range(1, image.shape[2]):
        gray += image[..., channel]
    gray /= image.shape[2]
    mean, spread = float(gray.mean()), float(gray.std())
    energy = np.zeros_like(gray)  # of the differences to the pixels on the right and below
    energy[:, :-1] = np.square(gray[:, 1:] - gray[:, :-1])
    energy[:-1] += np.square(gray[1:] - gray[:-1])
    total = float(energy.sum())
    if not (spread and total):
        return np.array([mean, 0, 0, 0, 0, 0], np.float64)
    height, width = gray.shape
    second = gray[:-2] - 2 * gray[1:-1] + gray[2:]
    second = second[:, :-2] - 2 * second[:, 1:-1] + second[:, 2:]
    noise = np.sqrt(np.pi / 2) * float(np.abs(second).mean()) / 6 if second.size else 0.0
    of_rows, of_columns = energy.sum(axis=1) / total, energy.sum(axis=0) / total
    rows, columns = np.arange(height), np.arange(width)
    y, x = of_rows @ rows, of_columns @ columns
    offset = np.hypot(y - (height - 1) / 2, x - (width - 1) / 2)
    extent = np.sqrt(of_rows @ (rows - y) ** 2 + of_columns @ (columns - x) ** 2)
    sharpness = np.sqrt(total / gray.size) / spread
    diagonal = np.hypot(height, width)
    return np.array([mean, spread, sharpness, noise, offset / diagonal, extent / diagonal])
