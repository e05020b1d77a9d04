"""Long lists of attributes: the same values as protobuf reads."""

import numpy as np
import onnx
import pytest

from jaxatr.onnx.reader import lists
from jaxatr.onnx.reader.attributes import numbers, plain
from jaxatr.onnx.reader.lists import compacted
from jaxatr.onnx.reader.wire import prefix

RNG = np.random.default_rng(0)
INTS = [int(n) for n in RNG.integers(-(2**63), 2**63 - 1, 300) >> RNG.integers(0, 63, 300)]
LISTS = {
    "few": [1],
    "ints": [*INTS, 0, -1, 2**63 - 1, -(2**63), *range(300)],
    "small": list(range(-5, 200)),
    "floats": [float(n) for n in np.float32(RNG.normal(size=300))] + [float("inf"), -0.0],
    "strings": [("LEAF", "BRANCH_LEQ", "J\nJ\x04", "é" * 100)[n] for n in RNG.integers(0, 4, 300)],
}


def model_of(attributes):
    node = onnx.NodeProto(op_type="Some", domain="some", attribute=attributes)
    graph = onnx.GraphProto(name="g", node=[onnx.helper.make_node("Relu", ["x"], ["y"]), node])
    graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "w"))
    return onnx.ModelProto(ir_version=10, graph=graph)


@pytest.fixture(params=[64, 1 << 22])
def short(request, monkeypatch):
    """Every list is long, and chunks may end within an element."""
    monkeypatch.setattr(lists, "LONG", 0)
    monkeypatch.setattr(lists, "_CHUNK", request.param)
    if request.param == 64:  # a text is longer than a chunk
        return {name: values[:200] for name, values in LISTS.items()}
    return LISTS


def test_the_values_are_those_of_protobuf(short):
    given = [onnx.helper.make_attribute(name, values) for name, values in short.items()]
    given += [onnx.helper.make_attribute("axis", 3), onnx.helper.make_attribute("empty", [1])]
    del given[-1].ints[:]
    before = model_of(given)
    after = onnx.ModelProto.FromString(b"".join(compacted(before.SerializeToString())))
    assert after.graph.node[0] == before.graph.node[0]
    assert after.graph.initializer == before.graph.initializer
    for one, other in zip(given, after.graph.node[1].attribute, strict=True):
        assert other.HasField("t") == (one.name in LISTS)
        assert not other.ints and not other.floats
        assert plain(other, "n") == plain(one, "n")
        if one.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            listed, wanted = numbers(other, "n"), numbers(one, "n")
            np.testing.assert_array_equal(listed, wanted)
            assert len(listed) == len(wanted)
            assert np.array(listed, np.float32).dtype == np.float32
        if one.type == onnx.AttributeProto.STRINGS and len(one.strings):
            texts, codes = numbers(other, "n")
            assert tuple(texts[code] for code in codes) == plain(one, "n")


def test_short_lists_stay(monkeypatch):
    given = model_of([onnx.helper.make_attribute("ints", LISTS["ints"])]).SerializeToString()
    (kept,) = compacted(given)
    assert kept is given


@pytest.mark.parametrize(
    "attribute",
    [
        pytest.param(b"\x0a\x01a" + prefix(8, 3) + b"\x01\x02\x03" + b"\xa0\x01\x07", id="packed"),
        pytest.param(b"\x40\x01" + b"\x0a\x01a" + b"\x40\x01" + b"\xa0\x01\x07", id="parts"),
        pytest.param(b"\x0a\x01a" + b"\x40\x01" * 3 + b"\x3d\0\0\0\0" + b"\xa0\x01\x07", id="two"),
        pytest.param(b"\x0a\x01a" + b"\xc0\x00\x01" * 3 + b"\xa0\x01\x07", id="long tag"),
        pytest.param(
            b"\x0a\x01a" + b"\x40\x01" + prefix(5, 2) + b"\x10\x01" + b"\xa0\x01\x07", id="tensor"
        ),
    ],
)
def test_other_encodings_are_left_to_protobuf(attribute, monkeypatch):
    monkeypatch.setattr(lists, "LONG", 0)
    node = prefix(5, len(attribute)) + attribute
    graph = prefix(1, len(node)) + node
    model = prefix(7, len(graph)) + graph
    assert compacted(model) == [model]


def test_damaged_bytes_are_left_to_protobuf(short):
    whole = model_of([onnx.helper.make_attribute("ints", short["ints"][:60])]).SerializeToString()
    for end in range(len(whole)):
        try:
            wanted = onnx.ModelProto.FromString(whole[:end])
        except Exception:  # protobuf's own
            assert compacted(whole[:end]) == [whole[:end]]
        else:
            assert onnx.ModelProto.FromString(b"".join(compacted(whole[:end]))) == wanted
