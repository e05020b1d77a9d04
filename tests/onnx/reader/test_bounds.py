"""Hostile files cost bounded time and memory, and the error names the node."""

import jax
import numpy as np
import pytest

from jaxatr import onnx as importer

onnx = pytest.importorskip("onnx")
from jaxatr.onnx import ops  # noqa: E402
from jaxatr.onnx.ops import registry  # noqa: E402
from jaxatr.onnx.reader import inspection, lowering, variables  # noqa: E402
from jaxatr.onnx.reader.names import UniqueNames  # noqa: E402

node = onnx.helper.make_node


def ints(*values):
    return np.array(values, np.int64)


def applied(proto, *inputs):
    model = importer.load(proto)
    return model.apply(model.variables, *inputs)


def nested_functions(levels, times, last="Neg"):
    """Returns functions that each call the previous one ``times`` times."""
    versions = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("own", 1)]
    made = []
    for level in range(levels):
        operator, domain = (f"F{level - 1}", "own") if level else (last, "")
        nodes = [
            node(operator, ["x" if i == 0 else f"v{i - 1}"], [f"v{i}"], domain=domain)
            for i in range(times)
        ]
        made.append(
            onnx.helper.make_function("own", f"F{level}", ["x"], [f"v{times - 1}"], nodes, versions)
        )
    return made


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_windows_of_many_taps_are_one_operation(built, operator):
    taps = [1, 60000]
    pads = [0, 30000, 0, 30000]
    nodes = [node(operator, ["x"], ["y"], kernel_shape=taps, pads=pads)]
    x = np.float32(np.random.default_rng(0).normal(size=(1, 1, 4, 300)))
    y = applied(built(nodes, {"x": [1, 1, 4, 300]}, "y"), x)
    wanted = x.max(3) if operator == "MaxPool" else x.mean(3)
    np.testing.assert_allclose(y[..., 0], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("made", "inputs"),
    [
        (node("MaxPool", ["x"], ["y"], "n", kernel_shape=[2, 2], pads=[1 << 20] * 4), {}),
        (node("Conv", ["x", "w"], ["y"], "n", pads=[1 << 20] * 4), {"w": np.ones((1, 1, 2, 2))}),
        (node("OneHot", ["i", "d", "v"], ["y"], "n"), {"d": np.int64(2**45)}),
        (node("RandomNormal", [], ["y"], "n", shape=[2**45]), {}),
        (node("RandomUniform", [], ["y"], "n", shape=[2**45]), {}),
        (node("Multinomial", ["x2"], ["y"], "n", sample_size=2**45), {}),
        (node("Resize", ["x", "", "s"], ["y"], "n", mode="linear", antialias=1),
         {"s": np.float32([1, 1, 1e-9, 1e-9])}),
        (node("Split", ["x"], ["y"], "n", num_outputs=2**62), {}),
        (node("MaxRoiPool", ["x", "r"], ["y"], "n", pooled_shape=[2**40, 1]),
         {"r": np.zeros((1, 5))}),
    ],
)  # fmt: skip
def test_absurd_sizes_are_refused_before_they_are_made(built, made, inputs):
    weights = {"i": ints(0), "v": np.float32([0, 1]), "x2": np.float32([[0, 1]]), **inputs}
    weights = {k: v.astype(np.float32) if v.dtype == float else v for k, v in weights.items()}
    proto = built([made], {"x": [1, 1, 4, 4]}, "y", weights)
    with pytest.raises(ValueError, match=r"node 'n' .*(wanted at most|the node has 1 outputs)"):
        applied(proto, np.zeros((1, 1, 4, 4), np.float32))


def test_too_little_memory_names_the_node(built):
    def greedy(x):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")

    proto = built(
        [node("Greedy", ["x"], ["y"], "n", domain="own")], {"x": [1]}, "y", domains=["own"]
    )
    with registry.restored():
        importer.register("Greedy", domain="own")(greedy)
        with pytest.raises(ValueError, match=r"node 'n' \(Greedy\): RESOURCE"):
            applied(proto, np.zeros(1, np.float32))


def test_texts_of_absurd_lengths_and_lists_that_end_elsewhere():
    facts = {"max_gram_length": 2**62, "max_skip_count": 2**62, "min_gram_length": 1, "mode": "TF"}
    pool = {"ngram_indexes": (0, 1), "pool_int64s": (2, 5, 4), "ngram_counts": (0, 1)}
    found = ops.tf_idf_vectorizer(ints(5, 2, 4), **facts, **pool)
    assert found.tolist() == [1, 1]
    with pytest.raises(ValueError, match="ngram_counts: .* wanted positions in a pool of 3"):
        ops.tf_idf_vectorizer(ints(5), **facts, **pool | {"ngram_counts": (0, 2**62)})
    with pytest.raises(ValueError, match="wanted at most"):
        ops.tf_idf_vectorizer(ints(5), **facts, **pool | {"ngram_indexes": (0, 2**40)})
    with pytest.raises(ValueError, match="wanted at least 1 and 0"):
        ops.tf_idf_vectorizer(ints(5), **facts | {"min_gram_length": -(2**62)}, **pool)


def test_functions_in_functions_are_looked_at_once(built, monkeypatch):
    functions = nested_functions(14, 4, last="Nope")
    top = node("F13", ["x"], ["y"], "top", domain="own")
    proto = built([top], {"x": [1]}, "y", domains=["own"], functions=functions)
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", None)  # 4^14 nodes
    (layer,) = importer.layers(proto)
    assert not layer.supported and layer.missing == ("Nope",)
    assert "  Nope: top" in inspection.summary([layer])
    monkeypatch.setattr(lowering, "MOST", 500)
    with pytest.raises(ValueError, match="more than 500 nodes after expansion"):
        importer.load(proto)


def test_a_value_missing_in_a_function_or_a_graph_in_it_is_named(built):
    def graph(operator):
        result = [onnx.helper.make_value_info("z", onnx.TypeProto())]
        return onnx.helper.make_graph([node(operator, ["p"], ["z"])], operator, [], result)

    chosen = node("If", ["c"], ["q"], then_branch=graph("Nope"), else_branch=graph("Neg"))
    versions = [onnx.helper.make_opsetid("", 18)]
    function = onnx.helper.make_function("own", "F", ["p", "c"], ["q"], [chosen], versions)
    nodes = [node("F", ["x", "c"], ["y"], "call", domain="own")]
    proto = built(nodes, {"x": [1], "c": ("bool", [1])}, "y", domains=["own"], functions=[function])
    assert importer.layers(proto)[0].missing == ("Nope",)
    with pytest.raises(ValueError, match="  Nope: .*then_branch/z"):
        importer.load(proto)


def test_functions_that_call_each_other_end(built):
    versions = [onnx.helper.make_opsetid("own", 1)]
    functions = [
        onnx.helper.make_function("own", a, ["x"], ["y"], [node(b, ["x"], ["y"], domain="own")],
                                  versions)
        for a, b in (("A", "B"), ("B", "A"))
    ]  # fmt: skip
    proto = built([node("A", ["x"], ["y"], domain="own")], {"x": [1]}, "y", domains=["own"],
                  functions=functions)  # fmt: skip
    assert not importer.layers(proto)[0].supported
    chain = nested_functions(3000, 1)
    top = node("F2999", ["x"], ["y"], domain="own")
    proto = built([top], {"x": [1]}, "y", domains=["own"], functions=chain)
    assert len(importer.layers(proto)) == 1
    with pytest.raises(ValueError, match="more than 32 deep"):
        importer.load(proto)


def test_names_that_are_all_the_same_are_counted_on():
    names = UniqueNames()
    assert [names.fresh("a", "") for _ in range(4)] == ["a", "a_2", "a_3", "a_4"]
    assert [names.fresh("", "p") for _ in range(2)] == ["p/", "p/_2"]
    assert names.fresh("a", "p") == "p/a"
    names = UniqueNames()
    for _ in range(20000):
        names.fresh("same", "p")
    assert names.counts["p/same"] == 19999


def folds(built, count, size):
    nodes = [node("ConstantOfShape", ["s"], ["a0"])]
    nodes += [node("Add", [f"a{i}", "one"], [f"a{i + 1}"]) for i in range(count)]
    nodes.append(node("Add", ["x", f"a{count}"], ["y"]))
    return built(nodes, {"x": [1]}, "y", {"s": ints(size), "one": ints(1)}), count


def test_folds_of_a_model_have_one_budget(built, monkeypatch):
    proto, count = folds(built, 12, 1000)
    assert len(importer.load(proto).program.calls) == 1
    monkeypatch.setattr(variables, "FOLDS", 20_000)
    model = importer.load(proto)
    assert 1 < len(model.program.calls) < count
    x = np.float32([1])
    np.testing.assert_allclose(model.apply(model.variables, x), np.full(1000, 13.0))


def test_values_for_shapes_are_folded_without_a_budget(built, monkeypatch):
    monkeypatch.setattr(variables, "FOLDS", 0)
    nodes = [node("Shape", ["big"], ["s"]), node("Concat", ["s", "s"], ["t"], axis=0)]
    nodes += [node("Gather", ["t", "zero"], ["u"]), node("Reshape", ["x", "u"], ["y"])]
    model = importer.load(
        built(nodes, {"x": [2, 3]}, "y", {"big": np.zeros(6, np.int64), "zero": ints(0)})
    )
    assert [call.operator.name for call in model.program.calls] == ["Reshape"]
    assert set(model.known) == {"u"}


def test_folded_values_that_are_no_longer_read_are_dropped(built, monkeypatch):
    kept = {}
    folding = variables._Folding.folded

    def spied(self, program):
        made = folding(self, program)
        kept.update(self.known)
        return made

    monkeypatch.setattr(variables._Folding, "folded", spied)
    importer.load(folds(built, 12, 1000)[0])
    assert set(kept) == {"a12"}


def test_a_functions_tensors_are_read_once(built):
    value = onnx.numpy_helper.from_array(np.arange(4000), "c")
    body = [node("Constant", [], ["c"], value=value), node("Gather", ["c", "p"], ["q"])]
    versions = [onnx.helper.make_opsetid("", 18)]
    function = onnx.helper.make_function("own", "F", ["p"], ["q"], body, versions)
    nodes = [node("F", ["x"], [f"y{i}"], domain="own") for i in range(5)]
    proto = built(nodes, {"x": ("int64", [1])}, [f"y{i}" for i in range(5)], domains=["own"],
                  functions=[function])  # fmt: skip
    lowered = lowering.lower(proto, None)
    assert len(lowered.constants) == 5
    assert len({id(value) for value in lowered.constants.values()}) == 1
    model = importer.load(proto)
    assert len({id(value) for value in model.variables["constants"].values()}) == 1
    assert [int(y[0]) for y in model.apply(model.variables, ints(7))] == [7] * 5


def test_an_attribute_of_the_caller_is_each_calls_own(built):
    body = node("LeakyRelu", ["p"], ["q"])
    body.attribute.append(
        onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    )
    versions = [onnx.helper.make_opsetid("", 18)]
    function = onnx.helper.make_function("own", "F", ["p"], ["q"], [body], versions, ["slope"])
    nodes = [node("F", ["x"], [f"y{slope}"], domain="own", slope=float(slope)) for slope in (2, 3)]
    proto = built(nodes, {"x": [1]}, ["y2", "y3"], domains=["own"], functions=[function])
    assert [float(y[0]) for y in applied(proto, np.float32([-1]))] == [-2, -3]


def test_a_loop_that_would_be_traced_without_end_becomes_one_of_xlas(built):
    def body(i, cond, x):
        return cond, x + 1

    looped = jax.jit(lambda x: ops.loop(2**40, True, x, body=body, outputs=1))
    jaxpr = str(jax.make_jaxpr(looped)(np.float32([0])))
    assert "while" in jaxpr
    counted = jax.jit(lambda x: ops.loop(3000, None, x, body=body, outputs=1))
    np.testing.assert_allclose(counted(np.float32([0])), [3000])
    with pytest.raises(ValueError, match="must be known, and at most 1024"):
        jax.eval_shape(
            lambda x: ops.loop(
                2**40, True, x, body=lambda i, c, v: (c, v + 1, v), outputs=2
            ), np.float32([0])
        )  # fmt: skip


def test_resizing_takes_memory_for_its_result(built):
    x = np.float32(np.random.default_rng(0).normal(size=(1, 20000)))
    nodes = [node("Resize", ["x", "", "s"], ["y"], mode="linear")]
    proto = built(nodes, {"x": [1, 20000]}, "y", {"s": np.float32([1, 2])})
    model = importer.load(proto)
    compiled = jax.jit(model.apply).lower(model.variables, x).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes + memory.generated_code_size_in_bytes < 8e6  # was 3.2e9
    at = (np.arange(40000) + 0.5) / 2 - 0.5
    wanted = np.interp(np.clip(at, 0, 19999), np.arange(20000), x[0])
    np.testing.assert_allclose(model.apply(model.variables, x)[0], wanted, atol=1e-5)


def test_shape_inference_still_helps_with_functions(built):
    functions = nested_functions(2, 2)
    nodes = [node("F1", ["x"], ["a"], domain="own"), node("Neg", ["a"], ["y"])]
    proto = built(nodes, {"x": [3]}, "y", domains=["own"], functions=functions)
    assert importer.layers(proto)[1].inputs[0].shape == (3,)
