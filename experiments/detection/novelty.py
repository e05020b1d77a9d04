"""Measures how well places that look unlike the background show targets of classes left out.

    python -m experiments.detection.novelty [--scenes=HITUAV] [--memory=8000]

Nothing is trained. As in PatchCore (Roth et al. 2022, "Towards total recall in industrial anomaly
detection"), a memory holds features of a published network at places of the training scenes outside
of boxes, and the novelty of a place is the distance to the nearest of them. Measured on the
validation scenes of HIT-UAV, for Car and for Bicycle: the share of its boxes with a place above the
threshold of so many false alarms a scene, which are peaks outside of all boxes; and how many peaks
on them have a box of an IoU of .5, by the region around a peak, and by a square. The memory either
leaves out the boxes of the class, as a training with ``detection.unknown=ignore`` does, or knows
nothing of them.
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import ndimage

from jaxatr import data, models
from jaxatr.models.detector import MULTIPLE
from jaxatr.scenes import boxes as geometry

_NETWORK = "mobilenet_v2"
OUTPUT = Path(__file__).parent / "results" / "novelty.json"
LEFT_OUT = ("Car", "Bicycle")
FALSE_ALARMS = (0.5, 1.0, 3.0)  # per scene
STRIDE = 8  # pixels of a place
SQUARES = (24, 36, 48)  # pixels
SHARES = (0.4, 0.5, 0.6, 0.7)  # of a peak's height above its surroundings, the edge of its region
_AROUND = 12  # places on each side of a peak in which its region may lie
_SCENES, _EACH = 300, 100  # training scenes for the memory, places of each
_SMOOTH = 1.2  # places, the deviation of the filter of the novelty


class Scene(NamedTuple):
    """The features and the boxes of a scene.

    Attributes:
      features: ``[h, w, d]``.
      boxes: ``[n, 4]``, in pixels.
      labels: ``[n]``, classes; negative for regions in which nothing counts.
    """

    features: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray


def extractor(weights_dir: str) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function of a gray scene ``[h, w, 1]`` to its features at every eighth pixel.

    They are the maps of MobileNetV2 at strides 4, 8 and 16, each averaged over 3 by 3 places.
    """
    network = models.create(_NETWORK, pretrained=True, weights_dir=weights_dir)
    published = models.published.NETWORKS[_NETWORK]
    mean, std = (np.array(each, np.float32) for each in (published.mean, published.std))

    @jax.jit
    def features(image: jax.Array) -> jax.Array:
        colours = data.normalize(jnp.repeat(image, 3, axis=-1), mean, std)
        seen: Any = network.model.apply(
            network.variables, colours[None], method=lambda module, x: module.attended(x)
        )
        fine, middle, coarse = seen.detail, seen.stages[0], seen.stages[1]
        count, height, width, _ = middle.shape
        fine = fine.reshape(count, height, 2, width, 2, -1).mean(axis=(2, 4))
        coarse = jax.image.resize(coarse, (count, height, width, coarse.shape[3]), "bilinear")
        joined = jnp.concatenate([fine, middle, coarse], axis=-1)[0]
        window = (3, 3, 1)
        return jax.lax.reduce_window(joined, 0.0, jax.lax.add, window, (1, 1, 1), "SAME") / 9

    def of(image: np.ndarray) -> np.ndarray:
        height, width, _ = image.shape
        beyond = [(0, -side % MULTIPLE) for side in (height, width)]
        padded = np.pad(image.astype(np.float32), [*beyond, (0, 0)], mode="edge")
        return np.asarray(features(padded))[: height // STRIDE, : width // STRIDE]

    return of


def covered(boxes: np.ndarray, shape: tuple[int, int], margin: int = STRIDE) -> np.ndarray:
    """Returns the places ``[h, w]`` that meet a box with a margin of some pixels."""
    found = np.zeros(shape, bool)
    for x0, y0, x1, y1 in boxes:
        rows, columns = (
            slice(max(0, int(low - margin) // STRIDE), int(high + margin) // STRIDE + 1)
            for low, high in ((y0, y1), (x0, x1))
        )
        found[rows, columns] = True
    return found


def novelty(scenes: list[Scene], memory: np.ndarray) -> list[np.ndarray]:
    """Returns the smoothed distance of every place to the nearest of the memory, ``[h, w]``."""
    mean, std = memory.mean(axis=0), memory.std(axis=0) + 1e-6
    known = jnp.asarray((memory - mean) / std)

    @jax.jit
    def distances(features: jax.Array) -> jax.Array:
        rows = ((features - mean) / std).reshape(-1, features.shape[2])
        squares = jnp.sum(rows**2, axis=1)[:, None] - 2 * rows @ known.T + jnp.sum(known**2, axis=1)
        return jnp.sqrt(jnp.maximum(squares.min(axis=1), 0)).reshape(features.shape[:2])

    found = (np.asarray(distances(jnp.asarray(scene.features))) for scene in scenes)
    return [ndimage.gaussian_filter(values, _SMOOTH) for values in found]


def peaks_of(values: np.ndarray) -> np.ndarray:
    """Returns row and column ``[n, 2]`` of the largest place among 5 by 5."""
    return np.argwhere(ndimage.maximum_filter(values, 5) == values)


def region(values: np.ndarray, peak: np.ndarray, share: float) -> np.ndarray:
    """Returns the box ``[4]`` in pixels of the region of a peak, from a share of its height."""
    top, left = np.maximum(peak - _AROUND, 0)
    window = values[top : peak[0] + _AROUND + 1, left : peak[1] + _AROUND + 1]
    base = np.median(window)
    labelled: Any = ndimage.label(window >= base + share * (values[tuple(peak)] - base))
    regions = labelled[0]
    own = np.argwhere(regions == regions[peak[0] - top, peak[1] - left]) + [top, left]
    (y0, x0), (y1, x1) = own.min(axis=0), own.max(axis=0) + 1
    return STRIDE * np.array([x0, y0, x1, y1], float)


def square(peak: np.ndarray, side: int) -> np.ndarray:
    """Returns the box ``[4]`` in pixels of a square around a peak."""
    y, x = STRIDE * (peak + 0.5)
    return np.array([x - side / 2, y - side / 2, x + side / 2, y + side / 2])


def measured(scenes: list[Scene], maps: list[np.ndarray], label: int) -> dict[str, Any]:
    """Returns the recall of a class's boxes by places, and how well boxes of peaks fit."""
    best, alarms, fits = [], [], []
    for scene, values in zip(scenes, maps, strict=True):
        peaks = peaks_of(values)
        outside = ~covered(scene.boxes, values.shape)[tuple(peaks.T)]
        alarms.append(values[tuple(peaks[outside].T)])
        for box in scene.boxes[scene.labels == label]:
            own = covered(box[None], values.shape, 0)
            best.append(values[own].max(initial=-np.inf))
            for peak in peaks[own[tuple(peaks.T)]]:
                made = [region(values, peak, share) for share in SHARES]
                made += [square(peak, side) for side in SQUARES]
                overlaps = np.asarray(geometry.iou(np.stack(made), box))
                fits.append((values[tuple(peak)], *overlaps))
    ranked = np.sort(np.concatenate(alarms))[::-1]
    thresholds = [ranked[int(count * len(scenes))] for count in FALSE_ALARMS]
    above = np.array([row[1:] for row in fits if row[0] > thresholds[-1]])
    names = [f"region from {share:g}" for share in SHARES] + [f"square of {s}" for s in SQUARES]
    return {
        "boxes": len(best),
        "recall": {
            f"{count:g}": float(np.mean(np.array(best) > threshold))
            for count, threshold in zip(FALSE_ALARMS, thresholds, strict=True)
        },
        "peaks": len(above),
        "fit": dict(zip(names, np.mean(above >= 0.5, axis=0).tolist(), strict=True)),
    }


def main() -> None:
    """Measures and records."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--scenes", default=str(default / "hituav"))
    parser.add_argument("--weights_dir", default=str(default / "weights" / _NETWORK))
    parser.add_argument("--memory", type=int, default=8000)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    dataset = data.open_dataset("whole_scenes", source=given.scenes)
    of, rng = extractor(given.weights_dir), np.random.default_rng(0)
    classes = {name: dataset.classes.index(name) for name in LEFT_OUT}
    places: dict[tuple[str, bool], list[np.ndarray]] = {
        (name, drawn): [] for name in LEFT_OUT for drawn in (True, False)
    }
    train = dataset.splits["train"]
    for number in rng.permutation(len(train))[:_SCENES]:
        one = train[int(number)]
        features, boxes, labels = of(one["image"]), one["boxes"], one["labels"]
        for (name, drawn), kept in places.items():
            others = boxes if drawn else boxes[labels != classes[name]]
            free = features[~covered(others, features.shape[:2])]
            kept.append(free[rng.permutation(len(free))[:_EACH]])
    shown = dataset.splits["val"]
    scenes = [
        Scene(of(one["image"]), one["boxes"], one["labels"])
        for one in (shown[number] for number in range(len(shown)))
    ]
    rows: dict[str, Any] = {}
    for (name, drawn), kept in places.items():
        joined = np.concatenate(kept)
        memory = joined[rng.permutation(len(joined))[: given.memory]]
        found = measured(scenes, novelty(scenes, memory), classes[name])
        rows.setdefault(name, {})["its boxes left out" if drawn else "nothing known of it"] = found
        print(name, drawn, json.dumps(found), flush=True)
    settings = {"memory": given.memory, "scenes": len(scenes), "jax": jax.__version__}
    given.output.write_text(json.dumps({"settings": settings, "classes": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
