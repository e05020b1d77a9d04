"""Decision trees as arrays, and their evaluation."""

import operator
from collections.abc import Callable
from functools import update_wrapper
from inspect import Parameter, signature
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.values import Value, sized

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
FUNCTIONS = ("AVERAGE", "SUM", "MIN", "MAX")
COMPARED: tuple[Callable[[Any, Any], Any], ...] = (
    operator.le,
    operator.lt,
    operator.ge,
    operator.gt,
    operator.eq,
    operator.ne,
)

DENSE = 16
"""A table has a weight for each leaf and column unless that is so many times what is given."""


class Trees(NamedTuple):
    """Decision trees as arrays over their n inner nodes; leaf i has the index n + i.

    Attributes:
      roots: root node of each tree.
      children: index of the next node or leaf, ``[2, n]``, after a false and a true comparison.
      features: feature that each node compares.
      splits: value that each node compares with.
      modes: comparison of each node, as an index into :data:`MODES`.
      missing: whether NaN takes the true branch, for each node.
      members: sets for the nodes that test membership, ``[n, members]``, padded with NaN; None if
        no node does.
    """

    roots: np.ndarray
    children: np.ndarray
    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    missing: np.ndarray
    members: np.ndarray | None = None


class Weights(NamedTuple):
    """The weights of ``count`` leaves, in any order.

    Attributes:
      leaves: leaf of each weight.
      columns: column of each weight.
      values: the weights.
      count: number of leaves.
    """

    leaves: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    count: int


class Tables(NamedTuple):
    """Operands and keywords of the function that evaluates trees.

    Attributes:
      arrays: the operands after ``x``, by name.
      keywords: the keywords.
    """

    arrays: dict[str, np.ndarray]
    keywords: dict[str, Any]


class Tabled:
    """An operator's function whose attributes are turned into tables once, not in each call.

    Called with ``x`` and the attributes by name, it computes the operator. When a model is read,
    :mod:`jaxatr.onnx.reader.lowering` puts ``form`` in its place, with the tables as operands, so
    that they are arrays of the model like its weights.

    Attributes:
      maker: returns the tables of the attributes.
      form: the function of ``x``, the tables' arrays and keywords that computes the operator.
    """

    def __init__(self, maker: Callable[..., Tables], form: Callable[..., Any]):
        """Takes the names, texts and attributes of ``maker``."""
        self.maker, self.form = maker, form
        update_wrapper(self, maker)
        given = signature(maker)
        x = Parameter("x", Parameter.POSITIONAL_OR_KEYWORD, annotation=Value)
        self.__signature__ = given.replace(parameters=[x, *given.parameters.values()])

    def __call__(self, x: Value, **attributes: Any) -> Any:
        """Computes the operator."""
        arrays, keywords = self.maker(**attributes)
        return self.form(x, **arrays, **keywords)


def tables(trees: Trees, weights: Weights, targets: int, function: str) -> Tables:
    """Returns the operands and keywords that evaluate trees.

    Leaves are nodes that lead to themselves, so that all paths are as long as the longest.

    Args:
      trees: the trees.
      weights: the weights of the leaves.
      targets: number of columns.
      function: one of :data:`FUNCTIONS`.

    Raises:
      ValueError: an index is out of range, a node is its own descendant, or lengths differ.
    """
    count, leaves = len(trees.splits), np.arange(weights.count)
    if function not in FUNCTIONS:
        raise ValueError(f"aggregate_function: got {function!r}, wanted one of {FUNCTIONS}")
    if not ((trees.modes >= 0) & (trees.modes < len(MODES))).all():
        raise ValueError(f"nodes_modes: wanted numbers from 0 to {len(MODES) - 1}")
    depth = _depth(trees.children)
    children = np.empty((count + len(leaves), 2), np.int32)
    children[:count], children[count:] = trees.children.T, (count + leaves)[:, None]
    arrays = {
        "roots": trees.roots.astype(np.int32),
        "features": np.pad(_indices(trees.features).astype(np.int32), (0, len(leaves))),
        "splits": np.pad(trees.splits, (0, len(leaves))),
        "children": children.reshape(-1),
        **_leaf_table(weights, targets, function),
    }
    kinds = np.unique(trees.modes)
    if len(kinds) > 1 or trees.members is not None:
        arrays["modes"] = np.pad(trees.modes.astype(np.int32), (0, len(leaves)))
    if trees.missing.any():
        arrays["missing"] = np.pad(trees.missing, (0, len(leaves)))
    if trees.members is not None:
        holes = np.full((len(leaves), trees.members.shape[1]), np.nan, trees.members.dtype)
        arrays["members"] = np.concatenate([trees.members, holes])
    keywords = {
        "depth": depth,
        "features_used": int(trees.features.max(initial=-1)) + 1,
        "function": function,
        "mode": MODES[kinds[0]] if len(kinds) else MODES[0],
        "targets": targets,
    }
    return Tables(arrays, keywords)


def _indices(features: np.ndarray) -> np.ndarray:
    if not ((features >= 0) & (features < 2**31)).all():
        raise ValueError("nodes_featureids: an index is out of range")
    return features


def _leaf_table(weights: Weights, targets: int, function: str) -> dict[str, np.ndarray]:
    """Returns ``weights [leaves, targets]``, or ``[leaves, entries]`` with their ``columns``."""
    leaves, columns, values, count = weights
    if not len(leaves) == len(columns) == len(values):
        raise ValueError(f"got {len(values)} weights for {len(columns)} columns")
    if not ((columns >= 0) & (columns < targets)).all():
        raise ValueError(f"the column of a weight is out of range: wanted 0 to {targets - 1}")
    start = {"MIN": np.inf, "MAX": -np.inf}.get(function, 0)
    dense = count * targets <= DENSE * len(leaves)
    whole = np.int32 if count * targets <= np.iinfo(np.int32).max else np.int64
    if dense and (np.diff(np.sort(leaves.astype(whole) * targets + columns)) != 0).all():
        table = np.full(sized((count, targets)), start, values.dtype)
        table[leaves, columns] = values
        return {"weights": table}
    order = np.argsort(leaves, kind="stable")
    per_leaf = np.bincount(leaves, minlength=count)
    slot = np.arange(len(order)) - (np.cumsum(per_leaf) - per_leaf)[leaves[order]]
    shape = sized((count, int(per_leaf.max(initial=0))))
    # An extra column collects what is not given.
    places = np.full(shape, sized((targets,))[0], np.int32)
    table = np.full(shape, start, values.dtype)
    places[leaves[order], slot] = columns[order]
    table[leaves[order], slot] = values[order]
    return {"weights": table, "columns": places}


def aggregated(
    x: jax.Array,
    roots: jax.Array,
    features: jax.Array,
    splits: jax.Array,
    children: jax.Array,
    weights: jax.Array,
    columns: jax.Array | None,
    modes: jax.Array | None,
    missing: jax.Array | None,
    members: jax.Array | None,
    *,
    depth: int,
    function: str,
    mode: str,
    targets: int,
) -> jax.Array:
    """Aggregates the weights of the leaves reached over the trees: ``[b, targets]``.

    The arguments are those of :func:`jaxatr.onnx.ops.ensembles.tree_tables`.
    """
    rows, count = x.shape[0], features.shape[0] - weights.shape[0]
    splits, flat = splits.astype(x.dtype), x.reshape(-1)
    first = jnp.arange(rows, dtype="int32") * x.shape[1]

    def followed(_, node):
        value, split = _taken(flat, first + _taken(features, node)), _taken(splits, node)
        if modes is None:
            yes = COMPARED[MODES.index(mode)](value, split)
        else:
            answers = [compared(value, split) for compared in COMPARED]
            if members is not None:
                held = _taken(members.astype(x.dtype), node)
                answers.append((value[..., None] == held).any(-1))
            yes = jax.lax.select_n(jnp.minimum(_taken(modes, node), len(answers) - 1), *answers)
        if missing is not None:
            yes = yes | (_taken(missing, node) & jnp.isnan(value))
        return _taken(children, 2 * node + yes.astype("int32"))

    # A loop, because XLA computes each of its rounds in one pass without intermediate arrays.
    # Tree by tree, so that the nodes of one tree stay in the processor's cache.
    node = jnp.broadcast_to(roots.astype("int32")[:, None], (roots.shape[0], rows))
    node = jax.lax.fori_loop(0, depth, followed, node) if depth else node
    weight = _taken(weights, node - count)
    start = {"MIN": jnp.inf, "MAX": -jnp.inf}.get(function, 0)
    if columns is None:
        reduce = {"MIN": jnp.min, "MAX": jnp.max}.get(function, jnp.sum)
        result = reduce(weight, 0, initial=start, keepdims=False)
    else:
        place = jnp.arange(rows)[:, None], _taken(columns, node - count)
        made = jnp.full(sized((rows, targets + 1)), start, weight.dtype).at[place]
        gather = {"MIN": made.min, "MAX": made.max}.get(function, made.add)
        result = gather(weight)[:, :targets]
    if function in ("MIN", "MAX"):
        return jnp.where(jnp.isinf(result), 0, result)
    return result / roots.shape[0] if function == "AVERAGE" else result


def _taken(table: jax.Array, index: jax.Array) -> jax.Array:
    """Returns rows of a table by indices that :func:`tables` has checked."""
    return table.at[index].get(mode="promise_in_bounds")


def _depth(children: np.ndarray) -> int:
    """Returns the maximum number of inner nodes on a path from root to leaf.

    Raises:
      ValueError: a node is its own descendant.
    """
    count = children.shape[1]
    waiting = np.bincount(children[children < count], minlength=count)
    level, depth, seen = np.flatnonzero(waiting == 0), 0, 0
    while len(level):
        depth, seen = depth + 1, seen + len(level)
        below = children[:, level].reshape(-1)
        below, times = np.unique(below[below < count], return_counts=True)
        waiting[below] -= times
        level = below[waiting[below] == 0]
    if seen < count:
        raise ValueError("nodes: a node is its own descendant")
    return depth
