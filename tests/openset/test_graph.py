"""Decisions as graphs: every exported score in onnxruntime equals the one in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import openset
from jaxatr.openset import gallery, without_form
from jaxatr.openset.gallery import reranking

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from jaxatr.onnx import export, load  # noqa: E402

CLASSES = 3
MAPS = ("map_stage1", "map_stage2", "map_stage3", "map_stage4")
CAN = [name for name, score in openset.SCORES.items() if not without_form(score)]
LAST = openset.Head(np.random.default_rng(1).normal(size=(12, CLASSES)), None)


def outputs_of(count, seed):
    """Draws outputs that are correlated with their classes, with all arrays that scores need."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES

    def near(*shape):
        own = np.random.default_rng(0).normal(size=(CLASSES, *shape))
        return (own[labels] + rng.normal(size=(count, *shape))).astype(np.float32)

    features = np.maximum(near(12) + 1, 0)
    logits = (features @ LAST.kernel + 2 * np.eye(CLASSES)[labels]).astype(np.float32)
    image = np.uint8(np.clip(40 * near(16, 16, 1) + 120, 0, 255))
    more = {name: near(4, 4, 5).astype(np.float16) for name in MAPS}
    more |= {"features": features, "image": image, "odin": near()}
    return openset.Outputs(logits, near(CLASSES), labels, more)


@pytest.fixture(scope="module")
def parts():
    return [outputs_of(count, seed) for seed, count in enumerate((60, 40, 50))]


def decision_of(name, parts, **options):
    score, (training, validation, _) = openset.SCORES[name], parts
    models = openset.fit_scores([score], training, LAST, validation=validation).models
    decision = openset.Decision(score, models, gallery=score.names_class)
    return openset.calibrate(decision, validation, tpr=0.8, **options)


def in_onnx(decision, outputs, path, **options):
    """Computes a decision's results by onnxruntime."""
    traced = openset.traced_decision(decision, CLASSES, **options)
    needs = sorted(decision.score.all_needs - {"open_logits"})
    given = [outputs.logits, outputs.open_logits, *(outputs.more[name] for name in needs)]

    def function(arrays, logits, open_logits, *more):
        some = openset.Outputs(logits, open_logits, outputs.labels, dict(zip(needs, more)))  # noqa: B905
        return traced.apply(arrays, some)

    names = ["logits", "open_logits", *needs]
    model = export(function, traced.arrays, given, path, input_names=names)
    session = onnxruntime.InferenceSession(path)
    feed = dict(zip(names, given, strict=True))
    feed = {value.name: feed[value.name] for value in session.get_inputs()}
    found = session.run(None, feed)
    return dict(zip([value.name for value in model.graph.output], found, strict=True))


@pytest.mark.parametrize(
    "name",
    [
        "nndr_stage2",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("template", "fusion_template")),
    ],
)
def test_a_search_in_two_stages_is_the_same_in_a_graph(name, parts, tmp_path, monkeypatch):
    monkeypatch.setattr(reranking, "WHOLE", 0)
    monkeypatch.setattr(reranking, "DIRECTIONS", 8)
    decision = decision_of(name, parts)
    ready = decision.ready()
    assert any(getattr(model, "index", None) is not None for model in ready.models.values())
    wanted = ready(parts[2])
    found = in_onnx(decision, parts[2], tmp_path / "decision.onnx")
    np.testing.assert_array_equal(found["nearest"], wanted.nearest)
    np.testing.assert_allclose(found["score"], wanted.scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CAN)
def test_a_graph_decides_as_numpy_does(name, parts, tmp_path):
    sigmoid = openset.Sigmoid(1.5, 0.2) if CAN.index(name) % 2 else None
    decision = decision_of(name, parts, per_class=CAN.index(name) % 3 == 0, sigmoid=sigmoid)
    wanted = decision(parts[2])
    found = in_onnx(decision, parts[2], tmp_path / "decision.onnx")
    np.testing.assert_array_equal(found["nearest"], wanted.nearest)
    np.testing.assert_allclose(found["score"], wanted.scores, rtol=1e-4, atol=1e-4)
    decided = np.where(wanted.accepted, wanted.nearest, openset.UNKNOWN)
    np.testing.assert_array_equal(found["decision"], decided)
    assert (decided == openset.UNKNOWN).any() and (decided != openset.UNKNOWN).any()
    np.testing.assert_allclose(found["threshold"], wanted.thresholds, rtol=1e-6)
    np.testing.assert_allclose(found["class_probabilities"], wanted.probabilities, atol=1e-5)
    np.testing.assert_allclose(found["p_value"], wanted.p_values, atol=1e-5)
    np.testing.assert_allclose(found["known_probability"], wanted.known_probabilities, atol=1e-4)
    assert ("class_distances" in found) == decision.score.names_class


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("name", ["knn", "nearest", "nndr_stage2", "consensus"])
def test_examples_in_fewer_bits_give_almost_the_same_score(
    name, stages, parts, tmp_path, monkeypatch
):
    if stages == 2:
        monkeypatch.setattr(reranking, "WHOLE", 0)
        monkeypatch.setattr(reranking, "DIRECTIONS", 8)
    decision = decision_of(name, parts).ready()
    wanted = decision(parts[2])
    spread = np.std(wanted.scores)
    sizes = {}
    for precision, error in (("float32", 1e-4), ("float16", 0.01), ("int8", 0.1)):
        path = tmp_path / f"{precision}.onnx"
        found = in_onnx(decision, parts[2], path, precision=precision)
        # The first of two stages may rank a chip's nearest example too low.
        near = np.abs(found["score"] - wanted.scores) <= error * spread
        assert np.mean(near) >= (1 if stages == 1 else 0.96)
        decided = np.where(wanted.accepted, wanted.nearest, openset.UNKNOWN)
        assert np.mean(found["decision"] == decided) >= 0.96
        arrays = openset.traced_decision(decision, CLASSES, precision=precision).arrays
        sizes[precision] = sum(np.asarray(one).nbytes for one in jax.tree.leaves(arrays))
    assert sizes["int8"] < sizes["float32"]


def test_integers_are_multiplied_as_integers(parts, tmp_path):
    traced = openset.traced_decision(decision_of("knn", parts), CLASSES, precision="int8")
    rows, path = traced.arrays["knn"]["features"], tmp_path / "products.onnx"
    queries = np.random.default_rng(5).normal(size=(7, 12)).astype(np.float32)
    model = export(gallery.products, rows, [queries], path)
    assert "MatMulInteger" in {node.op_type for node in model.graph.node}
    session = onnxruntime.InferenceSession(path)
    (found,) = session.run(None, {session.get_inputs()[0].name: queries})
    computed = gallery.products(rows, jnp.asarray(queries))
    np.testing.assert_allclose(found, computed, rtol=1e-5, atol=1e-6)
    loaded = load(model)
    np.testing.assert_allclose(loaded.apply(loaded.variables, queries), found, rtol=1e-6)
    exact = queries @ parts[0].more["features"].T
    exact /= np.linalg.norm(parts[0].more["features"], axis=1)
    assert 0 < np.abs(found - exact).max() < 0.02 * np.abs(exact).max()


def test_a_score_as_a_probability_and_a_threshold_that_accepts_everything(parts, tmp_path):
    rule = openset.gamma_rule(0.9)
    wanted, found = rule(parts[2]), in_onnx(rule, parts[2], tmp_path / "rule.onnx")
    np.testing.assert_allclose(found["known_probability"], wanted.known_probabilities, atol=1e-5)
    assert "p_value" not in found
    found = in_onnx(rule.at(-np.inf), parts[2], tmp_path / "all.onnx")
    assert (found["decision"] == found["nearest"]).all() and (found["threshold"] < -1e38).all()


@pytest.mark.parametrize("sigmoid", [None, openset.Sigmoid(1.5, 0.2)])
@pytest.mark.parametrize("name", ["cbc", "mls"])
def test_scores_beyond_all_numbers_decide_as_in_numpy(name, sigmoid, parts, tmp_path):
    outputs = parts[2].select(np.arange(4))
    for values in (outputs.logits, outputs.open_logits):
        values[:3] = np.float32([np.nan, -np.inf, np.inf])[:, None]
    plain = openset.gamma_rule(0.9) if name == "cbc" else decision_of(name, parts, sigmoid=sigmoid)
    for decision in (plain, plain.at(-np.inf), plain.at(np.inf)):
        wanted = decision(outputs)
        found = in_onnx(decision, outputs, tmp_path / "beyond.onnx")
        decided = np.where(wanted.accepted, wanted.nearest, openset.UNKNOWN)
        np.testing.assert_array_equal(found["decision"], decided)
        np.testing.assert_array_equal(found["score"][:3], np.float32([np.nan, -np.inf, np.inf]))
        np.testing.assert_allclose(found["known_probability"], wanted.known_probabilities)
        assert not np.isnan(found["known_probability"]).any()


def test_scores_without_a_traced_form_are_refused(parts):
    decision = openset.Decision(openset.SCORES["conflabel"], {}, threshold=0.0)
    with pytest.raises(ValueError, match="conflabel: this score cannot be exported"):
        openset.traced_decision(decision, CLASSES)
    plain = openset.Score("plain", "Plain", lambda _, out: out.logits.max(axis=1))
    made = openset.Score("made", "Made", plain.score, members=(plain,), traced=plain.score)
    assert without_form(made) == "plain" and not without_form(openset.SCORES["fusion"])
    pooled = openset.Pooled(openset.ENSEMBLE, {}, threshold=0.0)
    with pytest.raises(ValueError, match="ensemble: a decision of several networks is not one"):
        openset.traced_decision(pooled, CLASSES)


def test_values_that_float32_does_not_tell_apart_are_refused(parts):
    decision = decision_of("mls", parts)

    def exported(scores):
        calibration = decision.calibration._replace(scores=scores)
        return openset.traced_decision(
            openset.Decision(decision.score, {}, calibration=calibration), CLASSES
        )

    numbers = np.arange(len(decision.calibration.scores))
    with pytest.raises(ValueError, match="mls: 40 of the 40 scores"):
        exported(1 - 1e-10 * numbers)
    # Neighbours that become equal in pairs change no p-value by more than one example.
    pairs = exported(numbers // 2 + 1 + 1e-9 * (numbers % 2)).arrays["known_scores"]
    assert len(np.unique(pairs)) == 20
