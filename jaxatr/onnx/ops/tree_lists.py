"""The older format of tree ensembles, in which nodes and leaves share one list."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from jaxatr.onnx.ops.ml import Texts
from jaxatr.onnx.ops.trees import MODES, Trees, Weights

_PART = 1 << 16  # numbers that are looked up at once

Numbers: TypeAlias = Sequence[int] | Sequence[float] | np.ndarray


class CodedTexts(NamedTuple):
    """A long list of texts, of which few differ.

    Attributes:
      texts: the different ones.
      codes: index of each element's text.
    """

    texts: Texts
    codes: np.ndarray


def flags(given: Numbers | None, count: int) -> np.ndarray:
    """Returns an attribute of the nodes that is 0 where it is not given."""
    return np.zeros(count, bool) if given is None or not len(given) else np.asarray(given) != 0


def listed(
    names: tuple[Numbers, Numbers],
    modes: Texts | CodedTexts,
    branches: tuple[Numbers, Numbers],
    features: Numbers,
    splits: np.ndarray,
    missing: Numbers | None,
    leaves: tuple[Numbers, Numbers],
    columns: Numbers,
    weights: np.ndarray,
) -> tuple[Trees, Weights]:
    """Converts trees from the older format, in which nodes and leaves share one list.

    Args:
      names: tree and number of each node, which together identify it.
      modes: comparison of each node, or LEAF.
      branches: numbers of the nodes on the false and on the true branch.
      features: feature that each node compares.
      splits: value that each node compares with.
      missing: whether NaN takes the true branch, for each node.
      leaves: tree and number of the leaf that each weight belongs to.
      columns: column of each weight.
      weights: the weights.
    """
    kinds = _kinds(modes)
    count, inner = len(kinds), kinds >= 0
    if not all(len(given) == count for given in (*names, *branches, features, splits)):
        raise ValueError(f"nodes: wanted {count} values of each attribute, one for each node")
    deciding = int(inner.sum())
    ranks = np.empty(count, np.int32)
    ranks[inner], ranks[~inner] = np.arange(deciding), np.arange(deciding, count)
    owners = np.asarray(names[0])
    positions = Positions(owners, np.asarray(names[1]), ranks)
    children = np.empty((2, deciding), np.int32)
    for side, branch in zip(children, branches, strict=True):
        side[:] = positions(owners[inner], np.asarray(branch)[inner])
    if (children < 0).any():
        raise ValueError("nodes: a branch leads to a node that does not exist")
    first = np.sort(np.unique(owners, return_index=True)[1])
    trees = Trees(
        ranks[first],
        children,
        np.asarray(features)[inner],
        splits[inner],
        kinds[inner],
        flags(missing, count)[inner],
    )
    if len(leaves[0]) != len(leaves[1]):
        raise ValueError(f"got {len(leaves[1])} nodes for {len(leaves[0])} trees of weights")
    owning = positions(np.asarray(leaves[0]), np.asarray(leaves[1])) - deciding
    if owning.min(initial=0) < 0:
        raise ValueError("a weight belongs to a node that is not a leaf")
    return trees, Weights(owning, np.asarray(columns), weights, count - deciding)


def _kinds(modes: Texts | CodedTexts) -> np.ndarray:
    """Returns the index of each comparison in :data:`MODES`, -1 for leaves."""
    numbers = {f"BRANCH_{mode}": number for number, mode in enumerate(MODES[:-1])} | {"LEAF": -1}
    texts = modes.texts if isinstance(modes, CodedTexts) else modes
    try:
        kinds = np.array([numbers[text] for text in texts], np.int8)
    except KeyError as error:
        raise ValueError(f"nodes: got {error}, wanted an existing node or mode") from None
    return kinds[modes.codes] if isinstance(modes, CodedTexts) else kinds


class Positions:
    """Finds nodes by their tree and their number in it."""

    def __init__(self, trees: np.ndarray, nodes: np.ndarray, ranks: np.ndarray):
        """Takes the tree, the number and the position of each node.

        Raises:
          ValueError: two nodes have the same name, or numbers are too far apart.
        """
        self._ranges = [(int(v.min(initial=0)), int(v.max(initial=0))) for v in (trees, nodes)]
        (low, high), (least, most) = self._ranges
        self._most = (high - low + 1) * (most - least + 1)
        if self._most > np.iinfo(np.int64).max:
            raise ValueError("nodes_treeids, nodes_nodeids: their numbers are too far apart")
        self._names, self._ranks = self._named(trees, nodes), ranks
        if not (self._names[1:] > self._names[:-1]).all():
            order = np.argsort(self._names, kind="stable")
            self._names, self._ranks = self._names[order], ranks[order]
            if (self._names[1:] == self._names[:-1]).any():
                raise ValueError("nodes_nodeids: two nodes of a tree have the same number")

    def __call__(self, trees: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Returns the positions of nodes, −1 for those that do not exist."""
        positions = np.full(len(trees), -1, np.int32)
        for part in _parts(len(self._ranks) and len(trees)):
            given = trees[part], nodes[part]
            known = np.ones(len(given[0]), bool)
            for numbers, (low, high) in zip(given, self._ranges, strict=True):
                known &= (numbers >= low) & (numbers <= high)
            names = self._named(*given)
            place = np.minimum(np.searchsorted(self._names, names), len(self._ranks) - 1)
            known &= self._names[place] == names
            positions[part][known] = self._ranks[place[known]]
        return positions

    def _named(self, trees: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Returns one number for each pair."""
        (low, _), (least, most) = self._ranges
        names = np.empty(len(trees), np.min_scalar_type(-1 - self._most))
        for part in _parts(len(trees)):
            owners = trees[part].astype(np.int64) - low
            names[part] = owners * (most - least + 1) + (nodes[part].astype(np.int64) - least)
        return names


def _parts(count: int) -> Iterator[slice]:
    """Yields slices of a long list, so that intermediate arrays are short."""
    for start in range(0, count, _PART):
        yield slice(start, start + _PART)
