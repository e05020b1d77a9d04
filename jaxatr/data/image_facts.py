"""Facts of an image that need no network, by which a change of the sensor or the boxes shows."""

from typing import Any

import numpy as np

from jaxatr.typing import Float, Shaped

FACTS = ("brightness", "contrast", "sharpness", "noise", "offset", "extent")
"""Names of the facts, in the order of :func:`image_facts`."""

_LARGE = 1e15  # of larger values, such as marks of missing pixels, the sums of squares overflow


def image_facts(images: Shaped[np.ndarray, "... h w c"]) -> Float[np.ndarray, "... f"]:
    """Computes the facts of images, each the mean of its channels.

    ``brightness`` is the mean and ``contrast`` the standard deviation, in the image's units.
    ``sharpness`` is the root of the mean, over the pixels, of the squared differences to the pixels
    on the right and below, as a multiple of the contrast. ``noise`` is Immerkær's estimate of the
    standard deviation of the noise (1996, "Fast noise variance estimation"). ``offset`` is the
    distance of the centroid of the squared differences from the image's centre, and ``extent``
    their root mean square distance from that centroid, both as shares of the diagonal: they change
    with the boxes. A difference is at the left or upper of its two pixels.

    Args:
      images: one image or several, of at least 3 × 3 pixels; smaller images have no noise.

    Returns:
      ``[..., f]``, in the order of :data:`FACTS`; a flat image has only a brightness.

    >>> image_facts(np.full((4, 4, 1), 7)).tolist()
    [7.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    return facts_by(np, images).astype(np.float64)


def facts_by(xp: Any, images: Any) -> Any:
    """Computes :func:`image_facts` by ``numpy`` or, for programs, by ``jax.numpy`` in float32."""
    whole, images, unit = np.issubdtype(images.dtype, np.integer), images.astype(np.float32), 1
    if not whole:
        unit = xp.maximum(xp.abs(images).max((-3, -2, -1)) / np.float32(_LARGE), np.float32(1))
        images = images / unit[..., None, None, None]
    gray = images[..., 0]
    for channel in range(1, images.shape[-1]):
        gray = gray + images[..., channel]
    gray = gray / np.float32(images.shape[-1])
    (height, width), both = gray.shape[-2:], (-2, -1)
    right = xp.square(gray[..., 1:] - gray[..., :-1])  # differences to the pixels on the right
    below = xp.square(gray[..., 1:, :] - gray[..., :-1, :])
    second = gray[..., :-2, :] - 2 * gray[..., 1:-1, :] + gray[..., 2:, :]
    second = second[..., :-2] - 2 * second[..., 1:-1] + second[..., 2:]
    inner = max(1, second.shape[-2] * second.shape[-1])
    mean, spread = gray.mean(both), gray.std(both)

    def summed(along: Any, across: Any) -> Any:
        """Returns the squared differences of each row, or column; the last has none across."""
        return along + xp.concatenate([across, xp.zeros_like(along[..., :1])], axis=-1)

    of_rows = summed(right.sum(axis=-1), below.sum(axis=-1))
    of_columns = summed(below.sum(axis=-2), right.sum(axis=-2))
    total = of_rows.sum(axis=-1)
    flat = (spread == 0) | (total == 0)
    divisor = xp.where(flat, 1, total)[..., None]
    offsets, squares = [], []
    for energies, side in ((of_rows, height), (of_columns, width)):
        shares, places = energies / divisor, np.arange(side, dtype=np.float32)
        middle = (shares * places).sum(axis=-1)
        offsets.append(middle - np.float32((side - 1) / 2))
        squares.append((shares * xp.square(places - middle[..., None])).sum(axis=-1))
    diagonal = np.float32(np.hypot(height, width))
    noise = np.float32(np.sqrt(np.pi / 2) / 6) * xp.abs(second).sum(both) / inner
    facts = [
        spread * unit,
        xp.sqrt(total / (height * width)) / xp.where(flat, 1, spread),
        xp.minimum(noise, np.finfo(np.float32).max / unit) * unit,
        xp.hypot(*offsets) / diagonal,
        xp.sqrt(squares[0] + squares[1]) / diagonal,
    ]
    return xp.stack([mean * unit, *(xp.where(flat, 0, one) for one in facts)], axis=-1)
