"""Insertion and deletion against the algorithms of appendix A written as loops, and by hand."""

import dataclasses
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from jaxatr.explain import measures
from jaxatr.explain.measures import RISE_BLUR, Blur


def loop_blur(image, weights, border):
    """Blurs [h, w, c] by sums over the kernel, pixel by pixel, in float64."""
    height, width, _ = image.shape
    reach, blurred = len(weights) // 2, np.zeros(image.shape)

    def inside(i, n):
        while not 0 <= i < n:
            i = -1 - i if i < 0 else 2 * n - 1 - i
        return i

    for y in range(height):
        for x in range(width):
            for dy in range(-reach, reach + 1):
                for dx in range(-reach, reach + 1):
                    row, column = y + dy, x + dx
                    if border == "zeros" and not (0 <= row < height and 0 <= column < width):
                        continue
                    pixel = image[inside(row, height), inside(column, width)]
                    blurred[y, x] += weights[dy + reach] * weights[dx + reach] * pixel
    return blurred


def loop_curve(probability, start, end, explanation, n):
    """Algorithms A1 and A2: changes n pixels at a time and scores after each."""
    height, width = explanation.shape
    places = [(y, x) for y in range(height) for x in range(width)]
    places.sort(key=lambda place: -explanation[place])  # Python's sort is stable
    image, scores, i = start.copy(), [probability(start)], 0
    while i < len(places):
        for place in places[i : i + n]:
            image[place] = end[place]
        scores.append(probability(image))
        i += n
    return scores


def loop_area(scores, n, pixels):
    shares = [min(i * n, pixels) / pixels for i in range(len(scores))]
    return sum(
        (b - a) * (s + t) / 2
        for a, b, s, t in zip(shares, shares[1:], scores, scores[1:], strict=False)
    )


def network(shape, k=4, seed=0):
    """Returns a small nonlinear model in jax, and the probability of class c of one image."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(int(np.prod(shape)), 6)) / 3
    second = rng.normal(size=(6, k))

    def predict(images):
        hidden = jnp.tanh(images.reshape(len(images), -1) @ first.astype(np.float32))
        return hidden @ second.astype(np.float32)

    def probabilities(image):
        z = np.tanh(image.reshape(-1) @ first) @ second
        return np.exp(z) / np.exp(z).sum()

    return predict, probabilities


def draw(shape, b=3, seed=1):
    rng = np.random.default_rng(seed)
    images = rng.normal(size=(b, *shape)).astype(np.float32)
    # Few levels, so that many pixels tie.
    return images, rng.integers(0, 4, (b, *shape[:2])).astype(np.float32)


SLOW = pytest.mark.slow  # the same with another number of steps, which is compiled anew


@pytest.mark.parametrize("shape", [(6, 5, 1), (4, 7, 3), (1, 3, 1)])
@pytest.mark.parametrize("n", [4, *(pytest.param(n, marks=SLOW) for n in (1, 100))])
def test_agrees_with_the_algorithms_as_loops(shape, n):
    images, saliency = draw(shape)
    predict, probabilities = network(shape)
    fill = tuple(np.linspace(-1, 1, shape[2]).tolist())
    inserted = measures.insertion(predict, images, saliency, pixels_per_step=n)
    deleted = measures.deletion(predict, images, saliency, pixels_per_step=n, fill=fill)
    for i, (image, explanation) in enumerate(zip(np.float64(images), saliency, strict=True)):
        target = probabilities(image).argmax()
        score = lambda x, target=target: probabilities(x)[target]  # noqa: E731
        blurred = loop_blur(image, Blur().weights(), "reflect")
        blank = np.broadcast_to(np.array(fill), shape)
        for result, start, end in ((inserted, blurred, image), (deleted, image, blank)):
            curve = loop_curve(score, start, end, explanation, n)
            assert result.targets[i] == target
            np.testing.assert_allclose(result.curve[i], curve, atol=2e-6)
            area = loop_area(curve, n, explanation.size)
            np.testing.assert_allclose(result.auc[i], area, atol=2e-6)
    assert inserted.curve.shape == (3, -(-shape[0] * shape[1] // n) + 1)
    assert inserted.shares[0] == 0 and inserted.shares[-1] == 1


def knows_only(pixels, *, whole):
    """Returns a model that depends on some pixels only: class 0 by how many of them are 1.

    Its probability of class 0 is their share; with ``whole``, it is 1 if all are 1 and otherwise 0.
    """

    def predict(images):
        seen = jnp.all(images == 1, axis=-1) & pixels
        count, most = seen.sum((1, 2)), pixels.sum()
        share = jnp.float32(count == most) if whole else jnp.minimum(count / most, 1)
        return jnp.log(jnp.stack([share, 1 - share], axis=1))

    return predict


@pytest.mark.parametrize("n", [5, 24, *(pytest.param(n, marks=SLOW) for n in (1, 4, 7))])
@pytest.mark.parametrize("whole", [False, True])
def test_a_perfect_explanation_reaches_the_bounds_of_the_step(n, whole):
    """Six of 24 pixels matter and are ones; any other image shows ones nowhere else."""
    pixels = np.zeros((4, 6), bool)
    pixels[[0, 0, 1, 2, 3, 3], [1, 5, 2, 0, 3, 4]] = True
    image = np.float32(pixels)[None, ..., None]
    predict, m, total = knows_only(pixels, whole=whole), 6, 24
    measure = {
        name: partial(function, predict, image, pixels_per_step=n, targets=np.array([0]))
        for name, function in (("in", measures.insertion), ("out", measures.deletion))
    }
    perfect = {name: run(np.float32(pixels)[None]) for name, run in measure.items()}
    # After step s the first min(s n, 6) of the six are in, or out.
    found = np.minimum(np.arange(len(perfect["in"].shares)) * n, m) / m
    curves = {
        "in": np.floor(found) if whole else found,
        "out": np.float64(found == 0) if whole else 1 - found,
    }
    for name, curve in curves.items():
        np.testing.assert_allclose(perfect[name].curve[0], curve, atol=1e-6)
    # By hand, as long as the curve ends before a last, smaller step.
    steps, step = -(-m // n), n / total
    if whole:
        np.testing.assert_allclose(perfect["out"].auc, step / 2, atol=1e-6)
        np.testing.assert_allclose(perfect["in"].auc, 1 - (steps - 0.5) * step, atol=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = rng.permutation(total).reshape(1, 4, 6).astype(np.float32)
        assert measure["in"](other).auc <= perfect["in"].auc + 1e-6
        assert measure["out"](other).auc >= perfect["out"].auc - 1e-6
    worst = {name: run(-np.float32(pixels)[None]).auc for name, run in measure.items()}
    if n < total - m:
        assert worst["in"] < perfect["in"].auc and worst["out"] > perfect["out"].auc


def test_ties_are_broken_by_pixel_order():
    images, _ = draw((3, 4, 1))
    predict, _ = network((3, 4, 1))
    falling = np.arange(12, 0, -1, dtype=np.float32).reshape(1, 3, 4).repeat(3, axis=0)
    for measure in (measures.insertion, measures.deletion):
        constant = measure(predict, images, np.zeros_like(falling), pixels_per_step=2)
        ordered = measure(predict, images, falling, pixels_per_step=2)
        np.testing.assert_array_equal(constant.curve, ordered.curve)
        # -0.0 equals 0.0, and a monotone change of the map changes nothing.
        signed = np.where(falling > 6, np.float32(-0.0), np.float32(0.0))
        np.testing.assert_array_equal(
            measure(predict, images, signed, pixels_per_step=2).curve, constant.curve
        )
        np.testing.assert_array_equal(
            measure(predict, images, np.log(falling), pixels_per_step=2).curve, ordered.curve
        )


@pytest.mark.parametrize("batch_size", [1, 6, 7, 1000])  # a curve has six points
def test_the_batch_size_changes_nothing(batch_size):
    images, saliency = draw((6, 5, 2), b=4)
    predict, _ = network((6, 5, 2))
    for measure in (measures.insertion, measures.deletion):
        run = partial(measure, predict, images, saliency, pixels_per_step=7)
        expected, found = run(), run(batch_size=batch_size)
        np.testing.assert_allclose(found.curve, expected.curve, atol=1e-6)
        np.testing.assert_array_equal(found.targets, expected.targets)
        alone = measure(predict, images[2:3], saliency[2:3], pixels_per_step=7)
        np.testing.assert_allclose(alone.curve[0], expected.curve[2], atol=1e-6)


def test_jit_equals_eager_and_parameters_may_be_arguments():
    images, saliency = draw((4, 4, 1))
    weights = jax.random.normal(jax.random.key(0), (16, 3))
    traces = []

    def apply(weights, images):
        traces.append(images.shape)
        return images.reshape(len(images), -1) @ weights

    run = partial(measures.deletion, images=images, saliency=saliency, pixels_per_step=3)
    jitted = run(Partial(apply, weights))
    compiled = len(traces)
    scaled = run(Partial(apply, 3 * weights))
    assert len(traces) == compiled  # other parameters are neither traced nor compiled again
    assert not np.allclose(scaled.curve, jitted.curve)
    np.testing.assert_allclose(run(lambda x: apply(weights, x)).curve, jitted.curve, atol=1e-6)
    with jax.disable_jit():
        np.testing.assert_allclose(run(Partial(apply, weights)).curve, jitted.curve, atol=1e-6)


def test_a_black_image_and_one_class():
    predict, probabilities = network((3, 3, 1))
    black = np.zeros((1, 3, 3, 1), np.float32)
    saliency = np.random.default_rng(0).uniform(size=(1, 3, 3)).astype(np.float32)
    for measure in (measures.insertion, measures.deletion):
        result = measure(predict, black, saliency, pixels_per_step=2)
        np.testing.assert_allclose(result.curve, np.full((1, 6), result.curve[0, 0]), rtol=1e-6)
        np.testing.assert_allclose(result.auc, probabilities(black[0]).max(), rtol=1e-5)
        single = measure(lambda x: x.sum((1, 2)), black, saliency, pixels_per_step=4)
        np.testing.assert_array_equal(single.curve, np.ones((1, 4)))
        np.testing.assert_allclose(single.auc, 1.0)


def test_a_constant_image():
    """A constant image equals its blur, so insertion starts at the end; deletion ends in black."""
    image, saliency = np.full((1, 4, 4, 1), 3.0, np.float32), np.arange(16.0).reshape(1, 4, 4)

    def predict(images):
        means = images.mean((1, 2, 3))
        return jnp.stack([means, 2 - means], axis=-1)

    inserted = measures.insertion(predict, image, saliency, pixels_per_step=8)
    deleted = measures.deletion(predict, image, saliency, pixels_per_step=8)
    wanted = 1 / (1 + np.exp([[-4.0, -1.0, 2.0]]))
    np.testing.assert_allclose(inserted.curve, np.full((1, 3), wanted[0, 0]), rtol=1e-5)
    np.testing.assert_allclose(deleted.curve, wanted, rtol=1e-5)


def test_saturated_logits_give_probabilities():
    images, saliency = draw((4, 4, 1))
    predict, _ = network((4, 4, 1))
    result = measures.insertion(lambda x: 1e4 * predict(x), images, saliency, pixels_per_step=3)
    assert np.all((result.curve >= 0) & (result.curve <= 1))
    np.testing.assert_array_equal(result.curve[:, -1], 1)


def test_given_targets_and_the_convention():
    images, saliency = draw((4, 4, 3))
    predict, probabilities = network((4, 4, 3))
    given = np.array([3, 0, 1])
    result = measures.deletion(predict, images, saliency, pixels_per_step=6, targets=given)
    first = [probabilities(image)[c] for image, c in zip(images, given, strict=True)]
    np.testing.assert_allclose(result.curve[:, 0], first, atol=2e-6)
    np.testing.assert_array_equal(result.targets, given)
    np.testing.assert_allclose(result.shares, [0, 6 / 16, 12 / 16, 1])
    recorded = json.loads(json.dumps(dataclasses.asdict(result.convention)))
    assert recorded["measure"] == "deletion" and recorded["start"] == "image"
    assert recorded["pixels_per_step"] == 6 and recorded["target"] == "given"
    assert recorded["fill"] == [0.0] and recorded["blur"] is None
    colour = np.float32([0.5, 1, 0])
    filled = measures.deletion(predict, images, saliency, pixels_per_step=6, fill=colour)
    assert json.loads(json.dumps(dataclasses.asdict(filled.convention)))["fill"] == [0.5, 1, 0]
    same = measures.deletion(predict, images, saliency, pixels_per_step=6, fill=(0.5, 1.0, 0.0))
    np.testing.assert_array_equal(filled.curve, same.curve)
    inserted = measures.insertion(predict, images, saliency, pixels_per_step=6, blur=RISE_BLUR)
    recorded = json.loads(json.dumps(dataclasses.asdict(inserted.convention)))
    assert recorded["blur"] == {
        "size": 11, "sigma": 5.0, "kernel": "reflected", "border": "zeros"
    }  # fmt: skip
    assert recorded["target"] == "top class of the image" and recorded["fill"] is None


@pytest.mark.parametrize(
    "options, message",
    [
        ({"pixels_per_step": 0}, "pixels_per_step: got 0, wanted at least 1"),
        ({"batch_size": 0}, "batch_size: got 0"),
        ({"saliency": np.full((3, 4, 4), np.nan, np.float32)}, "saliency: 3 maps are not finite"),
        ({"targets": np.array([0, 1, 4])}, r"targets: got 4, wanted integers in \[0, 4\)"),
        ({"targets": np.array([0, -1, 2])}, r"targets: got -1"),
        ({"targets": np.array([0])}, r"targets: got int64 \(1,\)"),
        ({"images": np.zeros((0, 4, 4, 3), np.float32), "saliency": np.zeros((0, 4, 4))},
         "images: got shape"),
    ],
)  # fmt: skip
def test_invalid_input_is_refused(unchecked, options, message):
    images, saliency = draw((4, 4, 3))
    predict, _ = network((4, 4, 3))
    arguments = {"images": images, "saliency": saliency, "pixels_per_step": 4} | options
    for measure in (measures.insertion, measures.deletion):
        with pytest.raises(ValueError, match=message):
            measure(predict, **arguments)
    with pytest.raises(ValueError, match="fill: got 2 values, wanted 1 or 3"):
        measures.deletion(predict, images, saliency, pixels_per_step=4, fill=(0.0, 1.0))


def test_maps_of_another_shape_are_a_callers_mistake(unchecked):
    images, _ = draw((4, 4, 3))
    predict, _ = network((4, 4, 3))
    for measure in (measures.insertion, measures.deletion):
        with pytest.raises(AssertionError, match=r"has shape \(3, 4, 5\) but expected \(3, 4, 4\)"):
            measure(predict, images, np.zeros((3, 4, 5), np.float32), pixels_per_step=4)
