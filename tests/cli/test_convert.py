import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from jaxatr.cli import convert  # noqa: E402

node = onnx.helper.make_node


@pytest.fixture
def model(tmp_path):
    """Writes a model with three unsupported nodes; returns its path."""
    value = onnx.helper.make_tensor_value_info
    weights = [onnx.numpy_helper.from_array(np.ones((4, 3, 1, 1), np.float32), "conv.weight")]
    nodes = [
        node("Conv", ["x", "conv.weight"], ["a"], "conv", strides=[1, 1]),
        node("Odd", ["a"], ["b"], "odd\n1", domain="my.domain"),
        node("Odd", ["b"], ["c"], "odd2", domain="my.domain"),
        node("Unheard", ["c"], ["y"]),
    ]
    infos = [value("x", 1, ["n", 3, 8, 8])], [value("y", 1, None)]
    graph = onnx.helper.make_graph(nodes, "g", *infos, weights)
    versions = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("my.domain", 1)]
    path = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=versions, ir_version=8), path)
    return path


def run(flags_of, *arguments):
    return convert.main(flags_of(convert, *arguments))


def test_inspect_lists_all_that_is_missing_at_once(flags_of, model, capsys):
    assert run(flags_of, "inspect", model) == 1
    text = capsys.readouterr().out
    conv = next(line for line in text.splitlines() if line.startswith("conv "))
    assert "strides=(1, 1)" in conv and "[n,3,8,8] [4,3,1,1]" in conv and "[n,4,8,8]" in conv
    assert conv.split()[-2:] == ["12", "yes"]
    assert text.count(" NO") == 3
    assert "4 nodes, 12 parameters" in text
    assert "my.domain.Odd: odd\N{REPLACEMENT CHARACTER}1, odd2" in text
    assert "Unheard: y" in text


def test_inspect_as_json(flags_of, model, capsys):
    run(flags_of, "inspect", model, "--json")
    found = json.loads(capsys.readouterr().out)
    assert [layer["operator"] for layer in found] == ["Conv", "Odd", "Odd", "Unheard"]
    assert [layer["supported"] for layer in found] == [True, False, False, False]


def test_a_flag_of_another_sub_command_is_refused(flags_of, model, tmp_path):
    for arguments, message in (
        (["inspect", model, f"--out={tmp_path}"], "--out is a flag of import, export, but not of"),
        (["import", model, "--score=cbc"], "--score is a flag of export, but not of import"),
        (["import", model, "--takes=chips"], "--takes is a flag of export, but not of import"),
        (["export", "--json"], "--json is a flag of inspect, describe, but not of export"),
    ):
        with pytest.raises(ValueError, match=message):
            run(flags_of, *arguments)


def test_import_writes_the_module(flags_of, model, tmp_path, capsys):
    proto = onnx.load(model)
    del proto.graph.node[1:]
    proto.graph.output[0].name = "a"
    onnx.save(proto, model)
    assert run(flags_of, "import", model, f"--out={tmp_path / 'out'}") is None
    assert "model.py: " in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"model.py", "weights.safetensors", "README.md"}


def test_import_names_missing_operators(flags_of, model, tmp_path):
    with pytest.raises(ValueError, match="Unheard"):
        run(flags_of, "import", model, f"--out={tmp_path / 'out'}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "no sub-command given, wanted one of"),
        (["impor"], "did you mean 'import'"),
        (["inspect"], "wanted one ONNX file, got none"),
        (["inspect", "missing.onnx"], "there is no file 'missing.onnx'"),
    ],
)
def test_wrong_arguments_are_named(flags_of, arguments, message):
    with pytest.raises(ValueError, match=message):
        run(flags_of, *arguments)


def test_import_needs_a_folder(flags_of, model):
    with pytest.raises(ValueError, match="--out is required"):
        run(flags_of, "import", model)
