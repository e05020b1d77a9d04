"""Equations 1 to 4 against hand-derived values, plain loops in float64, and their gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxatr import losses


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
    value = losses.cbc(open_logits, np.array([0]))
    np.testing.assert_allclose(value, [-np.log(3 / 4) - np.log(1 / 2)], rtol=1e-6)


def test_entropy_hand_derived():
    value = losses.entropy(np.log([[0.5, 0.25, 0.25]]))
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
    f32 = np.float32
    np.testing.assert_allclose(
        losses.cross_entropy(f32(logits), labels), expected["cross_entropy"], atol=2e-6
    )
    np.testing.assert_allclose(losses.entropy(f32(logits)), expected["entropy"], atol=2e-6)
    np.testing.assert_allclose(losses.cbc(f32(open_logits), labels), expected["cbc"], atol=2e-6)
    total = losses.open_set(
        f32(logits), f32(open_logits), labels, entropy_weight=0.3, open_weight=0.5
    )
    by_hand = expected["cross_entropy"] + 0.5 * expected["cbc"] + 0.3 * expected["entropy"]
    np.testing.assert_allclose(total, by_hand, atol=5e-6)


def test_default_weights_are_the_papers():
    logits, open_logits, labels = draw(3)
    parts = losses.cross_entropy(logits, labels) + losses.cbc(open_logits, labels)
    np.testing.assert_allclose(
        losses.open_set(logits, open_logits, labels),
        parts + 0.1 * losses.entropy(logits),
        rtol=1e-6,
    )


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_one_vs_rest_bce_agrees_with_plain_loops(reduction):
    _, open_logits, labels = draw(0)
    expected = []
    for z, y in zip(open_logits, labels, strict=True):
        terms = [-np.log(sigmoid(z[i]) if i == y else 1 - sigmoid(z[i])) for i in range(len(z))]
        expected.append(sum(terms) / (len(z) if reduction == "mean" else 1))
    value = losses.one_vs_rest_bce(np.float32(open_logits), labels, reduction=reduction)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_one_vs_rest_bce_refuses_an_unknown_reduction(unchecked):
    with pytest.raises(ValueError, match="reduction: got 'max'"):
        losses.one_vs_rest_bce(jnp.zeros((1, 2)), jnp.zeros(1, int), reduction="max")


def test_two_classes_make_cbc_and_bce_equal():
    _, open_logits, labels = draw(1, k=2)
    np.testing.assert_allclose(
        losses.cbc(open_logits, labels), losses.one_vs_rest_bce(open_logits, labels), rtol=1e-6
    )


def test_one_class_has_no_negative_term():
    z = jnp.array([[0.3], [-2.0]])
    value, gradient = jax.value_and_grad(lambda z: losses.cbc(z, jnp.zeros(2, int)).sum())(z)
    np.testing.assert_allclose(value, np.sum(np.log1p(np.exp([-0.3, 2.0]))), rtol=1e-6)
    np.testing.assert_allclose(gradient[:, 0], -sigmoid(np.array([-0.3, 2.0])), rtol=1e-6)


def test_gradients_agree_with_finite_differences():
    logits, open_logits, labels = draw(5, b=4, k=4, scale=1.0)
    with jax.enable_x64(True):
        f = lambda a, b: losses.open_set(a, b, labels)  # noqa: E731
        check_grads(f, (logits, open_logits), order=1, modes=("fwd", "rev"), atol=1e-6, rtol=1e-6)
        g = lambda b: losses.one_vs_rest_bce(b, labels)  # noqa: E731
        check_grads(g, (open_logits,), order=1, modes=("fwd", "rev"), atol=1e-6, rtol=1e-6)


def test_only_own_and_hardest_negative_are_trained():
    open_logits = jnp.array([[0.5, -1.0, 2.0, 1.9]])
    gradient = jax.grad(lambda z: losses.cbc(z, jnp.array([0])).sum())(open_logits)[0]
    np.testing.assert_allclose(
        gradient, [sigmoid(0.5) - 1, 0, sigmoid(2.0), 0], rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("magnitude", [1e2, 1e4])
def test_stable_for_large_logits(magnitude):
    signs = np.array([[1, -1, 1], [-1, 1, 1], [-1, -1, -1], [1, 1, 1]], np.float32)
    z, labels = jnp.asarray(signs * magnitude), jnp.array([0, 0, 1, 2])
    f = lambda a, b: losses.open_set(a, b, labels) + losses.one_vs_rest_bce(b, labels)  # noqa: E731
    z64 = np.float64(signs * magnitude)
    own = np.eye(3, dtype=bool)[labels]
    softplus = partial(np.logaddexp, 0)
    log_p = z64 - np.logaddexp.reduce(z64, axis=1, keepdims=True)
    closed = -log_p[own] - 0.1 * np.sum(np.exp(log_p) * log_p, axis=1)
    cbc = softplus(-z64[own]) + softplus(np.where(own, -np.inf, z64).max(axis=1))
    bce = softplus(-z64[own]) + np.where(own, 0, softplus(z64)).sum(axis=1)
    np.testing.assert_allclose(f(z, z), closed + cbc + bce, rtol=1e-5, atol=1e-6)
    for gradient in jax.grad(lambda a, b: f(a, b).sum(), argnums=(0, 1))(z, z):
        assert np.isfinite(gradient).all()


def test_large_logit_gradient_is_that_of_the_saturated_classifier():
    z = jnp.array([[-1e4, 1e4, 0.0]])
    gradient = jax.grad(lambda z: losses.cbc(z, jnp.array([0])).sum())(z)
    np.testing.assert_allclose(gradient, [[-1.0, 1.0, 0.0]])


@pytest.mark.parametrize("loss", [losses.cbc, losses.cross_entropy, losses.one_vs_rest_bce])
@pytest.mark.parametrize("label", [-1, 3])
def test_label_out_of_range(loss, label):
    z, labels = jnp.zeros((2, 3)), jnp.array([0, label])
    with pytest.raises(ValueError, match=rf"labels: got {label}, wanted integers in \[0, 3\)"):
        loss(z, labels)
    traced = jax.jit(loss)(z, labels)
    assert np.isfinite(traced[0]) and np.isnan(traced[1])


def test_labels_must_be_integers(unchecked):
    with pytest.raises(AssertionError, match="type float32 but expected"):
        losses.cbc(jnp.zeros((2, 3)), jnp.zeros(2))


@pytest.mark.parametrize("loss", [losses.cbc, losses.cross_entropy, losses.one_vs_rest_bce])
def test_there_is_a_label_for_each_example(loss, unchecked):
    for labels in (jnp.zeros(1, int), jnp.zeros((2, 1), int)):  # which would be broadcast
        with pytest.raises(AssertionError, match=r"but expected \(2,?\)"):
            loss(jnp.zeros((2, 3)), labels)


def test_heads_of_different_size_are_refused(unchecked):
    with pytest.raises(AssertionError, match=r"shapes: \[\(2, 3\), \(2, 4\)\]"):
        losses.open_set(jnp.zeros((2, 3)), jnp.zeros((2, 4)), jnp.zeros(2, int))


def test_jit_and_vmap_equal_eager():
    logits, open_logits, labels = (jnp.asarray(a) for a in draw(7))
    eager = losses.open_set(logits, open_logits, labels)
    np.testing.assert_allclose(jax.jit(losses.open_set)(logits, open_logits, labels), eager, 1e-6)
    single = jax.vmap(lambda a, b, y: losses.open_set(a[None], b[None], y[None])[0])
    np.testing.assert_allclose(single(logits, open_logits, labels), eager, 1e-6)


def test_half_precision_is_computed_in_float32():
    logits, open_logits, labels = draw(8)
    half = jnp.asarray(logits, jnp.bfloat16), jnp.asarray(open_logits, jnp.bfloat16)
    value = losses.open_set(*half, labels)
    assert value.dtype == jnp.float32
    exact = losses.open_set(*(h.astype(jnp.float32) for h in half), labels)
    np.testing.assert_array_equal(value, exact)


def test_masked_mean():
    values, mask = jnp.array([1.0, jnp.nan, 5.0]), jnp.array([True, False, True])
    assert losses.masked_mean(values, mask) == 3.0
    np.testing.assert_array_equal(jax.grad(losses.masked_mean)(values, mask), [0.5, 0.0, 0.5])
    empty = jnp.zeros(3, bool)
    assert losses.masked_mean(values, empty) == 0.0
    np.testing.assert_array_equal(jax.grad(losses.masked_mean)(values, empty), [0.0, 0.0, 0.0])
    subset = losses.masked_mean(values[mask], jnp.ones(2, bool))
    assert losses.masked_mean(values, mask) == subset
