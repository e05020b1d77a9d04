"""Measures of saliency maps alone: their intensity, location and similarity."""

import chex
import numpy as np

from jaxatr.typing import ArrayLike, Bool, Float, Shaped


def mean_intensity(saliency: Float[ArrayLike, "b h w"]) -> Float[np.ndarray, " b"]:
    r"""Computes the mean of each map over its pixels (Lee and Kim 2021, table 3).

    The paper writes :math:`\mathbb{E}\|H_x\|_1` and reports 1.0 for a map of ones, so the norm is
    divided by the number of pixels.

    Args:
      saliency: ``[b, h, w]``, in [0, 1], because raw maps of different methods are not comparable.

    Raises:
      ValueError: a value is not in [0, 1].
    """
    maps = check_maps("saliency", saliency)
    if maps.size and not 0 <= maps.min() <= maps.max() <= 1:
        raise ValueError(f"saliency: got {maps.min()} to {maps.max()}, wanted maps in [0, 1]")
    return maps.mean(axis=(1, 2))


def saliency_similarity(
    first: Float[ArrayLike, "b h w"], second: Float[ArrayLike, "b h w"]
) -> Float[np.ndarray, " b"]:
    """Computes Spearman's rank correlation of pairs of maps, over their pixels.

    For the check of Adebayo et al. (2018, "Sanity Checks for Saliency Maps"): a map that explains
    the network changes when the top layers are randomised
    (:func:`~jaxatr.explain.measures.randomise_layers`). Ties share their mean rank. The result is
    NaN if a map is constant.

    Args:
      first: ``[b, h, w]``.
      second: ``[b, h, w]``.

    Raises:
      ValueError: a map is not finite.

    >>> rising = np.arange(6.0).reshape(1, 2, 3)
    >>> float(saliency_similarity(rising, np.exp(rising))[0].round(6))
    1.0
    """
    from scipy import stats  # slow to import

    maps = check_maps("first", first)
    others = check_maps("second", second, maps.shape)
    ranks = [stats.rankdata(each.reshape(len(each), -1), axis=1) for each in (maps, others)]
    one, other = (rank - rank.mean(axis=1, keepdims=True) for rank in ranks)
    spread = np.sqrt(np.sum(one**2, axis=1) * np.sum(other**2, axis=1))
    return np.divide(
        np.sum(one * other, axis=1), spread, out=np.full(len(maps), np.nan), where=spread > 0
    )


def pointing_game(
    saliency: Float[ArrayLike, "b h w"], boxes: Float[ArrayLike, "b 4"]
) -> Bool[np.ndarray, " b"]:
    """Checks whether each map's maximum lies in the target's box (Zhang et al. 2016).

    Unlike the evaluation of that paper, "Top-down Neural Attention by Excitation Backprop", this
    one has no tolerance of 15 pixels. The first of several equal maxima counts, in pixel order. A
    pixel lies in the box if its centre does; row r spans r to r + 1.

    Args:
      saliency: ``[b, h, w]``.
      boxes: ``[b, 4]``, y0, x0, y1, x1 in pixels of the map; y1 and x1 are exclusive.

    Raises:
      ValueError: a map is not finite.
    """
    maps, boxes = check_maps("saliency", saliency), np.asarray(boxes)
    chex.assert_shape(boxes, (len(maps), 4))
    best = maps.reshape(len(maps), -1).argmax(axis=1)
    centres = np.stack(np.divmod(best, maps.shape[2]), axis=1) + 0.5
    return np.all((boxes[:, :2] <= centres) & (centres < boxes[:, 2:]), axis=1)


def share_inside(
    saliency: Float[ArrayLike, "b h w"], masks: Shaped[ArrayLike, "b h w"]
) -> Float[np.ndarray, " b"]:
    """Computes the share of each map's saliency that lies on the target.

    A constant map gives the share of the image that the target covers. A map of zeros gives NaN.

    Args:
      saliency: ``[b, h, w]``, not negative.
      masks: ``[b, h, w]``, true or non-zero on the target.

    Raises:
      ValueError: a map is negative or not finite.
    """
    maps = check_maps("saliency", saliency)
    if maps.size and maps.min() < 0:
        raise ValueError(f"saliency: got {maps.min()}, wanted no negative values")
    inside = np.asarray(masks, bool)
    chex.assert_equal_shape([inside, maps])
    total = maps.sum(axis=(1, 2))
    held = maps.sum(axis=(1, 2), where=inside)
    return np.divide(held, total, out=np.full(len(maps), np.nan), where=total > 0)


def check_maps(
    name: str, saliency: Float[ArrayLike, "b h w"], shape: tuple[int, ...] | None = None
) -> Float[np.ndarray, "b h w"]:
    """Converts maps to float64, and checks that they are finite.

    Args:
      name: name of the maps in error messages.
      saliency: ``[b, h, w]``.
      shape: their required shape; None for any.

    Raises:
      ValueError: a map is not finite.
    """
    maps = np.asarray(saliency, np.float64)
    chex.assert_shape(maps, shape or (None, None, None))
    finite = np.isfinite(maps).all(axis=(1, 2))
    if not finite.all():
        rows = np.flatnonzero(~finite)
        raise ValueError(f"{name}: {len(rows)} maps are not finite, the first is {rows[0]}")
    return maps
