"""Decision trees as arrays, and their evaluation."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.values import Value, sized

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
FUNCTIONS = ("AVERAGE", "SUM", "MIN", "MAX")


class Trees(NamedTuple):
    """Decision trees as arrays over their n inner nodes; leaf i has the index n + i.

    Attributes:
      roots: root node of each tree.
      children: index of the next node or leaf, ``[2, n]``, after a false and a true comparison.
      features: feature that each node compares.
      splits: value that each node compares with.
      modes: comparison of each node, as an index into :data:`MODES`.
      missing: whether NaN takes the true branch, for each node.
      members: sets for the nodes that test membership, ``[n, members]``, padded with NaN.
    """

    roots: np.ndarray
    children: np.ndarray
    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    missing: np.ndarray
    members: np.ndarray


def leaf_table(
    leaves: np.ndarray, targets: np.ndarray, weights: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the columns and the weights of ``count`` leaves, ``[count, entries]`` each.

    Leaves with fewer entries are padded with column −1.

    Args:
      leaves: leaf of each weight.
      targets: column of each weight.
      weights: the weights.
      count: number of leaves.
    """
    if not len(leaves) == len(targets) == len(weights):
        raise ValueError(f"got {len(weights)} weights for {len(targets)} columns")
    order = np.argsort(leaves, kind="stable")
    per_leaf = np.bincount(leaves, minlength=count)
    slot = np.arange(len(order)) - (np.cumsum(per_leaf) - per_leaf)[leaves[order]]
    shape = sized((count, int(per_leaf.max(initial=0))))
    columns, values = np.full(shape, -1), np.zeros(shape, weights.dtype)
    columns[leaves[order], slot] = targets[order]
    values[leaves[order], slot] = weights[order]
    return columns, values


def aggregated(
    x: Value, trees: Trees, table: tuple[np.ndarray, np.ndarray], targets: int, function: str
) -> Value:
    """Aggregates the weights of the leaves reached over the trees: ``[b, targets]``.

    Args:
      x: ``[b, features]``.
      trees: the trees.
      table: columns and weights of the leaves, from :func:`leaf_table`.
      targets: number of columns.
      function: one of :data:`FUNCTIONS`.
    """
    columns, weights = table
    if function not in FUNCTIONS:
        raise ValueError(f"aggregate_function: got {function!r}, wanted one of {FUNCTIONS}")
    if not ((columns >= -1) & (columns < targets)).all():
        raise ValueError(f"the column of a weight is out of range: wanted 0 to {targets - 1}")
    at = _reached(x, trees)
    rows, shape = x.shape[0], (x.shape[0], at.shape[1] * columns.shape[1])
    column = jnp.asarray(columns)[at].reshape(shape)
    weight = jnp.asarray(weights)[at].reshape(shape)
    # An extra column collects the padding entries.
    column = jnp.where(column < 0, targets, column)
    place = jnp.arange(rows)[:, None], column
    start = {"MIN": jnp.inf, "MAX": -jnp.inf}.get(function, 0)
    made = jnp.full(sized((rows, targets + 1)), start, weight.dtype).at[place]
    if function in ("MIN", "MAX"):
        result = (made.min if function == "MIN" else made.max)(weight)[:, :targets]
        return jnp.where(jnp.isinf(result), 0, result)
    result = made.add(weight)[:, :targets]
    return result / len(trees.roots) if function == "AVERAGE" else result


def _reached(x: Value, trees: Trees) -> Value:
    """Returns the leaf that each row reaches in each tree, ``[b, trees]``."""
    x, count = jnp.asarray(x), len(trees.splits)
    if not ((trees.features >= 0) & (trees.features < x.shape[1])).all():
        raise ValueError(f"nodes_featureids: an index is out of range for {x.shape[1]} features")
    if not ((trees.modes >= 0) & (trees.modes < len(MODES))).all():
        raise ValueError(f"nodes_modes: wanted numbers from 0 to {len(MODES) - 1}")
    at = jnp.broadcast_to(jnp.asarray(trees.roots), (x.shape[0], len(trees.roots)))
    for _ in range(_depth(trees.children)):
        node = jnp.where(at < count, at, 0)
        value = jnp.take_along_axis(x, jnp.asarray(trees.features)[node], 1)
        split = jnp.asarray(trees.splits).astype(x.dtype)[node]
        members = jnp.asarray(trees.members, x.dtype)[node]
        answers = [value <= split, value < split, value >= split, value > split]
        answers += [value == split, value != split, (value[..., None] == members).any(-1)]
        mode = jnp.asarray(trees.modes)[node]
        yes = jnp.take_along_axis(jnp.stack(answers), mode[None], 0)[0]
        yes = yes | (jnp.asarray(trees.missing)[node] & jnp.isnan(value))
        at = jnp.where(at < count, jnp.asarray(trees.children)[yes.astype("int32"), node], at)
    return at - count


def _depth(children: np.ndarray) -> int:
    """Returns the maximum number of inner nodes on a path from root to leaf.

    Raises:
      ValueError: a node is its own descendant.
    """
    count = children.shape[1]
    waiting = np.bincount(children[children < count], minlength=count)
    levels, ready = np.ones(count, np.int64), list(np.flatnonzero(waiting == 0))
    seen = 0
    while ready:
        node, seen = ready.pop(), seen + 1
        for child in children[:, node]:
            if child < count:
                levels[child] = max(levels[child], levels[node] + 1)
                waiting[child] -= 1
                if not waiting[child]:
                    ready.append(child)
    if seen < count:
        raise ValueError("nodes: a node is its own descendant")
    return int(levels.max(initial=0))
