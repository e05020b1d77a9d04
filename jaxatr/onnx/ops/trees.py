"""Trees as arrays, and the sum, mean or extremum of the leaves that a row comes to."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.values import Value, sized

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
FUNCTIONS = ("AVERAGE", "SUM", "MIN", "MAX")


class Trees(NamedTuple):
    """Trees as arrays over their n inner nodes. What leads to a leaf is n and more.

    Attributes:
      roots: first node of each tree.
      children: ``[2, n]``, where a node goes if the answer is no, and yes.
      features: the feature that it looks at.
      splits: what it compares with.
      modes: how, by its place in :data:`MODES`.
      missing: whether NaN is a yes.
      members: ``[n, most]``, the sets of those that ask for membership, filled up with NaN.
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
    """Returns the columns and the weights of ``count`` leaves, ``[count, most]`` each.

    Where a leaf has fewer, the column is −1.
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
    """Returns ``[b, targets]``, the leaves' weights aggregated over the trees."""
    columns, weights = table
    if function not in FUNCTIONS:
        raise ValueError(f"aggregate_function: got {function!r}, wanted one of {FUNCTIONS}")
    if not ((columns >= -1) & (columns < targets)).all():
        raise ValueError(f"a column is not one of {targets}")
    at = _reached(x, trees)
    rows = x.shape[0]
    column = jnp.asarray(columns)[at].reshape(rows, -1)
    weight = jnp.asarray(weights)[at].reshape(rows, -1)
    # One column more takes the entries that a leaf does not have.
    column = jnp.where(column < 0, targets, column)
    place = jnp.arange(rows)[:, None], column
    start = {"MIN": jnp.inf, "MAX": -jnp.inf}.get(function, 0)
    made = jnp.full(sized((rows, targets + 1)), start, weight.dtype).at[place]
    if function in ("MIN", "MAX"):
        found = (made.min if function == "MIN" else made.max)(weight)[:, :targets]
        return jnp.where(jnp.isinf(found), 0, found)
    found = made.add(weight)[:, :targets]
    return found / len(trees.roots) if function == "AVERAGE" else found


def _reached(x: Value, trees: Trees) -> Value:
    """Returns ``[b, trees]``, the number of the leaf that each row comes to in each tree."""
    x, count = jnp.asarray(x), len(trees.splits)
    if not ((trees.features >= 0) & (trees.features < x.shape[1])).all():
        raise ValueError(f"nodes_featureids: a number is not one of {x.shape[1]} features")
    if not ((trees.modes >= 0) & (trees.modes < len(MODES))).all():
        raise ValueError(f"nodes_modes: a number is not one of {len(MODES)}")
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
    """Returns the most nodes from a root to a leaf.

    Raises:
      ValueError: there is a way that does not end.
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
