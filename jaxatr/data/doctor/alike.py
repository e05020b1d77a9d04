"""Duplicates and near-duplicates in a set of images."""

from typing import NamedTuple

import numpy as np

from jaxatr.data.doctor.facts import Facts
from jaxatr.typing import Float, Int

_BLOCK = 2048  # rows of the correlation matrix at a time
_MOST = 100_000  # of each kind; limits memory where all images are alike


class Pairs(NamedTuple):
    """Pairs of images, as row numbers of the facts.

    Attributes:
      first, second: ``[p]``, rows; the first is the smaller one.
      correlation: ``[p]``, of the small gray images; 1 where they are equal.
      total: the number of pairs found, more than p if not all are kept.
    """

    first: Int[np.ndarray, " p"]
    second: Int[np.ndarray, " p"]
    correlation: Float[np.ndarray, " p"]
    total: int

    def where(self, chosen: np.ndarray) -> "Pairs":
        """Returns the chosen pairs."""
        first, second, correlation = self.first[chosen], self.second[chosen], self.correlation
        return Pairs(first, second, correlation[chosen], len(first))


def equal(facts: Facts) -> Pairs:
    """Finds images that are bitwise equal; each is paired with the first of its group.

    A group of k equal images gives k - 1 pairs, the number of redundant images. If the group spans
    several classes or splits, each image is paired with the first one of each of these.
    """
    order = np.argsort(facts.digest, kind="stable")
    digests = facts.digest[order]
    starts = np.flatnonzero(np.r_[True, digests[1:] != digests[:-1]])
    pairs: set[tuple[int, int]] = set()
    for start, end in zip(starts, np.r_[starts[1:], len(order)], strict=True):
        group = np.sort(order[start:end])
        if len(group) < 2:
            continue
        kinds = np.stack([facts.label[group], facts.part[group]], axis=1)
        _, firsts = np.unique(kinds, axis=0, return_index=True)
        for head in group[firsts]:
            pairs |= {(int(min(head, one)), int(max(head, one))) for one in group if one != head}
    rows = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    return Pairs(rows[:, 0], rows[:, 1], np.ones(len(rows)), len(rows))


def nearly_equal(facts: Facts, least: float) -> Pairs:
    """Finds pairs of images that are not equal but highly correlated, the highest first.

    The correlation is between downscaled gray images, so that size, brightness and contrast do not
    matter, and a slight shift, crop or re-encoding matters little.

    Args:
      facts: facts about the images.
      least: the lowest correlation of a pair.
    """
    kept: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    total, room = 0, {True: _MOST, False: _MOST}
    codes = np.unique(facts.digest, return_inverse=True)[1]
    for start in range(0, len(facts.small), _BLOCK):
        rows = facts.small[start : start + _BLOCK]
        correlations = rows @ facts.small[start:].T
        first, second = np.nonzero(np.triu(correlations >= least, 1))
        values = correlations[first, second]
        first, second = first + start, second + start
        different = codes[first] != codes[second]
        first, second, values = first[different], second[different], values[different]
        total += len(values)
        # Many pairs within a class, such as the frames of a clip, must not displace the others.
        apart = facts.label[first] != facts.label[second]
        apart |= facts.part[first] != facts.part[second]
        for kind, most in room.items():
            chosen = np.flatnonzero(apart == kind)[:most]
            kept.append((first[chosen], second[chosen], values[chosen]))
            room[kind] -= len(chosen)
    first, second, values = (np.concatenate(one) for one in zip(*kept, strict=True))
    order = np.lexsort((second, first, -values))
    return Pairs(first[order], second[order], values[order].astype(np.float64), total)
