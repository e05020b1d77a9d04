"""Descriptions of scores, and their lookup by name or from outside the package."""

import numpy as np
import pytest

from jaxatr import openset

OUTPUTS = openset.Outputs(*np.zeros((2, 4, 3), np.float32), np.zeros(4, int))

MARGIN = openset.Score("margin", "Margin", lambda _, out: np.ptp(out.logits, axis=1))
TWIN = openset.Score("margin", "Twin", MARGIN.score)
IMPOSTOR = openset.Score("mls", "Other", MARGIN.score)


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    """A module with this module's scores on the import path."""
    names = "MARGIN, TWIN, IMPOSTOR = (None,) * 3\nNOTHING = 3\n"
    (tmp_path / "outside_scores.py").write_text(names)
    monkeypatch.syspath_prepend(tmp_path)
    import outside_scores  # pyright: ignore[reportMissingImports]

    for name, score in (("MARGIN", MARGIN), ("TWIN", TWIN), ("IMPOSTOR", IMPOSTOR)):
        monkeypatch.setattr(outside_scores, name, score)


def names(wanted):
    return [score.name for score in openset.choose_scores(wanted)]


def test_scores_are_chosen_by_a_list_of_names():
    assert names("cbc, vim") == names(("cbc", "vim")) == ["cbc", "vim"]
    assert names("outside_scores:MARGIN,mls,mls") == ["margin", "mls"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("cbc,vims", "scores: got 'vims', wanted one of softmax, .*did you mean 'vim'"),
        (",", "scores: got none, wanted 'all', or some of softmax"),
        ("outside_scores:MARGEN", "no 'MARGEN' in outside_scores; did you mean 'MARGIN'"),
        ("outside_scores:NOTHING", "outside_scores:NOTHING is a int, wanted a Score"),
        ("outside_scores:IMPOSTOR", "has the name of a built-in one, 'mls'"),
        ("outside_scores:MARGIN,outside_scores:TWIN", "two of .* have the name 'margin'"),
    ],
)
def test_a_wrong_name_is_reported(wanted, message):
    with pytest.raises(ValueError, match=message):
        openset.choose_scores(wanted)


def test_every_score_has_a_title_of_its_own():
    assert len({score.title for score in openset.SCORES.values()}) == len(openset.SCORES)


def test_a_score_is_one_value_for_each_example():
    np.testing.assert_array_equal(MARGIN(None, OUTPUTS), np.zeros(4))
    wrong = openset.Score("wrong", "Wrong", lambda _, out: out.logits)
    with pytest.raises(ValueError, match=r"wrong: got values of shape \(4, 3\)"):
        wrong(None, OUTPUTS)
    with pytest.raises(ValueError, match="name of a score: got 'my score'"):
        openset.Score("my score", "My score", MARGIN.score)


def test_select():
    outputs = OUTPUTS._replace(more={"features": np.arange(8.0).reshape(4, 2)})
    chosen = outputs.select(np.arange(4) % 2 == 0)
    assert len(chosen.labels) == len(chosen.logits) == len(chosen.predicted) == 2
    np.testing.assert_array_equal(chosen.more["features"], [[0, 1], [4, 5]])


def gallery(labels, score=MARGIN.score):
    def named(model, outputs):
        return openset.Answer(score(model, outputs), np.asarray(labels))

    return openset.Score("gallery", "Gallery", named, names_class=True)


def test_a_score_may_name_the_class():
    answer = gallery([2, 0, 1, 1]).answer(None, OUTPUTS)
    assert answer.label.tolist() == [2, 0, 1, 1] and answer.score.tolist() == [0] * 4
    np.testing.assert_array_equal(gallery([2, 0, 1, 1])(None, OUTPUTS), np.zeros(4))
    assert MARGIN.answer(None, OUTPUTS).label.tolist() == OUTPUTS.predicted.tolist()


def test_a_class_that_is_not_one_is_reported():
    with pytest.raises(ValueError, match="classes from -1 to 1"):
        gallery([-1, 0, 1, 1]).answer(None, OUTPUTS)
    with pytest.raises(ValueError, match=r"gallery: got classes of shape \(3,\), wanted one for"):
        gallery([0, 1, 1]).answer(None, OUTPUTS)
    alone = openset.Score("alone", "Alone", MARGIN.score, names_class=True)
    with pytest.raises(ValueError, match="alone: got a ndarray, wanted an Answer"):
        alone.answer(None, OUTPUTS)


@pytest.mark.parametrize("name", openset.SCORES)
def test_a_fitted_score_of_the_package_describes_its_model(name):
    score = openset.SCORES[name]
    if score.fit is not None or score.calibrate is not None:
        assert score.model is not None and hasattr(score.model, "_fields")
