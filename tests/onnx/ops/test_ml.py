"""Operators of ``ai.onnx.ml``: trees, support vectors, labels, maps."""

import jax
import numpy as np
import pytest

from jaxatr import onnx as importer

onnx = pytest.importorskip("onnx")
from jaxatr.onnx import ops  # noqa: E402 (it needs the package)

ML = "ai.onnx.ml"
FLOAT, INT64, STRING = 1, 7, 8
RNG = np.random.default_rng(0)
X = np.float32(RNG.normal(size=(40, 4)))
HOLED = np.where(RNG.random(X.shape) < 0.1, np.float32(np.nan), X)


def proto_of(operator, attributes, kinds, version=3):
    node = onnx.helper.make_node(
        operator, ["x"], [f"y{i}" for i in range(len(kinds))], domain=ML, **attributes
    )
    results = [
        onnx.helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(kinds)
    ]
    x = onnx.helper.make_tensor_value_info("x", FLOAT, ["n", 4])
    graph = onnx.helper.make_graph([node], "ml", [x], results)
    versions = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid(ML, version)]
    return onnx.helper.make_model(graph, opset_imports=versions, ir_version=8)


def results_of(proto, x):
    model = importer.load(proto)
    texts = any(output.dtype == "str" for output in model.outputs)  # jit cannot return them
    made = (model.apply if texts else jax.jit(model.apply))(model.variables, x)
    return [np.asarray(m) for m in (made if isinstance(made, tuple) else (made,))]


def agree(made, expected):
    for one, other in zip(made, expected, strict=True):
        if one.dtype == object:
            assert one.tolist() == list(other)
        else:
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, atol=1e-5)


def forest(kind, columns, positive=False, trees=5):
    """Returns the attributes of random trees whose leaves have a weight for each column."""
    rng = np.random.default_rng(1)
    names = "treeids nodeids modes featureids values truenodeids falsenodeids"
    found = {f"nodes_{name}": [] for name in names.split()}
    said = {f"{kind}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}

    def grown(tree, depth):
        at = len([t for t in found["nodes_treeids"] if t == tree])
        for key in found:
            found[key].append(tree if key == "nodes_treeids" else 0)
        leaf = depth == 0 or (depth < 3 and rng.random() < 0.2)
        mode = "LEAF" if leaf else f"BRANCH_{rng.choice(['LEQ', 'LT', 'GTE', 'GT'])}"
        row = [tree, at, mode, int(rng.integers(4)), float(np.float32(rng.normal())), 0, 0]
        place = len(found["nodes_modes"]) - 1
        if leaf:
            for column in columns:
                weight = float(rng.normal())
                says = (tree, at, column, abs(weight) / 12 if positive else weight)
                for key, value in zip(said, says, strict=True):
                    said[key].append(value)
        else:
            row[5:] = grown(tree, depth - 1), grown(tree, depth - 1)
        for key, value in zip(found, row, strict=True):
            found[key][place] = value
        return at

    for tree in range(trees):
        grown(tree, 3)
    tracks = rng.integers(0, 2, len(found["nodes_modes"])).tolist()
    return {**found, **said, "nodes_missing_value_tracks_true": tracks}


BASE = {"base_values": [0.5, -1.0, 2.0]}


@pytest.mark.parametrize(
    ("function", "base"),
    [
        *((function, BASE) for function in ("SUM", "AVERAGE", "MIN", "MAX")),
        ("SUM", {}),
        *(pytest.param(f, {}, marks=pytest.mark.slow) for f in ("AVERAGE", "MIN", "MAX")),
    ],
)
def test_trees_that_regress(function, base):
    from onnx.reference import ReferenceEvaluator

    attributes = forest("target", (0, 1, 2)) | base
    attributes |= {"n_targets": 3, "aggregate_function": function}
    proto = proto_of("TreeEnsembleRegressor", attributes, [FLOAT])
    agree(results_of(proto, HOLED), ReferenceEvaluator(proto).run(None, {"x": HOLED}))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_trees_that_classify(transform, onnxruntime):
    attributes = forest("class", (0, 1, 2)) | {"post_transform": transform}
    attributes["classlabels_int64s"] = [4, 5, 9]
    proto = proto_of("TreeEnsembleClassifier", attributes, [INT64, FLOAT])
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    agree(results_of(proto, HOLED), session.run(None, {"x": HOLED}))


@pytest.mark.parametrize(
    ("transform", "positive"), [("NONE", False), ("NONE", True), ("LOGISTIC", False)]
)
def test_trees_of_two_classes_one_of_which_is_scored(transform, positive, onnxruntime):
    attributes = forest("class", (0,), positive) | {"post_transform": transform}
    attributes |= {"classlabels_strings": ["no", "yes"], "base_values": [0.25]}
    proto = proto_of("TreeEnsembleClassifier", attributes, [STRING, FLOAT])
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    made = results_of(proto, X)
    agree(made, session.run(None, {"x": X}))
    assert set(made[0]) == {"no", "yes"}


def test_trees_with_tensors_for_attributes_and_under_jit():
    plain = forest("target", (0,))
    tensors = dict(plain)
    for key in ("nodes_values", "target_weights"):
        array = np.array(tensors.pop(key), np.float32)
        tensors[f"{key}_as_tensor"] = onnx.numpy_helper.from_array(array)
    model = importer.load(proto_of("TreeEnsembleRegressor", tensors, [FLOAT]))
    result = jax.jit(model.apply)(model.variables, X)
    (expected,) = results_of(proto_of("TreeEnsembleRegressor", plain, [FLOAT], 1), X)
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_the_source_of_trees_keeps_their_tables_beside_the_weights(tmp_path, onnxruntime):
    attributes = forest("class", (0, 1, 2), trees=12) | {"classlabels_strings": ["a", "b", "c"]}
    proto = proto_of("TreeEnsembleClassifier", attributes, [STRING, FLOAT])
    source = importer.generate(proto, tmp_path).read_text()
    assert len(source.splitlines()) < 40
    variables = importer.load_weights(tmp_path / "weights.safetensors")
    scope = {"__name__": "generated"}
    exec(source, scope)
    made = scope["Model"]().apply(variables, HOLED)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    agree(list(map(np.asarray, made)), session.run(None, {"x": HOLED}))


def test_a_classifier_with_names_is_compiled_up_to_the_names(onnxruntime):
    attributes = forest("class", (0, 1, 2)) | {"classlabels_strings": ["a", "b", "c"]}
    proto = proto_of("TreeEnsembleClassifier", attributes, [STRING, FLOAT])
    made = importer.load(proto)(HOLED)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    agree(list(map(np.asarray, made)), session.run(None, {"x": HOLED}))


def test_trees_whose_leaves_have_few_of_many_columns():
    attributes = forest("target", (7,)) | {"n_targets": 1000}
    (made,) = results_of(proto_of("TreeEnsembleRegressor", attributes, [FLOAT]), X)
    narrow = {**attributes, "n_targets": 1, "target_ids": [0] * len(attributes["target_ids"])}
    (expected,) = results_of(proto_of("TreeEnsembleRegressor", narrow, [FLOAT]), X)
    np.testing.assert_allclose(made[:, 7], expected[:, 0], rtol=1e-6)
    assert not np.delete(made, 7, 1).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_truenodeids": [0] * 100}, "wanted .* one for each node"),
        ({"nodes_featureids": 7}, "nodes_featureids: an index is out of range for 4 features"),
        ({"target_ids": 2**40}, "the column of a weight is out of range"),
        ({"target_nodeids": 99}, "a weight belongs to a node that is not a leaf"),
        ({"nodes_nodeids": 0}, "two nodes of a tree have the same number"),
    ],
)
def test_trees_that_cannot_be(change, message):
    attributes = forest("target", (0,), trees=1)
    for key, value in change.items():
        attributes[key] = value if isinstance(value, list) else [value] * len(attributes[key])
    proto = proto_of("TreeEnsembleRegressor", attributes, [FLOAT])
    with pytest.raises(ValueError, match=rf"node 'y0' \(TreeEnsembleRegressor\): .*{message}"):
        results_of(proto, X)


def test_a_tree_with_a_circle_and_one_of_absurdly_many_columns():
    attributes = forest("target", (0,), trees=1)
    inner = attributes["nodes_modes"].index("LEAF") - 1
    attributes["nodes_truenodeids"][inner] = 0
    with pytest.raises(ValueError, match="a node is its own descendant"):
        results_of(proto_of("TreeEnsembleRegressor", attributes, [FLOAT]), X)
    attributes = forest("target", (0,), trees=1) | {"n_targets": 2**40}
    with pytest.raises(ValueError, match="wanted at most"):
        results_of(proto_of("TreeEnsembleRegressor", attributes, [FLOAT]), X)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors_that_regress(kernel, onnxruntime):
    attributes = {
        "coefficients": RNG.normal(size=6).tolist(),
        "kernel_params": [0.3, 0.5, 3.0],
        "kernel_type": kernel,
        "n_supports": 6,
        "rho": [0.2],
        "support_vectors": RNG.normal(size=24).tolist(),
    }
    for one_class in (0, 1):
        proto = proto_of("SVMRegressor", attributes | {"one_class": one_class}, [FLOAT], 1)
        session = onnxruntime.InferenceSession(proto.SerializeToString())
        agree(results_of(proto, X), session.run(None, {"x": X}))


def test_support_vectors_without_vectors_are_linear():
    weights = RNG.normal(size=4)
    attributes = {"coefficients": weights.tolist(), "rho": [0.5]}
    (made,) = results_of(proto_of("SVMRegressor", attributes, [FLOAT], 1), X)
    np.testing.assert_allclose(made[:, 0], X @ weights + 0.5, atol=1e-5)
    attributes = {"coefficients": [*weights, *-weights], "rho": [0.5]}
    attributes["classlabels_strings"] = ["a", "b"]
    labels, scores = results_of(proto_of("SVMClassifier", attributes, [STRING, FLOAT], 1), X)
    expected = np.stack([X @ weights + 0.5, 0.5 - X @ weights], 1)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert labels.tolist() == ["ab"[i] for i in expected.argmax(1)]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("probable", [False, True])
def test_support_vectors_that_classify(classes, probable, onnxruntime):
    sizes, pairs = [3, 2, 4, 2][:classes], classes * (classes - 1) // 2
    attributes = {
        "coefficients": RNG.normal(size=sum(sizes) * (classes - 1)).tolist(),
        "kernel_params": [0.3, 0.5, 2.0],
        "kernel_type": "RBF",
        "rho": RNG.normal(size=pairs).tolist(),
        "support_vectors": RNG.normal(size=sum(sizes) * 4).tolist(),
        "vectors_per_class": sizes,
        "classlabels_ints": list(range(10, 10 + classes)),
    }
    if probable:
        attributes["prob_a"] = (-np.abs(RNG.normal(size=pairs)) - 0.5).tolist()
        attributes["prob_b"] = RNG.normal(size=pairs).tolist()
    proto = proto_of("SVMClassifier", attributes, [INT64, FLOAT], 1)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    made = results_of(proto, X)
    agree(made, session.run(None, {"x": X}))
    if probable:
        np.testing.assert_allclose(made[1].sum(1), 1, atol=1e-5)


def test_malformed_support_vector_machines_are_refused():
    with pytest.raises(ValueError, match=r"kernel_type: got 'COSINE'"):
        ops.svm_regressor(
            X, coefficients=(1.0,), kernel_type="COSINE", n_supports=1, rho=(0.0,),
            support_vectors=(1.0,) * 4,
        )  # fmt: skip
    with pytest.raises(ValueError, match=r"support_vectors: got 3 numbers, wanted rows of 4"):
        ops.svm_regressor(
            X, coefficients=(1.0,), n_supports=1, rho=(0.0,), support_vectors=(1.0,) * 3
        )


def test_categories_and_labels_both_ways():
    texts, numbers = np.array(["b", "?", "a"], object), np.array([7, 0, 3])
    found = {"cats_int64s": (3, 7), "cats_strings": ("a", "b")}
    assert ops.category_mapper(texts, **found).tolist() == [7, -1, 3]
    assert ops.category_mapper(numbers, **found).tolist() == ["b", "_Unused", "a"]
    places = np.array([1, 5, 0])
    assert ops.label_encoder_classes(texts, classes_strings=("a", "b")).tolist() == [1, -1, 0]
    made = ops.label_encoder_classes(places, classes_strings=("a", "b"), default_string="none")
    assert made.tolist() == ["b", "none", "a"]


@pytest.mark.parametrize(
    ("values", "default"),
    [(np.float32([0.5]), 0.0), (np.int64([4]), -1), (np.array(["a"], object), "_Unused")],
)
def test_the_default_label_has_the_type_of_the_values(values, default):
    with ops.wide():
        made = ops.label_encoder(np.int64([7, 8]), keys_tensor=np.int64([7]), values_tensor=values)
    assert made.tolist() == [values[0], default]


def test_numbers_of_unknown_functions_of_trees_are_named():
    for name in ("aggregate_function", "post_transform"):
        with pytest.raises(ValueError, match=f"{name}: got 9, wanted 0 to"):
            ops.tree_ensemble(X, **one_leaf(), **{name: 9})


def one_leaf():
    """Returns the attributes of a tree with one comparison."""
    return {
        "leaf_targetids": (0, 0),
        "leaf_weights": np.float32([1, 2]),
        "nodes_falseleafs": (1,),
        "nodes_falsenodeids": (0,),
        "nodes_featureids": (0,),
        "nodes_modes": np.uint8([0]),
        "nodes_splits": np.float32([0]),
        "nodes_trueleafs": (1,),
        "nodes_truenodeids": (1,),
        "tree_roots": (0,),
    }


def test_maps():
    rows = np.float32([[0.25, 0.75], [1, 0]])
    maps = ops.zip_map(rows, classlabels_strings=("a", "b"))
    assert maps == [{"a": 0.25, "b": 0.75}, {"a": 1.0, "b": 0.0}]
    np.testing.assert_array_equal(
        ops.dict_vectorizer(maps, string_vocabulary=("b", "c", "a")), [[0.75, 0, 0.25], [0, 0, 1]]
    )
    assert ops.dict_vectorizer({2: 5.0}, int64_vocabulary=(1, 2)).tolist() == [[0, 5]]
    with pytest.raises(ValueError, match="keys {'a'} that the vocabulary lacks"):
        ops.dict_vectorizer({"a": 1.0}, string_vocabulary=("b",))
    assert ops.cast_map({5: 2.5, 1: 1.5}, cast_to="TO_INT64").tolist() == [[1, 2]]
    sparse = ops.cast_map({2: "z"}, cast_to="TO_STRING", map_form="SPARSE", max_map=4)
    assert sparse.tolist() == [["", "", "z", ""]]
    with pytest.raises(ValueError, match="wanted 0 to 3"):
        ops.cast_map({4: 1.0}, map_form="SPARSE", max_map=4)


def test_a_classifier_whose_scores_become_maps():
    proto = proto_of(
        "LinearClassifier",
        {"coefficients": [1.0] * 4 + [-1.0] * 4, "classlabels_ints": [0, 1]},
        [INT64, FLOAT],
        1,
    )
    zipped = onnx.helper.make_node("ZipMap", ["y1"], ["z"], domain=ML, classlabels_int64s=[0, 1])
    proto.graph.node.append(zipped)
    kind = onnx.helper.make_map_type_proto(INT64, onnx.helper.make_tensor_type_proto(FLOAT, []))
    sequence = onnx.helper.make_sequence_type_proto(kind)
    proto.graph.output[1].CopyFrom(onnx.helper.make_value_info("z", sequence))
    model = importer.load(proto)
    _, maps = model.apply(model.variables, X[:2])
    np.testing.assert_allclose([row[0] for row in maps], X[:2].sum(1), atol=1e-5)
    labels, compiled = model(X[:2])  # the maps are made of what the compiled part computes
    np.testing.assert_array_equal(labels, X[:2].sum(1) < 0)
    assert [list(row) for row in compiled] == [[0, 1]] * 2
    np.testing.assert_allclose([row[0] for row in compiled], X[:2].sum(1), atol=1e-5)
    with pytest.raises(ValueError, match=r"\(ZipMap\): x: got .* its value must be known"):
        jax.jit(model.apply)(model.variables, X[:2])


def test_a_computed_class_picks_its_label(onnxruntime):
    nodes = [
        onnx.helper.make_node("ArgMax", ["x"], ["best"], axis=1, keepdims=0),
        onnx.helper.make_node("ArrayFeatureExtractor", ["labels", "best"], ["y0"], domain=ML),
    ]
    proto = proto_of("Scaler", {}, [INT64])
    labels = np.array([10, 30, 20, 40])
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(labels, "labels"))
    made = importer.load(proto)(X)
    np.testing.assert_array_equal(made, labels[X.argmax(1)][None])
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    agree([np.asarray(made)], session.run(None, {"x": X}))


def test_a_linear_classifier_reads_as_many_rows_as_it_has_intercepts():
    model = importer.load(
        proto_of(
            "LinearClassifier",
            {
                "coefficients": [float(i) for i in range(3 * X.shape[1] + 5)],
                "intercepts": [0.1, 0.2, 0.3],
                "classlabels_ints": [0, 1, 2],
            },
            [INT64, FLOAT],
            1,
        )
    )
    _, scores = model(X[:2])
    weights = np.arange(3 * X.shape[1], dtype=np.float32).reshape(3, -1)
    np.testing.assert_allclose(scores, X[:2] @ weights.T + [0.1, 0.2, 0.3], rtol=1e-5)
