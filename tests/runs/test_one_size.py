"""A run that accepts one size of images says so when it is trained and when it predicts."""

import numpy as np
import pytest

from jaxatr import data
from jaxatr.data.chip import Chip
from jaxatr.runs import train_run


def test_a_training_says_which_size_it_will_accept(small_config, tmp_path, monkeypatch):
    class Enough(Exception):
        pass

    def stop(*_, **__):
        raise Enough

    monkeypatch.setattr("jaxatr.training.train", stop)
    config = small_config.copy_and_resolve_references()
    config.data.center_crop = config.data.size = 0
    with pytest.warns(UserWarning, match=r"data.size: not set, .* 24x24 pixels only"):
        with pytest.raises(Enough):
            train_run(config, tmp_path / "run", progress=False)


@pytest.mark.parametrize(
    "shape, remedy",
    [
        ((30, 24, 1), "resize the image to 24x24 pixels, or train with --config.data.size=24"),
        ((24, 24, 3), "convert the image, or train with --config.data.channels=1"),
    ],
)
def test_an_image_of_another_shape_is_told_the_field(shape, remedy):
    intake = data.Intake(Chip(), (24, 24, 1), "uint8")
    with pytest.raises(ValueError, match=f"like the training chips: {remedy}"):
        intake(np.zeros(shape, np.uint8))
