import numpy as np
import pytest

from jaxatr.scenes import cfar
from jaxatr.scenes.cfar import Cfar, exceedance, grouped
from jaxatr.scenes.clutter import Clutter, fitted, multipliers


def simulated(clutter, size=(1000, 1000), seed=0):
    draw = np.random.default_rng(seed)
    values = draw.gamma(clutter.looks, 1 / clutter.looks, size)
    if np.isfinite(clutter.shape):
        values *= draw.gamma(clutter.shape, 1 / clutter.shape, size)
    return 37 * values


LAWS = [Clutter(), Clutter(4.0), Clutter(1.0, 1.0), Clutter(3.0, 2.5)]


@pytest.mark.parametrize("method", ["mean", "log_mean", "order"])
@pytest.mark.parametrize("clutter", LAWS, ids=["exponential", "gamma", "K", "K of 3 looks"])
def test_the_rate_of_false_alarms_is_the_one_asked_for(clutter, method):
    rate = 2e-3  # 2000 false alarms: a standard deviation of 2 %
    settings = Cfar(rate, method, guard=1, train=3, clutter=clutter)
    found = exceedance(simulated(clutter), settings).mask
    assert found.mean() == pytest.approx(rate, rel=0.1)


def test_multipliers_are_those_of_closed_forms():
    """The classical ones for exponential clutter: CA (Finn and Johnson 1968), OS (Rohling 1983)."""
    for rate in (1e-2, 1e-6):
        found = multipliers("mean", 60, rate, Clutter(), 0.75)
        counts = np.arange(8, 61)
        np.testing.assert_allclose(found[8:], counts * (rate ** (-1 / counts) - 1), rtol=1e-3)
        found = multipliers("order", 60, rate, Clutter(), 0.75)
        for cells in (16, 60):
            left = np.arange(cells, cells - int(0.75 * cells), -1)
            assert np.prod(left / (left + found[cells])) == pytest.approx(rate, rel=0.02)


def plain(values, settings):
    """Thresholds as a loop over pixels."""
    reach, found = settings.guard + settings.train, np.zeros(values.shape, bool)
    table, ranks = cfar._table(settings)
    for y, x in np.ndindex(values.shape):
        ring = [
            values[a, b]
            for a in range(max(y - reach, 0), min(y + reach + 1, len(values)))
            for b in range(max(x - reach, 0), min(x + reach + 1, values.shape[1]))
            if max(abs(a - y), abs(b - x)) > settings.guard and np.isfinite(values[a, b])
        ]
        if not ring:
            continue
        level = {
            "mean": lambda r: np.mean(r),
            "log_mean": lambda r: np.exp(np.mean(np.log(r))),
            "order": lambda r: np.sort(r)[ranks[len(r)] - 1],
        }[settings.method](ring)
        found[y, x] = values[y, x] > table[len(ring)] * level
    return found


@pytest.mark.parametrize("method", ["mean", "log_mean", "order"])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("guard,train", [(0, 1), (2, 2)])
def test_edges_and_missing_values_are_those_of_a_plain_loop(method, missing, guard, train):
    values = simulated(Clutter(), (17, 12)).astype(np.float32)
    if missing:
        values[:5, :5] = np.nan
    settings = Cfar(0.1, method, guard, train)
    found = exceedance(values, settings)
    expected = plain(values, settings)
    assert expected.any() and (found.mask == expected).all()
    assert ((found.contrast > 1) == found.mask)[np.isfinite(values)].all()


def test_a_bright_target_hides_no_neighbour_from_order_statistics():
    values = simulated(Clutter(), (60, 60))
    values[30, 20:22], values[30, 27] = 1e7, 2e3
    hidden = [exceedance(values, Cfar(1e-4, method)).mask[30, 27] for method in ("mean", "order")]
    assert hidden == [False, True]
    # Among the guard cells, it takes no digits of the level.
    near = exceedance(values, Cfar(1e-4)).contrast[30, 23]
    values[30, 20:22] = 0
    assert near == exceedance(values, Cfar(1e-4)).contrast[30, 23]


def test_fitted_laws():
    for clutter in LAWS[:2]:
        assert fitted(simulated(clutter)).looks == pytest.approx(clutter.looks, rel=0.02)
    for clutter in LAWS[2:]:
        found = fitted(simulated(clutter), looks=clutter.looks)
        assert found.shape == pytest.approx(clutter.shape, rel=0.05)
    assert fitted(simulated(Clutter(4.0)), looks=1.0).shape == np.inf  # smoother than its speckle
    for flat in (np.ones(5), np.full(3, 0.6), np.array([60000, 60001], np.uint16), np.zeros(9)):
        with pytest.raises(ValueError, match="values have a variance of .*, wanted more than 1e-6"):
            fitted(flat)


def test_groups_are_boxes():
    contrast = np.zeros((6, 10), np.float32)
    contrast[1, 1], contrast[2, 2], contrast[2, 5], contrast[5, 9] = 2, 3, 4, 5
    found = grouped(cfar.Exceedance(contrast > 1, contrast))
    assert found.boxes.tolist() == [[1, 1, 3, 3], [5, 2, 6, 3], [9, 5, 10, 6]]
    assert found.scores.tolist() == [3, 4, 5] and found.pixels.tolist() == [2, 1, 1]
    for gap, expected in ((1, [[1, 1, 3, 3]]), (2, [[1, 1, 6, 3]]), (3, [[1, 1, 10, 6]])):
        joined = grouped(cfar.Exceedance(contrast > 1, contrast), gap=gap, least=2)
        assert joined.boxes.tolist() == expected
    nothing = grouped(cfar.Exceedance(contrast > 9, contrast))
    assert nothing.boxes.shape == (0, 4) and nothing.scores.shape == (0,)


@pytest.mark.parametrize(
    "change,message",
    [
        ({"rate": 0.0}, "rate: got 0.0"),
        ({"method": "median"}, "method: got 'median'"),
        ({"train": 0}, "train=0"),
        ({"clutter": Clutter(0.0)}, "clutter: got"),
        ({"order": 0.0}, "order: got"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        exceedance(np.ones((3, 3)), Cfar()._replace(**change))
