"""Single scores on recorded arrays, in NumPy: a fit and a score on tens of tasks take seconds.

The formulas are those of the package's scores of the same names, without reduced galleries; a test
compares them. Higher is more known. Every function takes training arrays and queries, and returns
``[b]`` or, where a gallery is searched, the distances ``[b, k]`` to each class.
"""

from collections.abc import Callable, Mapping

import numpy as np

from jaxatr import metrics
from jaxatr.typing import Float, Int, Shaped

SCORES = (
    "softmax", "mls", "energy", "cbc", "mahalanobis", "rmds", "vim", "nearest", "knn",
    "nndr_features", "nndr_image", "template", "spatial_stage1", "spatial_stage2",
    "spatial_stage3", "spatial_stage4", "nndr_stage1", "nndr_stage2", "nndr_stage3", "nndr_stage4",
)  # fmt: skip
TOGETHER = ("nndr_stage2", "nndr_stage3", "nndr_image", "template")
"""Members whose distances, multiplied, name the class in the package's default rule."""
NEIGHBOUR = 50
FEWEST_CLASSES, THIRDS, PARTS, MOST_IMAGES = 3, 3, 4, 240
_LEAST = 1e-6
_SHIFT, _WINDOWS = 3, (1.0, 0.75, 0.5)

Arrays = Mapping[str, np.ndarray]


def log_sum_exp(logits: Float[np.ndarray, "b k"]) -> Float[np.ndarray, " b"]:
    """Computes the logarithm of the sum of exponentials."""
    largest = logits.max(axis=1, keepdims=True)
    return largest[:, 0] + np.log(np.exp(logits - largest).sum(axis=1))


def softmax(logits: Float[np.ndarray, "b k"]) -> Float[np.ndarray, " b"]:
    """Computes the logarithm of the largest probability, accurate where it is nearly 1."""
    z = np.sort(logits - logits.max(axis=1, keepdims=True), axis=1)[:, :-1]
    return -np.log1p(np.exp(z).sum(axis=1))


def unit(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Scales rows to length 1; rows of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def euclidean(
    examples: Float[np.ndarray, "n d"], queries: Float[np.ndarray, "b d"]
) -> Float[np.ndarray, "b n"]:
    """Computes all distances."""
    squares = (queries**2).sum(1)[:, None] + (examples**2).sum(1) - 2 * queries @ examples.T
    return np.sqrt(np.maximum(squares, 0))


def of_classes(
    values: Float[np.ndarray, "b n"], labels: Int[np.ndarray, " n"], classes: int
) -> Float[np.ndarray, "b k"]:
    """Computes the smallest value among the examples of each class; infinite without examples."""
    found = np.full((len(values), classes), np.inf)
    for c in np.unique(labels):
        found[:, c] = values[:, labels == c].min(axis=1)
    return found


def ratio(distances: Float[np.ndarray, "b k"]) -> Float[np.ndarray, " b"]:
    """Computes minus the ratio of the two smallest distances to a class."""
    nearest, other = np.sort(distances, axis=1)[:, :2].T
    return -np.where(other == 0, 1, nearest / np.where(other == 0, 1, other))


def mahalanobis(
    features: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    queries: Float[np.ndarray, "b d"],
) -> Float[np.ndarray, "b k"]:
    """Computes the squared distance to each class, with the covariance within all classes."""
    center = features.mean(axis=0)
    classes = np.unique(labels)
    means = np.stack([(features[labels == c] - center).mean(axis=0) for c in classes])
    rest = features - center - means[np.searchsorted(classes, labels)]
    _, sizes, axes = np.linalg.svd(rest / np.sqrt(len(rest)), full_matrices=False)
    kept = sizes**2 > sizes[0] ** 2 * features.shape[1] * np.finfo(np.float64).eps
    whitening = axes[kept].T / sizes[kept]
    return euclidean(means @ whitening, (queries - center) @ whitening) ** 2


def vim(
    features: Float[np.ndarray, "n d"],
    logits: Float[np.ndarray, "n k"],
    kernel: Float[np.ndarray, "d k"],
    bias: Float[np.ndarray, " k"],
    queries: Float[np.ndarray, "b d"],
    query_logits: Float[np.ndarray, "b k"],
) -> Float[np.ndarray, " b"]:
    """Computes the energy minus the scaled residual outside the principal subspace."""
    d = features.shape[1]
    kept = 1000 if d >= 2048 else 512 if d >= 768 else d // 2
    origin = -np.linalg.pinv(kernel).T @ bias
    centred = features - origin
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    rank = int(np.sum(sizes**2 > 1e-12 * sizes[0] ** 2))
    kept = max(rank // 2, 1) if rank <= kept else kept
    principal = axes[:kept].T

    def outside(rows: np.ndarray) -> np.ndarray:
        inside = ((rows @ principal) ** 2).sum(axis=1)
        return np.sqrt(np.maximum((rows**2).sum(axis=1) - inside, 0))

    alpha = logits.max(axis=1).mean() / outside(centred).mean()
    return log_sum_exp(query_logits) - alpha * outside(queries - origin)


def cosine_distances(
    maps: Shaped[np.ndarray, "n h w f"],
    labels: Int[np.ndarray, " n"],
    queries: Shaped[np.ndarray, "b h w f"],
    classes: int,
) -> Float[np.ndarray, "b k"]:
    """Computes one minus the largest cosine of centred maps to an example of each class."""
    maps = maps.reshape(len(maps), -1).astype(np.float32)
    middle = maps.mean(axis=0)
    found = unit(queries.reshape(len(queries), -1).astype(np.float32) - middle)
    return of_classes(np.maximum(1 - found @ unit(maps - middle).T, 0), labels, classes)


def template_distances(
    chips: Shaped[np.ndarray, "n h w c"],
    labels: Int[np.ndarray, " n"],
    queries: Shaped[np.ndarray, "b h w c"],
    classes: int,
) -> Float[np.ndarray, "b k"]:
    """Computes one minus the largest correlation, over shifts, to a chip of each class."""
    examples = _template_rows(_amplitudes(chips), _SHIFT, _SHIFT)
    best = np.full((len(queries), len(chips)), -np.inf, np.float32)
    roots = _amplitudes(queries)
    for top in range(2 * _SHIFT + 1):
        for left in range(2 * _SHIFT + 1):
            np.maximum(best, _template_rows(roots, top, left) @ examples.T, out=best)
    return np.maximum(of_classes(1 - best, labels, classes), _LEAST)


def _amplitudes(chips: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(chips.astype(np.float32), 0))


def _template_rows(roots: np.ndarray, top: int, left: int) -> np.ndarray:
    height, width = (side - 2 * _SHIFT for side in roots.shape[1:3])
    part, rows = roots[:, top : top + height, left : left + width], []
    for share in _WINDOWS:
        sides = [max(2, round(share * side)) for side in (height, width)]
        down, right = (height - sides[0]) // 2, (width - sides[1]) // 2
        window = part[:, down : down + sides[0] // 2 * 2, right : right + sides[1] // 2 * 2]
        n, h, w, c = window.shape
        cells = window.reshape(n, h // 2, 2, w // 2, 2, c).mean(axis=(2, 4)).reshape(n, -1)
        rows.append(unit(cells - cells.mean(axis=1, keepdims=True)))
    return np.concatenate(rows, axis=1) / np.sqrt(len(_WINDOWS))


def neighbour(labels: Int[np.ndarray, " n"], most: int = NEIGHBOUR) -> int:
    """Returns k of k-NN: at most half of the smallest class, so that a chip's own class decides."""
    return max(1, min(most, int(np.bincount(labels).min()) // 2))


def computed(
    train: Arrays, head: tuple[np.ndarray, np.ndarray], queries: Arrays
) -> dict[str, np.ndarray]:
    """Computes all scores of a part, and the classes that some of them name.

    Args:
      train: outputs on training chips by name, with ``labels``.
      head: kernel and bias of the last layer.
      queries: outputs on the part.

    Returns:
      ``score_NAME`` and ``label_NAME``.
    """
    labels, logits = train["labels"].astype(int), queries["logits"].astype(np.float64)
    k = logits.shape[1]
    features = train["features"].astype(np.float64)
    own = queries["features"].astype(np.float64)
    made = {"softmax": softmax(logits), "mls": logits.max(axis=1), "energy": log_sum_exp(logits)}
    if "open_logits" in queries:
        made["cbc"] = queries["open_logits"][np.arange(len(logits)), logits.argmax(axis=1)]
    squares = mahalanobis(features, labels, own)
    made["mahalanobis"] = -squares.min(axis=1)
    marginal = mahalanobis(features, np.zeros_like(labels), own)[:, 0]
    made["rmds"] = marginal - squares.min(axis=1)
    made["vim"] = vim(features, train["logits"].astype(np.float64), *head, own, logits)
    between = euclidean(unit(features), unit(own))
    made["nearest"] = -between.min(axis=1)
    made["knn"] = -np.partition(between, neighbour(labels) - 1, axis=1)[:, neighbour(labels) - 1]
    distances: dict[str, np.ndarray] = {"nndr_features": of_classes(between, labels, k)}
    pixels: Callable[[np.ndarray], np.ndarray] = lambda chips: chips.reshape(len(chips), -1) / 255.0  # noqa: E731
    image = euclidean(pixels(train["image"]), pixels(queries["image"]))
    distances["nndr_image"] = of_classes(image, labels, k)
    for stage in range(1, 5):
        name = f"map_stage{stage}"
        if name in train:
            found = cosine_distances(train[name], labels, queries[name], k)
            made[f"spatial_stage{stage}"] = 1 - found.min(axis=1)
            distances[f"nndr_stage{stage}"] = found
    found = template_distances(train["image"], labels, queries["image"], k)
    nearest, other = np.sort(found, axis=1)[:, :2].T
    made["template"] = np.log(other / nearest)
    made |= {name: ratio(one) for name, one in distances.items()}
    named = {**distances, "template": found}
    together = [named[name] for name in TOGETHER if name in named]
    logs = [np.log(np.maximum(one, _LEAST)) for one in together]
    named["together"] = np.exp(np.mean(logs, axis=0))
    return {f"score_{name}": np.asarray(one, np.float64) for name, one in made.items()} | {
        f"label_{name}": one.argmin(axis=1) for name, one in named.items()
    }


def image_areas(
    chips: Shaped[np.ndarray, "n h w c"], labels: Int[np.ndarray, " n"]
) -> dict[str, float]:
    """Computes how well the scores of the image alone separate classes that are left out.

    No network is involved, so that training chips serve as queries: in each of four parts of a
    sample they are compared with the other three, in turn without each third of the classes.

    Returns:
      Mean AUROC by score; empty with fewer than three classes.
    """
    classes = int(labels.max()) + 1
    if classes < FEWEST_CLASSES:
        return {}
    order = np.random.default_rng(0).permutation(len(labels))[:MOST_IMAGES]
    order = order[np.argsort(labels[order], kind="stable")]
    order = order[: len(order) // PARTS * PARTS]
    part = np.arange(len(order)) % PARTS
    chips, labels = chips[order], labels[order]
    pixels = chips.reshape(len(chips), -1) / 255.0
    found = {name: np.zeros((len(order), classes)) for name in ("template", "nndr_image")}
    for own in (part == number for number in range(PARTS)):
        rest, known = ~own, labels[~own]
        found["template"][own] = template_distances(chips[rest], known, chips[own], classes)
        distances = euclidean(pixels[rest], pixels[own])
        found["nndr_image"][own] = of_classes(distances, known, classes)
    areas: dict[str, list[float]] = {name: [] for name in found}
    for group in np.array_split(np.arange(classes), THIRDS):
        held = np.isin(labels, group)
        for name, distances in found.items():
            values = ratio(np.delete(distances, group, axis=1))
            areas[name].append(metrics.auroc(values[~held], values[held]))
    return {name: float(np.mean(one)) for name, one in areas.items()}
