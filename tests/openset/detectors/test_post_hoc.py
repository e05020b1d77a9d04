"""Scores of features, logits and last layer: plain loops in float64, a peer, degenerate input."""

from typing import NamedTuple

import numpy as np
import pytest

from jaxatr import openset
from jaxatr.openset import SCORES
from jaxatr.openset.detectors import (
    ash,
    dice,
    fdbd,
    gen,
    gradnorm,
    klm,
    nci,
    nnguide,
    react,
    rmds,
    scale,
    she,
    tempscale,
)

D, K = 20, 4


class Drawn(NamedTuple):
    """Features after a ReLU, and their logits by a last layer."""

    features: np.ndarray
    logits: np.ndarray
    labels: np.ndarray

    @property
    def outputs(self):
        return openset.Outputs(self.logits, self.logits, self.labels, {"features": self.features})


RNG = np.random.default_rng(9)
CENTRES = 2 * RNG.random((K, D))
KERNEL = np.float32(0.2 * (CENTRES - CENTRES.mean(0)).T + 0.05 * RNG.normal(size=(D, K)))
BIAS = np.float32(0.3 * RNG.normal(size=K))
HEAD = openset.Head(KERNEL, BIAS)


def draw(seed, n, spread=0.7):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % K
    features = np.float32(np.maximum(CENTRES[labels] + spread * rng.normal(size=(n, D)), 0))
    logits = features @ KERNEL + BIAS
    return Drawn(features, logits, np.where(rng.random(n) < 0.8, logits.argmax(1), labels))


TRAIN, HELD_OUT, QUERIES = draw(0, 120), draw(1, 80), draw(2, 60, spread=1.5)


def softmax(z):
    e = np.exp(z - np.max(z))
    return e / e.sum()


def energy(z):
    return np.log(np.sum(np.exp(np.float64(z))))


def layer(f, kernel=KERNEL):
    return np.float64(f) @ np.float64(kernel) + BIAS


def distances(rows, labels):
    """A function that computes a vector's squared distance to each class's Gaussian."""
    means = [np.mean(rows[labels == c], axis=0) for c in np.unique(labels)]
    scatter = np.zeros((D, D))
    for row, label in zip(rows, labels, strict=True):
        scatter += np.outer(row - means[label], row - means[label])
    inverse = np.linalg.pinv(scatter / len(rows))
    return lambda f: [(f - m) @ inverse @ (f - m) for m in means]


def by_rmds(train, _, queries):
    rows = np.float64(train.features)
    own, all_ = distances(rows, train.labels), distances(rows, np.zeros(len(rows), int))
    return [-min(d - all_(f)[0] for d in own(f)) for f in np.float64(queries.features)]


def by_react(train, _, queries):
    values = np.sort(np.float64(train.features).ravel())
    at = 0.9 * (len(values) - 1)
    below = int(at)
    limit = values[below] + (at - below) * (values[below + 1] - values[below])
    return [energy(layer([min(x, limit) for x in f])) for f in queries.features]


def by_ash(_train, _, queries):
    scores = []
    for f in np.float64(queries.features):
        kept = sorted(range(D), key=lambda i: -f[i])[: D // 10]
        pruned = np.array([f[i] if i in kept else 0 for i in range(D)])
        scores.append(energy(layer(pruned * np.exp(f.sum() / pruned.sum()))))
    return scores


def by_scale(_train, _, queries):
    scores = []
    for f in np.float64(queries.features):
        largest = sum(sorted(f)[-3:])  # 85 % of 20 are 17
        scores.append(energy(layer(f * np.exp(f.sum() / largest))))
    return scores


def by_dice(train, _, queries):
    contribution = np.float64(train.features).mean(0)[:, None] * KERNEL
    kept = KERNEL * (contribution > np.quantile(contribution, 0.9))
    return [energy(layer(f, kept)) for f in queries.features]


def by_she(train, _, queries):
    scores = []
    for f, z in zip(queries.features, queries.logits, strict=True):
        rows = [
            g
            for g, y, label in zip(train.features, train.logits, train.labels, strict=True)
            if y.argmax() == label == z.argmax()
        ]
        scores.append(np.mean(np.float64(rows), axis=0) @ f)
    return scores


def by_gen(_train, _, queries):
    return [-sum((p * (1 - p)) ** 0.1 for p in softmax(np.float64(z))) for z in queries.logits]


def by_klm(_, held_out, queries):
    templates = [
        np.mean([softmax(np.float64(z)) for z in held_out.logits if z.argmax() == c], axis=0)
        for c in range(K)
    ]
    scores = []
    for z in np.float64(queries.logits):
        p = softmax(z)
        scores.append(-min(sum(p * np.log(p / d)) for d in templates))
    return scores


def by_nnguide(train, _, queries):
    def unit(f):
        return np.float64(f) / np.linalg.norm(np.float64(f))

    bank = [unit(f) * energy(z) for f, z in zip(train.features, train.logits, strict=True)]
    scores = []
    for f, z in zip(queries.features, queries.logits, strict=True):
        products = sorted(unit(f) @ b for b in bank)
        scores.append(energy(z) * np.mean(products[-10:]))
    return scores


def by_fdbd(train, _, queries):
    mean, scores = np.float64(train.features).mean(0), []
    for f, z in zip(queries.features, np.float64(queries.logits), strict=True):
        y = z.argmax()
        to = [
            (z[y] - z[c]) / np.linalg.norm(np.float64(KERNEL[:, y]) - KERNEL[:, c])
            for c in range(K)
            if c != y
        ]
        scores.append(np.mean(to) / np.linalg.norm(f - mean))
    return scores


def by_nci(train, _, queries):
    mean, scores = np.float64(train.features).mean(0), []
    for f, z in zip(np.float64(queries.features), queries.logits, strict=True):
        along = KERNEL[:, z.argmax()] @ (f - mean) / np.linalg.norm(f - mean)
        scores.append(along + 1e-4 * np.abs(f).sum())
    return scores


def by_gradnorm(_train, _, queries):
    scores = []
    for f, z in zip(np.float64(queries.features), np.float64(queries.logits), strict=True):
        steps = np.zeros((D, K))
        for i in range(D):  # a difference quotient of the divergence, weight by weight
            for c in range(K):
                moved = np.zeros(K)
                moved[c] = 1e-4 * f[i]
                ends = [-np.mean(np.log(softmax(z + sign * moved))) for sign in (1, -1)]
                steps[i, c] = (ends[0] - ends[1]) / 2e-4
        scores.append(np.abs(steps).sum())
    return scores


def by_tempscale(_, held_out, queries):
    def loss(t):
        return -np.mean(
            [np.log(softmax(np.float64(z) / t)[y]) for z, y in zip(*held_out[1:], strict=True)]
        )

    low, high = 0.05, 20.0
    for _ in range(100):  # the loss has one minimum: thirds
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if loss(a) < loss(b) else (a, high)
    return [np.log(softmax(np.float64(z) / low).max()) for z in queries.logits]


REFERENCES = {
    name.removeprefix("by_"): function
    for name, function in dict(globals()).items()
    if name.startswith("by_")
}


def fitted(name):
    return openset.fit_scores([SCORES[name]], TRAIN.outputs, HEAD, validation=HELD_OUT.outputs)


@pytest.mark.parametrize("name", REFERENCES)
def test_agrees_with_loops(name):
    expected = REFERENCES[name](TRAIN, HELD_OUT, QUERIES)
    got = fitted(name).on(QUERIES.outputs)[name]
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-4)


PEERS = {
    "ash": lambda p, head: p.ASH(lambda x: x, head, percentile=0.9),
    "dice": lambda p, _: p.DICE(None, p.tensor(KERNEL.T.copy()), p.tensor(BIAS), 0.9),
    "fdbd": lambda p, head: p.fDBD(None, head),
    "gen": lambda p, _: p.GEN(None, M=100),
    "gradnorm": lambda p, head: p.GradNorm(head, lambda name: name == "weight"),
    "klm": lambda p, _: p.KLMatching(None),
    "nci": lambda p, head: p.NCI(None, head, alpha=1e-4),
    "nnguide": lambda p, head: p.NNGuide(None, head, k=10),
    "react": lambda p, head: p.ReAct(lambda x: x, head),
    "rmds": lambda p, _: p.RMD(None),
    "scale": lambda p, head: p.SCALE(lambda x: x, head, percentile=0.85),
    "she": lambda p, head: p.SHE(None, head),
}


@pytest.mark.parametrize("name", PEERS)
def test_agrees_with_pytorch_ood(name, pytorch_ood):
    tensor = pytorch_ood.tensor
    linear = pytorch_ood.linear(KERNEL, BIAS)
    maps = name in ("ash", "react", "scale")  # of features: maps of one pixel
    peer = PEERS[name](pytorch_ood, (lambda x: linear(x[..., 0, 0])) if maps else linear)
    held_out, x = tensor(HELD_OUT.logits), tensor(QUERIES.features)
    rows, labels = tensor(TRAIN.features), tensor(TRAIN.labels)
    if name == "react":
        peer.fit_feature_maps(rows[..., None, None], labels)
    elif name == "klm":
        peer.fit_logits(held_out)
    elif hasattr(peer, "fit_features"):
        peer.fit_features(rows, labels)
    if maps:
        found = peer.predict_feature_maps(x[..., None, None])
    elif name in ("gen", "klm"):
        found = peer.predict_logits(tensor(QUERIES.logits))
    elif name == "gradnorm":
        found = peer.to("cpu").predict(x)
    else:
        found = peer.predict_features(x)
    expected = -found.detach().numpy()
    if name == "rmds":  # of sums over the examples, not means
        expected = expected * len(TRAIN.labels)
    if name == "gen":  # a mean over the classes, not a sum
        expected = expected * K
    got = fitted(name).on(QUERIES.outputs)[name]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_temperature_is_pytorch_oods(pytorch_ood):
    peer = pytorch_ood.TemperatureScaling(None)
    for _ in range(40):  # 50 small steps at a time
        peer.fit_logits(pytorch_ood.tensor(HELD_OUT.logits), pytorch_ood.tensor(HELD_OUT.labels))
    scores = fitted("tempscale")
    temperature = scores.models["tempscale"].temperature
    assert float(temperature) == pytest.approx(float(peer.t.detach()), abs=1e-4)
    expected = -peer.predict_logits(pytorch_ood.tensor(QUERIES.logits)).detach().numpy()
    got = scores.on(QUERIES.outputs)["tempscale"]
    np.testing.assert_allclose(np.exp(got), expected, atol=1e-4)


@pytest.mark.parametrize("variant", ["s", "p", "b"])
@pytest.mark.parametrize("percentile", [0.0, 65.0, 95.0])
def test_variants_of_ash_are_pytorch_oods(variant, percentile, pytorch_ood):
    shape = pytorch_ood.ASH.variants[f"ash-{variant}"]
    maps = pytorch_ood.tensor(QUERIES.features)[..., None, None]
    expected = shape(maps, percentile / 100).numpy()[..., 0, 0]
    got = ash.shaped(QUERIES.features, percentile=percentile, variant=variant)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_by_hand():
    features, eye = np.float32([[3.0, 1.0, 0.0, 0.0]]), np.eye(4, dtype=np.float32)
    model = scale.fit(features, openset.Head(eye, None))
    factor = np.exp(4 / 3)
    total = 3 * factor
    logs = np.log(np.exp(total) + np.exp(factor) + 2)
    np.testing.assert_allclose(scale.score(model, features, percentile=75.0), logs, rtol=1e-6)
    pruned = np.log(np.exp(total) + 3)
    np.testing.assert_allclose(ash.score(model, features, percentile=75.0), pruned, rtol=1e-6)
    cut = react.fit(features, openset.Head(eye, None), percentile=50.0)
    assert cut.limit == 0.5
    np.testing.assert_allclose(react.score(cut, features), np.log(2 * np.exp(0.5) + 2), rtol=1e-6)
    # The boundary of two classes is 1 / sqrt(2) from (1, 0), whose distance to the mean is 1.
    two = fdbd.fit(np.zeros((1, 2)), openset.Head(np.eye(2), None))
    found = fdbd.score(two, np.float32([[1, 0]]), np.float32([[1, 0]]))
    np.testing.assert_allclose(found, 1 / np.sqrt(2), rtol=1e-6)
    # p = (1, 0) is 1/2 + 1/2 from uniform, and the features' sum is 3.
    found = gradnorm.gradnorm_score(np.float32([[2, -1]]), np.float32([[100, 0]]))
    np.testing.assert_allclose(found, 3, rtol=1e-6)


def test_entropy_keeps_its_digits_where_one_probability_is_nearly_1():
    z = np.float32([[40, 0], [60, 0]])
    expected = -2 * np.exp(-0.1 * np.float64([40, 60]))
    np.testing.assert_allclose(gen.gen_score(z), expected, rtol=1e-5)
    few = gen.gen_score(np.float32([[1, 0, -1, -2]]), largest=2)
    p = np.sort(softmax(np.float64([1, 0, -1, -2])))[-2:]
    np.testing.assert_allclose(few, -np.sum((p * (1 - p)) ** 0.1), rtol=1e-5)


def test_divergence_from_a_class_that_is_never_predicted_does_not_count():
    model = klm.fit(np.float32([[2, 0, -1], [1, 0, 0]]))
    assert model.log_templates.shape == (1, 3)
    alone = klm.fit(np.float32([[2, 0, -1]]))
    assert abs(float(klm.score(alone, np.float32([[2, 0, -1]]))[0])) < 1e-6
    far = klm.score(alone, np.float32([[-200, 200, 0]]))
    np.testing.assert_allclose(far, -(2 + np.log(1 + np.exp(-2) + np.exp(-3))), rtol=1e-5)


def test_temperature_of_examples_without_a_mistake_is_the_least():
    logits = np.float32([[2.0, 0.0], [0.0, 3.0]])
    assert 0.1 <= tempscale.fit(logits, np.array([0, 1])).temperature < 0.2
    assert 50 < tempscale.fit(logits, np.array([1, 0])).temperature <= 100


def test_features_that_are_all_0_and_a_query_at_the_mean():
    zero = np.zeros((1, D), np.float32)
    z = zero @ KERNEL + BIAS
    layers = scale.fit(TRAIN.features, HEAD)
    for values in (scale.score(layers, zero), ash.score(layers, zero)):
        np.testing.assert_allclose(values, energy(BIAS), rtol=1e-6)
    guide = nnguide.fit(TRAIN.features, TRAIN.labels, TRAIN.logits)
    assert nnguide.score(guide, zero, z)[0] == 0
    mean = TRAIN.features.mean(0, keepdims=True)
    ways = nci.fit(TRAIN.features, HEAD), fdbd.fit(TRAIN.features, HEAD)
    assert np.isfinite(nci.score(ways[0], mean, z)).all()
    assert np.isfinite(fdbd.score(ways[1], mean, z)).all()


@pytest.mark.parametrize("unit", [1e-25, 1e22])
@pytest.mark.parametrize("part", [nci, fdbd])
def test_the_unit_of_the_features_does_not_matter(part, unit):
    def scores(unit):
        train, queries = np.float32(TRAIN.features * unit), np.float32(QUERIES.features * unit)
        norm = {"alpha": 0.0} if part is nci else {}  # of the features: it is in their unit
        model = part.fit(train, openset.Head(np.float32(KERNEL / unit), BIAS))
        return part.score(model, queries, QUERIES.logits, **norm) * unit ** (part is nci)

    np.testing.assert_allclose(scores(unit), scores(1.0), rtol=1e-4, atol=1e-5)


def test_a_layer_without_bias_has_one_of_0():
    bare, zero = openset.Head(KERNEL, None), openset.Head(KERNEL, np.zeros(K))
    for fit in (react.fit, scale.fit, dice.fit):
        found, expected = fit(TRAIN.features, bare), fit(TRAIN.features, zero)
        np.testing.assert_array_equal(found.bias, expected.bias)


def test_neighbours_that_tie_and_fewer_than_wanted():
    one = np.float32([[1.0, 0.0]])
    three, logits = np.repeat(one, 3, axis=0), np.zeros((3, 2), np.float32)
    for labels, k, kept in (([0, 0, 0], 10, 3), ([0, 0, 0], 2, 2), ([0, 0, 1], 10, 1)):
        bank = nnguide.fit(three, np.array(labels), logits, k=k)
        assert bank.k == kept  # at most the examples of the smallest class
        got = nnguide.score(bank, one, logits[:1])
        np.testing.assert_allclose(got, np.log(2) ** 2, rtol=1e-6)


def test_relative_distance_without_directions_that_vary():
    flat = np.concatenate([TRAIN.features, np.ones((120, 1), np.float32)], axis=1)
    model, more = rmds.fit(TRAIN.features, TRAIN.labels), rmds.fit(flat, TRAIN.labels)
    queries = np.concatenate([QUERIES.features, np.full((60, 1), 7, np.float32)], axis=1)
    expected = rmds.score(model, QUERIES.features)
    np.testing.assert_allclose(rmds.score(more, queries), expected, rtol=1e-3, atol=1e-3)


def test_wrong_arguments_are_named(unchecked):
    negative = TRAIN.features - 5
    with pytest.raises(ValueError, match="features: got -5 among them, wanted none below 0"):
        scale.fit(negative, HEAD)
    for fit in (react.fit, dice.fit):
        with pytest.raises(ValueError, match="percentile: got 101, wanted a number in"):
            fit(TRAIN.features, HEAD, percentile=101)
    layers = scale.fit(TRAIN.features, HEAD)
    with pytest.raises(ValueError, match="percentile: got 99 of 20 features, wanted some left"):
        scale.score(layers, QUERIES.features, percentile=99)
    with pytest.raises(ValueError, match="variant: got 'x', wanted 's', 'p' or 'b'"):
        ash.shaped(QUERIES.features, variant="x")  # pyright: ignore
    with pytest.raises(ValueError, match="kernel: got one class, wanted two or more"):
        fdbd.fit(TRAIN.features, openset.Head(KERNEL[:, :1], None))
    with pytest.raises(ValueError, match="kernel: classes 0 and 1 have the same weights"):
        fdbd.fit(TRAIN.features, openset.Head(np.ones((D, 2)), None))
    with pytest.raises(ValueError, match="labels: no example of class 3 is classified correctly"):
        she.fit(TRAIN.features, TRAIN.logits, TRAIN.logits.argmax(1) % 3)
    with pytest.raises(ValueError, match=r"gamma: got 0, wanted a number in \(0, 1\)"):
        gen.gen_score(QUERIES.logits, gamma=0)
    with pytest.raises(ValueError, match="largest: got 0, wanted at least 1"):
        gen.gen_score(QUERIES.logits, largest=0)
    with pytest.raises(ValueError, match="temperature: got 0, wanted a positive number"):
        gradnorm.gradnorm_score(QUERIES.features, QUERIES.logits, temperature=0)
    with pytest.raises(ValueError, match="k: got 0, wanted at least 1"):
        nnguide.fit(TRAIN.features, TRAIN.labels, TRAIN.logits, k=0)
    with pytest.raises(AssertionError, match="shape"):
        dice.fit(TRAIN.features, openset.Head(KERNEL.T, None))
