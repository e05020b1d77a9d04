"""Equations 4 to 9 and 11 against hand-derived values, plain loops in float64 and PyTorch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxatr import losses

# Compiling single operations takes longer than compiling a small loss at once.
distillation = jax.jit(losses.distillation, static_argnames=("temperature", "alpha"))
end_to_end = jax.jit(losses.end_to_end, static_argnames=("temperature", "alpha", "l1_weight"))
explanation, soft_distillation = (
    jax.jit(losses.explanation),
    jax.jit(losses.soft_distillation, static_argnames="temperature"),
)
sparse_explanation = jax.jit(losses.sparse_explanation, static_argnames=("l1_weight", "reduction"))
saliency_l1 = jax.jit(losses.saliency_l1, static_argnames="reduction")


@jax.jit
def value_and_slope(teacher, student):
    return jax.value_and_grad(lambda s: losses.explanation(teacher, s).sum())(student)


def softmax(z):
    e = np.exp(z - max(z))
    return e / sum(e)


def loop_soft(teacher, student, t):
    values = []
    for z, s in zip(teacher, student, strict=True):
        p, q = softmax(z / t), softmax(s / t)
        values.append(
            t * t * sum(pi * (np.log(pi) - np.log(qi)) for pi, qi in zip(p, q, strict=True))
        )
    return np.array(values)


def loop_hard(student, labels):
    return np.array([-np.log(softmax(s)[y]) for s, y in zip(student, labels, strict=True)])


def draw(seed, b=13, k=5):
    rng = np.random.default_rng(seed)
    teacher, student, masked = rng.normal(size=(3, b, k)) * 2
    return teacher, student, masked, rng.uniform(size=(b, 3, 4)), rng.integers(0, k, b)


def f32(*arrays):
    return [np.float32(a) for a in arrays]


def test_hand_derived():
    # Teacher (3/4, 1/4), student (1/2, 1/2): KL = 3/4 log(3/2) + 1/4 log(1/2).
    teacher, student = f32(np.log([[3.0, 1.0]]), [[0.0, 0.0]])
    kl = 0.75 * np.log(1.5) - 0.25 * np.log(2)
    np.testing.assert_allclose(explanation(teacher, student), [kl], rtol=1e-6)
    value = distillation(teacher, student, np.array([1]), alpha=0.25)
    np.testing.assert_allclose(value, [0.25 * kl + 0.75 * np.log(2)], rtol=1e-6)
    # At t = 2 the odds of 9 become 3, and the divergence counts four times.
    hotter = soft_distillation(2 * teacher, student, temperature=2.0)
    np.testing.assert_allclose(hotter, [4 * kl], rtol=1e-6)
    saliency = np.float32([[[0.5, 0.25], [0.0, 1.0]]])
    value = sparse_explanation(teacher, student, saliency, l1_weight=0.1)
    np.testing.assert_allclose(value, [kl + 0.175], rtol=1e-6)
    mean = sparse_explanation(teacher, student, saliency, l1_weight=0.1, reduction="mean")
    np.testing.assert_allclose(mean, [kl + 0.04375], rtol=1e-6)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("t", [0.5, 1.0, 4.0])
def test_agrees_with_plain_loops(k, t):
    teacher, student, masked, saliency, labels = draw(0, k=k)
    soft, hard = loop_soft(teacher, student, t), loop_hard(student, labels)
    kept, sizes = loop_soft(teacher, masked, 1.0), [sum(row.sum() for row in m) for m in saliency]
    total = 0.3 * soft + 0.7 * hard + kept + 0.01 * np.array(sizes)
    arrays = f32(teacher, student, masked, saliency)
    np.testing.assert_allclose(
        distillation(*arrays[:2], labels, temperature=t, alpha=0.3),
        0.3 * soft + 0.7 * hard, atol=5e-6,
    )  # fmt: skip
    value = end_to_end(*arrays, labels, temperature=t, alpha=0.3, l1_weight=0.01)
    np.testing.assert_allclose(value, total, atol=1e-5)


def test_the_defaults_are_the_papers():
    teacher, student, masked, saliency, labels = draw(1)
    halves = (loop_soft(teacher, student, 1.0) + loop_hard(student, labels)) / 2
    size = np.abs(saliency).sum(axis=(1, 2))
    expected = halves + loop_soft(teacher, masked, 1.0) + 1e-5 * size
    value = end_to_end(*f32(teacher, student, masked, saliency), labels)
    np.testing.assert_allclose(value, expected, atol=5e-6)


def test_agrees_with_pytorch():
    torch = pytest.importorskip("torch")
    teacher, student, *_ = draw(2)
    t = 3.0
    log_p, log_q = (
        torch.log_softmax(torch.tensor(z / t, requires_grad=True), 1) for z in (teacher, student)
    )
    expected = t**2 * torch.nn.functional.kl_div(
        log_q, log_p.detach(), reduction="none", log_target=True
    ).sum(1)
    value = soft_distillation(*f32(teacher, student), temperature=t)
    np.testing.assert_allclose(value, expected.detach().numpy(), rtol=2e-5)


def test_gradients_agree_with_finite_differences():
    teacher, student, masked, saliency, labels = draw(3, b=3)

    @jax.jit
    def loss(student, masked, saliency):
        return losses.end_to_end(
            teacher, student, masked, saliency, labels, temperature=2.0, l1_weight=0.1
        )

    with jax.enable_x64(True):
        arguments = (student, masked, saliency)
        check_grads(loss, arguments, order=1, modes=("fwd", "rev"), atol=1e-6, rtol=1e-6)


def test_the_teacher_gets_no_gradient_and_the_student_that_of_both_parts():
    teacher, student, _, _, labels = draw(4)
    teacher, student = f32(teacher, student)
    loss = lambda a, b: losses.distillation(a, b, labels, alpha=0.5).sum()  # noqa: E731
    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))(teacher, student)
    np.testing.assert_array_equal(gradient[0], np.zeros_like(teacher))
    p, q = (np.stack([softmax(z) for z in logits]) for logits in (teacher, student))
    by_hand = 0.5 * (q - p) + 0.5 * (q - np.eye(5)[labels])
    np.testing.assert_allclose(gradient[1], by_hand, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.1, 10.0])
def test_saturated_logits(temperature):
    signs = np.array([[1, -1, 0], [-1, 1, 1], [1, 1, 1], [0, 0, -1]])
    z, labels = np.float32(1e4 * signs), np.array([1, 0, 2, 1])
    loss = lambda s: losses.distillation(z, s, labels, temperature=temperature)  # noqa: E731
    both = jax.jit(lambda s: jax.vjp(loss, s)[1](jnp.ones(4)) + (loss(s),))
    for student in (z, -z, np.roll(z, 1, axis=1), np.zeros_like(z)):
        slope, value = both(student)
        assert np.isfinite(slope).all() and np.isfinite(value).all() and np.all(value >= 0)
    # A sure teacher against a student as sure of another class: their distance, and its slope.
    sure, wrong = np.float32([[1e4, -1e4]]), np.float32([[-1e4, 1e4]])
    value, slope = value_and_slope(sure, wrong)
    assert value == 2e4
    np.testing.assert_array_equal(slope, [[-1.0, 1.0]])


def test_a_student_that_equals_its_teacher():
    teacher = f32(draw(5)[0])[0]
    value, slope = value_and_slope(teacher, teacher)
    np.testing.assert_allclose(value, 0, atol=1e-6)
    np.testing.assert_allclose(slope, np.zeros_like(slope), atol=1e-6)


def test_the_norm_of_signed_and_of_empty_maps():
    signed = np.float32([[[-1.0, 2.0]], [[0.0, 0.0]]])
    np.testing.assert_array_equal(saliency_l1(signed), [3, 0])
    np.testing.assert_array_equal(saliency_l1(signed, reduction="mean"), [1.5, 0])
    slope = jax.jit(jax.grad(lambda s: losses.saliency_l1(s).sum()))(signed)
    np.testing.assert_array_equal(slope[0], [[-1, 1]])
    assert np.isfinite(slope).all()


def test_jit_equals_eager_and_half_precision_is_computed_in_float32():
    *arrays, labels = draw(6)
    arrays = f32(*arrays)
    eager = losses.end_to_end(*arrays, labels)
    np.testing.assert_allclose(end_to_end(*arrays, labels), eager, rtol=1e-6)
    half = [a.astype(jnp.bfloat16) for a in arrays]
    value = end_to_end(*half, labels)
    assert value.dtype == jnp.float32
    exact = end_to_end(*(h.astype(np.float32) for h in half), labels)
    np.testing.assert_array_equal(value, exact)


def test_invalid_arguments_are_refused(unchecked):
    z, labels = jnp.zeros((2, 3)), jnp.array([0, 1])
    with pytest.raises(ValueError, match="temperature: got 0"):
        losses.distillation(z, z, labels, temperature=0.0)
    with pytest.raises(ValueError, match="alpha: got 1.5, wanted 0 to 1"):
        losses.distillation(z, z, labels, alpha=1.5)
    with pytest.raises(AssertionError, match=r"shapes: \[\(2, 3\), \(2, 4\)\]"):
        losses.distillation(z, jnp.zeros((2, 4)), labels)
    with pytest.raises(AssertionError, match=r"shapes: \[\(2, 3\), \(2, 4\)\]"):
        losses.explanation(z, jnp.zeros((2, 4)))
    with pytest.raises(ValueError, match="reduction: got 'max'"):
        losses.saliency_l1(jnp.zeros((1, 2, 2)), reduction="max")
    with pytest.raises(ValueError, match=r"labels: got 3, wanted integers in \[0, 3\)"):
        losses.distillation(z, z, jnp.array([0, 3]))
