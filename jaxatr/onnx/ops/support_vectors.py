"""The support vector machines of ``ai.onnx.ml``."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.ml import ML, Floats, Ints, Texts, labelled, transformed
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, first_place

CLOSEST = 1e-7
"""Minimum distance of a pairwise class probability from 0 and 1, as in libsvm."""


def _kernel(x: Value, vectors: np.ndarray, kind: str, params: Floats) -> Value:
    """Returns the kernel value of each row and each support vector, ``[b, v]``."""
    gamma, shift, degree = (*params, 0.0, 0.0, 0.0)[:3] if params else (0.0, 0.0, 0.0)
    if kind == "RBF":
        distances = jnp.sum(jnp.square(x[:, None] - vectors), -1)
        return jnp.exp(-gamma * distances)
    product = x @ vectors.T
    if kind == "LINEAR":
        return product
    if kind == "POLY":
        return jnp.power(gamma * product + shift, int(degree))
    if kind == "SIGMOID":
        return jnp.tanh(gamma * product + shift)
    raise ValueError(f"kernel_type: got {kind!r}, wanted LINEAR, POLY, RBF or SIGMOID")


def _rows(name: str, numbers: Floats, count: int) -> np.ndarray:
    if count < 1 or len(numbers) % count:
        raise ValueError(f"{name}: got {len(numbers)} numbers, wanted rows of {count}")
    return np.array(numbers, np.float32).reshape(-1, count)


@register("SVMRegressor", domain=ML)
def svm_regressor(
    x: Value,
    *,
    coefficients: Floats,
    kernel_params: Floats = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Floats,
    support_vectors: Floats = (),
) -> Value:
    """Returns a weighted sum of kernel values ``[b, 1]`` (ONNX ML SVMRegressor-1).

    Args:
      x: ``[b, features]``.
      coefficients: weights of the support vectors, or of the features if there are none.
      kernel_params: gamma, offset and degree.
      kernel_type: LINEAR, POLY, RBF or SIGMOID.
      n_supports: number of support vectors.
      one_class: whether to return 1 where the sum is positive, else −1.
      post_transform: NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT.
      rho: number added to the sum.
      support_vectors: the support vectors, concatenated.
    """
    rows = jnp.asarray(x).astype("float32")
    weights = np.array(coefficients, np.float32)
    if n_supports > 0:
        vectors = _rows("support_vectors", support_vectors, rows.shape[1])
        rows = _kernel(rows, vectors, kernel_type, kernel_params)
    if weights.shape != rows.shape[1:]:
        raise ValueError(f"coefficients: got {len(weights)}, wanted {rows.shape[1]}")
    scores = (rows @ weights + np.float32(rho[0]))[:, None]
    if one_class:
        return jnp.where(scores > 0, np.float32(1), np.float32(-1))
    return transformed(scores, post_transform)


@register("SVMClassifier", domain=ML, labels=("classlabels_strings", "classlabels_ints"))
def svm_classifier(
    x: Value,
    *,
    classlabels_ints: Ints | None = None,
    classlabels_strings: Texts | None = None,
    coefficients: Floats,
    kernel_params: Floats = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Floats = (),
    prob_b: Floats = (),
    rho: Floats,
    support_vectors: Floats = (),
    vectors_per_class: Ints = (),
) -> tuple[Value, Value]:
    """Returns the label and the scores of each row (ONNX ML SVMClassifier-1).

    Args:
      x: ``[b, features]``.
      classlabels_ints: the k class labels, if they are integers.
      classlabels_strings: the k class labels, if they are strings.
      coefficients: k − 1 rows of weights of the support vectors; without support vectors, k rows of
        weights of the features.
      kernel_params: gamma, offset and degree.
      kernel_type: LINEAR, POLY, RBF or SIGMOID.
      post_transform: NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT.
      prob_a: slope of the logistic function of each pair of classes.
      prob_b: offset of the logistic function of each pair of classes.
      rho: number added to the sum of each pair of classes.
      support_vectors: the support vectors, concatenated by class.
      vectors_per_class: number of support vectors of each class.

    Returns:
      The labels and the scores. The scores are probabilities ``[b, k]`` with ``prob_a``, and
      ``[b, k]`` without support vectors; otherwise there is one for each pair of classes, preceded
      by its negative if there are only two classes.
    """
    rows = jnp.asarray(x).astype("float32")
    count = len(classlabels_strings or classlabels_ints or (0,))
    if not vectors_per_class:
        weights = _rows("coefficients", coefficients, rows.shape[1])
        if len(weights) != count:
            raise ValueError(f"coefficients: got {len(weights)} rows, wanted {count}")
        scores = rows @ weights.T + np.float32(rho[0])
        best = first_place(jax.lax.argmax, scores, 1)
        chosen = labelled(best, classlabels_strings or classlabels_ints or ())
        return chosen, transformed(scores, post_transform)
    vectors = _rows("support_vectors", support_vectors, rows.shape[1])
    if len(vectors_per_class) != count or sum(vectors_per_class) != len(vectors):
        raise ValueError(f"vectors_per_class: got {vectors_per_class} of {len(vectors)} vectors")
    weights = _rows("coefficients", coefficients, len(vectors))
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    if len(weights) != count - 1 or len(rho) < len(pairs):
        raise ValueError(f"coefficients, rho: got {len(weights)} rows and {len(rho)} numbers")
    mixing = _pair_weights(weights, vectors_per_class, pairs)
    scores = _kernel(rows, vectors, kernel_type, kernel_params) @ mixing
    scores = scores + np.array(rho[: len(pairs)], np.float32)
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    winners = jnp.where(scores > 0, first, second)
    votes = jnp.sum(winners[..., None] == np.arange(count), 1)
    best = first_place(jax.lax.argmax, votes, 1)
    chosen = labelled(best, classlabels_strings or classlabels_ints or ())
    if prob_a:
        if not len(prob_a) == len(prob_b) == len(pairs):
            raise ValueError(f"prob_a: got {len(prob_a)} numbers, wanted {len(pairs)}")
        factors, shifts = (np.array(numbers, np.float32) for numbers in (prob_a, prob_b))
        between = jax.nn.sigmoid(-(scores * factors + shifts))
        between = jnp.clip(between, CLOSEST, 1 - CLOSEST)
        square = jnp.zeros((rows.shape[0], count, count), scores.dtype)
        square = square.at[:, first, second].set(between).at[:, second, first].set(1 - between)
        return chosen, transformed(jax.vmap(_coupled)(square), post_transform)
    if count == 2:
        scores = jnp.concatenate([-scores, scores], 1)
    return chosen, transformed(scores, post_transform)


def _pair_weights(weights: np.ndarray, sizes: Ints, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Returns the weight of each support vector for each pair of classes, ``[v, pairs]``.

    The support vectors of a class have one row of weights for each other class, in class order.
    """
    ends = np.cumsum(sizes)
    made = np.zeros((weights.shape[1], len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        for one, row in ((i, j - 1), (j, i)):
            members = slice(ends[one] - sizes[one], ends[one])
            made[members, column] = weights[row, members]
    return made


def _coupled(pairs: Value) -> Value:
    """Returns the class probabilities ``[k]`` that best fit pairwise ones ``[k, k]``.

    This is the second method of Wu, Lin and Weng, "Probability estimates for multi-class
    classification by pairwise coupling" (2004), with libsvm's stopping rule.
    """
    count = pairs.shape[0]
    matrix = jnp.asarray(-pairs.T * pairs)
    matrix = matrix.at[jnp.diag_indices(count)].set(jnp.sum(jnp.square(pairs), 0))

    def going(state):
        step, shares = state
        slopes = matrix @ shares
        worst = jnp.max(jnp.abs(slopes - shares @ slopes))
        return (step < max(100, count)) & (worst >= 0.005 / count)

    def better(state):
        step, shares = state
        slopes = matrix @ shares
        total = shares @ slopes
        for t in range(count):
            change = (total - slopes[t]) / matrix[t, t]
            total = (total + change * (change * matrix[t, t] + 2 * slopes[t])) / (1 + change) ** 2
            slopes = (slopes + change * matrix[t]) / (1 + change)
            shares = shares.at[t].add(change) / (1 + change)
        return step + 1, shares

    start = (0, jnp.full(count, 1 / count, pairs.dtype))
    return jax.lax.while_loop(going, better, start)[1]
