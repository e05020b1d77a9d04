"""The network of a detector with decoding, suppression and decision, as one function."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import data
from jaxatr.data.intake import Intake
from jaxatr.models.detector import MULTIPLE
from jaxatr.scenes import boxes as geometry
from jaxatr.tasks.detection.decoding import Tiling, decode
from jaxatr.training import Exportable, TrainedRun
from jaxatr.typing import PyTree


def tiling_of(run: TrainedRun) -> Tiling:
    """Returns how a run's scenes are cut; beyond a scene, tiles have the mean of the training."""
    fields, mean = run.config.detection, run.mean
    dtype = np.dtype(run.record["image_dtype"])
    whole = np.issubdtype(dtype, np.integer)
    fill = (np.rint(mean) if whole else mean).astype(dtype)
    return Tiling(fields.tile, fields.tile_overlap, fill)


def exportable(run: TrainedRun) -> Exportable:
    """Returns the function from scenes of at most a tile to targets that are decided about.

    Its outputs are ``boxes`` ``[b, n, 4]``, ``scores`` ``[b, n]``, ``valid`` ``[b, n]``,
    ``decision`` ``[b, n]``, the index of the class or -1, and ``probabilities`` ``[b, n, k]``; n is
    ``detection.most``. They are those of :meth:`Detector.detect`, which has no rows that are not
    valid.

    Raises:
      ValueError: the training is not finished, so that there are no thresholds.
    """
    fields, tiling, fitted = run.config.detection, tiling_of(run), run.record.get("detection")
    if not fitted:
        raise ValueError(f"{run.workdir}: the training is not finished: there are no thresholds")
    threshold, gamma = float(fitted["threshold"]), float(fitted["gamma"])
    channels = int(run.record["channels"])

    def apply(variables: PyTree, images: jax.Array) -> Mapping[str, jax.Array]:
        height, width = images.shape[1:3]
        more = (-(-side // MULTIPLE) * MULTIPLE - side for side in (height, width))
        beyond = run.normalize(tiling.fill)
        tiles = jnp.pad(run.normalize(images) - beyond, [(0, 0), *((0, n) for n in more), (0, 0)])
        out: Any = run.module.apply(variables, tiles + beyond)
        found = decode(out, most=fields.most, overlap=fields.overlap)
        boxes = jnp.asarray(geometry.clipped(found.boxes, width, height))
        above = jnp.asarray(found.scores) >= threshold
        valid = jnp.asarray(found.valid) & above & jnp.asarray(geometry.area(boxes) > 0)
        probabilities = jax.nn.sigmoid(found.open_logits)
        known = probabilities.max(axis=-1) >= gamma
        best = jnp.argmax(probabilities, axis=-1).astype(jnp.int32)
        return {
            "boxes": boxes,
            "scores": jnp.asarray(found.scores),
            "valid": valid,
            "decision": jnp.where(known, best, -1),
            "probabilities": probabilities,
        }

    shape = (fields.tile, fields.tile, channels)
    chip = data.Chip(channels=channels if channels in (1, 3) else None)
    return Exportable(
        apply,
        run.variables,
        (),
        run.classes,
        properties={"threshold": threshold, "gamma": gamma, "unknown": -1},
        raw=True,
        scenes=Intake(chip, shape, run.record["image_dtype"]),
    )
