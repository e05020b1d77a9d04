import numpy as np
import pytest
from scipy import stats

from jaxatr.explain import measures

RNG = np.random.default_rng(0)


def maps(b=4, h=5, w=7, levels=None):
    values = RNG.uniform(size=(b, h, w))
    return np.float32(values if levels is None else np.floor(values * levels) / levels)


def test_mean_intensity():
    hand = np.array([[[0.0, 1.0], [0.5, 0.5]], [[1.0, 1.0], [1.0, 1.0]]])
    np.testing.assert_allclose(measures.mean_intensity(hand), [0.5, 1.0])
    np.testing.assert_array_equal(measures.mean_intensity(np.zeros((1, 3, 2))), [0.0])
    many = np.full((1, 512, 512), np.float32(0.1))
    np.testing.assert_allclose(measures.mean_intensity(many), np.float32(0.1), rtol=1e-12)


@pytest.mark.parametrize("wrong", [-0.1, 1.1])
def test_intensity_of_raw_maps_is_refused(wrong):
    with pytest.raises(ValueError, match=r"saliency: got .* wanted maps in \[0, 1\]"):
        measures.mean_intensity(np.array([[[0.5, wrong]]]))


@pytest.mark.parametrize("levels", [None, 3])
def test_similarity_is_spearmans(levels):
    first, second = maps(levels=levels), maps(levels=levels)
    expected = [
        stats.spearmanr(a.ravel(), b.ravel()).statistic for a, b in zip(first, second, strict=True)
    ]
    np.testing.assert_allclose(measures.saliency_similarity(first, second), expected, rtol=1e-10)
    np.testing.assert_allclose(measures.saliency_similarity(first, first), 1)
    np.testing.assert_allclose(measures.saliency_similarity(first, -first), -1)


def test_similarity_by_hand():
    # Ranks (1, 2.5, 2.5, 4) and (4, 2, 3, 1): -4.5 / sqrt(4.5 * 5).
    first, second = np.array([[[0.0, 1.0], [1.0, 2.0]]]), np.array([[[9.0, 2.0], [3.0, 1.0]]])
    np.testing.assert_allclose(
        measures.saliency_similarity(first, second), [-4.5 / np.sqrt(4.5 * 5)]
    )


def test_a_constant_map_is_like_no_other():
    flat = np.full((2, 3, 3), 0.5)
    flat[1, 0, 0] = 0.6
    found = measures.saliency_similarity(flat, maps(2, 3, 3))
    assert np.isnan(found[0]) and np.isfinite(found[1])


def test_pointing_game_by_hand():
    saliency = np.zeros((6, 4, 4), np.float32)
    saliency[:, 1, 2] = 1
    saliency[5, 3, 3] = 1  # equal, later
    boxes = np.array(
        [
            [1, 2, 2, 3],  # the pixel itself
            [0, 0, 1, 4],  # ends above its row
            [1, 0, 4, 2],  # ends before its column
            [1.5, 2.5, 1.6, 2.6],  # begins at its centre, and is smaller than the pixel
            [0, 0, 1.5, 2.5],  # ends at its centre
            [1, 2, 2, 3],
        ],
        np.float32,
    )
    np.testing.assert_array_equal(
        measures.pointing_game(saliency, boxes), [True, False, False, True, False, True]
    )


def test_pointing_game_agrees_with_a_loop():
    saliency, top_left = maps(50, levels=4), RNG.uniform(0, 4, (50, 2))
    boxes = np.concatenate([top_left, top_left + RNG.uniform(0, 4, (50, 2))], axis=1)
    hits = []
    for one, (y0, x0, y1, x1) in zip(saliency, boxes, strict=True):
        best = max(((y, x) for y in range(5) for x in range(7)), key=lambda p, one=one: one[p])
        hits.append(y0 <= best[0] + 0.5 < y1 and x0 <= best[1] + 0.5 < x1)
    np.testing.assert_array_equal(measures.pointing_game(saliency, boxes), hits)
    assert 0 < sum(hits) < 50


def test_the_first_of_a_constant_map_is_its_corner():
    flat = np.ones((2, 3, 3), np.float32)
    boxes = np.array([[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 3.0, 3.0]])
    np.testing.assert_array_equal(measures.pointing_game(flat, boxes), [True, False])


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.float32])
def test_share_inside(dtype):
    saliency = np.array([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 5.0], [5.0, 5.0]], [[0.0] * 2] * 2])
    masks = np.array([[[0, 1], [0, 1]], [[1, 0], [0, 0]], [[1, 1], [1, 1]]]).astype(dtype)
    np.testing.assert_allclose(measures.share_inside(saliency, masks), [0.6, 0.25, np.nan])
    np.testing.assert_allclose(measures.share_inside(saliency, 0 * masks)[:2], 0)


def test_invalid_input_is_refused(unchecked):
    good = maps(2, 3, 3)
    with pytest.raises(AssertionError, match=r"has shape \(2, 3, 4\) but expected \(2, 3, 3\)"):
        measures.saliency_similarity(good, maps(2, 3, 4))
    with pytest.raises(AssertionError, match=r"has shape \(3, 3\) but expected \(None, None, No"):
        measures.mean_intensity(good[0])
    broken = good.copy()
    broken[1, 0, 0] = np.inf
    with pytest.raises(ValueError, match="saliency: 1 maps are not finite, the first is 1"):
        measures.pointing_game(broken, np.zeros((2, 4)))
    with pytest.raises(AssertionError, match=r"has shape \(1, 4\) but expected \(2, 4\)"):
        measures.pointing_game(good, np.zeros((1, 4)))
    with pytest.raises(AssertionError, match=r"shape.*\(2, 3, 4\)"):
        measures.share_inside(good, np.zeros((2, 3, 4)))
    with pytest.raises(ValueError, match="saliency: got -.*, wanted no negative values"):
        measures.share_inside(good - 1, np.ones((2, 3, 3)))
