"""The tree ensembles of ``ai.onnx.ml``, in the current and the older format."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.ml import ML, Floats, Ints, Texts, labelled, transformed
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.trees import FUNCTIONS, MODES, Trees, aggregated, leaf_table
from jaxatr.onnx.ops.values import Value, first_place, sized

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@register("TreeEnsemble", domain=ML, ignored=("nodes_hitrates",))
def tree_ensemble(
    x: Value,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Ints,
    leaf_weights: np.ndarray,
    membership_values: np.ndarray | None = None,
    n_targets: int = 1,
    nodes_falseleafs: Ints,
    nodes_falsenodeids: Ints,
    nodes_featureids: Ints,
    nodes_missing_value_tracks_true: Ints | None = None,
    nodes_modes: np.ndarray,
    nodes_splits: np.ndarray,
    nodes_trueleafs: Ints,
    nodes_truenodeids: Ints,
    post_transform: int = 0,
    tree_roots: Ints,
) -> Value:
    """Returns the aggregated leaf values of each row, ``[b, n_targets]`` (TreeEnsemble-5).

    Args:
      x: ``[b, features]``.
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
        np.array(nodes_missing_value_tracks_true or (0,) * count) != 0,
        _members(nodes_modes, membership_values),
    )
    leaves, weights = np.arange(len(leaf_weights)), np.asarray(leaf_weights)
    table = leaf_table(leaves, np.array(leaf_targetids), weights, len(leaves))
    scores = aggregated(x, trees, table, n_targets, function)
    return transformed(scores.astype(x.dtype), transform)


def _numbered(name: str, number: int, names: tuple[str, ...]) -> str:
    if not 0 <= number < len(names):
        raise ValueError(f"{name}: got {number}, wanted 0 to {len(names) - 1}")
    return names[number]


@register(
    "TreeEnsembleRegressor", domain=ML, ignored=("nodes_hitrates", "nodes_hitrates_as_tensor")
)
def tree_ensemble_regressor(
    x: Value,
    *,
    aggregate_function: str = "SUM",
    base_values: Floats | None = None,
    base_values_as_tensor: np.ndarray | None = None,
    n_targets: int = 1,
    nodes_falsenodeids: Ints,
    nodes_featureids: Ints,
    nodes_missing_value_tracks_true: Ints | None = None,
    nodes_modes: Texts,
    nodes_nodeids: Ints,
    nodes_treeids: Ints,
    nodes_truenodeids: Ints,
    nodes_values: Floats | None = None,
    nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
    target_ids: Ints,
    target_nodeids: Ints,
    target_treeids: Ints,
    target_weights: Floats | None = None,
    target_weights_as_tensor: np.ndarray | None = None,
) -> Value:
    """Returns predictions ``[b, n_targets]``, float32 (ONNX ML TreeEnsembleRegressor-3).

    Args:
      x: ``[b, features]``.
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
    values = _given("nodes_values", nodes_values, nodes_values_as_tensor)
    weights = _given("target_weights", target_weights, target_weights_as_tensor)
    trees, positions = _listed(
        (nodes_treeids, nodes_nodeids),
        nodes_modes,
        (nodes_falsenodeids, nodes_truenodeids),
        nodes_featureids,
        values,
        nodes_missing_value_tracks_true,
    )
    table = _table(trees, positions, (target_treeids, target_nodeids), target_ids, weights)
    scores = aggregated(_floats(x), trees, table, n_targets, aggregate_function)
    base = _given("base_values", base_values or (0.0,), base_values_as_tensor)
    return transformed((scores + base.astype(scores.dtype)).astype("float32"), post_transform)


@register(
    "TreeEnsembleClassifier", domain=ML, ignored=("nodes_hitrates", "nodes_hitrates_as_tensor")
)
def tree_ensemble_classifier(
    x: Value,
    *,
    base_values: Floats | None = None,
    base_values_as_tensor: np.ndarray | None = None,
    class_ids: Ints,
    class_nodeids: Ints,
    class_treeids: Ints,
    class_weights: Floats | None = None,
    class_weights_as_tensor: np.ndarray | None = None,
    classlabels_int64s: Ints | None = None,
    classlabels_strings: Texts | None = None,
    nodes_falsenodeids: Ints,
    nodes_featureids: Ints,
    nodes_missing_value_tracks_true: Ints | None = None,
    nodes_modes: Texts,
    nodes_nodeids: Ints,
    nodes_treeids: Ints,
    nodes_truenodeids: Ints,
    nodes_values: Floats | None = None,
    nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
) -> tuple[Value, Value]:
    """Returns the label and the class scores of each row (TreeEnsembleClassifier-3).

    The attributes are those of :func:`tree_ensemble_regressor`, with ``class_…`` for ``target_…``.
    The labels are ``classlabels_int64s`` or ``classlabels_strings``.

    If only one of two classes occurs in ``class_ids``, the sum s is the score of the second class.
    As in ONNX Runtime, the first class then scores 1 − s if s is a probability (``post_transform``
    is PROBIT, or is NONE and no weight is negative), and −s otherwise.
    """
    labels = classlabels_strings or classlabels_int64s or ()
    values = _given("nodes_values", nodes_values, nodes_values_as_tensor)
    weights = _given("class_weights", class_weights, class_weights_as_tensor)
    trees, positions = _listed(
        (nodes_treeids, nodes_nodeids),
        nodes_modes,
        (nodes_falsenodeids, nodes_truenodeids),
        nodes_featureids,
        values,
        nodes_missing_value_tracks_true,
    )
    table = _table(trees, positions, (class_treeids, class_nodeids), class_ids, weights)
    scores = aggregated(_floats(x), trees, table, len(labels), "SUM").astype("float32")
    base = _given("base_values", base_values or (0.0,), base_values_as_tensor)
    if len(labels) == 2 and len(set(class_ids)) == 1:
        second = scores[:, class_ids[0]] + np.float32(base[class_ids[0] if len(base) > 1 else 0])
        plain = post_transform == "NONE" and bool((weights >= 0).all())
        share = plain or post_transform == "PROBIT"
        best = (second > (0.5 if share else 0)).astype("int32")
        scores = jnp.stack([1 - second if share else -second, second], 1)
    else:
        scores = scores + base.astype(np.float32)
        best = first_place(jax.lax.argmax, scores, 1)
    chosen = labelled(best, classlabels_int64s, classlabels_strings)
    return chosen, transformed(scores, post_transform)


def _given(name: str, numbers: Floats | None, array: np.ndarray | None) -> np.ndarray:
    """Returns an attribute that the model stores either as a list or as an array."""
    if numbers is None and array is None:
        raise ValueError(f"{name}: got neither {name} nor {name}_as_tensor")
    return np.array(numbers, np.float32) if array is None else np.asarray(array)


def _floats(x: Value) -> Value:
    x = jnp.asarray(x)
    return x if x.dtype == np.float64 else x.astype("float32")


def _listed(
    names: tuple[Ints, Ints],
    modes: Texts,
    branches: tuple[Ints, Ints],
    features: Ints,
    splits: np.ndarray,
    missing: Ints | None,
) -> tuple[Trees, dict[tuple[int, int], int]]:
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
    inner = np.array([mode != "LEAF" for mode in modes])
    order = np.argsort(~inner, kind="stable")
    listed = list(zip(*names, strict=True))
    positions = {listed[node]: place for place, node in enumerate(order)}
    if len(positions) < count:
        raise ValueError("nodes_nodeids: two nodes of a tree have the same number")
    roots: dict[int, int] = {}
    for name in listed:
        roots.setdefault(name[0], positions[name])
    deciding = order[: int(inner.sum())]
    kinds = {f"BRANCH_{mode}": number for number, mode in enumerate(MODES[:-1])}
    try:
        children = [[positions[names[0][i], branch[i]] for i in deciding] for branch in branches]
        numbers = [kinds[modes[i]] for i in deciding]
    except KeyError as error:
        raise ValueError(f"nodes: got {error}, wanted an existing node or mode") from None
    tracks = np.array(missing or (0,) * count) != 0
    trees = Trees(
        np.array(list(roots.values()), np.int64),
        np.array(children, np.int64).reshape(2, -1),
        np.array(features)[deciding],
        splits[deciding],
        np.array(numbers, np.int32),
        tracks[deciding],
        np.full((len(deciding), 1), np.nan),
    )
    return trees, positions


def _table(
    trees: Trees,
    positions: dict[tuple[int, int], int],
    names: tuple[Ints, Ints],
    columns: Ints,
    weights: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the :func:`leaf_table` of leaves that are identified by tree and node number."""
    inner = len(trees.splits)
    leaves = [positions.get(name, -1) - inner for name in zip(*names, strict=True)]
    if min(leaves, default=0) < 0:
        raise ValueError("a weight belongs to a node that is not a leaf")
    return leaf_table(
        np.array(leaves, np.int64), np.array(columns), weights, len(positions) - inner
    )


def _members(modes: np.ndarray, values: np.ndarray | None) -> np.ndarray:
    """Returns the membership sets of the nodes, ``[nodes, members]``, padded with NaN."""
    sets: list[list[float]] = [[]]
    for value in () if values is None else np.asarray(values).tolist():
        if value != value:
            sets.append([])
        else:
            sets[-1].append(value)
    testing = np.flatnonzero(np.asarray(modes) == MODES.index("MEMBER"))
    if len(testing) > len(sets) - 1:
        raise ValueError(f"membership_values: got {len(sets) - 1} sets, wanted {len(testing)}")
    table = np.full(sized((len(modes), max(1, *(len(s) for s in sets)))), np.nan)
    for node, members in zip(testing, sets, strict=False):
        table[node, : len(members)] = members
    return table
