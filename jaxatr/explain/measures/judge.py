"""Evaluates saliency maps by all measures that the network, masks and boxes allow."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxatr.data import Truth
from jaxatr.explain.measures.faithfulness import insertion_and_deletion
from jaxatr.explain.measures.saliency import mean_intensity, pointing_game, share_inside
from jaxatr.typing import ArrayLike, Float

TITLES = {
    "insertion": "insertion",
    "deletion": "deletion",
    "mean_intensity": "mean intensity",
    "share_inside": "share inside",
    "pointing_game": "pointing game",
}
"""Display names of the recorded measures, in the order of tables."""


def judge(
    predict: Callable[[ArrayLike], jax.Array],
    images: Float[np.ndarray, "n h w c"],
    saliency: Float[np.ndarray, "n h w"],
    *,
    pixels_per_step: int = 0,
    batch_size: int = 64,
    truth: Truth = Truth(),  # noqa: B008 (immutable)
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Evaluates saliency maps by all available measures.

    Args:
      predict: maps chips ``[b, h, w, c]`` in their raw units to logits; not jitted.
      images: ``[n, h, w, c]``, in their raw units.
      saliency: ``[n, h, w]`` in [0, 1].
      pixels_per_step: pixels changed per step of insertion and deletion; 0 for one row of the chip.
      batch_size: number of images per batch.
      truth: masks and boxes of the targets, if known.

    Returns:
      ``(values, convention)``. The values are arrays ``[n]`` by name: ``insertion`` and
      ``deletion``, the areas; ``fidelity``, insertion minus deletion; ``mean_intensity``; with
      masks, ``share_inside``, which is 0 for a map of zeros; with boxes, ``pointing_game``. The
      convention lists those of insertion and of deletion, as JSON values.
    """
    inserted, deleted = insertion_and_deletion(
        predict, images, saliency, pixels_per_step=pixels_per_step, batch_size=batch_size
    )
    values = {
        "insertion": inserted.auc,
        "deletion": deleted.auc,
        "fidelity": inserted.auc - deleted.auc,
        "mean_intensity": mean_intensity(saliency),
    }
    if truth.masks is not None:
        values["share_inside"] = np.nan_to_num(share_inside(saliency, truth.masks))
    if truth.boxes is not None:
        pointed = pointing_game(saliency, truth.boxes)
        values["pointing_game"] = pointed.astype(np.float64)
    return values, [dataclasses.asdict(found.convention) for found in (inserted, deleted)]
