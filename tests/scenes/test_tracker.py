"""Links of boxes over frames."""

import numpy as np
import pytest

from jaxatr.scenes import boxes as geometry
from jaxatr.scenes.tracker import Motion, Tracker


def box(x, y, width=10, height=10):
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


def test_the_filter_is_kalmans_with_matrices():
    """Follows one target, and compares the state with that of the textbook's equations."""
    rng, motion = np.random.default_rng(0), Motion(gate=1e9)
    measured = rng.normal([50, 40, 12, 8], 0.3, (6, 4)) + np.arange(6)[:, None] * [3, -1, 0, 0]
    tracker, step = Tracker(motion), np.array([[1.0, 1.0], [0.0, 1.0]])

    def scale(state):
        return np.sqrt(state[2] * state[3])

    shares = (motion.place, motion.place, motion.size, motion.size)
    for number, one in enumerate(measured):
        assert tracker.update(np.asarray(geometry.of_centres(one))[None]).tolist() == [0]
        noise = [(share * scale(one)) ** 2 for share in shares]
        if not number:
            state = np.stack([one, np.zeros(4)], axis=1)
            spread = [np.diag([each, (motion.speed * scale(one)) ** 2]) for each in noise]
            continue
        change = (motion.change * scale(state[:, 0])) ** 2
        for row in range(4):
            state[row] = step @ state[row]
            grown = np.outer([0.5, 1.0], [0.5, 1.0]) * change
            before = step @ spread[row] @ step.T + grown
            gain = before[:, 0] / (before[0, 0] + noise[row])
            state[row] += gain * (one[row] - state[row, 0])
            spread[row] = before - np.outer(gain, before[0])
    np.testing.assert_allclose(tracker._value[0], state[:, 0])
    np.testing.assert_allclose(tracker._velocity[0], state[:, 1])
    np.testing.assert_allclose(
        np.stack([tracker._p00[0], tracker._p01[0], tracker._p11[0]], 1),
        [[one[0, 0], one[0, 1], one[1, 1]] for one in spread],
    )


def test_targets_that_cross_keep_their_tracks():
    tracker = Tracker()
    for time in range(12):
        boxes = np.array([box(20 + 4 * time, 30), box(64 - 4 * time, 32)])
        order = [0, 1] if time % 2 else [1, 0]
        ids = tracker.update(boxes[order])
        if not time:
            first = dict(zip(order, ids.tolist(), strict=True))
        assert {n: int(ids[order.index(n)]) for n in (0, 1)} == first


def test_a_target_comes_back_until_the_patience_ends():
    for missing, wanted in ((5, 0), (6, 1)):
        tracker, none = Tracker(Motion(patience=5)), np.zeros((0, 4))
        for time in range(4):
            assert tracker.update(np.array([box(3 * time, 0)])).tolist() == [0]
        for _ in range(missing):
            assert tracker.update(none).shape == (0,)
        assert tracker.update(np.array([box(3 * (4 + missing), 0)])).tolist() == [wanted]


def test_a_box_far_away_begins_a_track_and_an_empty_one_is_refused():
    tracker = Tracker()
    assert tracker.update(np.array([box(0, 0), box(99, 99)])).tolist() == [0, 1]
    assert tracker.update(np.array([box(50, 50), box(1, 0)])).tolist() == [2, 0]
    with pytest.raises(ValueError, match="empty or not finite"):
        tracker.update(np.array([[0, 0, 0, 5]]))


def passing(low):
    """Returns boxes and scores of a target that moves 3 pixels a frame, and is hidden at times."""
    for frame in range(20):
        yield np.array([[3.0 * frame, 10, 3.0 * frame + 12, 20]]), 0.2 if frame in low else 0.9


def test_boxes_of_low_scores_keep_a_track_that_would_be_given_up():
    hidden = range(6, 14)  # more than the patience of 5 frames
    found: dict[str, list[int]] = {"both passes": [], "first pass": []}
    trackers = {name: Tracker() for name in found}
    for box, score in passing(hidden):
        found["both passes"] += (
            trackers["both passes"].update(box, np.array([score >= 0.5])).tolist()
        )
        found["first pass"] += trackers["first pass"].update(box[[score >= 0.5]]).tolist()
    assert found["both passes"] == [0] * 20
    assert found["first pass"] == [0] * 6 + [1] * 6


def test_an_unsure_box_neither_begins_a_track_nor_takes_one_from_a_sure_box():
    tracker, box = Tracker(), np.array([[0.0, 0, 10, 10]])
    assert tracker.update(box, np.array([False])).tolist() == [-1]
    assert tracker.update(box, np.array([True])).tolist() == [0]
    both = np.concatenate([box, box + 1])  # the unsure one fits better
    assert tracker.update(both, np.array([False, True])).tolist() == [-1, 0]
    tracker.update(np.zeros((0, 4)))
    # ByteTrack: a track that was lost already waits for a sure box.
    assert tracker.update(box, np.array([False])).tolist() == [-1]
    assert tracker.update(box, np.array([True])).tolist() == [0]
