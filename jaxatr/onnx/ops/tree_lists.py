"""The older format of tree ensembles, in which nodes and leaves share one list."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from jaxatr.onnx.ops.ml import Texts
from jaxatr.onnx.ops.trees import MODES, Trees, Weights

Numbers: TypeAlias = Sequence[int] | Sequence[float] | np.ndarray


def flags(given: Numbers | None, count: int) -> np.ndarray:
    """Returns an attribute of the nodes that is 0 where it is not given."""
    return np.zeros(count, bool) if given is None or not len(given) else np.array(given) != 0


def listed(
    names: tuple[Numbers, Numbers],
    modes: Texts,
    branches: tuple[Numbers, Numbers],
    features: Numbers,
    splits: np.ndarray,
    missing: Numbers | None,
) -> tuple[Trees, "Positions"]:
    """Converts trees from the older format, in which nodes and leaves share one list.

    Args:
      names: tree and number of each node, which together identify it.
      modes: comparison of each node, or LEAF.
      branches: numbers of the nodes on the false and on the true branch.
      features: feature that each node compares.
      splits: value that each node compares with.
      missing: whether NaN takes the true branch, for each node.

    Returns:
      The trees, and the index of each (tree, node): inner nodes first, then leaves.
    """
    count = len(modes)
    if not all(len(given) == count for given in (*names, *branches, features, splits)):
        raise ValueError(f"nodes: wanted {count} values of each attribute, one for each node")
    numbers = {f"BRANCH_{mode}": number for number, mode in enumerate(MODES[:-1])} | {"LEAF": -1}
    try:
        kinds = np.array([numbers[mode] for mode in modes], np.int32)
    except KeyError as error:
        raise ValueError(f"nodes: got {error}, wanted an existing node or mode") from None
    order = np.argsort(kinds < 0, kind="stable")  # inner nodes, then leaves
    owners = np.array(names[0], np.int64)
    positions = Positions(owners[order], np.array(names[1], np.int64)[order])
    deciding = order[: int((kinds >= 0).sum())]
    children = [positions(owners[deciding], np.array(b, np.int64)[deciding]) for b in branches]
    if any((found < 0).any() for found in children):
        raise ValueError("nodes: a branch leads to a node that does not exist")
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    first = np.sort(np.unique(owners, return_index=True)[1])
    trees = Trees(
        rank[first],
        np.array(children, np.int64).reshape(2, -1),
        np.array(features)[deciding],
        splits[deciding],
        kinds[deciding],
        flags(missing, count)[deciding],
    )
    return trees, positions


class Positions:
    """Finds nodes by their tree and their number in it."""

    def __init__(self, trees: np.ndarray, nodes: np.ndarray):
        self.count = len(trees)
        self.trees, self.nodes = np.unique(trees), np.unique(nodes)
        names = self._names(trees, nodes)
        self.order = np.argsort(names)
        self.names = names[self.order]
        if (np.diff(self.names) == 0).any():
            raise ValueError("nodes_nodeids: two nodes of a tree have the same number")

    def __call__(self, trees: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Returns the positions of nodes, −1 for those that do not exist."""
        names = self._names(trees, nodes)
        found, place = _places(self.names, names)
        return np.where(found & (names >= 0), self.order[place] if self.count else -1, -1)

    def _names(self, trees: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Returns one number for each pair; −1 for those whose parts do not occur."""
        (known, tree), (also, node) = _places(self.trees, trees), _places(self.nodes, nodes)
        return np.where(known & also, tree * len(self.nodes) + node, -1)


def _places(table: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns whether each value is in a sorted table, and where."""
    if not len(table):
        return np.zeros(len(values), bool), np.zeros(len(values), np.int64)
    place = np.minimum(np.searchsorted(table, values), len(table) - 1)
    return table[place] == values, place


def weights_of(
    trees: Trees,
    positions: Positions,
    names: tuple[Numbers, Numbers],
    columns: Numbers,
    values: np.ndarray,
) -> Weights:
    """Returns the weights of leaves that are identified by tree and node number."""
    if not len(names[0]) == len(names[1]):
        raise ValueError(f"got {len(names[1])} nodes for {len(names[0])} trees of weights")
    inner = len(trees.splits)
    leaves = positions(np.array(names[0], np.int64), np.array(names[1], np.int64)) - inner
    if leaves.min(initial=0) < 0:
        raise ValueError("a weight belongs to a node that is not a leaf")
    return Weights(leaves, np.array(columns, np.int64), values, positions.count - inner)
