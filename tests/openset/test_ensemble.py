"""Pooled outputs and decisions of several networks, against plain computations."""

import numpy as np
import pytest
import scipy.special

from jaxatr import openset

MLS, SOFTMAX = openset.SCORES["mls"], openset.SCORES["softmax"]


def outputs(seed, count, *, scale=1.0, of=0):
    """Draws logits of three classes; the difficulty of an example is the same for all members."""
    labels = np.random.default_rng(of).integers(0, 3, count)
    hard = np.random.default_rng(of + 1).exponential(size=(count, 1))
    rng = np.random.default_rng((seed, of))
    logits = scale * (4 * np.eye(3)[labels] / (1 + hard) + rng.normal(size=(count, 3)))
    return openset.Outputs(logits, rng.normal(size=(count, 3)), labels)


def member(score, validation, *, sigmoid=None, gallery=False):
    decision = openset.Decision(score, {}, gallery=gallery)
    return openset.calibrate(decision, validation, tpr=0.9, sigmoid=sigmoid)


def ensemble(scores, count=80, **options):
    """Creates an ensemble, and the outputs that it was fitted to."""
    validation = [outputs(seed, count, scale=1 + seed) for seed, _ in enumerate(scores)]
    members = [member(s, one, **options) for s, one in zip(scores, validation, strict=True)]
    pooled = openset.pool(members, validation)
    return members, validation, openset.fit_ensemble(members, pooled, tpr=0.9), pooled


def test_one_member_is_the_run_itself():
    sigmoid = openset.Sigmoid(1.5, 0.5)
    members, validation, decision, _ = ensemble([MLS], sigmoid=sigmoid)
    test = outputs(0, 50, of=7)
    own, found = members[0](test), decision(openset.pool(members, [test]))
    np.testing.assert_array_equal(found.nearest, own.nearest)
    np.testing.assert_array_equal(found.accepted, own.accepted)
    np.testing.assert_allclose(found.probabilities, own.probabilities, rtol=1e-9)
    assert found.known_probabilities is not None and own.known_probabilities is not None
    np.testing.assert_allclose(found.known_probabilities, own.known_probabilities)
    np.testing.assert_array_equal(found.p_values, own.p_values)
    assert decision.probability_is == members[0].probability_is == "calibrated"
    standing = openset.standing_of(
        members[0].score_of(test)[0], members[0].score_of(validation[0])[0]
    )
    np.testing.assert_allclose(found.scores, standing)


def test_two_members_by_hand():
    sigmoid = openset.Sigmoid(2.0, 0.0)
    members, validation, decision, pooled = ensemble([MLS, SOFTMAX], sigmoid=sigmoid)
    tests = [outputs(seed, 40, scale=1 + seed, of=9) for seed in range(2)]
    found = decision(openset.pool(members, tests))
    assert found.known_probabilities is not None and decision.calibration is not None
    held_out = [m.score_of(one)[0] for m, one in zip(members, validation, strict=True)]
    for row in range(40):
        shares, standings, known = [], [], []
        for number, (one, test) in enumerate(zip(members, tests, strict=True)):
            shares.append(scipy.special.softmax(test.logits[row].astype(np.float64)))
            value = one.score_of(test)[0][row]
            usual = held_out[number]
            spread = 1.4826 * np.median(np.abs(usual - np.median(usual)))
            standings.append((value - np.median(usual)) / spread)
            known.append(scipy.special.expit(2 * standings[-1]))
        mean = np.mean(shares, axis=0)
        assert found.nearest[row] == mean.argmax()
        np.testing.assert_allclose(found.scores[row], np.mean(standings), rtol=1e-9)
        np.testing.assert_allclose(found.known_probabilities[row], np.mean(known), rtol=1e-9)
        temperature = decision.calibration.temperature
        expected = scipy.special.softmax(np.log(mean) / temperature)
        np.testing.assert_allclose(found.probabilities[row], expected, rtol=1e-7)
    assert decision.calibration.temperature == openset.fit_temperature(
        pooled.logits, validation[0].labels
    )


@pytest.mark.slow
def test_the_threshold_keeps_the_promise_on_fresh_examples():
    # 80 validation examples: known examples are rejected with probability 8 / 81.
    rates = []
    for trial in range(60):
        parts = [outputs(seed, 280, scale=1 + seed, of=100 + 3 * trial) for seed in range(2)]
        validation = [one.select(np.arange(80)) for one in parts]
        fresh = [one.select(np.arange(80, 280)) for one in parts]
        members = [member(MLS, one) for one in validation]
        decision = openset.fit_ensemble(members, openset.pool(members, validation), tpr=0.9)
        rates.append(decision(openset.pool(members, fresh)).accepted.mean())
        accepted = decision(openset.pool(members, validation)).accepted
        assert accepted.sum() == 80 - 7  # the eighth smallest is at the threshold
    assert np.mean(rates) == pytest.approx(1 - 8 / 81, abs=0.015)


def test_a_member_whose_score_names_the_class_votes_for_it():
    named = openset.Score(
        "named", "Named", lambda _, o: openset.Answer(o.logits.max(1), o.labels), names_class=True
    )
    members, validation, decision, _ = ensemble([named, MLS], gallery=True)
    assert decision.gallery
    test = [outputs(seed, 30, scale=1 + seed, of=5) for seed in range(2)]
    test[0] = test[0]._replace(labels=(test[0].labels + 1) % 3)
    found = decision(openset.pool(members, test))
    votes = np.eye(3)[test[0].labels] + np.eye(3)[test[1].logits.argmax(1)]
    single = openset.pool([members[0]], [test[0]])
    np.testing.assert_array_equal(single.more["member_votes"].argmax(1), test[0].labels)
    assert np.all(votes[np.arange(30), found.nearest] == votes.max(1))


def test_without_calibrated_probabilities_it_is_the_p_value():
    members, validation, decision, pooled = ensemble([MLS, SOFTMAX])
    assert decision.probability_is == "p-value" and "member_known" not in pooled.more
    answers = decision(pooled)
    np.testing.assert_array_equal(answers.known_probabilities, answers.p_values)


def test_logits_so_large_that_shares_are_zero_stay_finite():
    members, validation, _, _ = ensemble([MLS, MLS])
    far = [one._replace(logits=one.logits * 1e4) for one in validation]
    assert np.isfinite(openset.pool(members, far).logits).all()


def test_a_score_that_is_nan_has_the_lowest_probability_of_being_known():
    members, _, decision, _ = ensemble([MLS, MLS], sigmoid=openset.Sigmoid(1.0, 0.0))
    test = outputs(0, 3, of=7)
    test.logits[1] = np.nan
    with pytest.warns(RuntimeWarning, match="invalid value"):
        found = decision(openset.pool(members, [test, test]))
    assert found.known_probabilities is not None
    assert not found.accepted[1] and found.known_probabilities[1] == 0
    assert np.isfinite(found.known_probabilities).all()


def test_it_is_kept_as_arrays():
    members, _, decision, pooled = ensemble([MLS, SOFTMAX], sigmoid=openset.Sigmoid(1.0, 0.0))
    arrays = openset.to_arrays(decision)
    read = openset.as_pooled(openset.from_arrays(openset.ENSEMBLE, arrays), members)
    for one, other in zip(decision(pooled), read(pooled), strict=True):
        np.testing.assert_array_equal(one, other)


def in_folds(seeds=(0, 1, 2), count=60):
    """Creates decisions that are each calibrated to the examples of a fold of their own."""
    folds = [outputs(seed, count, scale=1 + seed, of=20 + seed) for seed in seeds]
    return [member(MLS, one) for one in folds], folds


def test_a_threshold_of_folds_is_fitted_to_the_scores_of_all_examples():
    members, folds = in_folds()
    decision = openset.fit_out_of_fold(members, tpr=0.9)
    calibration = decision.calibration
    assert calibration is not None and len(calibration.scores) == 180
    standings = []
    for one, fold in zip(members, folds, strict=True):
        own = one.score_of(fold)[0]
        spread = 1.4826 * np.median(np.abs(own - np.median(own)))
        standings.append((own - np.median(own)) / spread)
    every = np.sort(np.concatenate(standings))
    np.testing.assert_allclose(np.sort(calibration.scores), every)
    # Of 180 examples, floor(0.1 * 181) = 18: the 18th lowest.
    assert calibration.threshold == pytest.approx(every[17])
    assert calibration.guarantee(3) is None
    assert calibration.basis == "180 examples, each unseen by one of 3 trainings"
    temperatures = [one.calibration.temperature for one in members if one.calibration]
    assert calibration.temperature == np.median(temperatures)
    again = openset.from_arrays(openset.ENSEMBLE, openset.to_arrays(decision))
    assert again.calibration is not None
    assert again.calibration.basis == calibration.basis and again.calibration.guarantee(3) is None
    # New known examples, which no member has seen: more than the share is accepted, rather than
    # less, because a mean spreads less than a single score.
    new = [outputs(seed, 2000, scale=1 + seed, of=50) for seed in range(3)]
    assert 0.88 < np.mean(decision(openset.pool(members, new)).accepted) < 1


def test_a_threshold_of_folds_needs_that_of_each():
    members, _ = in_folds()
    bare = openset.Decision(MLS, {}, threshold=0.0)
    with pytest.raises(ValueError, match="mls: its threshold is not fitted"):
        openset.fit_out_of_fold([*members, bare], tpr=0.9)
