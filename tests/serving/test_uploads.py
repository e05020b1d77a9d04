"""Malicious files (bombs, polyglots, damage) take bounded memory and give one line."""

import asyncio
import io
import struct
import threading
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageFile

from jaxatr import data
from jaxatr.data import decoder
from jaxatr.data.images import ImageError
from jaxatr.serving.intake import Reader, Upload

MOST = 1 << 20


def chunk(kind, content):
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def png(width, height, *more):
    """A PNG of a given size whose pixels, all 0, compress to a few kilobytes."""
    rows = zlib.compress(b"\0" * min(height * (width + 1), 110_000_000), 9)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def encoded(kind, array, **options):
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind, **options)
    return file.getvalue()


def npy(shape, dtype="<f8", content=b""):
    head = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    head = head.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + content


def pages(count):
    file = io.BytesIO()
    images = [Image.new("L", (8, 8))] * count
    images[0].save(file, "TIFF", save_all=True, append_images=images[1:])
    return file.getvalue()


def exotic(shape, dtype, **options):
    file = io.BytesIO()
    tifffile.imwrite(file, np.zeros(shape, dtype), **options)
    return file.getvalue()


CHIP = np.arange(576, dtype=np.uint8).reshape(24, 24)

HARMFUL = {
    "10,000 x 10,000 pixels": lambda: png(10_000, 10_000),
    "a size beyond all": lambda: png(2**31 - 1, 2**31 - 1),
    "an array that is not there": lambda: npy((1_000_000, 1_000_000)),
    "an array within the pixels that is not there": lambda: npy((1000, 1000)),
    "objects of Python": lambda: npy((2, 2), "|O", b"cos\nsystem\n(S'true'\ntR."),
    "a negative shape": lambda: npy((-1, -1)),
    "a GIF of 65,535 pixels a side": lambda: b"GIF89a" + b"\xff" * 4 + b"\0\0\0" + b",",
    "a JPEG of 65,000 pixels a side": lambda: encoded("JPEG", CHIP).replace(
        b"\x08\x00\x18\x00\x18", b"\x08\xfd\xe8\xfd\xe8", 1
    ),
    "a float TIFF of many pixels": lambda: exotic((4000, 4000), "f8", compression="zlib"),
    "a TIFF of many planes": lambda: exotic((64, 512, 512), "u1", compression="zlib"),
    "many pages": lambda: pages(2000),
    "a script that draws": lambda: b"<svg xmlns='http://www.w3.org/2000/svg'></svg>",
    "PostScript": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "half a file": lambda: encoded("PNG", CHIP)[:-40],
    "nothing": lambda: b"",
    "a page": lambda: b"<!doctype html><script>alert(1)</script>",
    "a radar's file": lambda: b"NITF02.10" + b"0" * 400,
}


@pytest.mark.parametrize("harm", HARMFUL)
def test_it_is_refused_within_bounds(harm, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)  # as sarpy and TFDS leave it
    content = HARMFUL[harm]()
    tracemalloc.start()
    try:
        with pytest.raises(ImageError, match="^chip: ") as error:
            decoder.decode(content, "chip", most=MOST)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(error.value) and len(str(error.value)) < 300
    assert peak < 80 << 20, f"{peak >> 20} MiB"


def test_the_pixels_are_reported():
    with pytest.raises(ImageError, match="10000x10000 pixels, wanted at most 1048576"):
        decoder.decode(png(10_000, 10_000), "chip", most=MOST)
    assert decoder.header(png(1024, 1024), "chip", most=MOST).work == MOST


def archive():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("bomb", b"\0" * 50_000_000)
    return file.getvalue()


@pytest.mark.parametrize(
    "tail", [archive(), b"<script>alert(1)</script>", b"\x93NUMPY", b"%PDF-1.7"]
)
@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF"])
def test_of_a_polyglot_the_image_alone_counts(kind, tail):
    content = encoded(kind, CHIP)
    found = decoder.decode(content + tail, "chip", most=MOST)
    np.testing.assert_array_equal(found[:, :, 0], CHIP)
    with pytest.raises(ImageError):  # and behind something else it is none
        decoder.decode(tail + content, "chip", most=MOST)


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF", "WEBP", "JPEG2000"])
def test_images_are_read_as_from_files(kind, tmp_path):
    lossless = {"lossless": True} if kind == "WEBP" else {}
    content = encoded(kind, CHIP, **lossless)
    (tmp_path / "chip").write_bytes(content)
    found = decoder.decode(content, "chip", most=MOST)
    np.testing.assert_array_equal(found, data.read_image(tmp_path / "chip"))
    np.testing.assert_array_equal(found[:, :, 0], CHIP)


def test_arrays_and_float_images_are_read():
    file = io.BytesIO()
    np.save(file, CHIP.astype(np.uint16))
    np.testing.assert_array_equal(decoder.decode(file.getvalue(), "chip", most=MOST)[:, :, 0], CHIP)
    wide = exotic((24, 24), "f8")
    assert decoder.decode(wide, "chip", most=MOST).shape == (24, 24, 1)


def test_a_page_too_many_is_reported():
    with pytest.raises(ImageError, match="several pages"):
        decoder.decode(pages(2), "chip", most=MOST)


def test_a_line_of_pixels_is_not_padded_to_gigabytes():
    def read(shape, **geometry):
        content = io.BytesIO()
        Image.fromarray(np.zeros(shape, np.uint8)).save(content, "PNG")
        reader = Reader(data.Intake(data.Chip(**geometry), (8, 8, 1), "uint8"), most=10_000)
        (one,) = asyncio.run(reader.read([Upload("thin.png", content.getvalue())]))
        reader.close()
        return one

    tracemalloc.start()
    try:
        thin = read((1, 9_000), square=True, size=8)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert thin.chip is None and peak < 20 << 20, f"{peak >> 20} MiB"
    assert thin.error == (
        "1x9000 pixels, padded to a square of 9000x9000: wanted at most 40000 pixels"
    )
    assert read((50, 200), square=True, size=8).chip is not None
    assert read((8, 1_000), square=True, center_crop=8).chip is not None


class Decoding:
    """Decodes every upload when the test permits it."""

    def __init__(self, monkeypatch):
        self.free, self.begun = threading.Event(), []
        monkeypatch.setattr("jaxatr.serving.intake.decode_image", self)

    def __call__(self, content, name, *, phase=False, names=(), fill=False):
        self.begun.append(name)
        assert self.free.wait(10)
        return np.zeros((8, 8, 1), np.uint8)


@pytest.fixture
def decoding(monkeypatch):
    return Decoding(monkeypatch)


def reader():
    return Reader(data.Intake(data.Chip(), (8, 8, 1), "uint8"), most=10_000)


def uploads(name, count):
    content = encoded("PNG", np.zeros((8, 8), np.uint8))
    return [Upload(f"{name}{number}", content) for number in range(count)]


async def until(true):
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


def test_a_request_that_has_gone_is_decoded_no_further(decoding, monkeypatch):
    async def main():
        reading = reader()
        gone = asyncio.ensure_future(reading.read(uploads("gone", 9)))
        await until(lambda: decoding.begun == ["gone0"] and reading.decoding == 1)
        gone.cancel()
        await asyncio.sleep(0)
        decoding.free.set()
        await until(lambda: reading.decoding == 0)
        (read,) = await reading.read(uploads("next", 1))
        assert read.chip is not None and decoding.begun == ["gone0", "next0"]
        assert reading.close()

    asyncio.run(main())


def test_requests_take_turns(decoding, monkeypatch):
    monkeypatch.setattr("jaxatr.serving.intake._THREADS", 1)
    monkeypatch.setattr("jaxatr.serving.intake._TURN", 0.0)

    async def main():
        reading = reader()
        first = asyncio.ensure_future(reading.read(uploads("first", 3)))
        await until(lambda: decoding.begun)
        second = asyncio.ensure_future(reading.read(uploads("second", 1)))
        await asyncio.sleep(0.05)
        decoding.free.set()
        await asyncio.gather(first, second)
        assert decoding.begun == ["first0", "second0", "first1", "first2"]

    asyncio.run(main())


def test_threads_that_are_stuck_are_noticed(decoding, monkeypatch):
    monkeypatch.setattr("jaxatr.serving.intake.STUCK", 0.05)

    async def main():
        reading = reader()
        one, other = (asyncio.ensure_future(reading.read(uploads(name, 1))) for name in "ab")
        await until(lambda: reading.stuck)
        assert reading.seconds >= reading.stuck > 0.05 and not reading.close(0.0)
        decoding.free.set()
        await asyncio.gather(one, other)
        assert not reading.stuck and reading.close()

    asyncio.run(main())


@pytest.mark.parametrize("error", [TypeError, ZeroDivisionError, MemoryError, RecursionError])
def test_any_error_of_an_image_is_its_own(monkeypatch, error):
    def decode(content, name, *, phase=False, names=(), fill=False):
        if name == "a1":
            raise error("odd tags")
        return np.zeros((8, 8, 1), np.uint8)

    monkeypatch.setattr("jaxatr.serving.intake.decode_image", decode)
    first, second, third = asyncio.run(reader().read(uploads("a", 3)))
    assert first.chip is not None and third.chip is not None
    assert second.chip is None and error.__name__ in second.error
