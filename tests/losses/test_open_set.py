"""Equations 1 to 4 against hand-derived values, plain loops in float64, and their gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxatr import losses

# Compiling single operations takes longer than compiling a small loss at once.
jitted = {
    name: jax.jit(getattr(losses, name))
    for name in ("cross_entropy", "entropy", "cbc", "open_set", "one_vs_rest_bce", "masked_mean")
}
weighted = jax.jit(partial(losses.open_set, entropy_weight=0.3, open_weight=0.5))
mean_slope = jax.jit(jax.grad(losses.masked_mean))


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def loop_cbc(open_logits, labels):
    values = []
    for z, y in zip(open_logits, labels, strict=True):
        negatives = [np.log(1 - sigmoid(z[i])) for i in range(len(z)) if i != y]
        values.append(-np.log(sigmoid(z[y])) - (min(negatives) if negatives else 0))
    return np.array(values)


def loop_cross_entropy(logits, labels):
    return np.array([np.log(np.sum(np.exp(z))) - z[y] for z, y in zip(logits, labels, strict=True)])


def loop_entropy(logits):
    values = []
    for z in logits:
        p = np.exp(z) / np.sum(np.exp(z))
        values.append(-sum(pi * np.log(pi) for pi in p))
    return np.array(values)


def draw(seed, b=17, k=6, scale=3.0):
    rng = np.random.default_rng(seed)
    logits, open_logits = rng.normal(size=(2, b, k)) * scale
    return logits, open_logits, rng.integers(0, k, b)


def test_cbc_hand_derived():
    # σ(log 3) = 3/4 for the own class; the hardest negative has σ(log 1) = 1/2; the other 1/5.
    open_logits = np.log([[3.0, 1.0, 0.25]])
    value = jitted["cbc"](open_logits, np.array([0]))
    np.testing.assert_allclose(value, [-np.log(3 / 4) - np.log(1 / 2)], rtol=1e-6)


def test_entropy_hand_derived():
    value = jitted["entropy"](np.log([[0.5, 0.25, 0.25]]))
    np.testing.assert_allclose(value, [1.5 * np.log(2)], rtol=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 2, 6])
def test_agrees_with_plain_loops(seed, k):
    logits, open_logits, labels = draw(seed, k=k)
    expected = {
        "cross_entropy": loop_cross_entropy(logits, labels),
        "entropy": loop_entropy(logits),
        "cbc": loop_cbc(open_logits, labels),
    }
    given = {"cross_entropy": (logits, labels), "entropy": (logits,), "cbc": (open_logits, labels)}
    for name, arrays in given.items():
        value = jitted[name](np.float32(arrays[0]), *arrays[1:])
        np.testing.assert_allclose(value, expected[name], atol=2e-6)
    total = weighted(np.float32(logits), np.float32(open_logits), labels)
    by_hand = expected["cross_entropy"] + 0.5 * expected["cbc"] + 0.3 * expected["entropy"]
    np.testing.assert_allclose(total, by_hand, atol=5e-6)


def test_default_weights_are_the_papers():
    logits, open_logits, labels = draw(3)
    logits, open_logits = np.float32(logits), np.float32(open_logits)
    entropy = jitted["entropy"](logits)
    parts = (jitted["cross_entropy"](logits, labels), jitted["cbc"](open_logits, labels))
    np.testing.assert_allclose(
        jitted["open_set"](logits, open_logits, labels),
        np.sum(parts, axis=0) + 0.1 * np.asarray(entropy),
        rtol=1e-6,
    )


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_one_vs_rest_bce_agrees_with_plain_loops(reduction):
    _, open_logits, labels = draw(0)
    expected = []
    for z, y in zip(open_logits, labels, strict=True):
        terms = [-np.log(sigmoid(z[i]) if i == y else 1 - sigmoid(z[i])) for i in range(len(z))]
        expected.append(sum(terms) / (len(z) if reduction == "mean" else 1))
    loss = jax.jit(partial(losses.one_vs_rest_bce, reduction=reduction))
    value = loss(np.float32(open_logits), labels)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_one_vs_rest_bce_refuses_an_unknown_reduction(unchecked):
    with pytest.raises(ValueError, match="reduction: got 'max'"):
        losses.one_vs_rest_bce(jnp.zeros((1, 2)), jnp.zeros(1, int), reduction="max")


def test_two_classes_make_cbc_and_bce_equal():
    _, open_logits, labels = draw(1, k=2)
    np.testing.assert_allclose(
        jitted["cbc"](np.float32(open_logits), labels),
        jitted["one_vs_rest_bce"](np.float32(open_logits), labels),
        rtol=1e-6,
    )


def test_one_class_has_no_negative_term():
    z, labels = np.float32([[0.3], [-2.0]]), np.zeros(2, int)
    value, gradient = jax.jit(jax.value_and_grad(lambda z: losses.cbc(z, labels).sum()))(z)
    np.testing.assert_allclose(value, np.sum(np.log1p(np.exp([-0.3, 2.0]))), rtol=1e-6)
    np.testing.assert_allclose(gradient[:, 0], -sigmoid(np.array([-0.3, 2.0])), rtol=1e-6)


def test_gradients_agree_with_finite_differences():
    logits, open_logits, labels = draw(5, b=4, k=4, scale=1.0)
    with jax.enable_x64(True):
        f = jax.jit(lambda a, b: losses.open_set(a, b, labels))
        check_grads(f, (logits, open_logits), order=1, modes=("fwd", "rev"), atol=1e-6, rtol=1e-6)
        g = jax.jit(lambda b: losses.one_vs_rest_bce(b, labels))
        check_grads(g, (open_logits,), order=1, modes=("fwd", "rev"), atol=1e-6, rtol=1e-6)


def test_only_own_and_hardest_negative_are_trained():
    open_logits = np.float32([[0.5, -1.0, 2.0, 1.9]])
    gradient = jax.jit(jax.grad(lambda z: losses.cbc(z, np.array([0])).sum()))(open_logits)
    np.testing.assert_allclose(
        gradient, [[sigmoid(0.5) - 1, 0, sigmoid(2.0), 0]], rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("magnitude", [1e2, 1e4])
def test_stable_for_large_logits(magnitude):
    signs = np.array([[1, -1, 1], [-1, 1, 1], [-1, -1, -1], [1, 1, 1]], np.float32)
    z, labels = signs * np.float32(magnitude), np.array([0, 0, 1, 2])

    def loss(a, b):
        each = losses.open_set(a, b, labels) + losses.one_vs_rest_bce(b, labels)
        return each.sum(), each

    gradients, value = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(z, z)
    z64 = np.float64(signs * magnitude)
    own = np.eye(3, dtype=bool)[labels]
    softplus = partial(np.logaddexp, 0)
    log_p = z64 - np.logaddexp.reduce(z64, axis=1, keepdims=True)
    closed = -log_p[own] - 0.1 * np.sum(np.exp(log_p) * log_p, axis=1)
    cbc = softplus(-z64[own]) + softplus(np.where(own, -np.inf, z64).max(axis=1))
    bce = softplus(-z64[own]) + np.where(own, 0, softplus(z64)).sum(axis=1)
    np.testing.assert_allclose(value, closed + cbc + bce, rtol=1e-5, atol=1e-6)
    for gradient in gradients:
        assert np.isfinite(gradient).all()


def test_large_logit_gradient_is_that_of_the_saturated_classifier():
    z = np.float32([[-1e4, 1e4, 0.0]])
    gradient = jax.jit(jax.grad(lambda z: losses.cbc(z, np.array([0])).sum()))(z)
    np.testing.assert_allclose(gradient, [[-1.0, 1.0, 0.0]])


@pytest.mark.parametrize("name", ["cbc", "cross_entropy", "one_vs_rest_bce"])
@pytest.mark.parametrize("label", [-1, 3])
def test_label_out_of_range(name, label):
    z, labels = jnp.zeros((2, 3)), jnp.array([0, label])
    with pytest.raises(ValueError, match=rf"labels: got {label}, wanted integers in \[0, 3\)"):
        getattr(losses, name)(z, labels)
    traced = np.asarray(jitted[name](z, labels))
    assert np.isfinite(traced[0]) and np.isnan(traced[1])


def test_labels_must_be_integers(unchecked):
    with pytest.raises(AssertionError, match="type float32 but expected"):
        losses.cbc(jnp.zeros((2, 3)), jnp.zeros(2))


@pytest.mark.parametrize("loss", [losses.cbc, losses.cross_entropy, losses.one_vs_rest_bce])
def test_there_is_a_label_for_each_example(loss, unchecked):
    for labels in (jnp.zeros(1, int), jnp.zeros((2, 1), int)):  # would otherwise be broadcast
        with pytest.raises(AssertionError, match=r"but expected \(2,?\)"):
            loss(jnp.zeros((2, 3)), labels)


def test_heads_of_different_size_are_refused(unchecked):
    with pytest.raises(AssertionError, match=r"shapes: \[\(2, 3\), \(2, 4\)\]"):
        losses.open_set(jnp.zeros((2, 3)), jnp.zeros((2, 4)), jnp.zeros(2, int))


def test_jit_and_vmap_equal_eager():
    logits, open_logits, labels = (jnp.asarray(a) for a in draw(7))
    eager = losses.open_set(logits, open_logits, labels)
    np.testing.assert_allclose(jitted["open_set"](logits, open_logits, labels), eager, 1e-6)
    single = jax.jit(jax.vmap(lambda a, b, y: losses.open_set(a[None], b[None], y[None])[0]))
    np.testing.assert_allclose(single(logits, open_logits, labels), eager, 1e-6)


def test_half_precision_is_computed_in_float32():
    logits, open_logits, labels = draw(8)
    half = logits.astype(jnp.bfloat16), open_logits.astype(jnp.bfloat16)
    value = jitted["open_set"](*half, labels)
    assert value.dtype == jnp.float32
    exact = jitted["open_set"](*(h.astype(np.float32) for h in half), labels)
    np.testing.assert_array_equal(value, exact)


def test_masked_mean():
    values, mask = np.float32([1.0, np.nan, 5.0]), np.array([True, False, True])
    mean = jitted["masked_mean"]
    assert mean(values, mask) == 3.0
    np.testing.assert_array_equal(mean_slope(values, mask), [0.5, 0.0, 0.5])
    empty = np.zeros(3, bool)
    assert mean(values, empty) == 0.0
    np.testing.assert_array_equal(mean_slope(values, empty), [0.0, 0.0, 0.0])
    assert mean(values, mask) == mean(values[mask], np.ones(2, bool))
    assert mean(np.full(1000, 100, np.float16), np.ones(1000, bool)) == 100  # 65504 is the largest
