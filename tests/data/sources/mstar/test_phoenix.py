import numpy as np
import pytest

from jaxatr.data.decoder import phoenix
from jaxatr.data.images import ImageError, decode_image


def chip(magnitude, phase, *, native=0, extra="", changes=()):
    rows, columns = magnitude.shape
    fields = {
        "PhoenixHeaderLength": "LENGTH",
        "PhoenixSigSize": "TOTALSIZE",
        "native_header_length": native,
        "NumberOfColumns": columns,
        "NumberOfRows": rows,
        "TargetType": "zsu23-4_gun",
        "TargetSerNum": "d08",
    } | dict(changes)
    lines = [f"{name}= {value}" for name, value in fields.items() if value is not None]
    text = "\n".join(["[PhoenixHeaderVer01.04]", *lines, extra + "[EndofPhoenixHeader]", ""])
    pixels = np.stack([magnitude, phase]).astype(">f4").tobytes()
    length = len(text)
    text = text.replace("LENGTH", f"{length:06}")
    text = text.replace("TOTALSIZE", f"{length + native + len(pixels):09}")
    return text.encode() + b"\x01" * native + pixels


def test_errors_name_the_image_and_not_a_temporary_file():
    content = chip(np.ones((7, 5), "f4"), np.ones((7, 5), "f4"))[:-8]
    with pytest.raises(ImageError, match=r"^HB03333.015: not a readable image \(byte \d+: "):
        decode_image(content, "HB03333.015")


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return rng.gamma(1, 0.1, (7, 5)).astype("f4"), rng.uniform(-3, 3, (7, 5)).astype("f4")


@pytest.fixture
def read(tmp_path):
    def reader(content):
        path = tmp_path / "HB03333.015"
        path.write_bytes(content)
        return phoenix.read_chip(path)

    return reader


@pytest.mark.parametrize("native", [0, 512])
def test_magnitude_and_phase(arrays, read, native):
    found = read(chip(*arrays, native=native))
    np.testing.assert_array_equal(found.magnitude, arrays[0])
    np.testing.assert_array_equal(found.phase, arrays[1])
    assert found.magnitude.dtype == np.float32 and found.magnitude.shape == (7, 5)
    assert found.header["TargetType"] == "zsu23-4_gun" and found.header["TargetSerNum"] == "d08"


def test_pixels_that_look_like_a_field_are_not_one(arrays, read):
    magnitude = arrays[0].copy()
    magnitude[0] = np.frombuffer(b"\nNumberOfRows= 1\nxxx", ">f4")
    assert read(chip(magnitude, arrays[1])).magnitude.shape == (7, 5)


def test_bytes_behind_the_pixels_do_not_matter(arrays, read):
    np.testing.assert_array_equal(read(chip(*arrays) + b"tail").phase, arrays[1])


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"NumberOfRows": None}, "byte 0: NumberOfRows: got '', wanted a number from 1"),
        ({"NumberOfRows": "-7"}, "NumberOfRows: got '-7'"),
        ({"NumberOfRows": "9999999999"}, "end at byte .*the file ends at byte"),
        ({"NumberOfColumns": "6"}, "7 rows of 6 columns starting there end at byte"),
        ({"PhoenixSigSize": "123"}, "the header states 123"),
        ({"PhoenixHeaderLength": "x"}, "PhoenixHeaderLength: got 'x'"),
        ({"native_header_length": "1e9"}, "native_header_length: got '1e9'"),
    ],
)
def test_a_header_that_contradicts_its_file_is_refused(arrays, read, changes, match):
    with pytest.raises(ValueError, match=rf"HB03333.015: byte \d+: .*{match}|015: {match}"):
        read(chip(*arrays, changes=changes.items()))


def test_a_file_cut_short_is_refused(arrays, read):
    content = chip(*arrays)
    for length in (0, 10, 60, len(content) - 1):
        with pytest.raises(ValueError, match="HB03333.015: byte "):
            read(content[:length])


def test_a_scene_of_16_bits_is_named_as_one(arrays, read):
    content = chip(*arrays)
    size = len(content) - 4 * arrays[0].size
    content = content.replace(f"{len(content):09}".encode(), f"{size:09}".encode())
    with pytest.raises(phoenix.SceneError, match="a whole scene with 16 bits per pixel"):
        read(content[:size])


@pytest.mark.parametrize("place, value", [(0, -1.0), (0, np.nan), (1, np.inf)])
def test_pixels_that_no_radar_gives_are_refused(arrays, read, place, value):
    arrays[place][2, 3] = value
    content = chip(*arrays)
    start = len(content) - 8 * arrays[0].size
    at = start + 4 * (place * 35 + 2 * 5 + 3)
    with pytest.raises(ValueError, match=f"byte {at}: a pixel that is negative or not a finite"):
        read(content)


def test_files_that_are_not_raw_chips(tmp_path, read):
    with pytest.raises(ValueError, match="byte 0: not a raw chip"):
        read(b"\xff\xd8\xff\xe0 a JPEG")
    (tmp_path / "x.017").write_bytes(b"[PhoenixHeaderVer01.05]\n")
    (tmp_path / "y").write_bytes(b"[Phoe")
    assert phoenix.is_raw(tmp_path / "x.017") and not phoenix.is_raw(tmp_path / "y")
