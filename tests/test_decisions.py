"""The benchmark of decisions: rules, thresholds and scores on arrays."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.decisions import (
    chips,
    choices,
    combinations,
    members,
    rules,
    scores,
    thresholds,
)
from experiments.decisions import run as trainings
from experiments.decisions.tasks import TASKS
from jaxatr import metrics, openset
from jaxatr.openset.detectors import consensus


def test_members_are_in_units_of_the_known_chips():
    values = np.array([[1.0], [2.0], [3.0], [10.0], [20.0]])
    unit = rules.unit_of(values)
    assert unit.middle.tolist() == [3.0]
    assert unit.spread.tolist() == pytest.approx([1.4826 * 2.0])  # of the distances 2, 1, 0, 7, 17
    assert rules.standardised(unit, np.array([[3.0 - 2 * 1.4826]])).tolist() == [[-1.0]]


def test_the_default_rule_bends_members_and_weights_those_of_the_image():
    z = np.array([[3.0, -30.0]])
    expected = 0.75 * np.arcsinh(1.0) - 0.25 * np.arcsinh(10.0)
    assert rules.bent(z, np.array([0.75, 0.25]))[0] == pytest.approx(expected)


def test_a_member_without_spread_counts_in_its_own_unit():
    unit = rules.unit_of(np.full((4, 1), 5.0))
    assert rules.standardised(unit, np.array([[4.0]])).tolist() == [[-1.0]]


@pytest.mark.parametrize(
    ("power", "combined"), [(1, 3.5), (2, math.sqrt((9 + 16) / 2)), (math.inf, 4.0)]
)
def test_the_power_mean_combines_shortfalls(power, combined):
    z = np.array([[-3.0, -4.0]])
    assert rules.power_mean(z, power=power)[0] == pytest.approx(-combined)


def test_the_power_mean_ignores_what_speaks_for_a_chip_but_keeps_an_order():
    z = np.array([[5.0, -1.0], [0.0, -1.0], [2.0, 3.0], [0.0, 1.0]])
    found = rules.power_mean(z, power=2)
    assert found[0] == pytest.approx(found[1], abs=2e-3)
    assert found[2] > found[3] > found[0] > found[1]


def test_a_cap_bounds_a_member_and_keeps_its_order():
    z = np.array([[-100.0, 0.0], [-10.0, 0.0], [-4.0, -4.0]])
    found = rules.power_mean(z, power=1, cap=4.0)
    assert found[0] < found[1] < 0
    assert found[2] < found[0]  # two members at the cap count more than one far beyond it


def test_weights_take_members_out():
    z = np.array([[-9.0, -1.0]])
    for power in (1, 2, math.inf):
        found = rules.power_mean(z, power=power, weights=np.array([0.0, 1.0]))
        assert found[0] == pytest.approx(-1.0)


def test_areas_are_those_of_the_metrics():
    rng = np.random.default_rng(0)
    values, known = rng.integers(0, 9, 200).astype(float), rng.random(200) < 0.4
    assert combinations.area(values, known) == pytest.approx(
        metrics.auroc(values[known], values[~known])
    )


def test_enough_chips_give_the_conformal_threshold_and_few_a_finite_one():
    known = np.arange(60.0)
    assert thresholds.threshold(known, 0.95) == openset.conformal_threshold(known, tpr=0.95) == 2.0
    few = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    found = thresholds.threshold(few, 0.95, tail=3.0)
    assert found == pytest.approx(3.0 - 3.0 * 1.4826)
    assert thresholds.threshold(few, 0.95, tail=0.1) == 1.0  # never above the lowest known chip


def test_a_blend_moves_from_the_usual_sigmoid_to_the_tasks_own():
    assert thresholds.blended(None, (1.0, 0.0), 10, 100) == (1.0, 0.0)
    assert thresholds.blended((3.0, 2.0), (1.0, 0.0), 100, 100) == (2.0, 1.0)


def test_k_of_the_neighbours_is_bounded_by_the_smallest_class():
    assert scores.neighbour(np.repeat([0, 1], [10, 200])) == 5
    assert scores.neighbour(np.repeat([0, 1], [500, 200])) == 50
    assert scores.neighbour(np.array([0, 1, 1])) == 1


def test_folds_are_stratified():
    labels = np.repeat([0, 1], [10, 5])
    fold = members.folds_of(labels, 5)
    assert [np.bincount(labels[fold == i]).tolist() for i in range(5)] == [[2, 1]] * 5


@pytest.mark.slow
def test_the_scores_are_the_packages():
    rng = np.random.default_rng(0)
    n, k, d = 60, 3, 12
    kernel, bias = rng.normal(size=(d, k)), rng.normal(size=k)

    def part(labels):
        features = rng.normal(size=(len(labels), d)) + labels[:, None]
        chips = rng.integers(0, 255, (len(labels), 16, 16, 1)).astype(np.uint8)
        logits = features @ kernel + bias
        return {
            "labels": labels, "features": features, "logits": logits, "image": chips,
            "open_logits": rng.normal(size=logits.shape),
            "map_stage1": rng.normal(size=(len(labels), 3, 3, 4)).astype(np.float16),
        }  # fmt: skip

    def outputs(one):
        more = {name: one[name] for name in ("features", "image", "map_stage1")}
        return openset.Outputs(one["logits"], one["open_logits"], one["labels"], more)

    train, test = part(np.arange(n) % k), part(np.arange(20) % k)
    names = (
        "softmax", "cbc", "mahalanobis", "vim", "nndr_features", "template", "spatial_stage1",
    )  # fmt: skip
    fitted = openset.fit_scores(
        openset.choose_scores(names), outputs(train), openset.Head(kernel, bias)
    )
    found = scores.computed(train, (kernel, bias), test)
    for name, values in fitted.on(outputs(test)).items():
        np.testing.assert_allclose(found[f"score_{name}"], values, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("names", "training", "validation", "classes"),
    [
        (combinations.MEMBERS, 42, 30, 3),
        (("knn", "cbc"), 430, 110, 7),
    ],  # of which 400 and 100 count
)
def test_members_are_weighted_by_the_same_areas_as_the_packages(
    names, training, validation, classes
):
    rng, d = np.random.default_rng(0), 6
    kernel, bias = rng.normal(size=(d, classes)), rng.normal(size=classes)
    corners, outputs = rng.normal(size=(classes, 256)), []
    arrays = {"head_kernel": kernel, "head_bias": bias}
    for part, count in (("train", training), ("validation", validation)):
        labels = np.arange(count) % classes

        def near(*shape, labels=labels):
            rows = corners[labels, : math.prod(shape)].reshape(-1, *shape)
            return rows + rng.normal(size=rows.shape)

        more = {"features": np.abs(near(d)), "map_stage2": near(3, 3, 4)}
        more["map_stage3"] = near(2, 2, 3)
        more["image"] = np.clip(60 * near(16, 16, 1) + 100, 0, 255).astype(np.uint8)
        logits, open_logits = more["features"] @ kernel + bias, near(classes)
        outputs.append(openset.Outputs(logits, open_logits, labels, more))
        own = more | {"labels": labels, "logits": logits, "open_logits": open_logits}
        arrays |= {f"{part}_{name}": values for name, values in own.items()}
    expected = members._left_out(arrays)
    found = consensus.seen_areas(openset.choose_scores(names), *outputs, openset.Head(kernel, bias))
    assert set(found) == set(names)
    for name, value in found.items():
        assert value == pytest.approx(expected[name], abs=4e-3), name  # maps are kept in float16


def test_the_record_has_the_rule_of_the_package():
    areas = {"template": 0.8, "nndr_image": 0.5}
    seen = {"knn": 0.9, "cbc": 0.8, "template": 0.4, "vim": 0.7}
    evidence = SimpleNamespace(image_areas=areas, seen_areas=seen)
    one = choices.consensus_of(SimpleNamespace(evidence=evidence, trials=()))
    score = openset.SCORES["consensus"]
    assert list(one.names) == consensus.names_of(score)
    counts = np.array([2.0 if name == "knn" else 1.0 for name in one.names])
    model = consensus.weighted(score, consensus.Consensus(counts), areas)
    most = {"knn": consensus.SEEN_MOST, "cbc": consensus.HEAD_SEEN_MOST}
    model = consensus.weighted(score, model, seen | most)
    np.testing.assert_allclose(one.weights, model.weights)
    by_hand = dict(template=math.exp(8 * 0.3 - 8 * 0.1), knn=2 * math.exp(2), cbc=math.exp(0.8))
    by_hand |= {"vim": math.exp(1.6)}
    whole = sum(by_hand.values()) + 5
    for name, weight in zip(one.names, one.weights, strict=True):
        assert weight == pytest.approx(by_hand.get(name, 1.0) / whole)


def test_tasks_are_unlike_and_have_their_trainings():
    assert len({task.name for task in TASKS}) == len(TASKS) >= 12
    assert len({task.kind for task in TASKS}) >= 6
    small = next(task for task in TASKS if task.name == "small-mstar-60")
    listed = [one.name for one in trainings.trainings(small)]
    assert listed == ["main", *(f"trial-{i}" for i in range(3)), *(f"fold-{i}" for i in range(5))]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("frozen-small-mstar-60", "mstar"),
        ("mstar-64-0", "mstar"),
        ("frozen-cifar10", "cifar10"),
        ("cifar100-20", "cifar100"),
        ("small-thermal-boxes-120", "boxes"),
        ("frozen-boxes", "boxes"),
        ("visible", "visible"),
    ],
)
def test_constants_are_chosen_without_the_tasks_data_set(name, data):
    assert choices.data_of(name) == data


def test_unlike_members_are_a_map_the_features_the_head_and_the_image():
    assert combinations.unlike(combinations.SIX) and combinations.unlike(combinations.UNLIKE)
    assert not combinations.unlike(combinations.SIX[:5])


def test_subsets_and_folds_are_written_once(tmp_path):
    for split in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / "data" / "set" / split / name).mkdir(parents=True)
            for i in range(6):
                (tmp_path / "data" / "set" / split / name / f"{i}.png").write_bytes(b"x")
    (tmp_path / "made").mkdir()
    subset = chips.Subset("few", "set", train=4, test=2)
    folder = subset.write(tmp_path / "data", tmp_path / "made")
    assert len(list(folder.glob("train/*/*"))) == 8 and len(list(folder.glob("test/*/*"))) == 4
    folds = chips.folds(folder, 2)
    held = [sorted(p.name for p in fold.glob("test/*/*")) for fold in folds]
    assert [len(one) for one in held] == [4, 4]
    assert not set(folds[0].glob("test/*/*")) & set(folds[0].glob("train/*/*"))
    assert subset.write(tmp_path / "elsewhere", tmp_path / "made") == folder


def test_cross_conformal_p_values_compare_each_chip_within_the_fit_of_its_fold():
    rng = np.random.default_rng(0)
    known, fold = rng.normal(size=20), np.arange(20) % 4
    new = rng.normal(size=(4, 7))
    loop = [(1 + sum(known[i] <= new[fold[i], j] for i in range(20))) / 21 for j in range(7)]
    np.testing.assert_allclose(thresholds.cross_p_values(known, fold, new), loop)
    one_fit = np.repeat(new[:1], 4, axis=0)
    np.testing.assert_allclose(
        thresholds.cross_p_values(known, fold, one_fit), openset.conformal_p_values(known, new[0])
    )
