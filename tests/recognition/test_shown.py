"""Display of predictions in a notebook, with their chips on request."""

import html.parser
import math
import pickle
import re
import sys

import numpy as np
import pytest

from jaxatr import data, training
from jaxatr.recognition.prediction import Prediction
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks import OpenSet
from jaxatr.tasks.embedding.predictor import Match, Neighbour


class Balanced(html.parser.HTMLParser):
    """Checks that HTML tags are balanced."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "style", "link") and not any(n[:2] == "on" for n, _ in attrs)
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(page):
    parser = Balanced()
    parser.feed(page)
    assert not parser.open and not re.search("https?://", page)
    return page


def widths(page):
    return [float(width) for width in re.findall(r"height: 100%; width: ([\d.]+)%", page)]


def prediction(count=3, **fields):
    shares = {f"<c{n}>": 2.0**-n for n in range(1, count)} | {"last": 2.0 ** -(count - 1)}
    given = dict(label="<c1>", nearest="<c1>", score=3.0, known_probability=0.9, gamma=None)
    own = {"decides": "mls", "threshold": 2.5, "probability_is": "calibrated", "p_value": 0.4}
    return Prediction(**given | {"probabilities": shares} | own | fields)


def test_bars_are_ordered_and_names_are_escaped():
    one = prediction()._replace(probabilities={"b": 0.2, "<a>": 0.7, "c": 0.1})
    page = checked(one._repr_html_())
    assert widths(page) == [70, 20, 10] and "&lt;a&gt;" in page and "<a>" not in page
    assert "score 3, known from 2.5" in page and "known with probability 0.900" in page
    assert "p-value among known examples 0.400" in page and "more class" not in page


def test_ten_bars_and_a_count_of_the_rest():
    page = checked(prediction(81)._repr_html_())
    assert len(widths(page)) == 10 and "71 more classes, 0.1 % together" in page
    assert "1 more class, 0.1 % together" in checked(prediction(11)._repr_html_())


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"label": "unknown"}, ["unknown, most like &lt;c1&gt;"]),
        ({"threshold": -math.inf}, ["everything is accepted"]),
        ({"threshold": math.inf, "gamma": 1.0}, ["nothing is accepted"]),
        ({"decides": "cbc", "gamma": 0.9, "threshold": 2.197}, ["known from 2.197 (γ 0.9)"]),
        ({"decides": "nearest", "score": -1.5, "threshold": -2.0}, ["distance 1.5", "beyond 2"]),
        ({"known_probability": None, "p_value": None}, ["score 3"]),
    ],
)
def test_the_decision_is_in_words(fields, words):
    page = checked(prediction(**fields)._repr_html_())
    assert all(word in page for word in words)


def test_a_match_lists_its_neighbours():
    near = tuple(Neighbour("<t>", 0.1 * n, n, None if n else "a&b.png") for n in range(12))
    page = checked(Match("unknown", 0.0, 0.25, near)._repr_html_())
    assert "unknown, nearest to &lt;t&gt;" in page and "distance 0, unknown beyond 0.25" in page
    assert "a&amp;b.png" in page and "#9" in page and "#10" not in page
    assert "2 more neighbours" in page


@pytest.fixture(scope="module")
def recogniser(trained_run):
    return Recogniser.load(trained_run)


def test_shown_are_the_predictions_with_their_chips(recogniser, trained_run):
    part = OpenSet(training.load_config(trained_run)).parts["test"]
    images = list(part.chips(np.arange(3)))
    shown = recogniser.show(images, heat_map=True)
    assert [one.prediction for one in shown] == recogniser.predict(images)
    for one, image in zip(shown, images, strict=True):
        np.testing.assert_array_equal(one.chips[0], recogniser.chip(image))
        assert one.heat_map.saliency.shape == one.chips.shape[1:3]
        assert 0 <= one.heat_map.saliency.min() <= one.heat_map.saliency.max() <= 1
    page = checked(shown._repr_html_())
    assert page.count("data:image/png") == 6 and page.count(">Grad-CAM: evidence for") == 3
    assert checked(shown[:1]._repr_html_()).count("data:image/png") == 2
    single = checked(recogniser.show(images[0])._repr_html_())
    assert single.count("data:image/png") == 1
    for given in (recogniser, Recogniser.load(trained_run, neighbours=2)):
        copied = pickle.loads(pickle.dumps(given))
        assert copied.predict(images) == given.predict(images)
        assert copied.digest() == given.digest()
    # Without pixels a prediction is small, however large the chip.
    held = sum(sys.getsizeof(value) for value in recogniser.predict(images[0]))
    assert held < 2000
    assert not any(isinstance(value, np.ndarray) for value in recogniser.predict(images[0]))


def test_predictions_that_cannot_be_shown(recogniser):
    image = np.zeros((8, 8, 2), np.uint8)
    with pytest.raises(ValueError, match="input"):
        recogniser.show(image)
    chip = data.as_image(np.zeros((24, 24), np.uint8), "chip")
    for method, words in (("no_such", "no_such"), ("all", "wanted one method")):
        with pytest.raises(ValueError, match=words):
            recogniser.show(chip, heat_map=method)
