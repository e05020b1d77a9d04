"""Every score by its name, fitted and ready."""

import jax
import numpy as np
import pytest

from jaxatr import metrics, openset
from jaxatr.openset import mahalanobis, nearest_neighbour, openmax, vim


def outputs(count, distance, seed, classes=3, width=8):
    """Features in one cluster per class, or away from all of them; a linear head reads them."""
    draw = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    centres = 4 * np.eye(classes, width)
    features = centres[labels] + draw.normal(size=(count, width))
    features[:, -1] += distance  # a direction that the head does not see
    if distance:
        features[:, :classes] = draw.normal(size=(count, classes))
        labels = np.full(count, openset.UNKNOWN)
    logits = features @ HEAD.kernel + HEAD.bias
    return openset.Outputs(
        logits=logits,
        open_logits=logits - 2,
        labels=labels,
        features=features,
        odin=logits.max(axis=1),
        gradient_norms=np.exp(-logits.max(axis=1, keepdims=True)) * [1, 2],
    )


HEAD = openset.Head(np.eye(8, 3), np.full(3, 0.5))
TRAINING, KNOWN, UNKNOWN = outputs(150, 0, 0), outputs(90, 0, 1), outputs(90, 5, 2)


def test_all_is_every_name_and_each_is_higher_for_the_known():
    chosen = openset.names("all")
    assert (*chosen, *openset.OWN_TRAINING) == tuple(openset.NEEDS)
    assert set(openset.DEFAULT) < set(chosen)
    fitted = openset.fit_detectors(chosen, TRAINING, HEAD)
    assert list(fitted.scores) == list(chosen)
    for name, score in fitted.scores.items():
        area = metrics.auroc(np.asarray(score(KNOWN)), np.asarray(score(UNKNOWN)))
        assert area > 0.65, name


def test_a_score_with_a_training_of_its_own_wants_what_that_brought():
    with pytest.raises(ValueError, match="conflabel_detector: wanted what its own training"):
        openset.fit_detectors(("conflabel_detector",))
    norms = (TRAINING.gradient_norms, UNKNOWN.gradient_norms)
    detector = openset.conflabel.fit(*norms, key=jax.random.key(0))
    score = openset.fit_detectors(
        ("conflabel_detector",), trained={"conflabel_detector": detector}
    ).scores["conflabel_detector"]
    area = metrics.auroc(np.asarray(score(KNOWN)), np.asarray(score(UNKNOWN)))
    assert area > 0.65


def test_gopenmax_counts_the_generated_class_as_unknown():
    known = [outputs(count, 0, seed, classes=4) for count, seed in ((200, 3), (80, 4))]
    logits = [4 * one.features[:, :4] for one in known]
    training, test = (
        one._replace(logits=z[:, :3], open_logits=z[:, :3], extra_logits=z[:, 3:])
        for one, z in zip(known, logits, strict=True)
    )
    fitted = openset.fit_detectors(("gopenmax",), training, HEAD)
    model = openmax.fit(logits[0], known[0].labels)
    expected = openmax.score(model, logits[1], extra=1)
    np.testing.assert_allclose(fitted.scores["gopenmax"](test), expected)


def test_what_is_fitted_is_what_the_modules_fit():
    fitted = openset.fit_detectors(("openmax", "mahalanobis", "knn", "vim"), TRAINING, HEAD)
    x, z = TRAINING.features, TRAINING.logits
    expected = {
        "openmax": openmax.score(openmax.fit(z, TRAINING.labels), KNOWN.logits),
        "mahalanobis": mahalanobis.score(mahalanobis.fit(x, TRAINING.labels), KNOWN.features),
        "knn": nearest_neighbour.score(nearest_neighbour.fit(x), KNOWN.features, k=50),
        "vim": vim.score(vim.fit(x, z, *HEAD), KNOWN.features, KNOWN.logits),
    }
    assert set(fitted.models) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(fitted.scores[name](KNOWN), values, rtol=1e-6)


def test_fewer_training_examples_than_neighbours():
    few = TRAINING.select(np.arange(150) < 7)
    score = openset.fit_detectors(("knn",), few, HEAD).scores["knn"](KNOWN)
    exact = nearest_neighbour.score(nearest_neighbour.fit(few.features), KNOWN.features, k=7)
    np.testing.assert_array_equal(score, exact)


def test_names_are_read_from_a_list():
    assert openset.names("cbc, vim") == ("cbc", "vim")
    with pytest.raises(ValueError, match="got 'vims'.*vim"):
        openset.names("cbc,vims")
    with pytest.raises(ValueError, match="got none"):
        openset.names(",")


def test_what_cannot_be_fitted_is_named():
    with pytest.raises(ValueError, match="openmax: wanted the outputs on training examples"):
        openset.fit_detectors(("mls", "openmax"))
    with pytest.raises(ValueError, match="openmax: labels: got .* correct examples by class"):
        openset.fit_detectors(("openmax",), TRAINING.select(np.arange(150) < 3), HEAD)
    with pytest.warns(UserWarning, match="openmax is left out: labels: got"):
        few = TRAINING.select(np.arange(150) < 3)
        fitted = openset.fit_detectors(("openmax", "knn"), few, HEAD, leave_out=True)
    assert list(fitted.scores) == ["knn"]


def test_the_evaluation_takes_any_of_them():
    both = {
        field: np.concatenate([known, getattr(UNKNOWN, field)])
        for field, known in KNOWN._asdict().items()
        if known is not None
    }
    test = openset.Outputs(**both)
    scores = openset.fit_detectors(("cbc", "openmax", "vim"), TRAINING, HEAD).scores
    measured = openset.evaluate(test, KNOWN, scores=scores)["scores"]
    assert list(measured) == ["cbc", "openmax", "vim"]
    assert measured["openmax"]["threshold"] == measured["cbc"]["threshold"]
    assert measured["openmax"]["open_accuracy"] > 0.5
    assert measured["vim"]["threshold"] is None and "open_accuracy" not in measured["vim"]
    assert measured["vim"]["fitted_open_accuracy"] > 0.8
