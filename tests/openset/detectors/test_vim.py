"""The ViM score: plain NumPy in float64, its invariances, a peer."""

import jax
import numpy as np
import pytest

from jaxatr.openset import Head, vim

D = 12


def draw(seed=0, n=200, k=4, noise=0.3):
    """Features near a subspace of 5 dimensions, and a head."""
    rng = np.random.default_rng(seed)
    basis, kernel, bias = (np.random.default_rng(9).normal(size=s) for s in ((5, D), (D, k), k))
    features = rng.normal(size=(n, 5)) @ basis + noise * rng.normal(size=(n, D)) + 1
    return np.float32(features), np.float32(kernel), np.float32(bias)


def reference(train, queries, kernel, bias, dimensions):
    train, queries, kernel, bias = map(np.float64, (train, queries, kernel, bias))
    origin = np.linalg.lstsq(kernel.T, -bias, rcond=None)[0]
    # The right singular vectors, largest first, span the principal subspace.
    principal = np.linalg.svd(train - origin)[2][:dimensions]

    def residual(f):
        f = f - origin
        return np.linalg.norm(f - sum(np.dot(f, p) * p for p in principal))

    largest = np.mean([np.max(f @ kernel + bias) for f in train])
    alpha = largest / np.mean([residual(f) for f in train])
    return [np.log(np.sum(np.exp(f @ kernel + bias))) - alpha * residual(f) for f in queries]


@pytest.mark.parametrize(
    "dimensions, with_bias", [(None, True), (None, False), (1, True), (D - 1, True)]
)
def test_agrees_with_numpy(dimensions, with_bias):
    train, kernel, bias = draw()
    bias = bias if with_bias else np.zeros_like(bias)
    queries = np.concatenate([draw(1)[0], draw(2, noise=3)[0]])
    model = vim.fit(
        train,
        train @ kernel + bias,
        Head(kernel, bias if with_bias else None),
        dimensions=dimensions,
    )
    expected = reference(train, queries, kernel, bias, dimensions or D // 2)
    logits = queries @ kernel + bias
    np.testing.assert_allclose(vim.score(model, queries, logits), expected, rtol=1e-4, atol=1e-4)
    jitted = jax.jit(vim.score)(model, queries, logits)
    np.testing.assert_allclose(jitted, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("unit", [1e-22, 1e22])
def test_features_may_be_in_any_unit(unit):
    rng = np.random.default_rng(3)
    features, kernel, bias = rng.normal(size=(40, 8)), rng.normal(size=(8, 3)), rng.normal(size=3)
    logits = features @ kernel + bias
    plain, scaled = (
        vim.score(vim.fit(x, logits, Head(matrix, bias)), x.astype(np.float32), logits)
        for x, matrix in ((features, kernel), (features * unit, kernel / unit))
    )
    np.testing.assert_allclose(scaled, plain, rtol=1e-4, atol=1e-4)


def test_more_classes_than_features_have_an_origin_too():
    train, kernel, bias = draw(k=20)
    model = vim.fit(train, train @ kernel + bias, Head(kernel, bias))
    expected = reference(train, train, kernel, bias, D // 2)
    got = vim.score(model, train, train @ kernel + bias)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_order_is_that_of_the_virtual_logits_probability():
    train, kernel, bias = draw()
    queries = draw(2, noise=1)[0]
    logits = queries @ kernel + bias
    model = vim.fit(train, train @ kernel + bias, Head(kernel, bias), dimensions=5)
    length = np.linalg.norm((queries - model.origin) @ model.residual, axis=1)
    e = np.exp(np.float64(np.column_stack([logits, model.alpha * length])))
    probability = e[:, -1] / e.sum(1)
    score = np.float64(vim.score(model, queries, logits))
    np.testing.assert_allclose(1 / (1 + np.exp(score)), probability, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("d, expected", [(4, 2), (96, 48), (768, 512)])
def test_default_dimensions(d, expected):
    features = np.random.default_rng(0).normal(size=(2 * d, d))
    kernel = np.zeros((d, 2))
    head = Head(kernel, None)
    assert vim.fit(features, features @ kernel, head).residual.shape == (d, d - expected)
    # Eight examples span at most eight dimensions.
    model = vim.fit(features[:8], features[:8] @ kernel, head)
    assert model.residual.shape == (d, d - min(expected, 4)) and np.isfinite(model.alpha)
    if d > 8:
        with pytest.raises(ValueError, match=f"have no more than {expected}, wanted fewer"):
            vim.fit(features[:8], features[:8] @ kernel, head, dimensions=expected)


def test_features_within_the_principal_subspace_are_an_error():
    train, kernel, _ = draw(noise=0)
    train = train - 1
    with pytest.raises(ValueError, match="dimensions: the features have no more than 6"):
        vim.fit(train, train @ kernel, Head(kernel, None), dimensions=6)
    assert vim.fit(train, train @ kernel, Head(kernel, None)).residual.shape == (
        D,
        D - 2,
    )  # of rank 5


def test_wrong_arguments_are_named(unchecked):
    train, kernel, bias = draw()
    logits, head = train @ kernel, Head(kernel, None)
    for dimensions in (0, D):
        with pytest.raises(ValueError, match=f"dimensions: got {dimensions}, wanted 1 to {D - 1}"):
            vim.fit(train, logits, head, dimensions=dimensions)
    with pytest.raises(AssertionError, match=r"has shape \(4, 12\) but expected \(12, 4\)"):
        vim.fit(train, logits, Head(kernel.T, None))
    with pytest.raises(AssertionError, match=r"has shape \(3,\) but expected \(4\)"):
        vim.fit(train, logits, Head(kernel, bias[:3]))
    with pytest.raises(AssertionError, match=r"has shape \(9, 4\) but expected \(200, 4\)"):
        vim.fit(train, logits[:9], head)
    with pytest.raises(ValueError, match="logits: 200 rows are not finite"):
        vim.fit(train, logits * np.nan, head)


def test_pytorch_ood_agrees(pytorch_ood):
    train, kernel, bias = draw(n=400)
    queries = np.concatenate([draw(1)[0], draw(2, noise=3)[0]])
    peer = pytorch_ood.ViM(None, d=5, w=pytorch_ood.tensor(kernel.T), b=pytorch_ood.tensor(bias))
    peer.fit_features(pytorch_ood.tensor(train), pytorch_ood.tensor(np.zeros(400, int)))
    model = vim.fit(train, train @ kernel + bias, Head(kernel, bias), dimensions=5)
    got = vim.score(model, queries, queries @ kernel + bias)
    expected = -peer.predict_features(pytorch_ood.tensor(queries)).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
