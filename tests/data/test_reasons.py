import json

from jaxatr.data.reasons import Reasons


def test_reasons_are_counted_by_name_and_in_the_order_in_which_they_were_met():
    reasons = Reasons()
    reasons.add("frames without a target", "b", "frame 3")
    reasons.add("clips of several bands", "a")
    reasons.add("frames without a target", "a", "frame 1", 4)
    reasons.add("clips of several bands", "c")
    assert reasons.lines() == [
        "5 frames without a target, in 2 clips (first: b frame 3)",
        "2 clips of several bands (first: a)",
    ]
    assert reasons.within("a") == {"frames without a target": 4, "clips of several bands": 1}
    assert reasons.within("d") == {}
    assert json.loads(json.dumps(reasons.as_dict()))["frames without a target"] == {
        "count": 5,
        "first": "b frame 3",
        "in": {"b": 1, "a": 4},
    }
    assert Reasons().lines() == []
