from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.scenes.suppression import kept, suppress


def plain(boxes, scores, labels=None, overlap=0.5, keep=None):
    """Suppression as a loop over boxes, in double precision."""
    chosen = []
    order = sorted(
        range(len(scores)), key=lambda i: (-scores[i] if scores[i] == scores[i] else 0, i)
    )
    for i in order:
        x0, y0, x1, y1 = map(float, boxes[i])
        finite = all(np.isfinite([x0, y0, x1, y1, scores[i]]))
        if not finite or x1 <= x0 or y1 <= y0:
            continue
        for j in chosen:
            if labels is not None and labels[i] != labels[j]:
                continue
            a0, b0, a1, b1 = map(float, boxes[j])
            shared = max(min(x1, a1) - max(x0, a0), 0) * max(min(y1, b1) - max(y0, b0), 0)
            union = (x1 - x0) * (y1 - y0) + (a1 - a0) * (b1 - b0) - shared
            if shared > overlap * union:
                break
        else:
            chosen.append(i)
    return chosen[:keep]


def a_scene(seed, n=120):
    """Whole numbers: overlaps at the threshold and scores are often equal; some are unusable."""
    draw = np.random.default_rng(seed)
    low = draw.integers(0, 24, (n, 2))
    boxes = np.concatenate([low, low + draw.integers(0, 12, (n, 2))], axis=1).astype(np.float32)
    scores = draw.integers(0, 12, n).astype(np.float32) / 8
    boxes[draw.integers(0, n, 6), draw.integers(0, 4, 6)] = np.nan
    boxes[draw.integers(0, n, 2), 2] = np.inf
    scores[draw.integers(0, n, 6)] = np.nan
    scores[draw.integers(0, n, 2)] = -np.inf
    return boxes, scores, draw.integers(0, 3, n).astype(np.int32)


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5, 1.0])
def test_the_same_boxes_stay_as_in_a_plain_loop(overlap, by_class):
    for seed in range(8):
        boxes, scores, labels = a_scene(seed)
        labels = labels if by_class else None
        expected = plain(boxes, scores, labels, overlap)
        assert kept(boxes, scores, labels, overlap=overlap).tolist() == expected
        found = suppress(boxes, scores, labels, keep=10, overlap=overlap)
        assert found.indices[found.valid].tolist() == expected[:10]


def test_boxes_in_several_blocks_are_compared_with_each_other():
    boxes, scores, labels = a_scene(9, 1100)
    boxes[::2] += 20
    for own in (None, labels):
        expected = plain(boxes, scores, own, 0.25)
        assert 100 < len(expected) < 600
        assert kept(boxes, scores, own, overlap=0.25).tolist() == expected
        found = suppress(boxes, scores, own, keep=1200, overlap=0.25)
        assert found.indices[found.valid].tolist() == expected


def test_a_chain_of_boxes_leaves_every_second_one():
    low = np.arange(0, 80, 2, dtype=np.float32)[:, None]  # each overlaps the next one only
    boxes = np.concatenate([low, 0 * low, low + 3, 0 * low + 1], axis=1)
    scores = np.linspace(1, 0.5, 40)
    assert kept(boxes, scores, overlap=0.1).tolist() == list(range(0, 40, 2))


def test_equal_boxes_and_scores_leave_the_first():
    boxes = np.tile(np.float32([1, 1, 5, 5]), (4, 1))
    assert kept(boxes, np.ones(4, np.float32)).tolist() == [0]
    assert kept(boxes, np.ones(4, np.float32), np.array([0, 1, 1, 0])).tolist() == [0, 1]


def test_an_overlap_at_the_threshold_stays():
    boxes = np.float32([[0, 0, 2, 1], [0, 0, 1, 1]])  # IoU 1/2
    assert kept(boxes, np.float32([1, 0.5]), overlap=0.5).tolist() == [0, 1]
    assert kept(boxes, np.float32([1, 0.5]), overlap=0.49).tolist() == [0]


def test_double_precision_keeps_the_same():
    rng = np.random.default_rng(0)
    corners, scores = rng.uniform(0, 10, (20, 2)), rng.uniform(size=20)
    boxes = np.concatenate([corners, corners + 3], axis=1)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(kept(boxes, scores), plain(boxes, scores))
        found = suppress(boxes, scores, keep=20)
    np.testing.assert_array_equal(found.indices[found.valid], plain(boxes, scores))


@pytest.mark.parametrize("wide", [False, True])
def test_no_promotion_is_needed(wide):
    rng = np.random.default_rng(0)
    corners, scores = rng.uniform(0, 10, (20, 2)), rng.uniform(size=20)
    boxes, labels = np.concatenate([corners, corners + 3], axis=1), rng.integers(0, 2, 20)
    with jax.enable_x64(wide), jax.numpy_dtype_promotion("strict"):
        every, own = kept(boxes, scores), kept(boxes, scores, labels)
    np.testing.assert_array_equal(every, plain(boxes, scores))
    np.testing.assert_array_equal(own, plain(boxes, scores, labels))


def test_nothing_in_nothing_out():
    assert kept(np.zeros((0, 4)), np.zeros(0)).tolist() == []
    found = suppress(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), keep=3)
    assert found.indices.tolist() == [0, 0, 0] and not found.valid.any()
    assert kept(np.full((3, 4), np.nan), np.ones(3)).tolist() == []


def test_low_scores_are_left_out():
    boxes = np.float32([[0, 0, 1, 1], [3, 3, 4, 4], [6, 6, 7, 7]])
    assert kept(boxes, np.float32([0.2, 0.9, 0.5]), least=0.5).tolist() == [1, 2]


def test_a_batch_is_mapped_and_eager_equals_jit():
    scenes = [a_scene(seed, 40) for seed in range(3)]
    boxes, scores, labels = map(np.stack, zip(*scenes, strict=True))
    found = jax.vmap(partial(suppress, keep=16))(boxes, scores, labels)
    for number, scene in enumerate(scenes):
        expected = plain(*scene, keep=16)
        assert found.indices[number][found.valid[number]].tolist() == expected
    with jax.disable_jit():
        eager = suppress(*(column[:5] for column in scenes[0]), keep=3)
    assert eager.indices[eager.valid].tolist() == plain(*(c[:5] for c in scenes[0]), keep=3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_large_boxes_of_16_bits_are_suppressed(dtype):
    boxes = jnp.array([[0, 0, 400, 400], [8, 8, 400, 400], [500, 0, 900, 400]]).astype(dtype)
    stay = suppress(boxes, jnp.array([0.9, 0.8, 0.7]), keep=3)
    assert stay.indices[stay.valid].tolist() == [0, 2]
