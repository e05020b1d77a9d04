"""Searches in two stages, compared with exhaustive ones."""

import jax
import numpy as np
import pytest

from jaxatr import openset
from jaxatr.openset import SCORES, gallery
from jaxatr.openset.detectors import nndr, spatial, template
from jaxatr.openset.gallery import reranking

WIDTH = 2 * reranking.DIRECTIONS + 20


def clustered(n, classes, seed=0):
    """Examples and queries around the same few means, in a random low-dimensional subspace."""
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(30, WIDTH))
    means = rng.normal(size=(classes, 30))
    labels = rng.integers(0, classes, 2 * n)
    rows = (means[labels] + rng.normal(size=(2 * n, 30))) @ basis
    rows += 0.3 * rng.normal(size=rows.shape)
    return rows[:n], labels[:n], rows[n:], labels[n:]


def indexed(built, classes):
    arrays = built.examples, built.half_squares, built.labels
    return built._replace(index=reranking.index(*arrays, classes))


@pytest.mark.parametrize("forms", [1, 3])
def test_certain_neighbours_are_those_of_the_whole_search(forms):
    classes = reranking.CLASSES
    labels = np.repeat(np.arange(classes - 1), reranking.CANDIDATES)  # the last class has none
    rng = np.random.default_rng(forms)
    built = gallery.directions(rng.normal(size=(len(labels), WIDTH)), labels, classes)
    queries = gallery.unit(rng.normal(size=(5, forms, WIDTH)))
    asked = queries, classes, (0,), gallery.BLOCK
    whole = gallery.unit_cosines(built, *asked)
    found = gallery.unit_cosines(indexed(built, classes), *asked)
    np.testing.assert_allclose(found, whole, atol=1e-6)
    assert (found[:, -1] == -np.inf).all()


@pytest.mark.parametrize("classes", [9, pytest.param(3, marks=pytest.mark.slow)])
def test_few_nearest_examples_are_missed(classes):
    rows, labels, queries, _ = clustered(400, classes)
    built = gallery.build(rows / 20, labels, classes)
    whole = gallery.class_distances(built, queries / 20, classes)
    found = gallery.class_distances(indexed(built, classes), queries / 20, classes)
    two = [np.stack(gallery.two_nearest(d)) for d in (whole, found)]
    assert np.mean(np.abs(two[0] - two[1]) < 1e-3) > 0.98
    assert np.mean(whole.argmin(axis=1) == found.argmin(axis=1)) > 0.99
    assert (found >= whole - 0.05 * whole.mean()).all()  # none is nearer than it is


@pytest.mark.parametrize(("count", "rank"), [(100, 100), (100, 20), (3, 3), (1, 1)])
def test_the_directions_of_few_examples_are_their_singular_vectors(count, rank):
    rng = np.random.default_rng(count)
    vectors = rng.normal(size=(count, rank)) @ rng.normal(size=(rank, WIDTH))
    vectors = vectors.astype(np.float32)
    axes = reranking.index(vectors, np.zeros(count), np.zeros(count, int), 1).axes
    kept = min(rank, reranking.DIRECTIONS)
    np.testing.assert_allclose(axes.T @ axes, np.eye(kept), atol=1e-5)
    lengths = np.linalg.svd(vectors.astype(np.float64), compute_uv=False)
    found = np.linalg.norm(vectors @ np.asarray(axes), axis=0)
    np.testing.assert_allclose(found[::-1], lengths[:kept], rtol=1e-4)


def test_an_index_is_made_where_it_pays(monkeypatch):
    rows, labels, queries, _ = clustered(300, 3)
    fitted = {
        "nndr": nndr.fit(rows, labels, 3),
        "spatial": spatial.fit(rows.reshape(300, 1, 1, -1), labels, 3),
    }
    small = {name: gallery.ready(model) for name, model in fitted.items()}
    assert all(model.index is None for model in small.values())
    monkeypatch.setattr(reranking, "WHOLE", 299)
    assert not reranking.pays((300, 2 * reranking.DIRECTIONS))  # nothing to be saved
    large = {name: gallery.ready(model) for name, model in fitted.items()}
    assert all(isinstance(model.index.codes, jax.Array) for model in large.values())
    assert gallery.ready(large["nndr"]).index.codes is large["nndr"].index.codes
    for module, name, asked in (
        (nndr, "nndr", queries),
        (spatial, "spatial", queries[:, None, None]),
    ):
        whole, found = (module.answer(models[name], asked) for models in (small, large))
        assert np.mean(np.isclose(whole.score, found.score, atol=1e-4)) > 0.98
        assert np.mean(whole.label == found.label) > 0.99


def test_templates_are_searched_by_every_second_shift(monkeypatch):
    rng = np.random.default_rng(0)
    chips = rng.gamma(1.0, 40, size=(40, 32, 32, 1))
    chips = (chips + np.roll(chips, 1, 1) + np.roll(chips, 1, 2)) / 3  # a radar's pixels overlap
    labels = np.arange(40) % 4
    model = template.fit(chips, labels, 4)
    moved = np.stack([np.roll(c, rng.integers(-3, 4, 2), axis=(0, 1)) for c in chips])
    moved = moved * rng.gamma(30, 1 / 30, size=moved.shape)
    whole = template.answer(model, moved)
    assert gallery.ready(model).index is None
    monkeypatch.setattr(reranking, "WHOLE", 40 * model.forms - 1)
    found = template.answer(model, moved)
    np.testing.assert_array_equal(found.label, labels)
    np.testing.assert_allclose(found.score, whole.score, atol=1e-4)


def test_a_decision_is_ready_with_an_index_and_saved_without(monkeypatch):
    monkeypatch.setattr(reranking, "WHOLE", 0)
    rows, labels, _, _ = clustered(60, 3)
    score = SCORES["spatial_stage2"]
    model = spatial.fit(rows.reshape(60, 1, 1, -1), labels, 3)
    decision = openset.Decision(score, {score.name: model}, threshold=0.0)
    assert decision.ready().models[score.name].index is not None
    saved = openset.from_arrays(score, openset.to_arrays(decision))
    assert saved.models[score.name].index is None
