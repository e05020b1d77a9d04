"""Every score of the package is looked up, fitted and computed."""

import tracemalloc
from typing import NamedTuple

import jax
import numpy as np
import pytest

from jaxatr import metrics, openset
from jaxatr.openset import mahalanobis, nearest_neighbour, openmax, vim


def outputs(count, distance, seed, classes=3, width=8):
    """Features in one cluster per class, or away from all of them, with a linear head's logits."""
    draw = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    centres = 4 * np.eye(classes, width)
    features = centres[labels] + draw.normal(size=(count, width))
    features[:, -1] += distance  # a direction that the head does not see
    if distance:
        features[:, :classes] = draw.normal(size=(count, classes))
        labels = np.full(count, openset.UNKNOWN)
    features = np.maximum(features, 0)  # as after a ReLU
    logits = features @ HEAD.kernel + HEAD.bias
    best = logits.max(axis=1)
    norms = np.exp(-best[:, None]) * [1, 2]
    more = {"features": features, "odin": best, "gradient_norms": norms}
    ramp = np.arange(1, 5)[:, None, None] * np.ones((4, 4, 1))
    maps = ramp + 0.3 * features[:, None, None] + 0.1 * draw.normal(size=(count, 4, 4, width))
    more |= {f"map_stage{stage}": np.float16(maps) for stage in (1, 2, 3, 4)}
    more["image"] = np.float32(np.repeat(np.repeat(maps.clip(0), 5, 1), 5, 2))
    return openset.Outputs(logits, logits - 2, labels, more)


HEAD = openset.Head(np.eye(8, 3), np.full(3, 0.5))
TRAINING, KNOWN, UNKNOWN = outputs(150, 0, 0), outputs(90, 0, 1), outputs(90, 5, 2)
HELD_OUT = outputs(90, 0, 7)  # as many as the others: one program for each size


@pytest.fixture(scope="module")
def fitted():
    """All scores that need no training of their own."""
    return openset.fit_scores(openset.choose_scores("all"), TRAINING, HEAD, validation=HELD_OUT)


def one(name, *arguments, **options):
    return openset.fit_scores(openset.choose_scores(name), *arguments, **options)


@pytest.mark.slow
def test_all_is_every_score_and_each_is_higher_for_the_known(fitted):
    own = {name for name, score in openset.SCORES.items() if score.training}
    assert own == {"conflabel_detector", "gopenmax"}
    assert [score.name for score in fitted.scores] == [n for n in openset.SCORES if n not in own]
    assert tuple(openset.SCORES)[:3] == openset.DEFAULT
    known, unknown = fitted.on(KNOWN), fitted.on(UNKNOWN)
    for score in fitted.scores:
        assert metrics.auroc(known[score.name], unknown[score.name]) > 0.65, score.name


def test_a_score_with_its_own_training_needs_its_model():
    with pytest.raises(ValueError, match="conflabel_detector: wanted the model of its own"):
        one("conflabel_detector")
    norms = [part.more["gradient_norms"] for part in (TRAINING, UNKNOWN)]
    detector = openset.conflabel_detector.fit(*norms, key=jax.random.key(0))
    scores = one("conflabel_detector", trained={"conflabel_detector": detector})
    known, unknown = (scores.on(part)["conflabel_detector"] for part in (KNOWN, UNKNOWN))
    assert metrics.auroc(known, unknown) > 0.65


def test_gopenmax_counts_the_generated_class_as_unknown():
    known = [outputs(count, 0, seed, classes=4) for count, seed in ((200, 3), (80, 4))]
    logits = [4 * part.more["features"][:, :4] for part in known]
    training, test = (
        openset.Outputs(z[:, :3], z[:, :3], part.labels, {"extra_logits": z[:, 3:]})
        for part, z in zip(known, logits, strict=True)
    )
    found = one("gopenmax", training, HEAD).on(test)["gopenmax"]
    model = openmax.fit(logits[0], known[0].labels)
    np.testing.assert_allclose(found, openmax.score(model, logits[1], extra=1))


def test_only_gopenmax_is_fitted_to_the_generated_class():
    training = outputs(120, 0, 5)
    more = {**training.more, "extra_logits": training.logits[:, :1]}
    labels = np.where(np.arange(120) < 20, 3, training.labels)  # 3 is the generated class
    both = training._replace(labels=labels, more=more)
    scores = [openset.SCORES[name] for name in ("mahalanobis", "nearest")]
    found = openset.fit_scores(scores, both, HEAD).models
    expected = openset.fit_scores(scores, both.select(np.arange(20, 120)), HEAD).models
    assert found["mahalanobis"].means.shape == (3, 8) and len(found["nearest"].features) == 100
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_the_models_are_those_that_the_modules_fit(fitted):
    x, z = (part.more["features"] for part in (TRAINING, KNOWN))
    expected = {
        "openmax": openmax.score(openmax.fit(TRAINING.logits, TRAINING.labels), KNOWN.logits),
        "mahalanobis": mahalanobis.score(mahalanobis.fit(x, TRAINING.labels), z),
        "knn": nearest_neighbour.score(nearest_neighbour.fit(x), z, k=25),
        "nearest": nearest_neighbour.score(nearest_neighbour.fit(x), z, k=1),
        "vim": vim.score(vim.fit(x, TRAINING.logits, HEAD), z, KNOWN.logits),
    }
    assert set(expected) < set(fitted.models)
    found = fitted.on(KNOWN)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6)


def test_models_are_recorded_without_the_training_set(fitted):
    recorded = fitted.arrays()
    searched = ("knn", "nearest", "nnguide", "nndr", "spatial", "template")
    assert not [name for name in recorded if name.split("_")[1] in searched]
    assert {"openmax", "mahalanobis", "vim"} < {name.split("_")[1] for name in recorded}
    assert max(array.size for array in recorded.values()) <= 8 * 8  # not of n examples
    np.testing.assert_array_equal(recorded["fitted_vim_alpha"], fitted.models["vim"].alpha)


def test_a_neighbour_rank_is_at_most_half_of_the_smallest_class():
    few = TRAINING.select(np.arange(150) < 12)  # four of each class
    score = one("knn", few, HEAD).on(KNOWN)["knn"]
    model = nearest_neighbour.fit(few.more["features"])
    exact = nearest_neighbour.score(model, KNOWN.more["features"], k=2)
    np.testing.assert_allclose(score, exact, rtol=1e-6)


def test_a_fit_that_is_not_possible_is_named():
    with pytest.raises(ValueError, match="openmax: wanted the outputs on training examples"):
        one("mls,openmax")
    few = TRAINING.select(np.arange(150) < 3)
    with pytest.raises(ValueError, match="openmax: labels: got .* correct examples by class"):
        one("openmax", few, HEAD)
    with pytest.warns(UserWarning, match="openmax is left out: labels: got"):
        fitted = one("openmax,knn", few, HEAD, leave_out=True)
    assert list(fitted.on(KNOWN)) == ["knn"]


def test_the_evaluation_takes_any_of_them(fitted):
    labels = np.concatenate([KNOWN.labels, UNKNOWN.labels])
    predicted = np.concatenate([KNOWN.predicted, UNKNOWN.predicted])
    held_out, unknown = fitted.on(KNOWN), fitted.on(UNKNOWN)
    chosen = ("cbc", "openmax", "vim")
    values = {name: np.concatenate([held_out[name], unknown[name]]) for name in chosen}
    fixed = openset.fixed_thresholds(fitted.scores, 0.9)
    measured = openset.evaluate(labels, predicted, values, held_out, fixed=fixed)["scores"]
    assert list(measured) == list(chosen)
    assert measured["openmax"]["threshold"] == measured["cbc"]["threshold"]
    assert measured["openmax"]["open_accuracy"] > 0.5
    assert measured["vim"]["threshold"] is None and "open_accuracy" not in measured["vim"]
    assert measured["vim"]["fitted_open_accuracy"] > 0.8


def shifted(name, by, **fields):
    """A score that is fitted to the number of examples, and names the class shifted by ``by``."""

    def fit(outputs, head):
        return Count(len(outputs.labels))

    def score(model, outputs):
        labels = np.full(len(outputs.labels), by)
        return openset.Answer(outputs.logits[:, 0] + model.count, labels)

    return openset.Score(name, name, score, fit, names_class=True, **fields)


class Count(NamedTuple):
    count: int


class Mean(NamedTuple):
    mean: np.ndarray


def summed(members):
    """The sum of members minus its mean on validation examples."""

    def total(outputs):
        return sum(outputs.more[f"score_{member.name}"] for member in members)

    return openset.Score(
        "summed",
        "sum",
        lambda model, out: openset.Answer(
            total(out) - model.mean, out.more[f"label_{members[0].name}"]
        ),
        calibrate=lambda model, out: Mean(total(out).mean()),
        names_class=True,
        members=members,
    )


def test_a_score_is_made_of_others_and_calibrated_on_validation_examples():
    members = shifted("first", 2, needs=("features",)), openset.SCORES["mls"]
    score = summed(members)
    assert score.all_needs == {"features"} and score.fitted and score.calibrated
    assert not openset.SCORES["mls"].fitted and not openset.SCORES["mls"].calibrated
    fitted = openset.fit_scores([score], TRAINING, HEAD, validation=KNOWN)
    assert set(fitted.models) == {"first", "summed"}
    answers = fitted.answers(UNKNOWN)
    assert list(answers) == ["summed"] and (answers["summed"].label == 2).all()
    by_hand = [z[0] + 150 + z.max() for z in UNKNOWN.logits]
    by_hand -= np.mean([z[0] + 150 + z.max() for z in KNOWN.logits])
    np.testing.assert_allclose(answers["summed"].score, by_hand, atol=1e-4)
    np.testing.assert_array_equal(fitted.on(UNKNOWN)["summed"], answers["summed"].score)
    with pytest.raises(ValueError, match="summed: wanted the outputs on validation examples to"):
        openset.fit_scores([score], TRAINING, HEAD)
    with pytest.warns(UserWarning, match="summed is left out: wanted the outputs on validation"):
        assert not openset.fit_scores([score], TRAINING, HEAD, leave_out=True).scores
    broken = summed((openset.SCORES["vim"],))  # of too few features here
    narrow = TRAINING._replace(more={"features": 0 * TRAINING.more["features"]})
    with pytest.warns(UserWarning, match="summed is left out: vim: dimensions: the features have"):
        assert not openset.fit_scores(
            [broken], narrow, HEAD, validation=KNOWN, leave_out=True
        ).scores
    with pytest.raises(ValueError, match="first: wanted the outputs on training examples to fit"):
        openset.fit_scores([score], validation=KNOWN)


def test_a_member_is_computed_once():
    calls = []

    def counted(_, outputs):
        calls.append(len(outputs.labels))
        return outputs.logits[:, 0]

    one = openset.Score("one", "One", counted)
    two = openset.Score("two", "Two", lambda _, out: -out.more["score_one"], members=(one,))
    found = openset.fit_scores([two, one]).on(KNOWN)
    assert calls == [90] and list(found) == ["two", "one"]
    np.testing.assert_array_equal(found["two"], -found["one"])


def test_no_fit_needs_memory_for_all_pairs_of_classes_and_features():
    """For a thousand classes and 2,048 features, as of ImageNet, they take 16 GB."""
    draw, classes = np.random.default_rng(0), 200
    labels = np.arange(3 * classes) % classes
    features, kernel = (
        np.abs(draw.normal(size=(len(labels), 100))),
        draw.normal(size=(100, classes)),
    )
    logits = 9 * np.eye(classes)[labels] + draw.normal(size=(len(labels), classes))
    for name in ("fdbd", "klm", "mahalanobis", "nndr_features", "nnguide", "openmax", "vim"):
        tracemalloc.start()
        detector = openset.create(name)
        detector.fit(features=features, logits=logits, labels=labels, head=(kernel, None))
        assert tracemalloc.get_traced_memory()[1] < 16e6, name
        tracemalloc.stop()
