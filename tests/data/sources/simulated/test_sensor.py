import numpy as np
import pytest

from jaxatr.data.sources.simulated import sensor, terrain


def _rng(seed=0):
    return np.random.default_rng(seed)


def _path(**changes):
    plain = {
        "transmission": 1.0, "airlight": 0.0, "blur": 0.5, "gain": 100.0, "level": 120.0,
        "noise": 0.0, "stripes": 0.0,
    }  # fmt: skip
    return sensor.Path(**(plain | changes))


def test_a_pixel_covers_nine_centimetres_at_a_kilometre():
    assert sensor.pixel_size(1000) == pytest.approx(0.0927, abs=1e-4)
    assert sensor.pixel_size(5000) == pytest.approx(5 * sensor.pixel_size(1000))


def test_averaging_over_areas():
    ramp = np.arange(6, dtype=np.float32)
    image = np.tile(ramp, (6, 1))
    np.testing.assert_allclose(sensor.chip(image, 3), np.tile([0.5, 2.5, 4.5], (3, 1)), rtol=1e-6)
    # 6 to 4: each takes one whole sample and half of a neighbour
    row = [(0 + 0.5 * 1) / 1.5, (0.5 * 1 + 2) / 1.5, (3 + 0.5 * 4) / 1.5, (0.5 * 4 + 5) / 1.5]
    np.testing.assert_allclose(sensor.chip(image, 4), np.tile(row, (4, 1)), rtol=1e-6)
    noise = _rng().normal(size=(112, 112)).astype(np.float32)
    assert sensor.chip(noise, 64).mean() == pytest.approx(noise.mean(), abs=1e-6)


def test_levels_are_clipped_not_wrapped():
    image = np.float32([[-5.0, 0.4], [254.6, 300.0]])
    np.testing.assert_array_equal(sensor.quantise(image), [[0, 0], [255, 255]])


def test_the_path_keeps_the_mean_blurs_and_adds_noise():
    scene = np.full((64, 64), 0.3, np.float32)
    flat = _path().image(_rng(), scene, 0.3)
    np.testing.assert_allclose(flat, 120, atol=1e-3)
    noisy = _path(noise=3.0).image(_rng(), scene, 0.3)
    assert noisy.std() == pytest.approx(3.0, rel=0.05)
    striped = _path(stripes=3.0).image(_rng(), scene, 0.3)
    assert np.ptp(striped, axis=0).max() == 0 and striped[0].std() > 2
    scene[32, 32] += 1
    blurred = _path(blur=1.5).image(_rng(), scene, 0.3) - 120
    assert blurred.sum() == pytest.approx(100, rel=1e-3)
    assert blurred.max() == pytest.approx(100 / (2 * np.pi * 1.5**2), rel=0.05)


def test_haze_takes_contrast_and_leaves_the_terrain_at_its_level():
    scene = np.zeros((32, 32), np.float32)
    scene[:, 16:] = 0.4
    hazy = _path(transmission=0.25, airlight=0.8).image(_rng(), scene, 0.0)
    assert hazy[0, 0] == pytest.approx(120, abs=1e-3)
    assert hazy[0, -1] == pytest.approx(120 + 0.25 * 40, abs=1e-3)


@pytest.mark.parametrize(
    "draw",
    [lambda rng, r: sensor.draw_visible(rng, r, 1.0), sensor.draw_thermal],
    ids=sensor.BANDS,
)
def test_paths_get_worse_with_range(draw):
    near, far = ([draw(_rng(seed), r) for seed in range(20)] for r in (1000, 5000))
    for a, b in zip(near, far, strict=True):  # the same draws at two ranges
        assert b.transmission < a.transmission <= 1
        assert b.blur > a.blur
        assert b.noise / (b.gain * b.transmission) > a.noise / (a.gain * a.transmission)


def _terrain(seed, foot=62.0):
    return terrain.draw(_rng(seed), 100, 0.0927, foot, 25.0, 0.1)


def test_textures_are_standardised_and_shares_are_shares():
    for seed in range(10):
        drawn = _terrain(seed)
        for texture in (drawn.fine, drawn.rough):
            assert texture.shape == (100, 100) and texture.dtype == np.float32
            assert 0.3 < texture.std() < 1.7 and abs(texture.mean()) < 1.5
        for share in (drawn.ridge, drawn.behind, drawn.before):
            assert share.min() >= 0 and share.max() <= 1


def test_texture_is_correlated_and_squeezed_by_the_low_view():
    across, down = [], []
    for seed in range(20):
        fine = _terrain(seed).fine
        fine = (fine - fine.mean()) / fine.std()
        across.append(np.mean(fine[:, 1:] * fine[:, :-1]))
        down.append(np.mean(fine[1:] * fine[:-1]))
    assert np.mean(across) > np.mean(down) + 0.05 > 0.1


def test_growth_in_front_never_hides_the_whole_target():
    hidden = []
    for seed in range(60):
        before = _terrain(seed).before
        hidden.append(before[37:62, 25:75].mean())  # the vehicle's position
        assert before[:49].max() == 0  # the vehicle's upper half stays visible
    assert max(hidden) > 0.02


def test_cover_paints_the_layers_one_over_the_other():
    ones = np.ones((2, 2), np.float32)
    share = np.float32([[0, 1], [0, 0.5]])
    drawn = terrain.Terrain(ones, -ones, 0 * ones, share, share)
    ground, ridge, bush = (
        terrain.Layer(level, spread) for level, spread in ((10.0, 2.0), (99.0, 0.0), (4.0, 1.0))
    )
    np.testing.assert_allclose(drawn.cover(ground, ridge, bush), [[12, 3], [12, 7.5]])
    np.testing.assert_allclose(drawn.hide(0 * ones, bush), [[0, 3], [0, 1.5]])
