import numpy as np
import pytest

from jaxatr.openset.detectors import ash


@pytest.mark.parametrize("variant", ["s", "p", "b"])
def test_ash_keeps_a_feature_that_is_nan(variant):
    features = np.ones((2, 10), np.float32)
    features[1] = np.nan  # as of a network that overflowed, whose example is then rejected
    found = np.asarray(ash.shaped(features, variant=variant))
    assert np.isfinite(found[0]).all() and np.isnan(found[1]).all()


@pytest.mark.parametrize("variant, expected", [("s", 6 * np.exp(30 / 24)), ("p", 6.0), ("b", 7.5)])
def test_sums_are_of_all_features_that_are_kept(variant, expected):
    # Two of ten are to be kept, but four are equal: as after ReLU6, or of 8 bits.
    features = np.array([[6, 6, 6, 6, 1, 1, 1, 1, 1, 1]], np.float32)
    found = ash.shaped(features, percentile=80.0, variant=variant)
    np.testing.assert_allclose(found, [[expected] * 4 + [0] * 6], rtol=1e-6)
