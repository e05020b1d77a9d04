import dataclasses
import json

import pytest

from jaxatr import data
from jaxatr.data.splits import NAMES, known_unknown

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MSTAR = ("2S1", "BMP2", "BRDM_2", "BTR60", "BTR70", "D7", "T62", "T72", "ZIL131", "ZSU_23_4")
VEHICLES = tuple("abcdefgh")


def classes_for(name):
    return MSTAR if name.startswith("mstar") else CIFAR10


@pytest.mark.parametrize("name", NAMES)
def test_every_named_split_parts_its_classes(name):
    classes = classes_for(name)
    split = known_unknown(name, classes)
    assert not set(split.known) & set(split.unknown)
    assert [c for c in classes if c in split.known] == list(split.known)
    assert [c for c in classes if c in split.unknown] == list(split.unknown)
    if name == "random-5/3":
        assert (len(split.known), len(split.unknown)) == (5, 3)
    elif name == "first-5":
        assert (split.known, split.unknown) == (classes[:5], classes[5:])
    elif name == "closed":
        assert (split.known, split.unknown) == (classes, ())
    elif name == "mstar/retrieval-tuning":
        assert (len(split.known), len(split.unknown)) == (4, 2)
    else:
        assert (len(split.known), len(split.unknown)) == (6, 4)


def test_the_standard_five_have_two_equal():
    known = [known_unknown(f"cifar10/osr-{i}", CIFAR10).known for i in range(5)]
    assert known[0] == known[1]
    assert len(set(known)) == 4
    assert known[2] == ("automobile", "cat", "deer", "dog", "horse", "truck")


def test_the_papers_code():
    known = known_unknown("cifar10/paper-code", CIFAR10).known
    assert known == ("airplane", "automobile", "bird", "frog", "horse", "ship")


def test_mstar_reference():
    split = known_unknown("mstar/reference-2", MSTAR, seed=5)
    assert split.known == ("2S1", "BMP2", "BRDM_2", "BTR70", "D7", "T72")
    assert split.unknown == ("BTR60", "T62", "ZIL131", "ZSU_23_4")
    assert split.seed == 0


def test_mstar_retrieval():
    split = known_unknown("mstar/retrieval", MSTAR)
    assert split.known == ("2S1", "BMP2", "BRDM_2", "T62", "T72", "ZSU_23_4")
    assert split.unknown == ("BTR60", "BTR70", "D7", "ZIL131")
    tuning = known_unknown("mstar/retrieval-tuning", MSTAR)
    assert tuning.unknown == ("BMP2", "BRDM_2")
    assert {*tuning.known, *tuning.unknown} == {*split.known}
    coarse = data.hierarchy("mstar", tuning.known).fine_to_coarse
    assert sorted(coarse) == [0, 0, 1, 1]  # each has its sibling


def test_the_rest_of_a_split_is_known():
    split = known_unknown("rest/mstar/retrieval", MSTAR, seed=3)
    assert split.known == ("BTR60", "BTR70", "D7", "ZIL131")
    assert (split.unknown, split.seed, split.name) == ((), 0, "rest/mstar/retrieval")
    drawn = known_unknown("random-6/4", MSTAR, seed=3)
    rest = known_unknown("rest/random-6/4", MSTAR, seed=3)
    assert (rest.known, rest.seed) == (drawn.unknown, 3)
    with pytest.raises(ValueError, match="'rest/closed': .* has no unknown classes"):
        known_unknown("rest/closed", MSTAR)
    with pytest.raises(ValueError, match="no split 'mstar/retrieva'"):
        known_unknown("rest/mstar/retrieva", MSTAR)


def test_the_first_classes_are_those_of_the_data_sets_order():
    split = known_unknown("first-2", ("van", "bus", "car"), seed=4)
    assert (split.known, split.unknown, split.seed) == (("van", "bus"), ("car",), 0)


def test_random_draws_are_fixed_for_ever():
    # Literal, from sha256sum: results name only split and seed, so the draw may never change.
    split = known_unknown("random-6/4", MSTAR, seed=0)
    assert split.known == ("2S1", "BRDM_2", "D7", "T62", "T72", "ZIL131")
    assert known_unknown("random-5/3", VEHICLES, seed=7).known == ("a", "b", "c", "d", "e")


def test_random_draws_differ_by_seed_and_cover_all():
    drawn = [known_unknown("random-5/3", VEHICLES, seed=seed) for seed in range(200)]
    assert len({split.known for split in drawn}) > 40  # of 56
    for name in VEHICLES:
        assert 0.5 < sum(name in split.known for split in drawn) / 200 < 0.75  # expected 5/8


def test_random_draw_does_not_depend_on_the_order_of_classes():
    forward = known_unknown("random-5/3", VEHICLES, seed=3)
    backward = known_unknown("random-5/3", VEHICLES[::-1], seed=3)
    assert forward.known == backward.known[::-1]


def test_random_may_leave_classes_out():
    split = known_unknown("random-2/3", MSTAR, seed=1)
    assert (len(split.known), len(split.unknown)) == (2, 3)


@pytest.mark.parametrize(
    "name, known, unknown",
    [
        ("known:c,a", "ac", "bdefgh"),
        ("known: a , c", "ac", "bdefgh"),
        ("unknown:a,b,c", "defgh", "abc"),
        ("known:a,b/unknown:h", "ab", "h"),
        ("rest/known:a,b/unknown:h,g", "gh", ""),
    ],
)
def test_classes_by_their_names(name, known, unknown):
    split = known_unknown(name, VEHICLES, seed=3)
    assert split.known == tuple(known) and split.unknown == tuple(unknown)
    assert (split.name, split.seed) == (name, 0)


@pytest.mark.parametrize(
    "content, same",
    [
        (["a", "c"], "known:a,c"),
        ({"known": ["a", "c"]}, "known:a,c"),
        ({"unknown": ["b"]}, "unknown:b"),
        ({"unknown": ["b"], "known": ["c"]}, "known:c/unknown:b"),
    ],
)
def test_a_file_of_names_is_as_good(tmp_path, content, same):
    path = tmp_path / "split.JSON"
    path.write_text(json.dumps(content))
    split = known_unknown(str(path), VEHICLES)
    assert split == known_unknown(same, VEHICLES) and split.name == same
    assert data.listed(same) == same and data.listed(f"rest/{path}") == f"rest/{same}"


def test_a_name_with_a_comma_in_a_file(tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(["car, red", "van"]))
    split = known_unknown(str(tmp_path / "s.json"), ("car, red", "car", "van"))
    assert split.known == ("car, red", "van")
    assert known_unknown(split.name, ("car, red", "car", "van")) == split


@pytest.mark.parametrize("text", ["3", "[]]", "[1]", "{}", '{"knwon": ["a"]}', '{"known": "a"}'])
def test_a_file_of_something_else_is_refused(tmp_path, text):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ValueError, match=r"open_set.split: .*s.json"):
        known_unknown(str(tmp_path / "s.json"), VEHICLES)
    with pytest.raises(ValueError, match="gone.json: No such file"):
        known_unknown(str(tmp_path / "gone.json"), VEHICLES)


def test_classes_that_cannot_be_trained_on_are_unknown():
    there = tuple("abcdef")
    assert known_unknown("closed", VEHICLES, trainable=there).unknown == ("g", "h")
    assert known_unknown("closed", VEHICLES, trainable=VEHICLES).unknown == ()
    assert known_unknown("unknown:a", VEHICLES, trainable=there).unknown == ("a", "g", "h")
    assert known_unknown("known:a,g", VEHICLES, trainable=there).known == ("a", "g")
    for name in ("random-5/3", "first-7"):  # the draw is unchanged
        drawn = known_unknown(name, VEHICLES, seed=1)
        assert known_unknown(name, VEHICLES, seed=1, trainable=there) == drawn


def test_a_split_is_a_record_that_cannot_be_changed():
    split = known_unknown("known:dog,cat", CIFAR10)
    kept = json.loads(json.dumps(split.as_dict()))
    assert kept == {
        "name": split.name,
        "version": split.version,
        "known": list(split.known),
        "unknown": list(split.unknown),
        "seed": 0,
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        known_unknown("closed", MSTAR).seed = 1


@pytest.mark.parametrize(
    "name, classes, match",
    [
        ("cifar10/osr-0", MSTAR[:9], "CIFAR-10's 10 classes, got 9"),
        ("mstar/reference-0", CIFAR10, "needs the ten MSTAR classes"),
        ("cifar10/osr-5", CIFAR10, "no split 'cifar10/osr-5'; did you mean 'cifar10/osr-"),
        ("random-6/4", VEHICLES, "6 known and 4 unknown of 8 classes"),
        ("random-0/4", VEHICLES, "at least one"),
        ("first-0", VEHICLES, "first 0 of 8 classes: at least one must be known"),
        ("first-8", VEHICLES, "first 8 of 8 classes.*one unknown"),
        ("known:a,i", VEHICLES, "known: there is no class 'i'.*there are a, b"),
        ("known:tank, old", ("tank, old", "car"), """'tank'.*; quote .*: known:"tank, old"$"""),
        ("unknown:tnk", ("tank", "car"), "unknown: .*'tnk'; did you mean 'tank'"),
        ("known:a,b/unknown:b", VEHICLES, "'b' is both known and unknown"),
        ("known:", VEHICLES, "leaves no known class"),
        ("unknown:a,b", ("a", "b"), "leaves no known class"),
        ("frist-5", VEHICLES, "did you mean 'first-5'.*first-K and random-K/U"),
        ("closed", ("a", "a"), "wanted distinct names"),
        ("closed", ("a", "unknown"), "called 'unknown'.*split=unknown:unknown makes it"),
    ],
)
def test_splits_that_do_not_fit_are_refused(name, classes, match):
    with pytest.raises(ValueError, match=match):
        known_unknown(name, classes)


def test_a_class_called_unknown_can_be_an_unknown_one():
    assert known_unknown("unknown:unknown", ("a", "unknown")).unknown == ("unknown",)


def test_held_out_classes_are_known_ones_and_the_unknown_stay_away():
    classes = tuple("abcdefghij")
    split = data.known_unknown("random-6/4", classes, seed=3)
    held = data.hold_out_classes(split, 2)
    assert len(held.known) == 4 and len(held.unknown) == 2
    assert {*held.known, *held.unknown} == {*split.known}
    assert not {*held.known, *held.unknown} & {*split.unknown}
    assert held == data.hold_out_classes(split, 2) and held.name == "random-6/4, 2 held out"
    seeds = [data.known_unknown("random-6/4", classes, seed=seed) for seed in range(8)]
    assert len({data.hold_out_classes(one, 2).unknown for one in seeds}) > 2
    for count in (0, 5):
        with pytest.raises(ValueError, match=f"open_set.hold_out: got {count} of 6 known classes"):
            data.hold_out_classes(split, count)
