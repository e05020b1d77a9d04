"""The figures of a run's recorded sets side by side."""

import pytest

from jaxatr.reporting import recorded_sets
from jaxatr.training import OWN_TEST


@pytest.mark.parametrize(
    ("own", "note"),
    [
        ({"decides": "cbc"}, None),
        ({}, "with the score cbc; the run's own test has none: evaluate the run"),
        ({"decides": "mls"}, "with the score cbc, the run with mls: measure it again to compare"),
        (
            {"decides": "cbc", "checkpoint": {"step": 9}},
            "at step None, the run at step 9: measure it again to compare",
        ),
    ],
)
def test_a_note_says_what_differs_and_what_to_do(own, note):
    every = {"num_known": 1, "num_unknown": 0, "scores": {"cbc": {}, "mls": {}}}
    flight = {"groups": {"all": every}, "decides": "cbc"}
    found = recorded_sets.comparison(
        {OWN_TEST: {"groups": {"all": every}, **own}, "flight": flight}
    )
    assert found.notes == ([] if note is None else [f"flight was measured {note}"])
