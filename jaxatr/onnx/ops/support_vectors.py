"""Support vector machines of ``ai.onnx.ml``."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.ml import ML, Floats, Ints, Texts, labelled, transformed
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, first_place

CLOSEST = 1e-7
"""By which a probability of a pair of classes stays away from 0 and 1, as in libsvm."""


def _kernel(x: Value, vectors: np.ndarray, kind: str, params: Floats) -> Value:
    """Returns ``[b, v]``, the kernel function of each row and each vector."""
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
    """Returns ``[b, 1]``, a sum of kernel functions (ONNX ML SVMRegressor-1).

    Args:
      x: ``[b, features]``.
      coefficients: of the support vectors; without any, of the features.
      kernel_params: gamma, what is added, and the degree.
      kernel_type: LINEAR, POLY, RBF or SIGMOID.
      n_supports: number of support vectors.
      one_class: whether to return 1 where the sum is positive, else −1.
      post_transform: NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT.
      rho: what is added to the sum.
      support_vectors: one after the other.
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


@register("SVMClassifier", domain=ML)
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
    """Returns the label of each row, and scores (ONNX ML SVMClassifier-1).

    Args:
      x: ``[b, features]``.
      classlabels_ints: the k classes, if they are numbers.
      classlabels_strings: if they are strings; the labels are then known, not traced.
      coefficients: ``(k − 1)`` rows over the support vectors; or k over the features.
      kernel_params: gamma, what is added, and the degree.
      kernel_type: LINEAR, POLY, RBF or SIGMOID.
      post_transform: NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT.
      prob_a: of each pair of classes, the factor of its logistic function.
      prob_b: and what that adds.
      rho: what each pair's sum adds.
      support_vectors: one after the other, those of the first class first.
      vectors_per_class: how many each class has.

    Returns:
      The labels, and: with ``prob_a`` the probabilities ``[b, k]``; without support vectors the
      scores ``[b, k]``; else the scores of the pairs of classes, of two classes with their
      negative before them.
    """
    rows = jnp.asarray(x).astype("float32")
    count = len(classlabels_strings or classlabels_ints or (0,))
    if not vectors_per_class:
        weights = _rows("coefficients", coefficients, rows.shape[1])
        if len(weights) != count:
            raise ValueError(f"coefficients: got {len(weights)} rows, wanted {count}")
        scores = rows @ weights.T + np.float32(rho[0])
        best = first_place(jax.lax.argmax, scores, 1)
        chosen = labelled(best, classlabels_ints, classlabels_strings)
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
    chosen = labelled(first_place(jax.lax.argmax, votes, 1), classlabels_ints, classlabels_strings)
    if prob_a:
        if not len(prob_a) == len(prob_b) == len(pairs):
            raise ValueError(f"prob_a: got {len(prob_a)} numbers, wanted {len(pairs)}")
        factors, shifts = (np.array(numbers, np.float32) for numbers in (prob_a, prob_b))
        between = jax.nn.sigmoid(-(scores * factors + shifts))
        between = jnp.clip(between, CLOSEST, 1 - CLOSEST)
        square = jnp.zeros((len(rows), count, count), scores.dtype)
        square = square.at[:, first, second].set(between).at[:, second, first].set(1 - between)
        return chosen, transformed(jax.vmap(_coupled)(square), post_transform)
    if count == 2:
        scores = jnp.concatenate([-scores, scores], 1)
    return chosen, transformed(scores, post_transform)


def _pair_weights(weights: np.ndarray, sizes: Ints, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Returns ``[v, pairs]``, what each support vector counts in the sum of each pair of classes.

    A class's vectors have a row for each other class, in the order of the classes.
    """
    ends = np.cumsum(sizes)
    made = np.zeros((weights.shape[1], len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        for one, row in ((i, j - 1), (j, i)):
            own = slice(ends[one] - sizes[one], ends[one])
            made[own, column] = weights[row, own]
    return made


def _coupled(pairs: Value) -> Value:
    """Returns the probabilities ``[k]`` that agree best with those of pairs ``[k, k]``.

    The iteration of Wu, Lin and Weng, "Probability estimates for multi-class classification by
    pairwise coupling" (2004), second method, as libsvm ends it.
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
