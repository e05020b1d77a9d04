"""All measures of saliency maps at once."""

import jax.numpy as jnp
import numpy as np

from jaxatr.data import Truth
from jaxatr.explain.measures import insertion, judge

WEIGHTS = np.random.default_rng(0).normal(size=(16 * 16, 3)).astype(np.float32)


def predict(images):
    return jnp.reshape(images, (len(images), -1)) @ WEIGHTS


def test_maps_are_judged_by_every_measure():
    images = np.random.default_rng(1).random((3, 16, 16, 1)).astype(np.float32)
    maps = np.random.default_rng(2).random((3, 16, 16))
    maps[2] = 0
    masks, boxes = np.zeros((3, 16, 16), bool), np.tile(np.float32([0, 0, 8, 16]), (3, 1))
    masks[:, :8] = True
    values, convention = judge(predict, images, maps, truth=Truth(masks, boxes))
    inserted = insertion(predict, images, maps, pixels_per_step=16)
    np.testing.assert_allclose(values["insertion"], inserted.auc, atol=1e-6)
    np.testing.assert_allclose(values["fidelity"], values["insertion"] - values["deletion"])
    share = maps[:2, :8].sum((1, 2)) / maps[:2].sum((1, 2))
    np.testing.assert_allclose(values["share_inside"], [*share, 0])
    best = maps.reshape(3, -1).argmax(1) // 16 < 8
    np.testing.assert_array_equal(values["pointing_game"], best)
    assert [each["measure"] for each in convention] == ["insertion", "deletion"]
    assert "share_inside" not in judge(predict, images, maps)[0]


def test_a_step_is_one_row_of_the_chip():
    images = np.random.default_rng(3).random((1, 32, 8, 1)).astype(np.float32)
    _, convention = judge(predict, images, images[..., 0])
    assert [each["pixels_per_step"] for each in convention] == [8, 8]
