"""PyTorch files: against the reader of PyTorch, and malicious files."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save

from jaxatr.models.torch_file import is_torch, read_tensors
from jaxatr.models.weight_file import arrays_of

FORMATS = {"archive": True, "pickles": False}


def written(torch, thing, form):
    file = io.BytesIO()
    torch.save(thing, file, _use_new_zipfile_serialization=FORMATS[form])
    return file.getvalue()


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="extra 'peers' is not installed")


def same(found, torch, content):
    wanted = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    wanted = wanted.get("state_dict", wanted)
    assert list(found) == list(wanted)
    for name, tensor in wanted.items():
        array = found[name].astype("f8") if tensor.dtype == torch.bfloat16 else found[name]
        expected = tensor.detach()
        expected = expected.double() if tensor.dtype == torch.bfloat16 else expected
        assert array.dtype == expected.numpy().dtype
        np.testing.assert_array_equal(array, expected.numpy())


@pytest.mark.parametrize("form", FORMATS)
def test_a_networks_state_is_read_as_pytorch_reads_it(torch, form):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    content = written(torch, net.state_dict(), form)
    assert is_torch(content)
    found = read_tensors(content, "net.pth")
    assert "1.num_batches_tracked" in found and found["0.weight"].shape == (4, 3, 3, 3)
    same(found, torch, content)


@pytest.mark.parametrize("form", FORMATS)
def test_types_views_and_shared_storages(torch, form):
    draw = torch.arange(60, dtype=torch.float32).reshape(5, 12)
    names = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()
    tensors = {name: (draw % 7).to(getattr(torch, name)) for name in names}
    tensors |= {"turned": draw.T, "part": draw[1:4, 2:9:3], "row": draw[2], "again": draw}
    tensors |= {"scalar": draw[3, 4], "empty": draw[:0], "own": torch.nn.Parameter(draw + 1)}
    content = written(torch, tensors, form)
    same(read_tensors(content, "w.pt"), torch, content)


@pytest.mark.parametrize("form", FORMATS)
def test_tensors_that_are_an_entry(torch, form):
    momentum = {"state": {0: {"buffer": torch.ones(9, dtype=torch.float64)}}, "groups": [1, 2.0]}
    saved = {"epoch": 3, "state_dict": {"w": torch.arange(4.0)}, "optimizer": momentum}
    content = written(torch, saved, form)
    same(read_tensors(content, "w.pt"), torch, content)
    content = written(torch, {"weights": {"w": torch.ones(1)}}, form)
    with pytest.raises(ValueError, match="w.pt: contains weights; wanted a dictionary of tensors"):
        read_tensors(content, "w.pt")


class Trap:
    """Ends the test run if it is unpickled."""

    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


HARM = [
    (os.abort,),
    (os.system, "exit 1"),
    (eval, "1/0"),
    (getattr, "text", "upper"),
    (io.open, "x"),
]


@pytest.mark.parametrize("harm", HARM, ids=lambda harm: harm[0].__name__)
@pytest.mark.parametrize("place", ["alone", "value", "key", "archive", "pickles"])
def test_nothing_of_a_pickle_is_called(torch, harm, place):
    trap = Trap(*harm)
    if place in FORMATS:
        content = written(torch, {"w": torch.ones(2), "trap": trap}, place)
    else:
        content = pickle.dumps({"alone": trap, "value": {"w": trap}, "key": {trap: 1}}[place])
    with pytest.raises(ValueError, match="^w.pth: refers to .*; wanted only tensors"):
        read_tensors(content, "w.pth")


@pytest.mark.parametrize("protocol", range(6))
def test_every_way_to_name_a_function_is_refused(protocol):
    system = pickle.dumps(os.system, protocol)
    with pytest.raises(ValueError, match=r"refers to (posix|nt)\.system"):
        read_tensors(system if protocol > 1 else b"\x80\x02" + system, "w.pth")


@pytest.mark.parametrize(
    "code",
    [
        b"\x80\x02(cos\nsystem\nX\x01\x00\x00\x00:o.",  # OBJ
        b"\x80\x02(X\x01\x00\x00\x00:ios\nsystem\n.",  # INST
        b"\x80\x02cbuiltins\n__import__\n.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2.__globals__\n.",  # a way out of what is allowed
        b"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93.",
        b"\x80\x02ctorch.storage\n_load_from_bytes\n.",
    ],
)
def test_handwritten_pickles_are_refused(code):
    with pytest.raises(ValueError, match="refers to .*wanted only tensors"):
        read_tensors(code, "w.pth")


def reference(torch, key, size, stride, count=4, offset=0):
    """Returns the content of a file in the older format, with one tensor of given properties."""
    file = io.BytesIO()
    for thing in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
        pickle.dump(thing, file, 2)

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing):
            return thing if isinstance(thing, tuple) and thing[:1] == ("storage",) else None

    storage = ("storage", torch.FloatStorage, key, "cpu", count, None)
    rebuild = torch._utils._rebuild_tensor_v2
    one = Trap(rebuild, storage, offset, size, stride, False, {})
    Pickler(file, 2).dump({"w": one})
    pickle.dump([key], file, 2)
    return file.getvalue() + (4).to_bytes(8, "little") + np.arange(4, dtype="<f4").tobytes()


def test_tensors_stay_in_their_storages(torch):
    good = read_tensors(reference(torch, "0", (2, 2), (1, 2)), "w")
    np.testing.assert_array_equal(good["w"], [[0, 2], [1, 3]])
    for size, stride, more in [
        ((2, 3), (3, 1), {}),
        ((2, 2), (3, 1), {}),
        ((4,), (1,), {"offset": 1}),
        ((2,), (-1,), {"offset": 1}),
        ((2,), (1,), {"offset": -1}),
        ((-2, -2), (1, 1), {}),
        ((2, 2), (1,), {}),
        ((1 << 40, 1 << 40), (0, 0), {}),
        ((4,), (1,), {"count": 5}),
        ((4,), (1,), {"count": 1 << 50}),
    ]:
        with pytest.raises(ValueError, match="^w is not a valid PyTorch file of tensors: "):
            read_tensors(reference(torch, "0", size, stride, **more), "w")


@pytest.mark.parametrize("form", FORMATS)
def test_a_broken_file_is_an_error_and_never_anything_else(torch, form):
    content = written(torch, {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}, form)
    for end in [*range(1, len(content), max(1, len(content) // 60)), len(content) - 1]:
        with pytest.raises(ValueError, match=r"^w\.pth(:| is not a valid PyTorch file)"):
            read_tensors(content[:end], "w.pth")
    draw = np.random.default_rng(0)
    for place in draw.integers(2, len(content), 200):
        altered = bytearray(content)
        altered[place] ^= 1 << draw.integers(8)
        try:
            found = read_tensors(bytes(altered), "w.pth")
        except ValueError:
            continue
        assert all(isinstance(array, np.ndarray) for array in found.values())


def test_other_archives_and_pickles_are_named(torch):
    with pytest.raises(ValueError, match="w: is a pickle of list, not a PyTorch file"):
        read_tensors(pickle.dumps([1]), "w")
    with pytest.raises(ValueError, match="w: contains Tensor; wanted"):
        read_tensors(written(torch, torch.ones(2), "archive"), "w")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "1")
    with pytest.raises(ValueError, match=r"w: is an archive with 0 files data.pkl, wanted one"):
        read_tensors(file.getvalue(), "w")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"0" * 100_000)
    with pytest.raises(ValueError, match="a/data.pkl is compressed"):
        read_tensors(packed.getvalue(), "w")


@pytest.mark.parametrize("length", [0x0280, 0x0380, 0x0480, 0x0580])
def test_the_length_of_a_safetensors_header_is_not_taken_for_a_pickle(length):
    array = np.arange(2, dtype=np.float32)
    around = '{"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    name = "x" * (length - len(around))
    content = save({name: array})
    assert int.from_bytes(content[:8], "little") == length
    assert not is_torch(content)
    np.testing.assert_array_equal(arrays_of(content, "x.safetensors")[name], array)


@pytest.mark.parametrize("place", [2**30, 2**20])
def test_a_place_to_remember_is_not_allocated(place):
    pickled = b"\x80\x02]r" + place.to_bytes(4, "little") + b"."
    with pytest.raises(ValueError, match=f"remembers an object at place {place}"):
        read_tensors(pickled, "w.pth")


def test_an_array_of_bytes_is_not_allocated():
    pickled = b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b"."
    with pytest.raises(ValueError, match=r"w.pth is not a valid PyTorch file|array of bytes"):
        read_tensors(pickled, "w.pth")


def test_tensors_of_the_same_numbers_do_not_multiply_the_file(torch):
    numbers = torch.zeros(2000)
    content = written(torch, {str(one): numbers[:] for one in range(500)}, "archive")
    with pytest.raises(ValueError, match="has tensors of more than 16 times the file"):
        read_tensors(content, "w.pth")
