"""OpenMax: libMR's published values, SciPy's fit, plain loops, a peer."""

import jax
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from jaxatr.openset import openmax

SMALL = [0.245, 0.2632, 0.3233, 0.3573, 0.4014, 0.4055, 0.4212, 0.5677]
EVEN = np.arange(1, 31) / 10
UNSHIFTED = [0.67048, 0.65088, 0.64507, 0.645, 0.64402, 0.64295, 0.64279, 0.64244, 0.64079]
# distances, tail, shift, scale, exponent, queries, their w
LIBMR = {
    "small": (SMALL, 8, 1.0, 1.1737118, 11.595156)
    + ([0.05, 0.1, 0.25, 0.4, 0.75], [0.012542, 0.025065, 0.152447, 0.563945, 1.0]),
    "small, far": (SMALL, 8, 1e4, 10000.178374, 97548.04)
    + ([0.05, 0.1, 0.25, 0.4, 0.75], [0.025855, 0.041765, 0.168310, 0.548925, 1.0]),
    "even": (EVEN, 20, 1.0, 2.162696, 3.850608, [0.5, 1, 1.5, 2, 2.5, 3, 4])
    + ([0.001505, 0.03361, 0.170879, 0.455204, 0.77534, 0.954698, 0.999938],),
    "unshifted": (UNSHIFTED, 9, None, 0.652101, 56.733058, [], []),
}


def draw(seed=0, k=5, per_class=40, spread=1.0):
    """Logits that are mostly classified correctly, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(k), per_class)
    return 3 * np.eye(k)[labels] + spread * rng.normal(size=(k * per_class, k)), labels


def w_of(scale, shape, offset, queries):
    """The model's w, computed from public functions with a single class of mean 0."""
    weights = np.array([1.0, 0.0])
    model = openmax.OpenMax(np.zeros((1, 1)), scale, shape, offset, np.array(1), weights)
    z = np.float64(queries)[:, None]
    return (1 - openmax.score(model, z) / z[:, 0]) / 2  # its log-odds are z (1 - w) - z w


def reference_weibull(x):
    """The root of the profile likelihood, one tail at a time."""
    logs = np.log(np.sort(x) / np.max(x))
    unit = -logs.mean()

    def slope(log_kappa):
        kappa = np.exp(log_kappa)
        powers = np.exp(kappa * logs)
        return np.dot(powers, logs) / powers.sum() - 1 / kappa - logs.mean()

    kappa = np.exp(scipy.optimize.brentq(slope, *np.log([0.5 / unit, 1e3 / unit]), xtol=1e-14))
    return np.max(x) * np.mean(np.exp(kappa * logs)) ** (1 / kappa), kappa


def reference(train, labels, queries, tail_size, alpha, shift, eucos):
    """Means, distributions, revised logits (the unknown's last) and w, by loops."""
    k = train.shape[1]
    weights, revised = np.zeros((len(queries), k)), np.zeros((len(queries), k + 1))

    def distance(a, b):
        euclidean = np.sqrt(np.sum((a - b) ** 2))
        if not eucos:
            return euclidean
        return euclidean / 200 + 1 - np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b))

    for c in range(k):
        own = [z for z, y in zip(train, labels, strict=True) if y == c == np.argmax(z)]
        mean = np.mean(own, axis=0)
        tail = sorted(distance(z, mean) for z in own)[-tail_size:]
        offset = 0 if shift is None else shift - tail[0]
        scale, kappa = reference_weibull(np.array(tail) + offset)
        for row, z in enumerate(queries):
            x = distance(z, mean) + offset
            weights[row, c] = 1 - np.exp(-((x / scale) ** kappa)) if x > 0 else 0
    for row, z in enumerate(queries):
        for place, c in enumerate(np.argsort(-z, kind="stable"), start=1):
            omega = (alpha + 1 - place) / alpha if place <= alpha else 0
            revised[row, c] = z[c] * (1 - weights[row, c] * omega)
            revised[row, k] += z[c] - revised[row, c]
    return revised, weights


@pytest.mark.parametrize("case", LIBMR)
def test_libmr_agrees(case):
    distances, tail_size, shift, scale, shape, queries, w = LIBMR[case]
    got = openmax.fit_weibull(np.array(distances), tail_size=tail_size, shift=shift)
    np.testing.assert_allclose(got, [scale, shape], rtol=1e-5)
    if queries:
        offset = np.array([shift - np.sort(distances)[-tail_size]])
        np.testing.assert_allclose(w_of(*np.array(got)[:, None], offset, queries), w, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shift", [None, 1.0, 10.0])
def test_fit_is_scipys(seed, shift):
    rng = np.random.default_rng(seed)
    distances = rng.gamma(rng.uniform(1, 20), size=100)
    tail = np.sort(distances)[-25:]
    x = tail if shift is None else tail + shift - tail[0]

    def search(function, start, args, disp):
        return scipy.optimize.fmin(
            function, start, args, xtol=1e-10, ftol=1e-12, maxiter=5000, maxfun=5000, disp=disp
        )

    shape, _, scale = scipy.stats.weibull_min.fit(x, floc=0, optimizer=search)
    got = openmax.fit_weibull(distances, tail_size=25, shift=shift)
    np.testing.assert_allclose(got, [scale, shape], rtol=1e-6)


@pytest.mark.parametrize("shift", [1e-3, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("size", [2, 3, 20, 500])
def test_fit_is_the_root_at_any_shift_and_size(shift, size):
    distances = np.random.default_rng(size).gamma(3, size=size)
    got = openmax.fit_weibull(distances, tail_size=size, shift=shift)
    x = distances - distances.min() + shift
    # The reference loses the common digits of x: at 1e8 it has 8 left.
    np.testing.assert_allclose(got, reference_weibull(x), rtol=1e-15 * max(shift, 1e5) * 10)


def test_fit_does_not_depend_on_the_unit():
    distances = np.random.default_rng(0).gamma(3, size=50)
    scale, shape = openmax.fit_weibull(distances, shift=1.0)
    got = openmax.fit_weibull(1e-6 * distances, shift=1e-6)
    np.testing.assert_allclose(got, [1e-6 * scale, shape], rtol=1e-9)


@pytest.mark.parametrize("shift", [None, 1.0, 1e4])
@pytest.mark.parametrize("distance", ["euclidean", "eucos"])
@pytest.mark.parametrize("alpha", [None, 1, 3])
def test_agrees_with_loops(alpha, distance, shift):
    train, labels = draw()
    queries = np.concatenate([draw(1, per_class=4)[0], draw(2, per_class=4, spread=5)[0]])
    chosen = {"tail_size": 12, "distance": distance, "shift": shift}
    model = openmax.fit(train, labels, alpha=alpha, **chosen)
    revised, w = reference(train, labels, queries, 12, alpha or 5, shift, distance == "eucos")
    e = np.exp(revised)
    p = e / e.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(openmax.probabilities(model, queries), p, atol=1e-7)
    log_odds = np.log(e[:, :-1].sum(axis=1)) - revised[:, -1]
    np.testing.assert_allclose(openmax.score(model, queries), log_odds, atol=1e-6)
    energy = np.log(np.sum(np.exp(queries * (1 - w)), axis=1))
    np.testing.assert_allclose(openmax.score(model, queries, kind="energy"), energy, atol=1e-6)


def test_wrongly_classified_examples_do_not_count():
    train, labels = draw()
    wrong = train.argmax(1) != labels
    assert 0 < wrong.sum() < len(labels)
    ours = openmax.fit(train, labels)
    jax.tree.map(np.testing.assert_array_equal, ours, openmax.fit(train[~wrong], labels[~wrong]))
    train[wrong] *= 2
    jax.tree.map(np.testing.assert_array_equal, ours, openmax.fit(train, labels))


def test_a_class_with_fewer_examples_than_the_tail_has_all_of_them_fitted():
    train, labels = draw(spread=0.1)
    few = (labels != 2) | (np.arange(len(labels)) % 8 == 0)
    model = openmax.fit(train[few], labels[few])
    own = train[few & (labels == 2)]
    assert len(own) == 5
    distances = np.linalg.norm(own - own.mean(0), axis=1)
    expected = openmax.fit_weibull(distances, tail_size=5)
    np.testing.assert_allclose((model.scale[2], model.shape[2]), expected, rtol=1e-12)
    whole = openmax.fit(train, labels)
    np.testing.assert_array_equal(np.delete(model.scale, 2), np.delete(whole.scale, 2))


def test_near_a_mean_is_known_and_far_from_all_is_not():
    train, labels = draw(spread=0.3)
    model = openmax.fit(train, labels)
    queries = np.concatenate([model.means, 20 * np.ones((1, 5)), np.full((1, 5), 1e4)])
    p = openmax.probabilities(model, queries)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (p[:5].argmax(1) == np.arange(5)).all() and (p[5:].argmax(1) == 5).all()
    for kind in ("log_odds", "energy"):
        score = openmax.score(model, queries[:6], kind=kind)
        assert np.isfinite(score).all() and score[:5].min() > score[5]


def test_scores_do_not_tie_where_probabilities_do():
    model = openmax.fit(*draw(spread=0.3))
    queries = np.array([[60.0] * 5, [80.0] * 5])
    p = openmax.probabilities(model, queries)[:, -1]
    assert p[0] == p[1] == 1
    score = openmax.score(model, queries)
    assert score[0] > score[1]


def test_a_query_without_direction_has_cosine_distance_1():
    model = openmax.fit(*draw(), distance="eucos")
    assert np.isfinite(openmax.probabilities(model, np.zeros((1, 5)))).all()


def test_jax_arrays_are_taken_and_float32_agrees():
    train, labels = draw()
    ours = openmax.fit(jax.numpy.float32(train), jax.numpy.asarray(labels), shift=1e4)
    expected = openmax.fit(train, labels, shift=1e4)
    assert all(np.asarray(leaf).dtype in (np.float64, np.int64) for leaf in ours)
    got = openmax.probabilities(ours, jax.numpy.float32(train))
    np.testing.assert_allclose(got, openmax.probabilities(expected, train), atol=1e-5)


def test_a_model_is_arrays_that_can_be_saved(tmp_path):
    train, labels = draw()
    model = openmax.fit(train, labels, alpha=2, distance="eucos", shift=1e4)
    np.savez(tmp_path / "model.npz", **model._asdict())
    with np.load(tmp_path / "model.npz") as file:
        loaded = openmax.OpenMax(**file)
    expected = openmax.probabilities(model, train)
    np.testing.assert_array_equal(openmax.probabilities(loaded, train), expected)
    on_device = jax.tree.map(jax.numpy.asarray, openmax.fit(train, labels))
    got = openmax.probabilities(on_device, train)
    np.testing.assert_allclose(got, openmax.probabilities(openmax.fit(train, labels), train), 1e-4)


def test_wrong_arguments_are_named(unchecked):
    train, labels = draw()
    for name, value, wanted in (
        ("tail_size", 1, "at least 2"),
        ("shift", 0.0, "a positive number"),
        ("alpha", 6, "1 to 5"),
        ("distance", "cosine", "one of"),
    ):
        with pytest.raises(ValueError, match=f"{name}: got {value!r}, wanted {wanted}"):
            openmax.fit(train, labels, **{name: value})
    with pytest.raises(ValueError, match="labels: got -1 at 7, .*0 to 4"):
        openmax.fit(train, np.where(np.arange(len(labels)) == 7, -1, labels))
    with pytest.raises(AssertionError, match=r"has shape \(3,\) but expected \(200\)"):
        openmax.fit(train, labels[:3])
    with pytest.raises(ValueError, match="logits: 1 rows are not finite, the first is 3"):
        openmax.fit(np.where(np.arange(len(train))[:, None] == 3, np.nan, train), labels)
    with pytest.raises(ValueError, match="kind: got 'p'"):
        openmax.score(openmax.fit(train, labels), train, kind="p")


def test_a_class_with_none_right_is_an_error():
    train, labels = draw()
    train[labels == 3, 3] = -50
    with pytest.raises(ValueError, match=r"labels: got \{3: 0\} correct examples by class"):
        openmax.fit(train, labels)


def test_a_tail_that_no_distribution_fits_is_an_error():
    with pytest.raises(ValueError, match=r"tails of \[0\] contain a single value, 2.0"):
        openmax.fit_weibull(np.full(9, 2.0))
    with pytest.raises(ValueError, match="got 0.0 in the tail"):
        openmax.fit_weibull(np.array([0.0, 1.0]), shift=None)
    train, labels = draw()
    with pytest.raises(ValueError, match=r"tails of \[1\] contain a single value"):
        openmax.fit(np.where(labels[:, None] == 1, 9 * np.eye(5)[1], train), labels)


def test_pytorch_ood_agrees(pytorch_ood):
    train, labels = draw(spread=0.4)
    queries = np.concatenate([draw(1, per_class=6)[0], draw(2, per_class=6, spread=5)[0]])
    peer = pytorch_ood.OpenMax(None, tailsize=15, alpha=3)
    peer.fit_logits(*map(pytorch_ood.tensor, (train, labels)))
    model = openmax.fit(train, labels, tail_size=15, alpha=3, shift=1e4)
    expected = peer.predict_logits(pytorch_ood.tensor(queries))
    np.testing.assert_allclose(openmax.probabilities(model, queries)[:, -1], expected, atol=1e-4)


def test_classes_that_are_not_targets_count_as_unknown():
    draw = np.random.default_rng(5)
    labels = np.repeat(np.arange(4), 30)
    logits = 4 * np.eye(4)[labels] + draw.normal(size=(120, 4))
    model, queries = openmax.fit(logits, labels), draw.normal(0, 3, (50, 4))
    p = openmax.probabilities(model, queries)
    known, unknown = p[:, :3].sum(axis=1), p[:, 3:].sum(axis=1)
    found = openmax.score(model, queries, extra=1)
    np.testing.assert_allclose(found, np.log(known / unknown), rtol=1e-9)
    w = 1 - np.exp(-((np.maximum(_far(model, queries), 0) / model.scale) ** model.shape))
    energy = np.log(np.exp((queries * (1 - w))[:, :3]).sum(axis=1))
    np.testing.assert_allclose(openmax.score(model, queries, kind="energy", extra=1), energy)
    for extra in (-1, 4):
        with pytest.raises(ValueError, match=f"extra: got {extra} of 4 classes"):
            openmax.score(model, queries, extra=extra)


def _far(model, queries):
    return np.linalg.norm(queries[:, None] - model.means[None], axis=-1) + model.offset
