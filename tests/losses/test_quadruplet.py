"""Equations 3 to 6 against hand-derived values, plain loops in float64, and their gradients."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxatr.losses import quadruplet

# Compiled once for all tests; every batch of theirs has nine quadruplets.
WITH_GRADIENTS = {
    reduction: jax.jit(
        jax.value_and_grad(partial(quadruplet.combined, reduction=reduction), argnums=range(6))
    )
    for reduction in ("sum", "mean")
}
joint = jax.jit(quadruplet.joint, static_argnames="margins")
global_statistics = jax.jit(quadruplet.global_statistics, static_argnames=("margins", "weights"))
hierarchical = jax.jit(quadruplet.hierarchical_cross_entropy, static_argnames="weights")
combined = jax.jit(
    quadruplet.combined,
    static_argnames=(
        "reduction",
        "eta",
        "margins",
        "class_weights",
        "global_margins",
        "global_weights",
    ),
)


def draw(seed, b=9, d=5, scale=0.5):
    rng = np.random.default_rng(seed)
    points = list(rng.normal(size=(4, b, d)) * scale)
    logits = [rng.normal(size=(b, k)) * 2 for k in (3, 7)]
    return points, logits, [rng.integers(0, k, b) for k in (3, 7)]


def f32(arrays):
    return [np.float32(a) for a in arrays]


def distance(x, y):
    return sum((p - q) ** 2 for p, q in zip(x, y, strict=True)) ** 0.5


def loop_joint(points, margins):
    m1, m2 = margins
    values = []
    for r, p, s, n in zip(*points, strict=True):
        first = 1 - distance(r, s) / (distance(r, p) + m1 - m2)
        second = 1 - distance(r, n) / (distance(r, s) + m2)
        values.append(max(first, 0) + max(second, 0))
    return np.array(values)


def loop_global(points, margins, weights):
    columns = [[], [], []]
    for r, *others in zip(*points, strict=True):
        for column, other in zip(columns, others, strict=True):
            column.append(distance(r, other))
    means = [sum(c) / len(c) for c in columns]
    variances = [sum((x - m) ** 2 for x in c) / len(c) for c, m in zip(columns, means, strict=True)]
    (t1, t2), (g1, g2) = margins, weights
    return (
        sum(variances)
        + g1 * max(means[0] - means[1] + t1 - t2, 0)
        + g2 * max(means[1] - means[2] + t2, 0)
    )


def loop_classes(logits, labels, weights):
    values = []
    for i in range(len(labels[0])):
        total = 0.0
        for z, y, weight in zip(logits, labels, weights, strict=True):
            total -= weight * np.log(np.exp(z[i][y[i]]) / sum(np.exp(z[i])))
        values.append(total)
    return np.array(values)


def on_a_line(*columns):
    """Quadruplets with the reference at the origin and the others at the given distances."""
    others = [np.float32(np.stack([np.zeros(len(c)), c], axis=1)) for c in columns]
    return [np.zeros_like(others[0]), *others]


def test_joint_hand_derived():
    # 0.8 / (0.6 + 0.7 - 0.3) = 0.8, 0.55 / (0.8 + 0.3) = 0.5: 0.2 + 0.5.
    # Second row: 2 / 0.5 and 5 / 2.3 are above 1: neither hinge is open.
    value = joint(*on_a_line([0.6, 0.1], [0.8, 2.0], [0.55, 5.0]))
    np.testing.assert_allclose(value, [0.7, 0.0], atol=1e-6)


def test_global_statistics_hand_derived():
    # Means 2, 2, 3; population variances 1, 0, 4. First hinge 2 - 2 + 0.4, second 2 - 3 + 0.3 < 0.
    points = on_a_line([1.0, 3.0], [2.0, 2.0], [1.0, 5.0])
    np.testing.assert_allclose(global_statistics(*points), 5.4, rtol=1e-6)
    # Margins 0.5, 1.5 and weights 2, 3: 2 [2 - 2 - 1]+ = 0 and 3 [2 - 3 + 1.5]+ = 1.5.
    value = global_statistics(*points, margins=(0.5, 1.5), weights=(2.0, 3.0))
    np.testing.assert_allclose(value, 6.5, rtol=1e-6)


def test_the_first_class_weight_is_the_coarse_ones():
    # Two coarse classes, four fine ones, all equally likely: log 2 and log 4.
    logits = np.zeros((1, 2), np.float32), np.zeros((1, 4), np.float32)
    value = hierarchical(*logits, np.array([1]), np.array([3]))
    np.testing.assert_allclose(value, [0.08 * np.log(2) + 0.25 * np.log(4)], rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_plain_loops(seed):
    points, logits, labels = draw(seed)
    margins, weights = (0.9, 0.2), (0.7, 1.3)
    each = loop_joint(points, margins)
    np.testing.assert_allclose(joint(*f32(points), margins=margins), each, atol=2e-6)
    whole = loop_global(points, margins, weights)
    value = global_statistics(*f32(points), margins=margins, weights=weights)
    np.testing.assert_allclose(value, whole, rtol=1e-5)
    classes = loop_classes(logits, labels, weights)
    value = hierarchical(*f32(logits), *labels, weights=weights)
    np.testing.assert_allclose(value, classes, atol=2e-6)


def test_combined_is_equation_6_with_the_papers_constants():
    points, logits, labels = draw(5)
    each = loop_joint(points, (0.7, 0.3)) + loop_classes(logits, labels, (0.08, 0.25))
    whole = loop_global(points, (0.7, 0.3), (1.0, 1.0))
    arguments = *f32(points), *f32(logits), *labels
    np.testing.assert_allclose(combined(*arguments), each.sum() + whole, rtol=1e-5)
    value = combined(*arguments, reduction="mean", eta=0.5)
    np.testing.assert_allclose(value, each.mean() + 0.5 * whole, rtol=1e-5)


def test_combined_hands_every_constant_on():
    points, logits, labels = draw(6)
    constants = {
        "margins": (0.9, 0.2),
        "class_weights": (0.5, 2.0),
        "global_margins": (1.1, 0.6),
        "global_weights": (3.0, 0.5),
    }
    expected = (
        loop_joint(points, (0.9, 0.2)).sum()
        + loop_classes(logits, labels, (0.5, 2.0)).sum()
        + loop_global(points, (1.1, 0.6), (3.0, 0.5))
    )
    value = combined(*f32(points), *f32(logits), *labels, **constants)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_mask_is_a_subset(reduction):
    points, logits, labels = draw(7)
    valid = np.arange(9) % 3 > 0
    subset = [[a[valid] for a in group] for group in (points, logits, labels)]
    for group in (points, logits):
        for array in group:
            array[~valid] = np.nan
    for array in labels:
        array[~valid] = -1
    each = loop_joint(subset[0], (0.7, 0.3)) + loop_classes(*subset[1:], (0.08, 0.25))
    expected = getattr(each, reduction)() + loop_global(subset[0], (0.7, 0.3), (1.0, 1.0))
    value, gradients = WITH_GRADIENTS[reduction](*f32(points), *f32(logits), *labels, valid=valid)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for gradient in gradients:
        assert np.isfinite(gradient).all()
        np.testing.assert_array_equal(np.asarray(gradient)[~valid], 0)


def test_invalid_quadruplets_give_zero():
    points, logits, labels = draw(7)
    valid = np.arange(9) % 3 > 0
    each = joint(*f32(points), valid=valid)
    np.testing.assert_array_equal(np.asarray(each)[~valid], 0)
    each = hierarchical(*f32(logits), *labels, valid=valid)
    np.testing.assert_array_equal(np.asarray(each)[~valid], 0)
    assert (np.asarray(each)[valid] > 0).all()


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_nothing_valid_gives_zero_and_no_gradient(reduction):
    points, logits, labels = draw(8)
    value, gradients = WITH_GRADIENTS[reduction](
        *f32(points), *f32(logits), *labels, valid=np.zeros(9, bool)
    )
    assert value == 0
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, 0)


def test_gradients_agree_with_finite_differences():
    points, logits, labels = draw(9, b=4, d=3)
    inputs = *f32(points), *f32(logits)
    loss = jax.jit(lambda *inputs: quadruplet.combined(*inputs, *labels))
    check_grads(loss, inputs, 1, modes=["rev"], rtol=2e-2)


def test_gradients_are_finite_where_points_coincide():
    points, logits, labels = draw(10)
    points, logits = f32(points), f32(logits)
    reference = points[0]
    for others in ([reference] * 3, [reference, *points[2:]], [points[1], reference, reference]):
        loss, gradients = WITH_GRADIENTS["sum"](
            reference, *others, *logits, *labels, valid=np.ones(9, bool)
        )
        assert np.isfinite(loss)
        assert all(np.isfinite(g).all() for g in gradients)
    # Four points in one: both hinges are wholly open, and no direction is better than another.
    np.testing.assert_array_equal(joint(*[reference] * 4), 2.0)


def test_jit_equals_eager_and_half_precision_is_computed_in_float32():
    points, logits, labels = draw(11)
    half = [a.astype(jnp.bfloat16) for a in (*points, *logits)]
    value = quadruplet.combined(*half, *labels)
    assert value.dtype == jnp.float32
    exact = [a.astype(np.float32) for a in half]
    np.testing.assert_allclose(value, combined(*exact, *labels), rtol=1e-6)


@pytest.mark.parametrize("margins", [(0.3, 0.7), (0.7, 0.0), (0.5, 0.5)])
def test_margins_must_be_ordered(margins):
    points, *_ = draw(0)
    with pytest.raises(ValueError, match="margins: got .* wanted the first above the second"):
        quadruplet.joint(*f32(points), margins=margins)


def test_wrong_arguments_are_named(unchecked):
    (reference, positive, sibling, negative), logits, labels = draw(0)
    with pytest.raises(AssertionError, match=r"shapes: .*\(3, 5\)"):
        quadruplet.joint(reference, positive, sibling[:3], negative)
    with pytest.raises(ValueError, match="reduction: got 'max', wanted 'sum' or 'mean'"):
        quadruplet.combined(*[reference] * 4, *logits, *labels, reduction="max")


DEVICES = """
import sys
import jax, numpy as np
from jaxatr import parallel
from jaxatr.losses import quadruplet

names = ("reference", "positive", "sibling", "negative", "coarse_logits", "fine_logits",
         "coarse", "fine")
batch = dict(np.load(sys.argv[1]))

def statistics(w, batch):
    points = [w * batch[name] for name in names[:4]]
    return quadruplet.global_statistics(*points, valid=batch["valid"], axis_name=parallel.AXIS)

def combined(w, batch, reduction):
    points = [w * batch[name] for name in names[:4]]
    return quadruplet.combined(*points, *(batch[name] for name in names[4:]), reduction=reduction,
                               valid=batch["valid"], axis_name=parallel.AXIS)

losses = {
    "statistics": statistics,
    "sum": lambda w, batch: combined(w, batch, "sum"),
    "mean": lambda w, batch: combined(w, batch, "mean"),
}

def step(batch):
    w = np.linspace(0.5, 1.5, 5, dtype=np.float32)
    found = {name: jax.value_and_grad(loss)(w, batch) for name, loss in losses.items()}
    return {name: (v, jax.lax.pmean(g, parallel.AXIS)) for name, (v, g) in found.items()}

flat = {}
for count in (1, 8):
    devices = jax.local_devices()[:count]
    mapped = jax.pmap(step, axis_name=parallel.AXIS, devices=devices)
    for name, (value, gradient) in mapped(parallel.shard(batch, count)).items():
        flat |= {f"{count}_{name}_value": value, f"{count}_{name}_gradient": gradient}
np.savez(sys.argv[2], **flat)
"""


@pytest.mark.slow
def test_eight_devices_agree_with_one(tmp_path):
    points, logits, labels = draw(12, b=16)
    valid = np.random.default_rng(0).random(16) < 0.6
    valid[:2] = False  # the first of eight devices has none
    names = ("reference", "positive", "sibling", "negative", "coarse_logits", "fine_logits")
    batch = dict(zip(names, f32([*points, *logits]), strict=True))
    np.savez(tmp_path / "batch.npz", valid=valid, coarse=labels[0], fine=labels[1], **batch)
    subprocess.run(
        [sys.executable, "-c", DEVICES, tmp_path / "batch.npz", tmp_path / "found.npz"],
        env=os.environ
        | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        check=True,
        timeout=240,
    )
    found = np.load(tmp_path / "found.npz")
    weighted = [a[valid] * np.linspace(0.5, 1.5, 5) for a in points]
    expected = loop_global(weighted, (0.7, 0.3), (1.0, 1.0))
    np.testing.assert_allclose(found["8_statistics_value"], [expected] * 8, rtol=1e-5)
    for loss in ("statistics", "sum", "mean"):
        for part in ("value", "gradient"):
            one, eight = (found[f"{count}_{loss}_{part}"] for count in (1, 8))
            assert len(eight) == 8
            expected = np.broadcast_to(one, eight.shape)
            np.testing.assert_allclose(eight, expected, rtol=1e-5, atol=1e-6, err_msg=loss)
