"""The shift of known scores in mixtures of which everything is known."""

import numpy as np
import pytest
from scipy import stats

from jaxatr import openset
from jaxatr.openset.calibration import unit_of
from jaxatr.openset.unlabelled import _log_density


def known_scores(rng, count):
    """Scores with a long tail to the low side, as those of a gallery have."""
    return -rng.gumbel(0, 0.8, count)


@pytest.mark.parametrize(("shift", "stretch", "unknown"), [(-2.0, 1.3, 0.0), (-2.0, 1.3, 0.5)])
def test_shift_stretch_and_share_are_found(shift, stretch, unknown):
    rng = np.random.default_rng(3)
    validation = known_scores(rng, 300)
    middle, unit = unit_of(validation)
    known = middle + unit * shift + stretch * (known_scores(rng, 4000) - middle)
    others = rng.normal(middle + unit * (shift - 5), 1.2 * unit, 4000)
    count = round(400 * unknown)
    field = np.concatenate([known[: 400 - count], others[:count], [np.nan, -np.inf]])
    found = openset.fit_mixture(validation, field)
    assert found.shift == pytest.approx(shift, abs=0.5)
    assert found.unknown == pytest.approx(unknown, abs=0.08)
    threshold = openset.conformal_threshold(found.moved(validation))
    assert np.mean(known >= threshold) == pytest.approx(0.95, abs=0.09)
    assert np.mean(known >= openset.conformal_threshold(validation)) < 0.7
    if unknown:
        share = np.mean(others >= threshold)
        assert found.overlap(threshold) == pytest.approx(share, abs=0.06)
        assert found.centre == pytest.approx(others.mean(), abs=unit)


def test_moved_scores_are_those_by_hand():
    scores = np.array([1.0, 2.0, 3.0, 5.0])  # median 2.5, deviations 1.5, 0.5, 0.5, 2.5: 1
    unit = 1.4826
    moved = openset.Mixture(-1.0, 2.0, 0.0, -np.inf, 0.0).moved(scores)
    np.testing.assert_allclose(moved, 2.5 - unit + 2 * (scores - 2.5))


def test_the_density_of_known_scores_integrates_to_one():
    density = np.exp(_log_density(np.random.default_rng(0).normal(size=50)))
    assert 0.99 < density.sum() * 0.01 < 1.001  # the grid's step; the tails go on
    assert density[0] == pytest.approx(0.05 * stats.t.pdf(-12, 3, scale=1.5), rel=1e-6)


def test_what_cannot_be_told_is_refused():
    rng = np.random.default_rng(1)
    validation = known_scores(rng, 200)
    with pytest.raises(openset.CannotTell, match="got 49 chips"):
        openset.fit_mixture(validation, [*validation[:49], np.nan])
    with pytest.raises(openset.CannotTell, match="got 18 validation scores, wanted at least 19"):
        openset.fit_mixture(validation[:18], validation)
    middle, unit = unit_of(validation)
    few = [*validation[:4], *rng.normal(middle - 6 * unit, unit, 196)]
    with pytest.raises(openset.CannotTell, match="of the chips seem to be unknown"):
        openset.fit_mixture(validation, few)
    near = [*validation[:100], *rng.normal(middle - 2.5 * unit, 2 * unit, 100)]
    with pytest.raises(openset.CannotTell, match="known and unknown scores overlap"):
        openset.fit_mixture(validation, near)
