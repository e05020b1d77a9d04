"""Operators on boxes: region pooling and non-maximum suppression."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Known, Value, known, sized


@register("RoiAlign", since=16)
def roi_align(
    x: Value,
    rois: Value,
    batch_indices: Value,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    """Pools each region into a grid of cells by bilinear sampling (ONNX RoiAlign-22).

    Args:
      x: ``[b, c, h, w]``.
      rois: ``[r, 4]``: left, top, right, bottom; must be known unless ``sampling_ratio`` is given.
      batch_indices: image index of each region, ``[r]``.
      coordinate_transformation_mode: half_pixel, or output_half_pixel, where pixel centres are at
        integers and regions are at least one pixel large.
      mode: avg or max over the samples of a cell.
      output_height: number of rows of cells.
      output_width: number of columns of cells.
      sampling_ratio: number of samples per cell along each axis; 0 for one per pixel.
      spatial_scale: factor that converts ``rois`` to pixels.

    Returns:
      ``[r, c, output_height, output_width]``.
    """
    if mode not in ("avg", "max"):
        raise ValueError(f"mode: got {mode!r}, wanted avg or max")
    half = coordinate_transformation_mode == "half_pixel"
    cells = (output_height, output_width)

    def one(image_index, roi, samples):
        roi = roi * spatial_scale - (0.5 if half else 0.0)
        start, length = roi[1::-1], roi[:1:-1] - roi[1::-1]
        length = length if half else jnp.maximum(length, 1.0)
        ats = []
        grid = sized(n * s for n, s in zip(cells, samples, strict=True))
        for axis, count in enumerate(grid):
            inner = (jnp.arange(count) + 0.5) / count
            ats.append((start[axis] + inner * length[axis]).astype(x.dtype))
        taken = _samples(jnp.asarray(x)[image_index], ats[0], ats[1], mode == "max")
        taken = taken.reshape(-1, output_height, samples[0], output_width, samples[1])
        return (jnp.mean if mode == "avg" else jnp.max)(taken, (2, 4))

    if sampling_ratio > 0:
        fixed = (sampling_ratio, sampling_ratio)
        return jax.vmap(lambda i, roi: one(i, roi, fixed))(
            jnp.asarray(batch_indices), jnp.asarray(rois)
        )
    boxes, results = known("rois", rois).astype(np.float64), []
    for index, box in enumerate(boxes):
        sides = (box[:1:-1] - box[1::-1]) * spatial_scale
        sides = sides if half else np.maximum(sides, 1)
        counts = tuple(max(1, int(np.ceil(s / n))) for s, n in zip(sides, cells, strict=True))
        results.append(one(jnp.asarray(batch_indices)[index], jnp.asarray(rois)[index], counts))
    return jnp.stack(results) if results else jnp.zeros((0, x.shape[1], *cells), x.dtype)


@register("RoiAlign", since=10)
def roi_align_from_corners(
    x: Value,
    rois: Value,
    batch_indices: Value,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    """Applies :func:`roi_align` with pixel centres at integers (ONNX RoiAlign-10)."""
    return roi_align(
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )


def _samples(image: Value, y: Value, x: Value, largest: bool) -> Value:
    """Samples ``[c, h, w]`` bilinearly on a grid: ``[c, len(y), len(x)]``.

    A sample more than one pixel outside the image is zero. With ``largest``, a sample is the
    maximum of its four weighted pixels instead of their sum.
    """
    parts = []
    for at, length in ((y, image.shape[1]), (x, image.shape[2])):
        inside = (at >= -1) & (at <= length)
        at = jnp.clip(at, 0, length - 1)
        low = jnp.clip(jnp.floor(at), 0, max(length - 1, 0)).astype("int32")
        high = jnp.minimum(low + 1, length - 1)
        rest = jnp.where(inside, at - low, 0).astype(image.dtype)
        parts.append(((low, jnp.where(inside, 1 - rest, 0)), (high, rest)))
    mixed: list[Any] = [
        image[:, i[:, None], j] * (p[:, None] * q).astype(image.dtype)
        for i, p in parts[0]
        for j, q in parts[1]
    ]
    if largest:
        return jnp.max(jnp.stack(mixed), 0)
    return mixed[0] + mixed[1] + mixed[2] + mixed[3]


@register("NonMaxSuppression")
def non_max_suppression(
    boxes: Value,
    scores: Value,
    max_output_boxes_per_class: Known | None = None,
    iou_threshold: Known | None = None,
    score_threshold: Known | None = None,
    *,
    center_point_box: int = 0,
) -> Value:
    """Drops boxes that overlap a box of higher score and the same class (NonMaxSuppression-11).

    Args:
      boxes: ``[b, m, 4]``: y and x of two opposite corners; or centre x, centre y, width, height.
      scores: ``[b, k, m]``.
      max_output_boxes_per_class: maximum number of boxes to keep per class; 0 by default.
      iou_threshold: maximum intersection over union with a kept box; 0 by default.
      score_threshold: score that a box must exceed; no limit by default.
      center_point_box: whether boxes are given by centre, width and height.

    Returns:
      Image, class and box index of each kept box, ``[n, 3]``, by descending score in each class.
    """
    all_boxes, all_scores = known("boxes", boxes), known("scores", scores)
    limit = _number("max_output_boxes_per_class", max_output_boxes_per_class, 0.0)
    overlap = _number("iou_threshold", iou_threshold, 0.0)
    least = _number("score_threshold", score_threshold, -np.inf)
    kept = []
    for image, corners in enumerate(_corners(all_boxes, center_point_box)):
        for label, row in enumerate(all_scores[image]):
            chosen: list[int] = []
            for box in np.argsort(-row, kind="stable"):
                if len(chosen) >= limit or row[box] <= least:
                    break
                if not chosen or (_overlaps(corners[box], corners[chosen]) <= overlap).all():
                    chosen.append(int(box))
            kept += [(image, label, box) for box in chosen]
    return np.array(kept, np.int64).reshape(-1, 3)


def _number(name: str, value: Known | None, default: float) -> float:
    return default if value is None else float(known(name, value).reshape(-1)[0])


def _corners(boxes: np.ndarray, center_point_box: int) -> np.ndarray:
    first, second = boxes[..., :2], boxes[..., 2:]
    if center_point_box:
        low, high = first - second / 2, first + second / 2
    else:
        low, high = np.minimum(first, second), np.maximum(first, second)
    return np.concatenate([low, high], -1)


def _overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns the intersection over union of one box with others."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.maximum(high - low, 0), -1)
    areas = np.prod(others[:, 2:] - others[:, :2], -1) + np.prod(box[2:] - box[:2])
    return shared / np.maximum(areas - shared, np.finfo(np.float64).tiny)
