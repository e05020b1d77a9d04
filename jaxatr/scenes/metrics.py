"""Measures of detectors: COCO's average precision and recall, unknown targets, false alarms.

Boxes of all images are in flat arrays, with the number of the image of each. All is computed in
double precision, whatever the types of the columns.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxatr.scenes import boxes as geometry
from jaxatr.typing import Bool, Float, Int, Shaped

UNKNOWN = -1
"""Label of targets of no known class, true or decided."""

IOUS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
SIZES = {"all": (0, 1e10), "small": (0, 32**2), "medium": (32**2, 96**2), "large": (96**2, 1e10)}
"""Bounds of the areas of small, medium and large targets in square pixels, after COCO."""
MOST = (1, 10, 100)
_NOTHING = np.nan


class Detections(NamedTuple):
    """The detections in a number of images.

    Attributes:
      images: ``[n]``, number of the image of each.
      boxes: ``[n, 4]``: x0, y0, x1, y1.
      scores: ``[n]``, finite.
      labels: ``[n]``, classes, or :data:`UNKNOWN`.
    """

    images: Int[np.ndarray, " n"]
    boxes: Shaped[np.ndarray, "n 4"]
    scores: Shaped[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]


class Truths(NamedTuple):
    """The targets of a number of images.

    Attributes:
      images: ``[m]``, number of the image of each.
      boxes: ``[m, 4]``: x0, y0, x1, y1.
      labels: ``[m]``, classes, or :data:`UNKNOWN`.
      crowd: ``[m]``, regions in which any number of detections counts neither for nor against.
        None for none.
      difficult: ``[m]``, targets that may be found or missed. None for none.
      areas: ``[m]``, in square pixels, such as of a mask; None for those of the boxes.
    """

    images: Int[np.ndarray, " m"]
    boxes: Shaped[np.ndarray, "m 4"]
    labels: Int[np.ndarray, " m"]
    crowd: Bool[np.ndarray, " m"] | None = None
    difficult: Bool[np.ndarray, " m"] | None = None
    areas: Shaped[np.ndarray, " m"] | None = None


class Averages(NamedTuple):
    """COCO's measures, means over classes; NaN where there is no target to find.

    Attributes:
      ap: mean of the average precisions at an IoU of .5, .55, … .95.
      ap50: at .5.
      ap75: at .75.
      ap_small: of targets below 32 x 32 pixels.
      ap_medium: of targets up to 96 x 96 pixels.
      ap_large: of larger ones.
      ar1: average recall with one detection an image and class.
      ar10: with ten.
      ar100: with a hundred.
      ar_small: of small targets.
      ar_medium: of medium ones.
      ar_large: of large ones.
      by_class: class to its (ap, ap50).
    """

    ap: float
    ap50: float
    ap75: float
    ap_small: float
    ap_medium: float
    ap_large: float
    ar1: float
    ar10: float
    ar100: float
    ar_small: float
    ar_medium: float
    ar_large: float
    by_class: dict[int, tuple[float, float]]


class _Matches(NamedTuple):
    """Detections of one class by descending score.

    Attributes:
      rows: ``[n]``, their row numbers.
      scores: ``[n]``.
      ranks: ``[n]``, places among those of the same image.
      hit: ``[sizes, ious, n]``, whether each has a target.
      ignored: ``[sizes, ious, n]``, whether it counts neither for nor against.
      wanted: ``[sizes]``, numbers of targets to find.
    """

    rows: np.ndarray
    scores: np.ndarray
    ranks: np.ndarray
    hit: np.ndarray
    ignored: np.ndarray
    wanted: np.ndarray


def average_precision(found: Detections, truth: Truths, *, classes: Sequence[int]) -> Averages:
    """Computes COCO's measures, as pycocotools does.

    Args:
      found: the detections. Of each image and class, the hundred with the highest scores count.
      truth: the targets.
      classes: the labels to average over; other labels are left out.

    Raises:
      ValueError: the arrays are of different lengths, or a score is NaN.
    """
    found, truth = _checked(found, truth)
    precisions = np.full((len(classes), len(SIZES), len(IOUS)), _NOTHING)
    recalls = np.full((len(classes), len(SIZES), len(IOUS), len(MOST)), _NOTHING)
    for number, label in enumerate(classes):
        matches = _matches(found, truth, label, MOST[-1])
        for size, wanted in enumerate(matches.wanted.tolist()):
            if not wanted:
                continue
            for last, most in enumerate(MOST):
                few = matches.ranks < most
                hit = (matches.hit & ~matches.ignored)[size][:, few]
                wrong = (~matches.hit & ~matches.ignored)[size][:, few]
                hits, alarms = hit.cumsum(axis=1, dtype=float), wrong.cumsum(axis=1, dtype=float)
                recalls[number, size, :, last] = hits[:, -1] / wanted if few.any() else 0
                if most == MOST[-1]:
                    precisions[number, size] = [
                        _area(h, a, wanted) for h, a in zip(hits, alarms, strict=True)
                    ]
    ap, ap_small, ap_medium, ap_large = _mean(precisions, (0, 2)).tolist()
    ap50, ap75 = (float(_mean(precisions[:, 0, iou], 0)) for iou in (0, 5))
    (ar1, ar10, ar100), *others = _mean(recalls, (0, 2)).tolist()
    ar_small, ar_medium, ar_large = (one[-1] for one in others)
    by_class = {
        label: (float(precisions[number, 0].mean()), float(precisions[number, 0, 0]))
        for number, label in enumerate(classes)
    }
    return Averages(
        *(ap, ap50, ap75, ap_small, ap_medium, ap_large),
        *(ar1, ar10, ar100, ar_small, ar_medium, ar_large),
        by_class,
    )


def _mean(values: np.ndarray, axes: int | tuple[int, ...]) -> np.ndarray:
    count = np.sum(~np.isnan(values), axis=axes)
    total = np.nansum(values, axis=axes)
    return np.where(count > 0, total / np.maximum(count, 1), _NOTHING)


def precisions(
    found: Detections, truth: Truths, *, label: int
) -> dict[str, Float[np.ndarray, " r"] | None]:
    """Computes a class's curve of precision at an IoU of .5, the mean of which is COCO's AP50.

    Args:
      found: the detections. Of each image, the hundred with the highest scores count.
      truth: the targets.
      label: the class.

    Returns:
      For each of :data:`SIZES`, the precision at :data:`RECALLS`, of the best one at that recall or
      a higher one; None if there is no target of the size to find.

    Raises:
      ValueError: the arrays are of different lengths, or a score is NaN.
    """
    found, truth = _checked(found, truth)
    matches = _matches(found, truth, label, MOST[-1])
    hits = (matches.hit & ~matches.ignored)[:, 0].cumsum(axis=1, dtype=float)
    alarms = (~matches.hit & ~matches.ignored)[:, 0].cumsum(axis=1, dtype=float)
    return {
        size: _precisions(hits[number], alarms[number], wanted) if wanted else None
        for number, (size, wanted) in enumerate(zip(SIZES, matches.wanted.tolist(), strict=True))
    }


def _area(hits: np.ndarray, alarms: np.ndarray, wanted: int) -> float:
    return float(_precisions(hits, alarms, wanted).mean())


def _precisions(hits: np.ndarray, alarms: np.ndarray, wanted: int) -> Float[np.ndarray, " r"]:
    """Returns the precision at 101 recalls, of the best one at that recall or a higher one."""
    precision = hits / (hits + alarms + np.spacing(1))
    best = np.maximum.accumulate(precision[::-1])[::-1]
    at = np.searchsorted(hits / wanted, RECALLS, side="left")
    return np.append(best, 0)[np.minimum(at, len(best))]


def _matches(found: Detections, truth: Truths, label: int, most: int = 2**62) -> _Matches:
    """Assigns detections of a class, so many of each image, to targets, the highest first."""
    crowd, difficult, areas = map(np.asarray, (truth.crowd, truth.difficult, truth.areas))
    own = np.flatnonzero(found.labels == label)
    own = own[np.lexsort((own, -found.scores[own], found.images[own]))]
    ranks = _ranks(found.images[own])
    own, ranks = own[ranks < most], ranks[ranks < most]
    targets = np.flatnonzero(truth.labels == label)
    targets = targets[np.argsort(truth.images[targets], kind="stable")]
    bounds = np.array(list(SIZES.values()))[:, :, None]
    outside = (areas[targets] < bounds[:, 0]) | (areas[targets] > bounds[:, 1])
    optional = outside | crowd[targets] | difficult[targets]  # [sizes, targets]
    shape = (len(SIZES), len(IOUS), len(own))
    hit, ignored = np.zeros(shape, bool), np.zeros(shape, bool)
    for image in np.unique(found.images[own]):
        mine = slice(*np.searchsorted(found.images[own], [image, image + 1]))
        theirs = slice(*np.searchsorted(truth.images[targets], [image, image + 1]))
        crowded = crowd[targets[theirs]]
        overlaps = _overlaps(found.boxes[own[mine]], truth.boxes[targets[theirs]], crowded)
        hit[:, :, mine], ignored[:, :, mine] = _assigned(overlaps, optional[:, theirs], crowded)
    sizes = np.asarray(geometry.area(found.boxes[own]))
    strange = (sizes < bounds[:, 0]) | (sizes > bounds[:, 1])
    ignored |= ~hit & strange[:, None]
    order = np.argsort(-found.scores[own], kind="stable")
    return _Matches(
        own[order],
        found.scores[own][order],
        ranks[order],
        hit[:, :, order],
        ignored[:, :, order],
        (~optional).sum(axis=1),
    )


def _overlaps(
    found: Shaped[np.ndarray, "n 4"],
    targets: Shaped[np.ndarray, "m 4"],
    crowd: Bool[np.ndarray, " m"],
) -> Float[np.ndarray, "n m"]:
    """Computes IoUs; with crowds, the shares of the detections in them."""
    found = found[:, None]
    return np.where(crowd, geometry.covered(found, targets), geometry.iou(found, targets))


def _assigned(
    overlaps: Float[np.ndarray, "n m"],
    optional: Bool[np.ndarray, "s m"],
    crowd: Bool[np.ndarray, " m"],
) -> tuple[Bool[np.ndarray, "s t n"], Bool[np.ndarray, "s t n"]]:
    """Gives each detection the free target it overlaps most, one that must be found if it can.

    Returns:
      Whether each detection has a target, and whether that need not be found, by size and IoU.
    """
    count, targets = overlaps.shape
    hit = np.zeros((len(optional), len(IOUS), count), bool)
    ignored = np.zeros_like(hit)
    if not targets:
        return hit, ignored
    free = np.ones((len(optional), len(IOUS), targets), bool)
    limits = np.minimum(IOUS, 1 - 1e-10)[:, None]
    must = ~optional[:, None]
    for one, shares in enumerate(overlaps):
        possible = free & (shares >= limits)
        if not possible.any():
            continue
        required = possible & must
        possible = np.where(required.any(axis=2, keepdims=True), required, possible)
        ranked = np.where(possible, shares, -1)[:, :, ::-1]
        best = targets - 1 - ranked.argmax(axis=2)  # the last of equals, as pycocotools
        hit[:, :, one] = possible.any(axis=2)
        ignored[:, :, one] = hit[:, :, one] & np.take_along_axis(optional, best, axis=1)
        taken = hit[:, :, one, None] & (np.arange(targets) == best[:, :, None])
        free &= ~taken | crowd
    return hit, ignored


def _ranks(images: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Returns the places of elements among those of the same image, for sorted images."""
    _, first, counts = np.unique(images, return_index=True, return_counts=True)
    return np.arange(len(images)) - np.repeat(first, counts)


def _checked(found: Detections, truth: Truths) -> tuple[Detections, Truths]:
    """Fills and converts columns: in narrow types, numbers of images, scores and areas wrap."""
    for name, columns in (("detections", found), ("truths", truth)):
        lengths = {len(column) for column in columns if column is not None}
        if len(lengths) > 1:
            raise ValueError(f"{name}: got columns of {sorted(lengths)} rows, wanted equal ones")
    none, boxes = np.zeros(len(truth.images), bool), np.asarray(truth.boxes, float)
    crowd, difficult = (none if one is None else one for one in (truth.crowd, truth.difficult))
    areas = geometry.area(boxes) if truth.areas is None else truth.areas
    columns = truth.images, boxes, truth.labels, crowd, difficult, areas
    truth = Truths(*map(np.asarray, columns, (int, float, None, bool, bool, float)))
    found = Detections(*map(np.asarray, found, (int, float, float, None)))
    if not np.isfinite(found.scores).all():
        raise ValueError("detections: got a score that is not finite")
    return found, truth


class Curve(NamedTuple):
    """Recall and false alarms as a detector's threshold falls, an entry for each distinct score.

    Attributes:
      scores: ``[n]``, descending.
      recalls: ``[n]``, shares of the targets that are found by detections of these scores or more.
      alarms: ``[n]``, numbers of false alarms.
    """

    scores: Float[np.ndarray, " n"]
    recalls: Float[np.ndarray, " n"]
    alarms: Int[np.ndarray, " n"]

    def alarms_at(self, recall: float) -> float:
        """Returns the number of false alarms at a recall; infinite if it is never reached.

        Divide it by the number of images, or by the area that they show.
        """
        at = np.searchsorted(self.recalls, recall - 1e-12)
        return float(self.alarms[at]) if at < len(self.alarms) else math.inf

    def recall_at(self, alarms: float) -> float:
        """Returns the highest recall with no more than that number of false alarms."""
        at = np.searchsorted(self.alarms, alarms, side="right")
        return float(self.recalls[at - 1]) if at else 0.0


def operating_curve(found: Detections, truth: Truths, *, classes: Sequence[int]) -> Curve:
    """Computes recall and false alarms at every threshold, at an IoU of .5, over all classes.

    For targets of any class, give all the same label. For the recall of some targets among false
    alarms of all, mark the others as difficult.

    Raises:
      ValueError: as :func:`average_precision`, or there is no target to find.
    """
    found, truth = _checked(found, truth)
    every = [_matches(found, truth, label) for label in classes]
    wanted = sum(int(matches.wanted[0]) for matches in every)
    if not wanted:
        raise ValueError("truths: got no target to find, wanted at least one")
    counts = [~matches.ignored[0, 0] for matches in every]
    scores = np.concatenate([m.scores[c] for m, c in zip(every, counts, strict=True)])
    hit = np.concatenate([m.hit[0, 0][c] for m, c in zip(every, counts, strict=True)])
    distinct, place = np.unique(-scores, return_inverse=True)
    hits = np.bincount(place[hit], minlength=len(distinct)).cumsum()
    alarms = np.bincount(place[~hit], minlength=len(distinct)).cumsum()
    return Curve(-distinct, hits / wanted, alarms)


class OpenSet(NamedTuple):
    """Measures of a detector that also finds targets of unknown classes.

    Attributes:
      known: COCO's measures of the known classes.
      unknown: COCO's measures of unknown targets, as one more class (Hosoya et al. 2022).
      threshold: the score at which the given share of known targets is found; NaN if it never is.
      open_set_errors: number of unknown targets detected as of a known class at that threshold, or
        at any score if there is none: A-OSE (Miller et al. 2018).
      wilderness_impact: by how much these errors lower the precision of the known classes, P(known)
        / P(known and unknown) - 1 (Dhamija et al. 2020); NaN without a threshold.
    """

    known: Averages
    unknown: Averages
    threshold: float
    open_set_errors: int
    wilderness_impact: float


def open_set(
    found: Detections, truth: Truths, *, classes: Sequence[int], recall: float = 0.8
) -> OpenSet:
    """Computes open-set measures; unknown targets and detections have the label :data:`UNKNOWN`.

    Args:
      found: the detections.
      truth: the targets.
      classes: the known labels.
      recall: share of known targets, at an IoU of .5 and of the right class, at which unknown ones
        are counted.

    Raises:
      ValueError: as :func:`operating_curve`.
    """
    found, truth = _checked(found, truth)
    curve = operating_curve(found, truth, classes=classes)
    at = np.searchsorted(curve.recalls, recall - 1e-12)
    threshold = float(curve.scores[at]) if at < len(curve.scores) else _NOTHING
    right = wrong = errors = 0
    for label in classes:
        matches = _matches(found, truth, label)
        above = ~(matches.scores < threshold) & ~matches.ignored[0, 0]
        alarms = matches.rows[above & ~matches.hit[0, 0]]
        strays = Detections(*(column[alarms] for column in found))
        strays = strays._replace(labels=np.full(len(alarms), UNKNOWN))
        others = _matches(strays, truth, UNKNOWN)
        right += int((above & matches.hit[0, 0]).sum())
        wrong += int((~others.hit[0, 0]).sum())
        errors += int((others.hit & ~others.ignored)[0, 0].sum())
    return OpenSet(
        average_precision(found, truth, classes=classes),
        average_precision(found, truth, classes=[UNKNOWN]),
        threshold,
        errors,
        _NOTHING if math.isnan(threshold) else errors / (right + wrong),
    )
