"""The Mahalanobis score: plain loops in float64, its invariances, a peer."""

import jax
import numpy as np
import pytest

from jaxatr.openset import mahalanobis


def draw(seed=0, k=4, per_class=30, d=7):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(k), per_class))
    mixing = np.eye(d) + np.random.default_rng(9).normal(size=(d, d)) / d
    features = 4 * rng.normal(size=(k, d))[labels] + rng.normal(size=(k * per_class, d)) @ mixing
    return np.float32(features), labels


def reference(train, labels, queries, pseudo=False):
    train, queries = np.float64(train), np.float64(queries)
    means, scatter = {}, np.zeros((train.shape[1],) * 2)
    for c in set(labels.tolist()):
        means[c] = np.mean([f for f, y in zip(train, labels, strict=True) if y == c], axis=0)
    for f, y in zip(train, labels, strict=True):
        scatter += np.outer(f - means[y], f - means[y])
    covariance = scatter / len(train)
    inverse = np.linalg.pinv(covariance, rcond=1e-10) if pseudo else np.linalg.inv(covariance)
    return [max(-(f - m) @ inverse @ (f - m) for m in means.values()) for f in queries]


def test_agrees_with_loops():
    train, labels = draw()
    queries = np.concatenate([train[:20], draw(1)[0], 10 * draw(2)[0]])
    model = mahalanobis.fit(train, labels)
    expected = reference(train, labels, queries)
    np.testing.assert_allclose(mahalanobis.score(model, queries), expected, rtol=1e-4)
    np.testing.assert_allclose(jax.jit(mahalanobis.score)(model, queries), expected, rtol=1e-4)


def test_features_that_never_fire_or_repeat_do_not_count():
    train, labels = draw()
    queries = draw(1)[0]
    expected = mahalanobis.score(mahalanobis.fit(train, labels), queries)
    dead = [np.pad(x, ((0, 0), (0, 2))) for x in (train, queries)]
    np.testing.assert_allclose(
        mahalanobis.score(mahalanobis.fit(dead[0], labels), dead[1]), expected, rtol=1e-4
    )
    twice = [np.concatenate([x, x[:, :1]], axis=1) for x in (train, queries)]
    got = mahalanobis.score(mahalanobis.fit(twice[0], labels), twice[1])
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    np.testing.assert_allclose(got, reference(twice[0], labels, twice[1], pseudo=True), rtol=1e-4)


def test_fewer_examples_than_features():
    train, labels = draw(per_class=3, d=40)
    queries = draw(1, per_class=3, d=40)[0]
    got = mahalanobis.score(mahalanobis.fit(train, labels), queries)
    np.testing.assert_allclose(got, reference(train, labels, queries, pseudo=True), rtol=1e-4)


def test_an_affine_map_of_the_features_changes_nothing():
    train, labels = draw()
    matrix = np.random.default_rng(3).normal(size=(7, 7))
    moved = np.float64(train) @ matrix + 10
    got = mahalanobis.score(mahalanobis.fit(moved, labels), moved)
    expected = mahalanobis.score(mahalanobis.fit(train, labels), train)
    np.testing.assert_allclose(got, expected, rtol=1e-3)


def test_a_mean_scores_0_and_nothing_scores_more():
    train, labels = draw()
    model = mahalanobis.fit(train, labels)
    means = np.stack([train[labels == c].mean(0) for c in range(4)])
    np.testing.assert_allclose(mahalanobis.score(model, means), 0, atol=1e-8)
    assert (np.asarray(mahalanobis.score(model, train)) < 0).all()


def test_wrong_arguments_are_named(unchecked):
    train, labels = draw()
    with pytest.raises(ValueError, match="labels: no example of class 2"):
        mahalanobis.fit(train[labels != 2], labels[labels != 2])
    with pytest.raises(ValueError, match="labels: got -1 at 0, .*0 to 3"):
        mahalanobis.fit(train, np.where(np.arange(len(labels)) == 0, -1, labels))
    with pytest.raises(ValueError, match="features: 1 rows are not finite, the first is 5"):
        mahalanobis.fit(np.where(np.arange(len(train))[:, None] == 5, np.inf, train), labels)
    with pytest.raises(ValueError, match="every example equals the mean of its class"):
        mahalanobis.fit(np.eye(4)[labels], labels)
    with pytest.raises(ValueError, match=r"features: got shape \(0, 4\)"):
        mahalanobis.fit(np.zeros((0, 4)), np.zeros(0, int))


def test_pytorch_ood_agrees(pytorch_ood):
    train, labels = draw(per_class=200)
    queries = np.concatenate([draw(1)[0], 10 * draw(2)[0]])
    peer = pytorch_ood.Mahalanobis(None)
    peer.fit_features(*map(pytorch_ood.tensor, (train, labels)))
    # Theirs is half a distance, of the scatter of all examples instead of their covariance.
    expected = -2 * len(train) * peer.predict_features(pytorch_ood.tensor(queries)).numpy()
    got = mahalanobis.score(mahalanobis.fit(train, labels), queries)
    np.testing.assert_allclose(got, expected, rtol=1e-4)
