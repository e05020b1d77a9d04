"""Scores that search among the training examples: maps, features, pixels and templates."""

import numpy as np
import pytest

from jaxatr import openset
from jaxatr.openset import SCORES
from jaxatr.openset.detectors import fusion, nndr, spatial, template
from jaxatr.openset.gallery import reduction

K = 3
HEAD = openset.Head(np.eye(6, K), None)
MEANS = np.random.default_rng(5).normal(size=(K, 8, 8, 6))
FACES = np.random.default_rng(6).gamma(1.0, 40, size=(K, 24, 24, 1))


def draw(seed, n, known=True):
    """Outputs on chips of three classes, or of none of them."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % K
    maps = MEANS[labels] if known else rng.normal(size=(n, 8, 8, 6))
    maps = np.float16(3 + maps + 0.5 * rng.normal(size=(n, 8, 8, 6)))
    chips = FACES[labels] if known else rng.gamma(1.0, 40, size=(n, 24, 24, 1))
    chips = np.stack(
        [np.roll(c, rng.integers(-3, 4, 2), axis=(0, 1)) * rng.uniform(0.5, 2) for c in chips]
    )
    chips = np.uint8(np.clip(chips * rng.gamma(20, 1 / 20, size=chips.shape), 0, 255))
    features = np.float32(np.maximum(np.float32(maps).mean(axis=(1, 2)) + rng.normal(size=6), 0))
    more = {"map_stage2": maps, "image": chips, "features": features}
    logits = features @ HEAD.kernel
    return openset.Outputs(logits, logits, labels if known else -np.ones(n, int), more)


TRAIN, HELD_OUT, KNOWN, OTHERS = draw(0, 45), draw(1, 30), draw(2, 24), draw(3, 24, known=False)


def answers(name, outputs=KNOWN, **options):
    fitted = openset.fit_scores([SCORES[name]], TRAIN, HEAD, validation=HELD_OUT, **options)
    return fitted.answers(outputs)[name]


def by_loops(train, queries, similarity):
    """The greatest similarity of each query to an example of each class."""
    return np.array(
        [
            [
                max(similarity(q, e) for e, y in zip(train, TRAIN.labels, strict=True) if y == c)
                for c in range(K)
            ]
            for q in queries
        ]
    )


def cosine(a, b):
    a, b = np.ravel(a), np.ravel(b)
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def cosines(window=slice(None)):
    train, queries = (np.float64(part.more["map_stage2"]) for part in (TRAIN, KNOWN))
    mean = train.mean(axis=0)
    cut = [(maps - mean)[:, window, window] for maps in (train, queries)]
    return by_loops(*cut, cosine)


@pytest.mark.parametrize(
    ("name", "window"), [("spatial_stage2", slice(None)), ("spatial_stage2_centre", slice(1, 7))]
)
def test_cosines_of_maps_are_those_of_loops(name, window):
    found, expected = answers(name), cosines(window)
    np.testing.assert_allclose(found.score, expected.max(axis=1), atol=1e-4)
    np.testing.assert_array_equal(found.label, expected.argmax(axis=1))
    np.testing.assert_allclose(found.distances, 1 - expected, atol=1e-4)
    assert np.mean(found.label == KNOWN.labels) == 1


def ratio(distances):
    nearest = np.sort(distances, axis=1)
    return -nearest[:, 0] / nearest[:, 1]


def test_ratio_of_two_distances_on_maps():
    found, expected = answers("nndr_stage2"), 1 - cosines()
    np.testing.assert_allclose(found.score, ratio(expected), atol=1e-3)
    np.testing.assert_array_equal(found.label, expected.argmin(axis=1))


def test_ratio_of_two_distances_on_features_and_pixels():
    def away(a, b):
        return -np.linalg.norm(np.float64(a) - b)

    features = [part.more["features"] for part in (TRAIN, KNOWN)]
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in features]
    pixels = [np.float64(part.more["image"]).reshape(-1, 24 * 24) for part in (TRAIN, KNOWN)]
    for name, rows in (("nndr_features", unit), ("nndr_image", pixels)):
        expected = -by_loops(*rows, away)
        found = answers(name)
        np.testing.assert_allclose(found.score, ratio(expected), atol=2e-3)
        np.testing.assert_array_equal(found.label, expected.argmin(axis=1))


def cells(chip, top, left, side):
    """The means of 2x2 pixels, of their roots, in a window of so many pixels."""
    skipped = (18 - side) // 2
    top, left, whole = top + skipped, left + skipped, range(0, side - 1, 2)
    root = np.sqrt(np.float64(chip[top : top + side, left : left + side, 0]))
    return [root[i : i + 2, j : j + 2].mean() for i in whole for j in whole]


def correlation(query, example):
    """The best mean correlation of two chips' windows at shifts of 3 pixels."""
    # The example has one window of each size, the query one for every shift.
    sizes = zip(example, query, strict=True)
    return np.mean([np.corrcoef(one + moved)[0, 1:] for one, moved in sizes], axis=0).max()


def test_templates_are_those_of_loops():
    few = KNOWN.select(np.arange(24) < 4)

    def windows(chip, shifts):
        return [[cells(chip, *shift, side) for shift in shifts] for side in (18, 14, 9)]

    examples = [windows(chip, [(3, 3)]) for chip in TRAIN.more["image"]]
    queries = [windows(chip, list(np.ndindex(7, 7))) for chip in few.more["image"]]
    expected = 1 - by_loops(examples, queries, correlation)
    found = answers("template", few)
    np.testing.assert_allclose(found.distances, expected, atol=2e-4)
    nearest = np.sort(expected, axis=1)
    np.testing.assert_allclose(found.score, np.log(nearest[:, 1] / nearest[:, 0]), atol=5e-3)
    np.testing.assert_array_equal(found.label, few.labels)


def test_a_shifted_and_brighter_training_chip_is_known():
    chips = np.float32(np.random.default_rng(0).random((4, 32, 32, 2)))
    model = template.fit(chips, np.array([0, 0, 1, 1]), 2)
    moved = 9 * np.roll(chips, (-2, 3), axis=(1, 2))
    found = template.answer(model, moved)
    assert found.label.tolist() == [0, 0, 1, 1] and found.score.min() > 5
    np.testing.assert_allclose(found.distances.min(axis=1), 0, atol=2e-4)
    dark = template.answer(model, np.zeros((1, 32, 32, 2), np.float32))
    np.testing.assert_allclose(dark.distances, 1, atol=2e-4)
    np.testing.assert_allclose(dark.score, 0, atol=2e-4)
    for value in (0.0, 0.3):  # the computed mean of 0.3 is rounded
        blank = np.concatenate([chips, np.full((1, 32, 32, 2), value, np.float32)])
        without = template.fit(blank, np.array([0, 0, 1, 1, 1]), 2)
        np.testing.assert_array_equal(without.examples, model.examples)


def test_a_saturated_window_does_not_correlate():
    chips = np.random.default_rng(0).gamma(2, 50, (4, 40, 40, 1)).astype(np.float32)
    chips[:, 8:32, 8:32] = 200.3
    model = template.fit(chips, np.array([0, 0, 1, 1]), 2, shift=3, windows=(1.0, 0.5))
    assert not model.examples[:, -64:].any() and model.examples[:, :-64].any()


def test_a_fusion_names_the_class_with_the_smallest_product_of_distances():
    few = KNOWN.select(np.arange(24) < 12)
    near = [answers(name, few).distances for name in ("spatial_stage2", "template")]
    fitted = openset.fit_scores([SCORES["fusion_template"]], TRAIN, HEAD, validation=HELD_OUT)
    found = fitted.answers(few)["fusion_template"]
    np.testing.assert_allclose(found.distances, np.sqrt(near[0] * near[1]), atol=1e-6)
    np.testing.assert_array_equal(found.label, found.distances.argmin(axis=1))
    apart = fusion.product([np.array([[0.1, 0.2]]), np.array([[0.9, 0.3]])])
    assert apart.argmin() == 1  # though the first member alone names class 0


def test_large_chips_have_larger_cells():
    large = np.float32(np.random.default_rng(0).random((2, 134, 102, 1)))
    fitted = template.fit(large, np.arange(2), 2, windows=(1.0, 0.5))
    assert fitted.examples.shape == (2, 32 * 24 + 16 * 12)
    chips = np.zeros((2, 130, 130, 1), np.uint8)
    assert nndr.pixels(chips, None).shape == (2, 43 * 43)


def test_templates_saved_before_there_were_windows_compare_whole_chips():
    chips, labels = TRAIN.more["image"], TRAIN.labels
    whole = template.fit(chips, labels, K, windows=(1.0,))
    score = SCORES["template"]
    arrays = openset.to_arrays(openset.Decision(score, {"template": whole}))
    del arrays["model.template.windows"]
    arrays["model.template"] = np.array([f for f in template.Template._fields if f != "windows"])
    old = openset.from_arrays(score, arrays)
    expected = template.answer(whole, KNOWN.more["image"])
    found = template.answer(old.models["template"], KNOWN.more["image"])
    np.testing.assert_array_equal(found.score, expected.score)
    arrays["model.template"] = np.array(["examples"])
    with pytest.raises(ValueError, match="template: got a model of .'examples',., wanted one of"):
        openset.from_arrays(score, arrays)


def test_ratios_by_hand():
    found = nndr.of_distances(np.array([[2.0, 1.0, 4.0], [0.0, 0.0, 1.0], [np.inf, 0.0, 3.0]]))
    assert found.score.tolist() == [-0.5, -1.0, 0.0] and found.label.tolist() == [1, 0, 1]


def test_known_chips_are_separated_from_others():
    for name in ("spatial_stage2", "nndr_stage2", "template", "fusion_template"):
        known, others = answers(name).score, answers(name, OTHERS).score
        assert known.min() > others.max(), name


def test_a_smaller_gallery_of_maps():
    maps, labels = TRAIN.more["map_stage2"], TRAIN.labels
    whole = spatial.fit(maps, labels, K)
    exact = spatial.answer(whole, KNOWN.more["map_stage2"])
    turned = spatial.fit(maps, labels, K, channels=6)  # all of them, along other axes
    found = spatial.answer(turned, KNOWN.more["map_stage2"], block_size=5)
    np.testing.assert_allclose(found.score, exact.score, atol=1e-3)
    small = spatial.fit(maps, labels, K, channels=2, keep=0.4, window=0.75)
    assert small.examples.shape == (18, 6 * 6 * 2)
    found = spatial.answer(small, KNOWN.more["map_stage2"])
    assert np.mean(found.label == KNOWN.labels) > 0.9
    bounded = spatial.fit(maps, labels, K, most_bytes=2 * 8 * 8 * 2 + 5)
    assert bounded.examples.shape == (45, 8 * 8 * 2) and bounded.axes.shape == (6, 2)
    assert spatial.fit(maps, labels, K, most_bytes=1).axes.shape == (6, 1)
    assert spatial.fit(maps, labels, K, most_bytes=4096).axes.shape == (6, 0)
    drawn = spatial.fit(maps, labels, K, most=12)
    assert np.bincount(drawn.labels).tolist() == [4, 4, 4]
    np.testing.assert_array_equal(drawn.mean, whole.mean)
    rows = (np.float32(maps) - whole.mean).reshape(45, -1)
    kept = reduction.coreset(rows, labels, 20)
    thinned = spatial.fit(maps, labels, K, keep=20 / 45)
    np.testing.assert_array_equal(np.sort(thinned.labels), np.sort(labels[kept]))


def test_a_gallery_of_many_maps_has_fewer_directions(monkeypatch):
    monkeypatch.setattr(spatial, "MOST_OF_ALL", 45 * (2 * 8 * 8 * 3) + 1)
    fitted = openset.fit_scores([SCORES["spatial_stage2"]], TRAIN, HEAD)
    assert fitted.models["spatial_stage2"].axes.shape == (6, 3)


def test_a_fusion_is_the_sum_of_deviations_from_validation_examples():
    members = spatial.PARTS[1], SCORES["mls"]
    made = fusion.fuse("made", "Made", members)
    assert made.names_class and made.all_needs == {"map_stage2"}
    fitted = openset.fit_scores([made], TRAIN, HEAD, validation=HELD_OUT)
    expected = 0
    for member in members:
        alone = openset.fit_scores([member], TRAIN, HEAD)
        held_out, known = (alone.on(part)[member.name] for part in (HELD_OUT, KNOWN))
        expected = expected + (known - np.mean(held_out)) / np.std(held_out)
    found = fitted.answers(KNOWN)["made"]
    np.testing.assert_allclose(found.score, expected, rtol=1e-5)
    np.testing.assert_array_equal(found.label, answers("spatial_stage2").label)
    plain = fusion.fuse("plain", "Plain", [SCORES["mls"], SCORES["energy"]])
    assert not plain.names_class and not plain.fitted and plain.calibrated
    found = openset.fit_scores([plain], validation=HELD_OUT).answers(KNOWN)["plain"]
    np.testing.assert_array_equal(found.label, KNOWN.predicted)


def test_data_that_cannot_be_fitted_are_named(unchecked):
    maps, labels = TRAIN.more["map_stage2"], TRAIN.labels
    with pytest.raises(ValueError, match="maps: some are not finite"):
        spatial.fit(maps * np.float16(np.inf), labels, K)
    with pytest.raises(ValueError, match="got channels=2 and most_bytes=9, wanted one of them"):
        spatial.fit(maps, labels, K, channels=2, most_bytes=9)
    with pytest.raises(ValueError, match="keep: got 0, wanted a share"):
        spatial.fit(maps, labels, K, keep=0)
    with pytest.raises(ValueError, match="dimensions: got 7, wanted 1 to 6"):
        spatial.fit(maps, labels, K, channels=7)
    with pytest.raises(ValueError, match="shift: got 11, wanted 0 or more"):
        template.fit(TRAIN.more["image"], labels, K, shift=11)
    with pytest.raises(ValueError, match="examples: all are equal"):
        nndr.fit(np.full((7, 4), 0.1), np.arange(7) % 2, 2)  # whose computed scale is not 0
    for value in (0.0, 0.1):
        with pytest.raises(ValueError, match="examples: all are equal"):
            spatial.fit(np.full((7, 2, 2, 3), value, np.float32), np.arange(7) % 2, 2)
    with pytest.raises(ValueError, match="labels: got class 0 only"):
        nndr.fit(np.random.default_rng(0).random((6, 4)), np.zeros(6, int), 2)
    with pytest.raises(ValueError, match="members: got 1, wanted two or more"):
        fusion.fuse("one", "One", [SCORES["mls"]])
    with pytest.raises(ValueError, match="mls has the range 0.0 on validation"):
        fusion.fit(np.ones((3, 1)), ["mls"])
    with pytest.raises(ValueError, match="validation: got 1 examples"):
        fusion.fit(np.ones((1, 1)), ["mls"])


def test_no_outputs_have_no_answers():
    nothing = KNOWN.select(np.zeros(24, bool))
    for name in ("spatial_stage2", "nndr_stage2", "template"):
        assert answers(name, nothing).score.shape == (0,)


def test_a_chip_with_nan_has_no_ratio():
    distances = np.array([[np.nan, np.nan], [0.0, 0.0], [1.0, 2.0]])
    np.testing.assert_array_equal(nndr.of_distances(distances).score, [np.nan, -1, -0.5])


def test_pixels_of_no_chips():
    assert nndr.pixels(np.zeros((0, 8, 9, 2)), None).shape == (0, 144)


@pytest.mark.parametrize(("name", "width"), [("template", "examples"), ("nndr_image", "mean")])
def test_gray_chips_in_colour_are_compared_as_gray_ones(name, width):
    def coloured(outputs):
        return outputs._replace(more={"image": np.repeat(outputs.more["image"], 3, axis=3)})

    score = SCORES[name]
    gray, colour, strict = (
        openset.fit_scores([score], one, HEAD)
        for one in (TRAIN, coloured(TRAIN), _with_one_red_pixel(coloured(TRAIN)))
    )
    widths = [np.shape(getattr(one.models[name], width))[-1] for one in (gray, colour, strict)]
    assert widths == [widths[0], widths[0], 3 * widths[0]]
    wanted = gray.answers(KNOWN)[name].score
    np.testing.assert_array_equal(colour.answers(coloured(KNOWN))[name].score, wanted)
    mixed = coloured(KNOWN).more["image"] // 2 * np.array([0, 1, 2], np.uint8)  # the same mean
    halves = openset.Outputs(*KNOWN[:3], {"image": mixed})
    wanted = gray.answers(KNOWN._replace(more={"image": KNOWN.more["image"] // 2}))[name].score
    np.testing.assert_allclose(colour.answers(halves)[name].score, wanted, rtol=1e-5)
    rows = score.comparing.rows(colour.models[name], coloured(HELD_OUT))
    grown = score.comparing.add(colour.models[name], rows, np.full(30, K), K + 1)
    assert np.shape(grown.examples) == (len(TRAIN.labels) + 30, widths[0])


def _with_one_red_pixel(outputs):
    chips = outputs.more["image"].copy()
    chips[0, 5, 5] = (200, 0, 0)
    return outputs._replace(more={"image": chips})
