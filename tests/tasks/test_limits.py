"""The values that the fields of every run may have."""

import pytest

from jaxatr import config as configuration
from jaxatr.config.construction import group_of
from jaxatr.tasks.limits import are_numbers, check_limits


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seed", -1, "seed: got -1, wanted 0 or more"),
        ("data.validation_seed", -1, "data.validation_seed: got -1, wanted 0 or more"),
        ("optimizer.boundaries", (5, "x"), r"optimizer.boundaries: got \(5, 'x'\), wanted epochs"),
        ("optimizer.boundaries", (-1.0,), r"optimizer.boundaries: got \(-1.0,\), wanted epochs"),
    ],
)
def test_a_value_that_a_training_cannot_use_is_named(name, value, message):
    config = configuration.of_task()
    check_limits(config)
    group, last = group_of(config, name)
    group[last] = value
    with pytest.raises(ValueError, match=message):
        check_limits(config)


def test_numbers_and_how_many():
    assert are_numbers(()) and are_numbers((1, 0.5), 2)
    assert not are_numbers((1,), 2) and not are_numbers(("1",)) and not are_numbers((-1, 1), 2)
