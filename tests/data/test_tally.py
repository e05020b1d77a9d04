import json

from jaxatr.data.tally import Tally


def test_reasons_are_counted_by_name_and_in_the_order_in_which_they_were_met():
    tally = Tally()
    tally.add("frames without a target", "b", "frame 3")
    tally.add("clips of several bands", "a")
    tally.add("frames without a target", "a", "frame 1", 4)
    tally.add("clips of several bands", "c")
    assert tally.lines() == [
        "5 frames without a target, in 2 clips (first: b frame 3)",
        "2 clips of several bands (first: a)",
    ]
    assert tally.within("a") == {"frames without a target": 4, "clips of several bands": 1}
    assert tally.within("d") == {}
    assert json.loads(json.dumps(tally.as_dict()))["frames without a target"] == {
        "count": 5,
        "first": "b frame 3",
        "in": {"b": 1, "a": 4},
    }
    assert Tally().lines() == []
