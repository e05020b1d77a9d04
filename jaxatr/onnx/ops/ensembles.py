"""The tree ensembles of ``ai.onnx.ml``, in the current and the older format."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.ml import ML, Ints, Texts, labelled, transformed
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.tree_lists import CodedTexts, Numbers, flags, listed
from jaxatr.onnx.ops.trees import (
    FUNCTIONS,
    MODES,
    Tabled,
    Tables,
    Trees,
    Weights,
    aggregated,
    tables,
)
from jaxatr.onnx.ops.values import Value, first_place, sized

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@register("TreeTables", domain="jaxatr", optional=("columns", "modes", "missing", "members"))
def tree_tables(
    x: Value,
    roots: Value,
    features: Value,
    splits: Value,
    children: Value,
    weights: Value,
    columns: Value | None = None,
    modes: Value | None = None,
    missing: Value | None = None,
    members: Value | None = None,
    *,
    base: tuple[float, ...] = (0.0,),
    depth: int,
    dtype: str | None = "float32",
    features_used: int,
    function: str = "SUM",
    labels: Ints | Texts | None = None,
    mode: str = "LEQ",
    post_transform: str = "NONE",
    shares: bool = False,
    single: int | None = None,
    targets: int = 1,
) -> Value | tuple[Value, Value]:
    """Returns the scores of tree ensembles given as tables, or labels and scores.

    The operators below are this function of their attributes' tables. Nodes and leaves have one
    numbering, of m together.

    Args:
      x: ``[b, features]``.
      roots: root node of each tree.
      features: feature that each node compares, ``[m]``.
      splits: value that each node compares with, ``[m]``.
      children: next node after a false and after a true comparison, ``[2 m]``.
      weights: ``[leaves, targets]``, or ``[leaves, entries]`` if there are ``columns``.
      columns: column of each weight; ``targets`` if it is none.
      modes: comparison of each node, as an index into
        :data:`jaxatr.onnx.ops.trees.MODES`, where nodes differ.
      missing: whether NaN takes the true branch, ``[m]``.
      members: sets for the nodes that test membership, ``[m, members]``, padded with NaN.
      base: value added to each column, or to all.
      depth: number of comparisons on the longest path.
      dtype: type of the scores, and of ``x`` unless it is float64; None if it stays that of ``x``.
      features_used: number of features that ``x`` must have.
      function: SUM, AVERAGE, MIN or MAX over the trees.
      labels: labels of the columns; None for scores alone.
      mode: comparison of all nodes, where they do not differ.
      post_transform: one of :data:`TRANSFORMS`.
      shares: whether the score of a ``single`` class is a probability.
      single: of two classes, the one that has scores; None if both do.
      targets: number of columns.

    Raises:
      ValueError: ``x`` has too few features.
    """
    if x.ndim != 2 or x.shape[1] < features_used:
        raise ValueError(f"nodes_featureids: an index is out of range for {x.shape[-1]} features")
    arrays = roots, features, splits, children, weights, columns, modes, missing, members
    texts = labels if labels and isinstance(labels[0], str) else ()
    scores, found = _scored(
        x,
        arrays,
        base=base,
        depth=depth,
        dtype=dtype,
        function=function,
        labels=() if texts else labels,
        mode=mode,
        post_transform=post_transform,
        shares=shares,
        single=single,
        targets=targets,
    )
    return scores if labels is None else (labelled(found, texts) if texts else found, scores)


@partial(
    jax.jit,  # one program, also where a model is computed node by node
    static_argnames=(
        *("base", "depth", "dtype", "function", "labels", "mode", "post_transform"),
        *("shares", "single", "targets"),
    ),
)
def _scored(
    x: jax.Array,
    arrays: Sequence[Any],
    *,
    base: tuple[float, ...],
    dtype: str | None,
    labels: Ints | Texts | None,
    post_transform: str,
    shares: bool,
    single: int | None,
    **about: Any,
) -> tuple[Value, Value | None]:
    """Returns the scores, and the label of each row's best if there are labels."""
    if dtype is not None and x.dtype != np.float64:
        x = x.astype(dtype)
    scores, offset = aggregated(x, *arrays, **about), np.asarray(base)
    if labels is None:
        scores = (scores + offset.astype(scores.dtype)).astype(dtype or x.dtype)
        return transformed(scores, post_transform), None
    scores = scores.astype("float32")
    if single is not None:
        second = scores[:, single] + np.float32(offset[single if len(offset) > 1 else 0])
        best = (second > (0.5 if shares else 0)).astype("int32")
        scores = jnp.stack([1 - second if shares else -second, second], 1)
    else:
        scores = scores + offset.astype(np.float32)
        best = first_place(jax.lax.argmax, scores, 1)
    return transformed(scores, post_transform), labelled(best, labels)


_tabled = partial(Tabled, form=tree_tables)


@register("TreeEnsemble", domain=ML, ignored=("nodes_hitrates",))
@_tabled
def tree_ensemble(
    *,
    aggregate_function: int = 1,
    leaf_targetids: Numbers,
    leaf_weights: np.ndarray,
    membership_values: np.ndarray | None = None,
    n_targets: int = 1,
    nodes_falseleafs: Numbers,
    nodes_falsenodeids: Numbers,
    nodes_featureids: Numbers,
    nodes_missing_value_tracks_true: Numbers | None = None,
    nodes_modes: np.ndarray,
    nodes_splits: np.ndarray,
    nodes_trueleafs: Numbers,
    nodes_truenodeids: Numbers,
    post_transform: int = 0,
    tree_roots: Numbers,
) -> Tables:
    """Returns the aggregated leaf values of each row, ``[b, n_targets]`` (TreeEnsemble-5).

    Args:
      aggregate_function: mean (0), sum (1), minimum (2) or maximum (3) over the trees.
      leaf_targetids: column of each leaf.
      leaf_weights: value of each leaf.
      membership_values: sets for the nodes that test membership, each followed by NaN.
      n_targets: number of columns.
      nodes_falseleafs: whether the false branch of each node is a leaf.
      nodes_falsenodeids: index of the leaf or node of the false branch.
      nodes_featureids: feature that each node compares.
      nodes_missing_value_tracks_true: whether NaN takes the true branch, for each node.
      nodes_modes: comparison of each node: ≤, <, ≥, >, =, ≠ or membership.
      nodes_splits: value that each node compares with.
      nodes_trueleafs: whether the true branch of each node is a leaf.
      nodes_truenodeids: index of the leaf or node of the true branch.
      post_transform: none (0), softmax (1), logistic (2), softmax of the nonzero scores (3) or
        probit (4).
      tree_roots: root node of each tree.
    """
    function = _numbered("aggregate_function", aggregate_function, FUNCTIONS)
    transform = _numbered("post_transform", post_transform, TRANSFORMS)
    count, branches = len(nodes_modes), []
    for name, ids, leaves in (
        ("nodes_falsenodeids", nodes_falsenodeids, nodes_falseleafs),
        ("nodes_truenodeids", nodes_truenodeids, nodes_trueleafs),
    ):
        ended = np.array(leaves) != 0
        limit = np.where(ended, len(leaf_weights), count)
        if not (np.array(ids) >= 0).all() or not (np.array(ids) < limit).all():
            raise ValueError(f"{name}: an index is out of range")
        branches.append(np.array(ids) + np.where(ended, count, 0))
    roots = np.array(tree_roots)
    if not ((roots >= 0) & (roots < count)).all():
        raise ValueError("tree_roots: an index is out of range")
    trees = Trees(
        roots,
        np.array(branches),
        np.array(nodes_featureids),
        np.asarray(nodes_splits),
        np.asarray(nodes_modes).astype(np.int32),
        flags(nodes_missing_value_tracks_true, count),
        _members(nodes_modes, membership_values),
    )
    leaves, values = np.arange(len(leaf_weights)), np.asarray(leaf_weights)
    weights = Weights(leaves, np.array(leaf_targetids), values, len(leaves))
    arrays, keywords = tables(trees, weights, n_targets, function)
    return Tables(arrays, keywords | {"dtype": None, "post_transform": transform})


def _numbered(name: str, number: int, names: tuple[str, ...]) -> str:
    if not 0 <= number < len(names):
        raise ValueError(f"{name}: got {number}, wanted 0 to {len(names) - 1}")
    return names[number]


@register(
    "TreeEnsembleRegressor", domain=ML, ignored=("nodes_hitrates", "nodes_hitrates_as_tensor")
)
@_tabled
def tree_ensemble_regressor(
    *,
    aggregate_function: str = "SUM",
    base_values: Numbers | None = None,
    base_values_as_tensor: np.ndarray | None = None,
    n_targets: int = 1,
    nodes_falsenodeids: Numbers,
    nodes_featureids: Numbers,
    nodes_missing_value_tracks_true: Numbers | None = None,
    nodes_modes: Texts | CodedTexts,
    nodes_nodeids: Numbers,
    nodes_treeids: Numbers,
    nodes_truenodeids: Numbers,
    nodes_values: Numbers | None = None,
    nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
    target_ids: Numbers,
    target_nodeids: Numbers,
    target_treeids: Numbers,
    target_weights: Numbers | None = None,
    target_weights_as_tensor: np.ndarray | None = None,
) -> Tables:
    """Returns predictions ``[b, n_targets]``, float32 (ONNX ML TreeEnsembleRegressor-3).

    Args:
      aggregate_function: SUM, AVERAGE, MIN or MAX over the trees.
      base_values: value added to each column.
      base_values_as_tensor: ``base_values`` as an array.
      n_targets: number of columns.
      nodes_falsenodeids: next node of the same tree if the comparison is false.
      nodes_featureids: feature that each node compares.
      nodes_missing_value_tracks_true: whether NaN takes the true branch, for each node.
      nodes_modes: BRANCH_LEQ, BRANCH_LT … or LEAF.
      nodes_nodeids: number of each node in its tree.
      nodes_treeids: tree of each node; the first node of a tree is its root.
      nodes_truenodeids: next node of the same tree if the comparison is true.
      nodes_values: value that each node compares with.
      nodes_values_as_tensor: ``nodes_values`` as an array.
      post_transform: NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT.
      target_ids: column of each weight.
      target_nodeids: number of the leaf that each weight belongs to.
      target_treeids: tree of the leaf that each weight belongs to.
      target_weights: the weights of the leaves.
      target_weights_as_tensor: ``target_weights`` as an array.
    """
    weights = _given("target_weights", target_weights, target_weights_as_tensor)
    found = listed(
        (nodes_treeids, nodes_nodeids),
        nodes_modes,
        (nodes_falsenodeids, nodes_truenodeids),
        nodes_featureids,
        _given("nodes_values", nodes_values, nodes_values_as_tensor),
        nodes_missing_value_tracks_true,
        (target_treeids, target_nodeids),
        target_ids,
        weights,
    )
    arrays, keywords = tables(*found, n_targets, aggregate_function)
    base = _base(base_values, base_values_as_tensor)
    return Tables(arrays, keywords | {"base": base, "post_transform": post_transform})


@register(
    "TreeEnsembleClassifier",
    domain=ML,
    ignored=("nodes_hitrates", "nodes_hitrates_as_tensor"),
    labels=("classlabels_strings", "classlabels_int64s"),
)
@_tabled
def tree_ensemble_classifier(
    *,
    base_values: Numbers | None = None,
    base_values_as_tensor: np.ndarray | None = None,
    class_ids: Numbers,
    class_nodeids: Numbers,
    class_treeids: Numbers,
    class_weights: Numbers | None = None,
    class_weights_as_tensor: np.ndarray | None = None,
    classlabels_int64s: Ints | None = None,
    classlabels_strings: Texts | None = None,
    nodes_falsenodeids: Numbers,
    nodes_featureids: Numbers,
    nodes_missing_value_tracks_true: Numbers | None = None,
    nodes_modes: Texts | CodedTexts,
    nodes_nodeids: Numbers,
    nodes_treeids: Numbers,
    nodes_truenodeids: Numbers,
    nodes_values: Numbers | None = None,
    nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
) -> Tables:
    """Returns the label and the class scores of each row (TreeEnsembleClassifier-3).

    The attributes are those of :func:`tree_ensemble_regressor`, with ``class_…`` for ``target_…``.
    The labels are ``classlabels_int64s`` or ``classlabels_strings``.

    If only one of two classes occurs in ``class_ids``, the sum s is the score of the second class.
    As in ONNX Runtime, the first class then scores 1 − s if s is a probability (``post_transform``
    is PROBIT, or is NONE and no weight is negative), and −s otherwise.
    """
    labels = classlabels_strings or classlabels_int64s or ()
    weights = _given("class_weights", class_weights, class_weights_as_tensor)
    found = listed(
        (nodes_treeids, nodes_nodeids),
        nodes_modes,
        (nodes_falsenodeids, nodes_truenodeids),
        nodes_featureids,
        _given("nodes_values", nodes_values, nodes_values_as_tensor),
        nodes_missing_value_tracks_true,
        (class_treeids, class_nodeids),
        class_ids,
        weights,
    )
    arrays, keywords = tables(*found, len(labels), "SUM")
    keywords |= {"base": _base(base_values, base_values_as_tensor), "labels": labels}
    keywords["post_transform"] = post_transform
    scored = np.unique(class_ids)
    if len(labels) == 2 and len(scored) == 1:
        plain = post_transform == "NONE" and bool((weights >= 0).all())
        shares = plain or post_transform == "PROBIT"
        keywords |= {"shares": shares, "single": int(scored[0])}
    return Tables(arrays, keywords)


def _base(numbers: Numbers | None, array: np.ndarray | None) -> tuple[float, ...]:
    if numbers is not None and not len(numbers):
        numbers = None
    if numbers is None and array is None:
        return (0.0,)
    return tuple(_given("base_values", numbers, array).tolist())


def _given(name: str, numbers: Numbers | None, array: np.ndarray | None) -> np.ndarray:
    """Returns an attribute that the model stores either as a list or as an array."""
    if numbers is None and array is None:
        raise ValueError(f"{name}: got neither {name} nor {name}_as_tensor")
    return np.array(numbers, np.float32) if array is None else np.asarray(array)


def _members(modes: np.ndarray, values: np.ndarray | None) -> np.ndarray | None:
    """Returns the membership sets of the nodes, ``[nodes, members]``, padded with NaN."""
    testing = np.flatnonzero(np.asarray(modes) == MODES.index("MEMBER"))
    if not len(testing):
        return None
    sets: list[list[float]] = [[]]
    for value in () if values is None else np.asarray(values).tolist():
        if value != value:
            sets.append([])
        else:
            sets[-1].append(value)
    if len(testing) > len(sets) - 1:
        raise ValueError(f"membership_values: got {len(sets) - 1} sets, wanted {len(testing)}")
    table = np.full(sized((len(modes), max(1, *(len(s) for s in sets)))), np.nan)
    for node, members in zip(testing, sets, strict=False):
        table[node, : len(members)] = members
    return table
