import pytest

from jaxatr.data.sources import dsiac


@pytest.mark.parametrize(
    "frames, first, gap", [(1800, 870, 30), (1875, 906, 31), (60, 29, 1), (59, 29, 0), (2, 1, 0)]
)
def test_a_clip_is_two_turns_with_a_gap_between_them(frames, first, gap):
    turns = [dsiac.turn_of(index, frames) for index in range(frames)]
    second = frames - first - gap
    assert turns == [0] * first + [None] * gap + [1] * second
    assert second == frames - frames // 2
