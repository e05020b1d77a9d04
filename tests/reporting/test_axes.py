"""Axes have correct ticks and include all required values."""

import numpy as np
import pytest
import scipy.special

from jaxatr.reporting import axes


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 2733.0), (-3.2, 14.9), (2.5, 2.5001)])
def test_linear_marks_are_few_round_and_inside(low, high):
    axis = axes.linear("x", low, high)
    marks = [mark for mark, _ in axis.ticks]
    assert 3 <= len(marks) <= 7 and axis.low <= min(marks) and max(marks) <= axis.high + 1e-9
    for mark, text in axis.ticks:
        assert float(text) == pytest.approx(mark, rel=1e-5, abs=1e-12)


def test_an_axis_of_one_value_has_a_width():
    axis = axes.linear("x", 3.0, 3.0)
    assert axis.low < 3 < axis.high


def test_percent_and_logarithmic_marks():
    assert axes.percent("y").ticks[1] == (0.2, "20") and axes.percent("y").label == "y (%)"
    axis = axes.logarithmic("loss", 0.003, 7.0)
    assert (axis.low, axis.high) == (-3, 1)
    assert [text for _, text in axis.ticks] == ["0.001", "0.01", "0.1", "1", "10"]


def test_a_probability_lies_at_its_logit_however_it_is_recorded():
    logits = np.array([-4.0, 0.0, 2.0, 20.0])
    log = -np.log1p(np.exp(-logits))
    np.testing.assert_allclose(axes.to_axis("logit", logits), logits)
    np.testing.assert_allclose(axes.to_axis("log", log), logits, rtol=1e-6)
    for scale, values in (("logit", logits), ("log", log)):
        for value, logit in zip(values, logits, strict=True):
            assert axes.to_gamma(scale, value) == pytest.approx(scipy.special.expit(logit))
    assert axes.to_gamma("plain", 3.5) == 3.5
    assert np.isfinite(axes.to_axis("log", np.array([0.0]))).all()  # a probability of 1


@pytest.mark.parametrize("scale", ["plain", "logit", "log"])
def test_thresholds_are_on_the_axis_and_far_values_are_not(scale):
    values = np.append(np.random.default_rng(0).normal(size=1000), 26.0)
    axis = axes.score_axis(scale, values, [5.0])
    assert axis.low < -2 and 5.0 < axis.high < 10
    assert all(axis.low <= mark <= axis.high for mark, _ in axis.ticks) and len(axis.ticks) > 2
    if scale != "plain":
        for mark, text in axis.ticks:
            assert scipy.special.expit(mark) == pytest.approx(float(text))


def test_ticks_near_one_are_written_as_the_distance_to_one():
    axis = axes.score_axis("logit", np.linspace(10, 26, 50), [])
    texts = [text for _, text in axis.ticks]
    assert texts and all(text.startswith("1−10⁻") for text in texts)


@pytest.mark.parametrize(
    ("low", "high"), [(0.6, 0.8), (0.15, 0.4), (1 - 8e-6, 1 - 2e-6), (2e-6, 8e-6), (0.95, 0.985)]
)
def test_a_narrow_axis_of_probabilities_has_ticks(low, high):
    axis = axes.score_axis("logit", scipy.special.logit(np.linspace(low, high, 50)), [])
    assert len(axis.ticks) > 1
    marks = [mark for mark, _ in axis.ticks]
    assert marks == sorted(marks) and axis.low <= marks[0] and marks[-1] <= axis.high
    for mark, text in axis.ticks:
        rest = text.removeprefix("1−")
        value = 1 - float(rest) if rest != text else float(text)
        assert scipy.special.expit(mark) == pytest.approx(value, rel=1e-9)
