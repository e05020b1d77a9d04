"""Enrolment of classes after training, and groups of rejected examples."""

import io
from dataclasses import replace

import numpy as np
import pytest

from jaxatr import openset
from jaxatr.openset import SCORES, Decision, gallery, grouping
from jaxatr.openset.detectors import fusion, spatial

K = 3
MEANS = np.random.default_rng(5).normal(size=(K + 2, 4, 4, 6))
FACES = np.random.default_rng(6).gamma(1.0, 40, size=(K + 2, 16, 16, 1))
HEAD = openset.Head(np.eye(6, K), None)


def draw(seed, labels):
    """Outputs of a network of three classes on chips of five."""
    rng, labels = np.random.default_rng(seed), np.asarray(labels)
    maps = np.float16(3 + MEANS[labels] + 0.5 * rng.normal(size=(len(labels), 4, 4, 6)))
    chips = FACES[labels] * rng.gamma(20, 1 / 20, size=(len(labels), 16, 16, 1))
    features = 6 * MEANS[labels].mean(axis=(1, 2)) + 0.1 * rng.normal(size=(len(labels), 6))
    more = {
        "map_stage2": maps,
        "map_stage3": maps[:, ::2, ::2],
        "image": np.uint8(np.clip(chips, 0, 255)),
        "features": np.float32(features),
    }
    logits = np.float32(rng.normal(size=(len(labels), K)) + 3 * np.eye(K + 2, K)[labels])
    return openset.Outputs(logits, logits - 1, labels, more)


TRAIN, HELD_OUT = draw(0, np.arange(60) % K), draw(1, np.arange(45) % K)
FEW = draw(2, [3, 4, 3, 3, 3, 0])  # four chips of one further class, one of another, one of class 0
TEST = draw(3, np.arange(60) % (K + 2))
TAKERS = [name for name, score in SCORES.items() if score.takes_classes]
ARRAYS = {"map_stage2", "map_stage3", "image", "features", "open_logits"}
GIVEN = [n for n in TAKERS if SCORES[n].all_needs <= ARRAYS and not n.endswith("stage3")]
TIMED = [pytest.param(n, marks=[pytest.mark.slow] * n.startswith("fusion_")) for n in GIVEN]


def decision(name, **options):
    score = SCORES[name]
    models = openset.fit_scores([score], TRAIN, HEAD, validation=HELD_OUT).models
    return openset.calibrate(Decision(score, models, **options), HELD_OUT, tpr=0.9)


def enrolled(name, **options):
    return openset.enrol(decision(name, **options), FEW, 2, validation=HELD_OUT)


def test_galleries_means_and_sums_that_name_a_class_by_galleries_take_classes():
    names = {"mahalanobis", "nearest", "template", "fusion", "fusion_template"}
    assert names <= set(TAKERS) and "spatial_stage2_centre" in TAKERS and "nndr_image" in TAKERS
    assert {"consensus", "consensus_closed", "fusion_cbc"} <= set(GIVEN)  # CBC names no class
    assert not {"cbc", "knn", "energy", "vim", "rmds"} & set(TAKERS)
    own = fusion.fuse("bare", "", (SCORES["nearest"], SCORES["mahalanobis"]))
    assert not own.takes_classes  # it names no class
    with pytest.raises(ValueError, match="energy: classes cannot be added"):
        openset.enrol(Decision(SCORES["energy"], {}), FEW, 2)


@pytest.mark.parametrize("name", TIMED)
def test_the_further_classes_are_named_and_the_others_stay(name):
    before, after = decision(name), enrolled(name)
    answers = after(TEST)
    further = TEST.labels >= K
    assert np.mean(answers.nearest[further] == TEST.labels[further]) >= 0.75
    # The head's class, except where the score names an enrolled one.
    own = answers.nearest < K
    np.testing.assert_array_equal(answers.nearest[own], TEST.predicted[own])
    assert answers.probabilities.shape == (60, K)
    assert np.all(before(TEST).nearest < K)
    assert after(TEST.select(further & ~further)).nearest.shape == (0,)
    again = openset.from_arrays(
        SCORES[name], dict(np.load(io.BytesIO(saved(after)), allow_pickle=False))
    )
    for one, other in zip(again.ready()(TEST), answers, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def saved(made):
    file = io.BytesIO()
    np.savez(file, **openset.to_arrays(made))
    return file.getvalue()


def test_a_gallery_with_further_examples_is_as_one_that_was_built_with_them():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(30, 5)), rng.integers(0, 3, 30)
    more, further = rng.normal(size=(6, 5)), np.array([3, 0, 4, 3, 2, 4])
    both = np.concatenate([rows, more]), np.concatenate([labels, further])
    wanted = gallery.build(*both, 5)
    found = gallery.extended(gallery.build(rows, labels, 3), more, further)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="beyond the range of float16"):
        gallery.extended(wanted, np.full((1, 5), 1e6), further[:1])


def test_a_reduced_gallery_keeps_its_axes_and_its_bytes():
    score = spatial.spatial("reduced", "", "map_stage2", channels=2, keep=0.5)
    models = openset.fit_scores([score], TRAIN, HEAD).models
    made = openset.enrol(Decision(score, models), FEW, 2)
    examples, own = made.models["reduced"].examples, models["reduced"].examples
    assert (len(own), own.shape[1]) == (30, 2 * 16)
    assert examples.shape == (36, 32) and examples.dtype == np.float16
    np.testing.assert_array_equal(made.models["reduced"].axes, models["reduced"].axes)
    named = made.score_of(TEST)[1]
    further = TEST.labels >= K
    assert np.mean(named[further] == TEST.labels[further]) >= 0.75


def test_thresholds_are_those_of_the_chips_left_out_in_turn():
    base, after = decision("spatial_stage2"), enrolled("spatial_stage2")
    by_hand = []
    rows = np.flatnonzero(FEW.labels == 3)
    for row in rows:
        left = np.arange(6) != row
        others = openset.enrol(replace(base, calibration=None), FEW.select(left), 2)
        score, nearest = others.score_of(FEW.select(~left))
        by_hand.append((score[0], nearest[0]))
    further = after.further
    np.testing.assert_allclose(further.scores, [score for score, _ in by_hand], rtol=1e-6)
    np.testing.assert_array_equal(further.nearest, [nearest for _, nearest in by_hand])
    np.testing.assert_array_equal(further.labels, [3] * 4)  # one chip has no such score
    own = further.scores[further.nearest == 3]
    scored = after.score_of(HELD_OUT)[0]
    of_all = openset.conformal_threshold(scored, tpr=0.9)
    expected = [of_all] * 3 + [min(of_all, own.min()), of_all]
    np.testing.assert_allclose(after.thresholds(K), expected)
    assert further.promise(3, 0.9) == pytest.approx(1 - 1 / (len(own) + 1))
    assert further.promise(4, 0.9) is None
    answers = after(TEST)
    chosen = answers.nearest == 3
    p_values = openset.conformal_p_values(own, answers.scores[chosen])
    np.testing.assert_allclose(answers.p_values[chosen], p_values)
    others = answers.nearest != 3  # of the class of one chip too, the run's
    p_values = openset.conformal_p_values(scored, answers.scores[others])
    np.testing.assert_allclose(answers.p_values[others], p_values)
    np.testing.assert_array_equal(after.at(0.5).thresholds(K), [0.5] * 5)


def test_a_chip_of_another_class_is_no_chip_of_the_class_it_is_taken_for():
    chips = draw(2, [3, 4, 3, 3, 4])._replace(labels=np.array([3, 4, 3, 3, 3]))
    further = openset.enrol(decision("spatial_stage2"), chips, 2, validation=HELD_OUT).further
    assert further.nearest.tolist() == [3, 3, 3, 4]  # the last is like the only chip of class 4
    np.testing.assert_array_equal(further.own(3), np.sort(further.scores[:3]))
    assert further.own(4).size == 0 and further.promise(4, 0.9) is None


def test_the_promise_is_kept():
    """New chips are rejected at most as often as left-out ones."""
    base, pool, rejected = decision("nndr_features"), draw(7, np.full(200, 3)), []
    for rows in np.arange(200).reshape(40, 5):
        made = openset.enrol(base, pool.select(rows[:4]), 1, validation=HELD_OUT)
        answer = made(pool.select(rows[4:]))
        rejected.append(answer.nearest[0] == 3 and not answer.accepted[0])
    assert np.mean(rejected) <= 1 / 5 + 0.1


def test_without_validation_outputs_the_calibration_stays():
    base = decision("nndr_features")
    after = openset.enrol(base, FEW, 2)
    np.testing.assert_array_equal(after.calibration.scores, base.calibration.scores)
    again = openset.enrol(base, FEW, 2, validation=HELD_OUT)
    assert not np.array_equal(again.calibration.scores, base.calibration.scores)
    with pytest.raises(ValueError, match="labels: no example of class 5"):
        openset.enrol(base, FEW, 3)


def test_calibrating_again_looks_at_the_network_s_classes_for_the_temperature():
    after = enrolled("spatial_stage2")
    made = openset.calibrate(after, TEST, tpr=0.8)
    own = TEST.labels < K
    assert made.calibration.temperature == openset.fit_temperature(
        TEST.logits[own], TEST.labels[own], before=after.calibration.temperature
    )
    assert made.further == after.further and len(made.calibration.scores) == 60


@pytest.mark.parametrize("name", ["fusion", "mahalanobis", "nearest", "nndr_features"])
def test_an_example_on_which_the_network_overflows_is_refused(name):
    few = FEW._replace(more=FEW.more | {"features": FEW.more["features"].copy()})
    few.more["features"][2] = np.nan
    with pytest.raises(ValueError, match="1 of 6 examples, the first is 2, are not finite"):
        openset.enrol(decision(name), few, 2, validation=HELD_OUT)


def test_several_scores_take_the_examples_together():
    names = ["spatial_stage2", "nndr_stage2", "fusion", "energy"]  # the last takes no classes
    scores = [SCORES[name] for name in names]
    fitted = openset.fit_scores(scores, TRAIN, HEAD, validation=HELD_OUT)
    found = openset.enrol_scores(fitted, FEW, 2).answers(TEST.widened(2))
    for name in names[:3]:
        made = openset.enrol(Decision(SCORES[name], fitted.models), FEW, 2)
        np.testing.assert_allclose(found[name].score, made.score_of(TEST)[0], rtol=1e-5)
    assert list(found) == names[:3]


def test_rows_that_are_compared_have_length_1():
    for name in ("spatial_stage2", "fusion_template", "energy"):
        one = Decision(SCORES[name], {}) if name == "energy" else decision(name)
        rows = openset.compared_rows(one, TEST)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-4)
    maps = openset.compared_rows(decision("spatial_stage2"), TEST)
    same = maps @ maps.T
    alike = TEST.labels[:, None] == TEST.labels
    assert same[alike].mean() > same[~alike].mean() + 0.3


def test_groups_are_found_and_ordered():
    rng = np.random.default_rng(0)
    centres = 10 * np.eye(3, 80)
    labels = np.repeat([0, 1, 2], [12, 20, 12])
    spread = np.array([0.2, 0.1, 0.1])[labels, None]
    rows = centres[labels] + spread * rng.normal(size=(44, 80)) / 9
    rows = np.concatenate([rows, 30 * rng.normal(size=(4, 80))])
    found = grouping.group(rows)
    assert [set(labels[one.members]) for one in found] == [{1}, {2}, {0}]
    for one in found:
        distances = np.linalg.norm(rows[one.members] - rows[one.members[0]], axis=1)
        assert np.all(np.diff(distances) >= -1e-9)
        assert one.spread == pytest.approx(distances[1:].mean())
    assert grouping.group(rows[:12]) and not grouping.group(rows[:3])
    with pytest.raises(ValueError, match="fewest: got 1"):
        grouping.group(rows, fewest=1)
