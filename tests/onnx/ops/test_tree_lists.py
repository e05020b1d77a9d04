"""Tests of the lists of nodes in the older format of tree ensembles."""

import numpy as np
import pytest

from jaxatr.onnx.ops import tree_lists
from jaxatr.onnx.ops.tree_lists import Positions


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(
    ("tree_step", "node_step", "dtype"), [(1, 1, np.int16), (-3, 7, np.int32), (10**6, 10**9, int)]
)
@pytest.mark.parametrize("part", [7, tree_lists._PART])
def test_positions_are_those_of_a_dictionary(
    in_order, tree_step, node_step, dtype, part, monkeypatch
):
    monkeypatch.setattr(tree_lists, "_PART", part)
    rng = np.random.default_rng(0)
    pairs = [(tree * tree_step, node * node_step) for tree in range(9) for node in range(tree + 3)]
    pairs = sorted(pairs) if in_order else rng.permutation(pairs).tolist()
    trees, nodes = np.array(pairs, dtype).T
    ranks = rng.permutation(len(pairs)).astype(np.int32)
    wanted = {tuple(pair): rank for pair, rank in zip(pairs, ranks.tolist(), strict=True)}
    also = [
        (tree * tree_step, node * node_step) for tree in range(-2, 11) for node in range(-2, 15)
    ]
    made = Positions(trees, nodes, ranks)(*np.array(also, dtype).T)
    assert made.tolist() == [wanted.get(pair, -1) for pair in also]
    assert (made >= 0).sum() == len(pairs)


def test_no_nodes_and_numbers_that_are_too_far_apart():
    none = np.array([], int)
    assert Positions(none, none, none)(np.array([0]), np.array([0])).tolist() == [-1]
    with pytest.raises(ValueError, match="nodes_treeids, nodes_nodeids: .* too far apart"):
        Positions(np.array([0, 2**40]), np.array([0, 2**40]), np.arange(2))
