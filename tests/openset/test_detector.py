"""Scores that stand alone: the lines of docs/scores.md for every score, and what they refuse."""

import copy
import pickle
import re
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import openset
from jaxatr.openset import SCORES

PAGE = (Path(__file__).parents[2] / "docs" / "scores.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## Scores of your own arrays") :]
VIM, ANY = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)[:2]
HEAD = np.float32(0.3 * np.random.default_rng(1).normal(size=(10, 3))), np.float32([0.5, 0, -0.5])
NAMES = [name for name in SCORES if name != "conflabel_detector"]  # has a training of its own


class Level(NamedTuple):
    level: float


def drawn(seed, count):
    """All arrays that a score may need, by the names of the page."""
    rng, labels = np.random.default_rng(seed), np.arange(count) % 3

    def near(*shape):
        own = np.random.default_rng(0).normal(size=(3, *shape))
        return np.float32(own[labels] + 0.5 * rng.normal(size=(count, *shape)))

    features = np.maximum(near(10) + 1, 0)
    logits = features @ HEAD[0] + HEAD[1] + 6 * np.eye(3, dtype=np.float32)[labels]
    return {
        "features": features,
        "logits": logits,
        "open_logits": near(3),
        "image": np.uint8(np.clip(40 * near(16, 16, 1) + 120, 0, 255)),
        "maps": {f"map_stage{stage}": near(4, 4, 5) for stage in (1, 2, 3, 4)},
        "odin": near(),
        "gradient_norms": near(2) ** 2,
        "extra_logits": near(1),
        "labels": labels,
        "head": HEAD,
    }


TRAIN, HELD, NEW = drawn(0, 60), drawn(1, 45), drawn(2, 45)
MADE = np.arange(60) < 20  # generated images, of the class after the known ones
GENERATED = TRAIN | {
    "labels": np.where(MADE, 3, TRAIN["labels"]),
    "extra_logits": TRAIN["extra_logits"] + 50 * MADE[:, None],
}


def outputs(part):
    rest = {n: a for n, a in part.items() if n not in ("logits", "open_logits", "labels", "head")}
    maps = rest.pop("maps")
    more = rest | maps
    return openset.Outputs(part["logits"], part["open_logits"], part["labels"], more)


def only(part, names):
    """Of all arrays, those of some names; a single map is given as ``maps``."""
    maps = [name for name in names if name in part["maps"]]
    given = {name: part[name] for name in names if name in part}
    if len(maps) > 1:
        return given | {"maps": {name: part["maps"][name] for name in maps}}
    return given | ({"maps": part["maps"][maps[0]]} if maps else {})


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * n.startswith("fusion_")) for n in NAMES]
)
def test_the_lines_of_the_page_give_what_a_run_computes(name):
    train = GENERATED if name == "gopenmax" else TRAIN
    space = {"openset": openset, "name": name, "training": train, "held_out": HELD, "new": NEW}
    exec(ANY, space)
    score = SCORES[name]
    fitted = openset.fit_scores(
        [score], outputs(train), openset.Head(*HEAD), validation=outputs(HELD)
    )
    wanted, held = (fitted.on(outputs(part))[name] for part in (NEW, HELD))
    np.testing.assert_array_equal(space["scores"], wanted)
    threshold = openset.conformal_threshold(held, tpr=0.95)
    np.testing.assert_array_equal(space["known"], np.float64(wanted) >= threshold)
    np.testing.assert_array_equal(space["p_values"], openset.conformal_p_values(held, wanted))
    # What it says that it needs is enough, and each array is needed.
    needs, detector = space["detector"].needs, openset.create(name)
    detector.fit(**only(train, needs.fit)).calibrate(**only(HELD, needs.calibrate))
    np.testing.assert_array_equal(detector.score(**only(NEW, needs.score)), wanted)
    for kind, part in (("fit", train), ("calibrate", HELD), ("score", NEW)):
        for one in getattr(needs, kind):
            less = {n: part.get(n, part["maps"].get(n)) for n in getattr(needs, kind) if n != one}
            less = {n: a for n, a in less.items() if not n.startswith("map_")} | {
                "maps": {n: a for n, a in less.items() if n.startswith("map_")}
            }
            with pytest.raises(ValueError, match=rf"^{name}: {kind}\(\) needs .*; {one} missing$"):
                getattr(detector, kind)(**less)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * n.startswith("fusion_")) for n in NAMES]
)
def test_arrays_may_be_filled_anew_after_each_call(name, read_in_place):
    """The caller may have one buffer for all parts, or train the network further in place."""
    train = GENERATED if name == "gopenmax" else TRAIN
    wanted = openset.create(name).fit(**train).calibrate(**HELD).score(**NEW)
    detector, found = openset.create(name), None
    for method, part in ((detector.fit, train), (detector.calibrate, HELD), (detector.score, NEW)):
        held = jax.tree.map(read_in_place, part)
        found = method(**held)
        for array in jax.tree.leaves(held):
            array[...] = 0
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy])
@pytest.mark.parametrize(
    ("name", "options"),
    [*((n, {}) for n in NAMES), ("knn", {"k": 3}), ("ash", {"percentile": 50.0})],
)
def test_a_fitted_detector_is_kept_by_pickle(name, options, copied):
    detector = openset.create(name, **options).fit(**GENERATED if name == "gopenmax" else TRAIN)
    kept = copied(detector)  # with what it calibrates with
    for one in (detector.calibrate(**HELD), copied(detector), kept.calibrate(**HELD)):
        np.testing.assert_array_equal(one.score(**NEW), detector.score(**NEW))
    assert options or kept.definition is detector.definition


def test_the_page_s_vim_takes_arrays_of_other_libraries():
    torch = pytest.importorskip("torch")
    wanted = openset.create("vim").fit(**TRAIN).score(**NEW)

    def with_gradient(array):
        tensor = torch.from_numpy(array)
        return tensor.requires_grad_() if tensor.is_floating_point() else tensor

    swapped = lambda array: array.astype(array.dtype.newbyteorder())  # noqa: E731
    for convert in (jnp.asarray, torch.from_numpy, with_gradient, swapped):
        kernel, bias = map(convert, HEAD)
        space = {"kernel": kernel, "bias": bias, "labels": convert(TRAIN["labels"])}
        space |= {name: convert(TRAIN[name]) for name in ("features", "logits")}
        space |= {f"new_{name}": convert(NEW[name]) for name in ("features", "logits")}
        exec(VIM, space)
        np.testing.assert_array_equal(space["scores"], wanted)
    temperature = openset.fit_temperature(NEW["logits"], NEW["labels"])
    assert openset.fit_temperature(with_gradient(NEW["logits"]), NEW["labels"]) == temperature
    threshold = openset.fit_calibration(wanted).threshold
    assert openset.fit_calibration(with_gradient(np.array(wanted))).threshold == threshold


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "bool", "object", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "gradnorm", "gen", "knn", "conflabel"])
def test_arrays_of_any_type_count_as_their_numbers(name, dtype):
    """In bfloat16, a sum of 200 ones and a half is 200, and a probability above .998 is 1."""
    rng = np.random.default_rng(0)
    labels, wide = np.arange(20) % 2, rng.integers(0, 2, (20, 201))
    given = {"features": wide, "logits": 7 * np.eye(2)[labels] * wide[:, :1] + wide[:, 1:3]}
    given |= {"gradient_norms": wide[:, :9]}
    given = {key: array.astype(bool) if dtype == "bool" else array for key, array in given.items()}
    wanted, found = (
        openset.create(name)
        .fit(**{key: array.astype(to) for key, array in given.items()}, labels=labels.astype(of))
        .score(**{key: array.astype(to) for key, array in given.items()})
        for to, of in (("float64", "int64"), (jnp.dtype(dtype), "uint8"))
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_bfloat16_of_pytorch_counts_as_float32():
    torch = pytest.importorskip("torch")
    logits = torch.tensor([[9.0, 0.0], [10.0, 0.0]], dtype=torch.bfloat16, requires_grad=True)
    found = openset.create("softmax").score(logits=logits)
    np.testing.assert_allclose(found, -np.log1p(np.exp([-9.0, -10.0])), rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("name", ["klm", "gen", "energy", "vim"])
def test_outputs_in_16_bits_are_scored_in_single(name, dtype):
    def half(part):
        return {n: np.asarray(part[n], dtype) for n in ("features", "logits")}

    def single(part):
        return {n: array.astype(np.float32) for n, array in half(part).items()}

    same = {n: TRAIN[n] for n in ("labels", "head")}
    found, wanted = (
        openset.create(name).fit(**given(TRAIN), **same).calibrate(**given(HELD))
        for given in (half, single)
    )
    np.testing.assert_array_equal(found.score(**half(NEW)), wanted.score(**single(NEW)))
    traced = jax.jit(lambda arrays: found.score(**arrays))(half(NEW))
    np.testing.assert_allclose(traced, wanted.score(**single(NEW)), rtol=1e-4)


@pytest.mark.parametrize("name", ["vim", "knn", "nndr_features", "fusion_cbc", "tempscale"])
def test_a_score_may_be_part_of_a_compiled_function(name):
    detector = openset.create(name).fit(**TRAIN).calibrate(**HELD)
    given = only(NEW, detector.needs.score)
    found = jax.jit(lambda arrays: detector.score(**arrays))(given)
    np.testing.assert_allclose(found, detector.score(**given), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="conflabel: this score cannot be part of a traced"):
        jax.jit(lambda x: openset.create("conflabel").score(gradient_norms=x))(np.ones((2, 2)))


def test_a_compiled_score_searches_a_large_gallery_in_two_stages():
    labels, chips = np.arange(90) % 3, np.random.default_rng(0).random((100, 24, 24, 1))
    detector = openset.create("template").fit(image=chips[:90], labels=labels)
    assert openset.gallery.ready(detector.models["template"]).index is not None
    found = jax.jit(lambda image: detector.score(image=image))(chips[90:])
    np.testing.assert_allclose(found, detector.score(image=chips[90:]), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("openmax", {"distance": "eucos"}),
        *((one, {}) for one in ("consensus", "mahalanobis", "nndr_features", "nnguide", "vim")),
    ],
)
def test_products_of_a_compiled_score_are_exact_whatever_the_default(name, options):
    detector = openset.create(name, **options).fit(**TRAIN).calibrate(**HELD)
    given = only(NEW, {*detector.needs.score, "logits"})
    with jax.default_matmul_precision("bfloat16"):
        text = jax.jit(lambda arrays: detector.score(**arrays)).lower(given).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert products and all("[HIGHEST, HIGHEST]" in line for line in products)


@pytest.mark.parametrize(
    "name",
    ["ash", "consensus", "fdbd", "klm", "mahalanobis", "nci", "nearest", "nndr_stage2", "nnguide"]
    + ["openmax", "spatial_stage2", "template", "vim"],
)
def test_the_caller_may_forbid_implicit_promotion(name):
    wanted = openset.create(name).fit(**TRAIN).calibrate(**HELD).score(**NEW)
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        detector = openset.create(name).fit(**TRAIN).calibrate(**HELD)
        np.testing.assert_array_equal(detector.score(**NEW), wanted)
        given = jax.tree.map(jnp.asarray, only(NEW, detector.needs.score))
        jax.jit(lambda arrays: detector.score(**arrays))(given)


def test_answers_name_the_class():
    found = openset.create("nndr_features").fit(**TRAIN).answer(features=NEW["features"])
    assert np.mean(found.label == NEW["labels"]) > 0.9 and found.distances.shape == (45, 3)
    detector = openset.create("knn").fit(**TRAIN)
    np.testing.assert_array_equal(detector.answer(**NEW).label, NEW["logits"].argmax(axis=1))
    with pytest.raises(ValueError, match="knn: its class is that of the logits; got none"):
        detector.answer(features=NEW["features"])


def test_options_are_those_of_the_functions():
    far = openset.create("ash", percentile=50.0).fit(**TRAIN)
    expected = openset.detectors.ash.score(far.models["ash"], NEW["features"], percentile=50.0)
    np.testing.assert_array_equal(far.score(**NEW), expected)
    assert openset.create("knn", k=3).fit(**TRAIN).models["knn"].k == 3
    assert openset.create("ash", percentile=50.0).definition.traced is not None
    assert openset.create("openmax", kind="energy").definition.traced is None  # has another form
    with pytest.raises(ValueError, match="ash: got the option 'percentil', wanted percentile, var"):
        openset.create("ash", percentil=50.0)
    with pytest.raises(ValueError, match="softmax: got the option 'k', wanted none"):
        openset.create("softmax", k=3)


def test_names_by_what_they_need():
    assert openset.list() == [*SCORES] and len(SCORES) == len({*SCORES})
    assert {"knn", "vim", "nearest"} < {*openset.list(needs="features")}
    assert openset.list(needs=("map_stage2", "image")) == ["fusion_template"]
    assert {"softmax", "openmax", "klm"} < {*openset.list(needs=())}
    assert openset.list(needs="logits") == openset.list(needs=("labels", "head")) != []
    assert openset.list(needs=("features", "logits")) == openset.list(needs="features")
    with pytest.raises(ValueError, match="needs: got 'feature', .*'features'"):
        openset.list(needs="feature")
    for name in SCORES:
        assert SCORES[name].name == name
    with pytest.raises(KeyError):
        SCORES["spatial"]


def fitting(**changed):
    return lambda detector: detector.fit(**TRAIN | changed)


@pytest.mark.parametrize(
    ("name", "act", "message"),
    [
        ("vim", lambda d: d.score(**NEW), "vim: not fitted, call fit.. with features, logits, he"),
        ("klm", lambda d: d.score(**NEW), "klm: not calibrated, call calibrate.. with logits of"),
        ("fusion", lambda d: d.calibrate(**HELD), "fusion: spatial_stage2: not fitted"),
        ("conflabel_detector", lambda d: d.score(**NEW), "it has a training of its own, whose"),
        ("vim", fitting(feature=1), "vim: got feature, wanted some of extra_logits"),
        (
            "fusion_cbc",
            fitting(maps={"stage2": 1}),
            "fusion_cbc: got stage2, wanted some of .*map_",
        ),
        ("knn", fitting(features=TRAIN["odin"]), r"knn: features: got shape .60,., wanted .n, d."),
        (
            "spatial_stage2",
            fitting(maps=TRAIN["logits"]),
            r"map_stage2: got shape .60, 3., wanted .n, h, w",
        ),
        (
            "mls",
            lambda d: d.score(logits=[1.0, 2.0]),
            r"mls: logits: got shape .2,., wanted .n, k.",
        ),
        (
            "cbc",
            lambda d: d.score(logits=NEW["logits"], open_logits=NEW["extra_logits"]),
            "cbc: open_logits: got shape .45, 1., wanted that of the logits, .45, 3.",
        ),
        (
            "knn",
            lambda d: fitting()(d).score(features=NEW["features"][:, 1:]),
            r"knn: features: got shape .45, 9., wanted .n, 10. as in fit",
        ),
        ("vim", fitting(logits=NEW["logits"]), "vim: got different numbers of examples, .'feat"),
        ("vim", fitting(head=HEAD[0]), "vim: head: got a ndarray, wanted .kernel, bias."),
        ("dice", fitting(head=(HEAD[0].T, None)), "dice: head: got a kernel of shape .3, 10."),
        ("knn", fitting(labels=np.ones(60)), "knn: labels: got float64 values, wanted integers"),
        ("knn", fitting(labels=TRAIN["labels"] + 1), "knn: labels: got 3 at .*, wanted .* 0 to 2"),
        ("nnguide", fitting(labels=TRAIN["labels"] - 1), "nnguide: labels: got -1 at .* 0 to 2"),
        (
            "fusion",
            lambda d: fitting()(d).fit(**TRAIN | {"labels": TRAIN["labels"] + 1}),
            "fusion: labels: got 3 at .*, wanted known classes only, 0 to 2",
        ),
        ("scale", fitting(features=-TRAIN["features"]), "scale: features: got -"),
    ],
)
def test_what_is_missing_or_wrong_is_named(name, act, message):
    with pytest.raises(ValueError, match=message):
        act(openset.create(name))


def test_a_score_of_whole_outputs_and_with_both_fits():
    score = openset.Score(
        "both",
        "Both",
        lambda model, out: out.more["features"].sum(axis=1) - model.level,
        lambda out, head: Level(out.labels.mean()),
        calibrate=lambda model, out: Level(model.level + len(out.labels)),
        needs=("features",),
    )
    detector = openset.Detector(score)
    assert detector.needs.fit == ("logits", "features", "labels", "head")
    detector.fit(**TRAIN)
    with pytest.raises(ValueError, match="both: not calibrated, call calibrate.. with logits, fea"):
        detector.score(**NEW)
    found = detector.calibrate(**HELD).score(**NEW)
    np.testing.assert_allclose(found, NEW["features"].sum(axis=1) - (1 + 45), rtol=1e-5)
    with pytest.raises(ValueError, match="both: not calibrated"):  # of the earlier fit
        detector.fit(**TRAIN).score(**NEW)


def test_a_refused_fit_leaves_the_detector_as_it_was():
    detector = openset.create("vim").fit(**TRAIN)
    before = detector.score(**NEW)
    broken = np.where(np.arange(60)[:, None], TRAIN["features"], np.nan)
    with pytest.raises(ValueError, match="vim: features: 1 rows are not finite"):
        detector.fit(**TRAIN | {"features": broken})
    np.testing.assert_array_equal(detector.score(**NEW), before)


def test_calibration_for_each_class():
    scores, classes = np.arange(40.0), np.arange(40) % 2
    calibration = openset.fit_calibration(scores, classes, tpr=0.9, per_class=True)
    # Of 20 examples each, floor(0.1 * 21) = 2: the second smallest is the threshold.
    assert calibration.thresholds(2).tolist() == [2, 3]
    assert calibration.accepts([2, 2, np.nan], [0, 1, 0]).tolist() == [True, False, False]
    np.testing.assert_allclose(calibration.p_values([2, 2], [0, 1]), [3 / 21, 2 / 21])
    unsigned = openset.fit_calibration(scores, classes.astype(np.uint8), tpr=0.9, per_class=True)
    assert unsigned.accepts([2, 2], np.uint8([0, 1])).tolist() == [True, False]
    # An example of no class is compared with all: floor(0.1 * 41) = 4.
    assert calibration.accepts([3, 2], [-1, -1]).tolist() == [True, False]
    np.testing.assert_allclose(calibration.p_values([3, 2], [-1, -1]), [5 / 41, 4 / 41])
    with pytest.raises(ValueError, match="nearest: got <U1 values, wanted integers"):
        openset.fit_calibration(scores, classes.astype("U1"), per_class=True)
    with pytest.raises(ValueError, match="nearest: got none, wanted the class that each"):
        calibration.accepts([2])
    with pytest.raises(ValueError, match="nearest: got none, wanted the class that each"):
        openset.fit_calibration([1.0], per_class=True)
    with pytest.raises(ValueError, match="1 scores are not finite"):
        openset.fit_calibration([1.0, np.inf])
    with pytest.raises(ValueError, match="labels: got none, wanted those of the examples"):
        openset.fit_calibration([1.0, 2.0], logits=np.eye(2))
