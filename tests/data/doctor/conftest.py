"""Fixtures: sets of in-memory images to check."""

import numpy as np
import pytest

from jaxatr.data.doctor import Subject


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """Uses small forests, which suffice because every leak in these tests is obvious."""
    monkeypatch.setattr("jaxatr.data.doctor.leaks._TREES", 6)


@pytest.fixture
def subject():
    """Returns a function that creates a subject from images, of which None cannot be read."""

    def make(images, labels=None, parts=None):
        def read(number):
            if images[number] is None:
                raise ValueError(f"image {number} is damaged")
            return images[number]

        count = len(images)
        classes = np.zeros(count, np.int32) if labels is None else np.asarray(labels, np.int32)
        splits = np.zeros(count, np.int32) if parts is None else np.asarray(parts, np.int32)
        names = [f"image {number}" for number in range(count)]
        own = tuple("abcdefgh"[: classes.max() + 1])
        return Subject("mine", own, ("train", "test"), classes, splits, names, read)

    return make
