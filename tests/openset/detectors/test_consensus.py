"""The default rule: its members' standardised sum, its weights, its class and its storage."""

import dataclasses

import numpy as np
import pytest

from jaxatr import metrics, openset
from jaxatr.openset.detectors import consensus, template

COUNT, CLASSES = 48, 3


def weight_of(name, area, seen):
    """The weight before all are divided by their sum."""
    most = 0.6 if name == "cbc" else 0.75
    return (2 if name == "knn" else 1) * np.exp(8 * (area - 0.5) + 8 * (min(seen, most) - 0.5))


def outputs_of(count, seed, *, noise=1.0):
    """Draws outputs that are correlated with their classes."""
    rng, labels = np.random.default_rng(seed), np.arange(count) % CLASSES

    def near(*shape, noise=1.0):
        own = np.random.default_rng(0).normal(size=(CLASSES, *shape))
        return (own[labels] + noise * rng.normal(size=(count, *shape))).astype(np.float32)

    more = {f"map_stage{stage}": near(4, 4, 3) for stage in (2, 3)}
    more |= {"features": np.abs(near(6)), "image": np.abs(near(14, 14, 1, noise=noise))}
    return openset.Outputs(near(CLASSES), near(CLASSES), labels, more)


TRAINING, VALIDATION, TEST = (outputs_of(COUNT, seed) for seed in range(3))
LAST = openset.Head(np.random.default_rng(9).normal(size=(6, CLASSES)), None)


@pytest.fixture(scope="module")
def fitted():
    return openset.fit_scores(
        openset.choose_scores("consensus"), TRAINING, LAST, validation=VALIDATION
    )


def test_it_is_the_weighted_sum_of_bent_standardised_members(fitted):
    names = ["spatial_stage2", "nndr_stage2", "spatial_stage3", "nndr_stage3"]
    names += ["template", "nndr_image", "knn", "cbc", "vim"]
    assert consensus.names_of(openset.SCORES["consensus"]) == names
    singles = openset.fit_scores(openset.choose_scores(names), TRAINING, LAST)
    known, test = singles.on(VALIDATION), singles.on(TEST)
    areas = consensus.image_areas(TRAINING.more["image"], TRAINING.labels, CLASSES)
    seen = consensus.seen_areas(openset.choose_scores(names), TRAINING, VALIDATION, LAST)
    assert set(seen) == set(names)
    weights = [weight_of(name, areas.get(name, 0.5), seen[name]) for name in names]
    expected = np.zeros(COUNT)
    for name, weight in zip(names, weights, strict=True):
        middle = np.median(known[name])
        spread = 1.4826 * np.median(np.abs(known[name] - middle))
        bent = np.arcsinh((test[name] - middle) / spread / 3)
        expected += bent * weight / sum(weights)
    np.testing.assert_allclose(fitted.on(TEST)["consensus"], expected, rtol=1e-4)


def test_the_class_has_the_smallest_product_of_distances(fitted):
    answer = fitted.answers(TEST)["consensus"]
    names = ("spatial_stage2", "spatial_stage3", "template", "nndr_image")
    single = openset.Fitted(openset.choose_scores(names), fitted.models).answers(TEST)
    product = np.prod([single[name].distances for name in names], axis=0)
    np.testing.assert_array_equal(answer.label, product.argmin(axis=1))


def test_images_are_tested_on_classes_left_out_of_their_gallery():
    """By hand: each quarter is compared with the rest, without each class in turn."""
    chips, labels = TRAINING.more["image"], TRAINING.labels
    order = np.random.default_rng(0).permutation(COUNT)
    order = order[np.argsort(labels[order], kind="stable")]
    quarter, scores = np.arange(COUNT) % 4, np.zeros((CLASSES, COUNT))
    for number in range(4):
        rest, own = order[quarter != number], order[quarter == number]
        for out in range(CLASSES):
            kept = rest[labels[rest] != out]
            model = template.fit(
                chips[kept], np.searchsorted(np.delete(range(3), out), labels[kept]), 2
            )
            scores[out, own] = template.answer(model, chips[own]).score
    areas = [metrics.auroc(s[labels != c], s[labels == c]) for c, s in enumerate(scores)]
    found = consensus.image_areas(chips, labels, CLASSES)
    assert found["template"] == pytest.approx(np.mean(areas), abs=1e-6)
    assert set(found) == {"template", "nndr_image"}


def test_an_image_that_tells_nothing_weighs_less_than_one_that_does():
    clear, noise = (
        consensus.image_areas(one.more["image"], one.labels, CLASSES)["nndr_image"]
        for one in (outputs_of(COUNT, 0, noise=0.1), outputs_of(COUNT, 0, noise=30.0))
    )
    assert clear > 0.9 > 0.7 > noise


def test_two_classes_leave_equal_weights():
    two = TRAINING.select(TRAINING.labels < 2)
    two = two._replace(logits=two.logits[:, :2], open_logits=two.open_logits[:, :2])
    assert consensus.image_areas(two.more["image"], two.labels, 2) == {}
    assert consensus.seen_areas(openset.choose_scores("cbc"), two, two, LAST) == {}


def test_trials_weight_every_member_further(fitted):
    score, model = openset.SCORES["consensus"], fitted.models["consensus"]
    made = consensus.weighted(score, model, {"knn": 0.75, "cbc": 0.25})
    expected = model.weights * ([1] * 6 + [np.exp(2), np.exp(-2), 1])
    np.testing.assert_allclose(made.weights, expected / expected.sum())
    np.testing.assert_array_equal(made.middle, model.middle)


def test_fits_without_a_fold_keep_the_weights_of_the_whole(fitted, monkeypatch):
    score, models = openset.SCORES["consensus"], fitted.models
    monkeypatch.setattr(consensus, "image_areas", None)  # they are not found again
    decision = openset.Decision(score, models, gallery=True)
    fold = np.where(np.arange(COUNT) < 6, 0, -1)
    found, _ = openset.out_of_fold(decision, TRAINING, LAST, VALIDATION, fold)
    rest, out = TRAINING.select(fold < 0), TRAINING.select(fold == 0)
    without = openset.fit_scores([score], rest, LAST, validation=VALIDATION, weighted=models)
    own, whole = without.models["consensus"], models["consensus"]
    np.testing.assert_array_equal(own.weights, whole.weights)
    assert (own.middle != whole.middle).any()
    np.testing.assert_array_equal(found, without.on(out)["consensus"])


def test_it_is_stored_and_read(fitted):
    score = openset.SCORES["consensus"]
    decision = openset.calibrate(
        openset.Decision(score, fitted.models, gallery=True), VALIDATION, tpr=0.9
    )
    again = openset.from_arrays(score, openset.to_arrays(decision))
    one, other = (dataclasses.asdict(d)["calibration"] for d in (decision, again))
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(decision(TEST).scores, again(TEST).scores)


def test_a_model_of_an_earlier_version_is_read_without_the_later_member(fitted):
    (former,) = openset.SCORES["consensus"].former
    assert consensus.names_of(former) == consensus.names_of(openset.SCORES["consensus"])[:-1]
    earlier = openset.fit_scores([former], TRAINING, LAST, validation=VALIDATION)
    decision = openset.calibrate(
        openset.Decision(former, earlier.models, gallery=True), VALIDATION, tpr=0.9
    )
    again = openset.from_arrays(openset.SCORES["consensus"], openset.to_arrays(decision))
    assert again.score is former
    np.testing.assert_array_equal(decision(TEST).scores, again(TEST).scores)
    assert (again(TEST).scores != fitted.on(TEST)["consensus"]).any()


def test_too_few_validation_examples_are_refused():
    head = LAST
    with pytest.raises(ValueError, match="consensus: validation: got 1 examples"):
        openset.fit_scores(
            openset.choose_scores("consensus"),
            TRAINING,
            head,
            validation=VALIDATION.select(np.arange(1)),
        )
