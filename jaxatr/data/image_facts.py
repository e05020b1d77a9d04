"""Facts of an image that need no network, by which a change of the sensor or the boxes shows."""

import numpy as np

from jaxatr.typing import Float, Shaped

FACTS = ("brightness", "contrast", "sharpness", "noise", "offset", "extent")
"""Names of the facts, in the order of :func:`image_facts`."""


def image_facts(images: Shaped[np.ndarray, "... h w c"]) -> Float[np.ndarray, "... f"]:
    """Computes the facts of images, each the mean of its channels.

    ``brightness`` is the mean and ``contrast`` the standard deviation, in the image's units.
    ``sharpness`` is the root mean square of the differences between neighbouring pixels, as a
    multiple of the contrast. ``noise`` is Immerkær's estimate of the standard deviation of the
    noise (1996, "Fast noise variance estimation"). ``offset`` is the distance of the centroid of
    the squared differences from the image's centre, and ``extent`` their root mean square distance
    from that centroid, both as shares of the diagonal: they change with the boxes.

    Args:
      images: one image or several, of at least 3 × 3 pixels; smaller images have no noise.

    Returns:
      ``[..., f]``, in the order of :data:`FACTS`; a flat image has only a brightness.

    >>> image_facts(np.full((4, 4, 1), 7)).tolist()
    [7.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    gray = images[..., 0].astype(np.float32)
    for channel in range(1, images.shape[-1]):
        gray += images[..., channel]
    gray /= images.shape[-1]
    energy = np.zeros_like(gray)  # of the differences to the pixels on the right and below
    energy[..., :-1] = np.square(gray[..., 1:] - gray[..., :-1])
    energy[..., :-1, :] += np.square(gray[..., 1:, :] - gray[..., :-1, :])
    second = gray[..., :-2, :] - 2 * gray[..., 1:-1, :] + gray[..., 2:, :]
    second = second[..., :-2] - 2 * second[..., 1:-1] + second[..., 2:]
    height, width = gray.shape[-2:]
    rows, columns = np.arange(height), np.arange(width)
    inner, both = max(1, second.shape[-2] * second.shape[-1]), (-2, -1)
    mean, spread, total = gray.mean(both), gray.std(both), energy.sum(both)
    flat = (spread == 0) | (total == 0)
    share = energy / np.where(flat, 1, total)[..., None, None]
    of_rows, of_columns = (share.sum(axis, dtype=np.float64) for axis in (-1, -2))
    y, x = of_rows @ rows, of_columns @ columns
    off_rows, off_columns = np.square(rows - y[..., None]), np.square(columns - x[..., None])
    facts = [
        spread,
        np.sqrt(total / (height * width)) / np.where(flat, 1, spread),
        np.sqrt(np.pi / 2) / 6 * np.abs(second).sum(both) / inner,
        np.hypot(y - (height - 1) / 2, x - (width - 1) / 2) / np.hypot(height, width),
        np.sqrt((of_rows * off_rows).sum(-1) + (of_columns * off_columns).sum(-1))
        / np.hypot(height, width),
    ]
    return np.stack([mean, *(np.where(flat, 0, one) for one in facts)], axis=-1).astype(np.float64)
