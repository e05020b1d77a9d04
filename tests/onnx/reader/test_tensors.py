"""Tensors of a file: all types, mismatched sizes and external data."""

import os

import numpy as np
import pytest

from jaxatr import onnx as importer
from jaxatr.onnx.ops.dtypes import NAMES, dtype_of
from jaxatr.onnx.reader.tensors import to_array, to_dense

onnx = pytest.importorskip("onnx")


def values(name):
    dtype = dtype_of(name)
    if name == "str":
        return np.array(["a", "", "é"], object)
    if dtype.kind == "c":
        return np.array([1 + 2j, -3j, 0.5], dtype)
    low = 1 if name == "float8_e8m0fnu" else 0 if name.startswith(("u", "b")) else -1
    return np.array([low, 1, 0 if low < 1 else 2], np.float64).astype(dtype)


@pytest.mark.parametrize("number", NAMES)
@pytest.mark.parametrize("raw", [True, False])
def test_every_type_as_onnx_reads_it(number, raw):
    name = NAMES[number]
    array = values(name)
    if raw:
        if name == "str":
            return
        tensor = onnx.numpy_helper.from_array(array, "t")
    else:
        listed = array.tolist() if name != "str" else [t.encode() for t in array]
        tensor = onnx.helper.make_tensor("t", number, array.shape, listed)
    got = to_array(tensor)
    assert got.dtype == array.dtype and got.shape == array.shape
    np.testing.assert_array_equal(got.astype(object), array.astype(object))


def test_the_size_is_checked_before_anything_is_made():
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2**40, 2**20], raw_data=b"abcd")
    with pytest.raises(ValueError, match=r"tensor 'w': got 4 bytes, wanted 4611686018427387904"):
        to_array(tensor)
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2**40], float_data=[1.0])
    with pytest.raises(ValueError, match="tensor 'w': got 1 values, wanted 1099511627776"):
        to_array(tensor)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data_type": 99}, "got type 99"),
        ({"data_type": 1, "dims": [-1]}, "wanted no negative dimension"),
        ({"data_type": 1, "dims": [1] * 40, "raw_data": b"abcd"}, "got 40 dimensions"),
        ({"data_type": 8, "dims": [1], "raw_data": b"a"}, "strings cannot be stored as raw"),
        ({"data_type": 8, "dims": [1], "string_data": [b"\xe9"]}, "'w': a string is not .* UTF-8"),
    ],
)
def test_impossible_tensors_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        to_array(onnx.TensorProto(name="w", **fields))


def test_a_sparse_tensor():
    sparse = onnx.SparseTensorProto(dims=[2, 3])
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.float32([5, 7]), "s"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.int64([1, 5]), "i"))
    np.testing.assert_array_equal(to_dense(sparse), [[0, 5, 0], [0, 0, 7]])
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.int64([[0, 1], [1, 2]]), "i"))
    np.testing.assert_array_equal(to_dense(sparse), [[0, 5, 0], [0, 0, 7]])
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.int64([[0, 1], [2, 2]]), "i"))
    with pytest.raises(ValueError, match="an index is out of range"):
        to_dense(sparse)
    sparse.dims[:] = [2**40, 2**20]
    with pytest.raises(ValueError, match="wanted at most"):
        to_dense(sparse)


def external(location, **entries):
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


@pytest.fixture
def folder(tmp_path):
    home = tmp_path / "model"
    (home / "inner").mkdir(parents=True)
    np.float32([1, 2, 3]).tofile(home / "weights")
    np.float32([4, 5]).tofile(home / "inner" / "weights")
    np.float32([6, 6]).tofile(tmp_path / "secret")
    return home


def test_data_beside_the_model(folder):
    assert to_array(external("weights", length=8), folder).tolist() == [1, 2]
    assert to_array(external("weights", offset=4, length=8), folder).tolist() == [2, 3]
    assert to_array(external("inner/weights"), folder).tolist() == [4, 5]


@pytest.mark.parametrize("location", ["../secret", "inner/../../secret", "/etc/hostname", ""])
def test_data_outside_of_the_folder(folder, location):
    with pytest.raises(ValueError, match="tensor 'w': got the location"):
        to_array(external(location), folder)


def test_links_are_not_followed(folder):
    os.symlink(folder.parent / "secret", folder / "link")
    os.symlink(folder.parent, folder / "up")
    for location in ("link", "up/secret"):
        with pytest.raises(ValueError, match="is a symbolic link"):
            to_array(external(location), folder)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"length": 2**40}, "got 1099511627776 bytes at 0, but 'weights' has only 12"),
        ({"offset": -4}, "got 16 bytes at -4"),
        ({"offset": "x"}, "are not numbers"),
        ({}, "got 12 bytes, wanted 8"),
    ],
)
def test_data_of_the_wrong_size(folder, entries, message):
    with pytest.raises(ValueError, match=message):
        to_array(external("weights", **entries), folder)


def test_a_model_that_was_no_file_has_no_data_beside_it():
    with pytest.raises(ValueError, match="the model was not read from a file"):
        to_array(external("weights"))


def test_data_of_an_attribute_and_of_a_sparse_tensor_beside_the_file(built, tmp_path):
    values = np.float32([5, 7])
    values.tofile(tmp_path / "w.bin")

    def outside(name, first, count):
        tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[count])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        place = {"location": "w.bin", "offset": 4 * first, "length": 4 * count}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    node = onnx.helper.make_node
    nodes = [
        node("Constant", [], ["c"], "c", value=outside("c", 0, 2)),
        node("Add", ["x", "c"], ["a"]),
        node("Add", ["a", "s"], ["y"]),
    ]
    model = built(nodes, {"x": [2]}, "y")
    indices = onnx.numpy_helper.from_array(np.array([1], np.int64))
    sparse = onnx.SparseTensorProto(values=outside("s", 1, 1), indices=indices, dims=[2])
    model.graph.sparse_initializer.append(sparse)
    onnx.save(model, tmp_path / "m.onnx")
    read = importer.load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(read.apply(read.variables, np.zeros(2, np.float32)), [5, 14])
    with pytest.raises(ValueError, match="'w.bin', but the model was not read from a file"):
        importer.load((tmp_path / "m.onnx").read_bytes())
    (tmp_path / "other").mkdir()
    nodes[0].attribute[0].t.external_data[0].value = "../w.bin"
    model = built(nodes[:2], {"x": [2]}, "a")
    onnx.save(model, tmp_path / "other" / "m.onnx")
    with pytest.raises(ValueError, match="wanted a path in the folder"):
        importer.load(tmp_path / "other" / "m.onnx")
