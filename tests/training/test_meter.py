"""The meter: windows of sums, read with a delay and in order."""

import json
import math

import numpy as np
import pytest

from jaxatr.training import ExplodingLoss, NonFiniteLoss
from jaxatr.training.meter import LAG, Meter


def sums(total, count, stop=0, **others):
    return {"loss": (np.float32(total), count), "stop": (stop, 1), **others}


def collect(log_every=2, total=100):
    found = []
    return Meter(log_every, total, found.append), found


def test_means_weigh_examples_not_steps():
    meter, found = collect()
    meter.push(1, "train", sums(1.0, 1, hits=(1, 4)), 8, epoch=0)
    meter.push(2, "train", sums(9.0, 3, hits=(0, 0)), 8, epoch=1)
    meter.drain()
    (record,) = found
    assert {k: record[k] for k in ("step", "phase", "epoch", "loss", "hits")} == {
        "step": 2,
        "phase": "train",
        "epoch": 1,
        "loss": 2.5,
        "hits": 0.25,
    }


def test_nothing_is_read_before_its_time():
    class Unread:
        def __array__(self, *_, **__):
            raise AssertionError("read too early")

    meter, _ = collect()
    for step in range(1, LAG + 1):
        meter.push(step, "train", sums(1.0, 1) | {"loss": (Unread(), Unread())}, 8, None)
    with pytest.raises(AssertionError, match="too early"):
        meter.push(LAG + 1, "train", sums(1.0, 1), 8, None)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_step_of_a_loss_that_is_not_finite_is_named(value):
    meter, _ = collect()
    meter.push(1, "train", sums(1.0, 1), 8, None)
    meter.push(2, "head", sums(value, 1), 8, None)
    with pytest.raises(NonFiniteLoss, match=f"loss of step 2 .phase 'head'. is {value}"):
        meter.drain()


def test_a_step_that_selects_nothing_has_no_loss():
    meter, found = collect(log_every=1)
    meter.push(1, "train", sums(0.0, 0), 8, None)
    meter.drain()
    assert found[0]["loss"] is None


def test_phases_have_windows_of_their_own_and_the_end_closes_them():
    meter, found = collect(log_every=4, total=3)
    for step, phase in enumerate(["a", "b", "a"], start=1):
        meter.push(step, phase, sums(step, 1), 8, None)
    meter.drain()
    assert [(r["step"], r["phase"], r["loss"]) for r in found] == [(3, "a", 2.0), (3, "b", 2.0)]


def test_an_open_window_goes_on_after_a_restart():
    meter, found = collect(log_every=3)
    meter.push(1, "train", sums(1.0, 1), 8, epoch=4)
    meter.drain()
    again, continued = collect(log_every=3)
    again.set_state(json.loads(json.dumps(meter.get_state())))
    for m in (meter, again):
        m.push(2, "train", sums(2.0, 1), 8, None)
        m.push(3, "train", sums(6.0, 1), 8, None)
        m.drain()
    strip = [{k: v for k, v in r.items() if k != "images_per_second"} for r in found + continued]
    assert strip[0] == strip[1] == {"step": 3, "phase": "train", "epoch": 4, "loss": 3.0}


def test_a_stop_is_seen_when_its_step_is_read():
    meter, _ = collect()
    meter.push(1, "train", sums(1.0, 1, stop=1), 8, None)
    assert not meter.stop
    meter.drain()
    assert meter.stop


def test_the_rate_leaves_pauses_out(monkeypatch):
    clock = iter([10.0, 20.0, 50.0, 52.0])
    monkeypatch.setattr("jaxatr.training.meter.time.perf_counter", lambda: next(clock))
    meter, _ = collect(log_every=10)
    meter.push(1, "train", sums(1.0, 1), 8, None)
    meter.drain()
    with meter.paused():
        pass
    meter.push(2, "train", sums(1.0, 1), 24, None)
    meter.drain()
    assert meter.images_per_second == 24 / (52 - 10 - 30)


def test_a_loss_that_explodes_is_reported_once():
    meter, _ = collect(log_every=1)
    with pytest.warns(ExplodingLoss, match="phase 'train' is 750 at step 3") as w:
        for step, loss in enumerate([11.0, 100.0, 750.0, 900.0], start=1):
            meter.push(step, "train", sums(loss, 1), 8, None)
        meter.drain()
    assert len(w) == 1 and "optimizer.backbone_factor" in str(w[0].message)


def test_a_loss_that_is_small_may_rise(recwarn):
    meter, _ = collect(log_every=1)
    for step, (phase, loss) in enumerate([("a", 0.01), ("a", 9.0), ("b", -1.0), ("b", 9.0)], 1):
        meter.push(step, phase, sums(loss, 1), 8, None)
    meter.drain()
    assert not recwarn.list


def test_the_first_loss_is_remembered_after_a_restart():
    meter, _ = collect(log_every=1)
    meter.push(1, "train", sums(5.0, 1), 8, None)
    meter.drain()
    again, _ = collect(log_every=1)
    again.set_state(json.loads(json.dumps(meter.get_state())))
    with pytest.warns(ExplodingLoss, match="is 60 at step 2, and was 5"):
        again.push(2, "train", sums(60.0, 1), 8, None)
        again.drain()
    earlier, found = collect(log_every=1)
    earlier.set_state({"windows": {}, "epochs": {}})  # of a checkpoint from before
    earlier.push(2, "train", sums(60.0, 1), 8, None)
    earlier.drain()
    assert found[0]["loss"] == 60.0
