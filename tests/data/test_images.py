import io
import struct
import sys
import zlib

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageFile

from jaxatr.data.bands import read_folder
from jaxatr.data.images import ImageError, as_image, decode_image, read_image

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (5, 7), dtype=np.uint8)
RGB = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_eight_bits_come_back_exactly(tmp_path, save, suffix):
    for array in (GRAY, RGB):
        image = read_image(save(tmp_path / f"x.{suffix}", array))
        assert image.dtype == np.uint8
        np.testing.assert_array_equal(image, array.reshape(5, 7, -1))


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_keep_their_range(tmp_path, save, suffix):
    array = RNG.integers(0, 65536, (5, 7), dtype=np.uint16)
    array[0, :2] = 0, 65535
    image = read_image(save(tmp_path / f"x.{suffix}", array))
    assert image.dtype == np.uint16
    np.testing.assert_array_equal(image[:, :, 0], array)


def test_big_endian_sixteen_bits(tmp_path):
    array = np.array([[1, 256], [513, 65535]], np.uint16)
    data = array.astype(">u2").tobytes()
    Image.frombytes("I;16B", (2, 2), data).save(tmp_path / "x.tif")
    np.testing.assert_array_equal(read_image(tmp_path / "x.tif")[:, :, 0], array)


def test_floats_keep_their_range(tmp_path, save):
    array = RNG.normal(0, 1e4, (5, 7)).astype(np.float32)
    image = read_image(save(tmp_path / "x.tiff", array))
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image[:, :, 0], array)


def test_wide_integers_become_floats(tmp_path, save):
    array = np.array([[-5, 70000]], np.int32)
    image = read_image(save(tmp_path / "x.tif", array))
    assert image.dtype == np.float32
    np.testing.assert_array_equal(image[:, :, 0], array)


def test_palette_is_looked_up(tmp_path):
    picture = Image.fromarray(np.array([[0, 1], [1, 0]], np.uint8), "P")
    picture.putpalette([10, 20, 30, 200, 100, 50])
    picture.save(tmp_path / "x.png")
    expected = np.array([[[10, 20, 30], [200, 100, 50]], [[200, 100, 50], [10, 20, 30]]])
    np.testing.assert_array_equal(read_image(tmp_path / "x.png"), expected)


def test_alpha_is_dropped(tmp_path, save):
    alpha = np.full((5, 7, 1), 9, np.uint8)
    rgba = save(tmp_path / "rgba.png", np.concatenate([RGB, alpha], axis=2))
    np.testing.assert_array_equal(read_image(rgba), RGB)
    gray = save(tmp_path / "la.png", np.concatenate([GRAY[..., None], alpha], axis=2))
    np.testing.assert_array_equal(read_image(gray)[:, :, 0], GRAY)


def test_bilevel_becomes_black_and_white(tmp_path, save):
    path = save(tmp_path / "x.png", GRAY > 100)
    np.testing.assert_array_equal(read_image(path)[:, :, 0], np.where(GRAY > 100, 255, 0))


def test_print_colours_become_rgb(tmp_path):
    Image.new("CMYK", (4, 3), (255, 0, 0, 0)).save(tmp_path / "x.tif")
    image = read_image(tmp_path / "x.tif")
    assert image.shape == (3, 4, 3)
    assert image[0, 0].tolist() == [0, 255, 255]


def truncated(path, save):
    noise = RNG.integers(0, 256, (64, 64), dtype=np.uint8)
    whole = save(path, noise).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
def test_a_truncated_file_is_named(tmp_path, save, suffix):
    path = tmp_path / f"half.{suffix}"
    truncated(path, save)
    with pytest.raises(ImageError, match=f"half.{suffix}: not a readable image"):
        read_image(path)


def test_a_truncated_file_is_named_after_any_import(tmp_path, save, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)  # as sarpy and TFDS set it
    truncated(tmp_path / "half.png", save)
    with pytest.raises(ImageError, match="half.png: not a readable image"):
        read_image(tmp_path / "half.png")


@pytest.mark.parametrize("content, why", [(b"", "empty file"), (b"hello", "cannot identify")])
def test_a_file_that_is_not_an_image_is_named(tmp_path, content, why):
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(ImageError, match=f"x.png: not a readable image .{why}"):
        read_image(tmp_path / "x.png")


def test_missing_and_folder_are_named(tmp_path):
    with pytest.raises(ImageError, match="gone.png: No such file"):
        read_image(tmp_path / "gone.png")
    with pytest.raises(ImageError, match=r"a folder, wanted an image file: .*/\*"):
        read_image(tmp_path)


def test_not_finite_is_refused(tmp_path, save):
    path = save(tmp_path / "x.tif", np.array([[0, np.nan]], np.float32))
    with pytest.raises(ImageError, match="x.tif: .*not finite"):
        read_image(path)


def test_several_pages_are_refused(tmp_path):
    pages = [Image.fromarray(GRAY), Image.fromarray(GRAY)]
    pages[0].save(tmp_path / "x.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(ImageError, match="x.tif: holds several pages"):
        read_image(tmp_path / "x.tif")


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG2000", "WEBP"])
def test_other_formats_of_eight_bits(kind):
    options = {"WEBP": {"lossless": True}}.get(kind, {})
    for array in (GRAY, RGB):
        file = io.BytesIO()
        Image.fromarray(array).save(file, kind, **options)
        image = decode_image(file.getvalue(), "x")
        assert image.dtype == np.uint8
        if kind == "WEBP":  # has no gray mode
            array = np.broadcast_to(array.reshape(5, 7, -1), (5, 7, 3))
        if kind == "GIF" and array.ndim == 3:
            continue  # has at most 256 colours
        np.testing.assert_array_equal(image, array.reshape(5, 7, -1))


def test_of_moving_pictures_the_first_frame_is_read():
    for kind in ("GIF", "WEBP"):
        file = io.BytesIO()
        frames = [Image.new("RGB", (4, 3), (value, 0, 0)) for value in (250, 10)]
        frames[0].save(file, kind, save_all=True, append_images=frames[1:], lossless=True)
        image = decode_image(file.getvalue(), "x")
        assert image.shape == (3, 4, 3) and image[..., 0].min() == 250


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize(
    "dtype, read_as",
    [
        (np.uint8, np.uint8),
        (np.uint16, np.uint16),
        (np.float32, np.float32),
        (np.float64, np.float32),
        (np.int64, np.float32),
        (np.complex64, np.float32),
    ],
)
def test_tiles_and_wide_numbers_in_a_tiff(dtype, read_as, compression):
    array = (np.arange(20 * 40).reshape(20, 40) % 251).astype(dtype)
    file = io.BytesIO()
    tifffile.imwrite(file, array, tile=(16, 16), compression=compression)
    image = decode_image(file.getvalue(), "x")
    assert image.dtype == read_as
    np.testing.assert_array_equal(image[:, :, 0], array.real)


def test_a_tiff_of_doubles_may_not_overflow_nor_have_pages():
    file = io.BytesIO()
    tifffile.imwrite(file, np.array([[1e300, 0]]))
    with pytest.raises(ImageError, match="x.tif: .*not finite"):
        decode_image(file.getvalue(), "x.tif")
    file = io.BytesIO()
    tifffile.imwrite(file, np.zeros((2, 20, 20)), photometric="minisblack")
    with pytest.raises(ImageError, match="x.tif: .*several pages"):
        decode_image(file.getvalue(), "x.tif")


def test_sixteen_bits_in_a_jpeg_2000(tmp_path, save):
    array = RNG.integers(0, 65536, (5, 7), dtype=np.uint16)
    image = read_image(save(tmp_path / "x.jp2", array))
    np.testing.assert_array_equal(image[:, :, 0], array)


def test_a_jpeg_2000_of_wide_colours_is_refused():
    content = bytearray(encoded(RGB, "JPEG2000"))
    start = content.find(b"\xff\x4f\xff\x51")
    content[start + 42] = content[start + 45] = content[start + 48] = 11  # 12 bits a channel
    with pytest.raises(ImageError, match="x.jp2: "):
        decode_image(bytes(content), "x.jp2")


@pytest.mark.parametrize(
    "array, read_as",
    [
        (GRAY, np.uint8),
        (RGB, np.uint8),
        (GRAY[..., None], np.uint8),
        (GRAY.astype(">u2"), np.uint16),
        (GRAY.astype(np.float16), np.float32),
        (GRAY.astype(np.float64), np.float32),
        (GRAY.astype(np.int16), np.float32),
        (GRAY.astype(np.uint32), np.float32),
        (np.asfortranarray(GRAY), np.uint8),
    ],
)
def test_arrays_of_numpy(tmp_path, array, read_as):
    np.save(tmp_path / "x.npy", array)
    image = read_image(tmp_path / "x.npy")
    assert image.dtype == read_as and image.dtype.isnative
    np.testing.assert_array_equal(image, array.reshape(5, 7, -1))


def test_yes_and_no_and_complex_numbers_in_an_array(tmp_path):
    np.save(tmp_path / "x.npy", GRAY > 100)
    np.testing.assert_array_equal(
        read_image(tmp_path / "x.npy")[:, :, 0], np.where(GRAY > 100, 255, 0)
    )
    np.save(tmp_path / "x.npy", np.array([[3 + 4j, -2j]]))
    image = read_image(tmp_path / "x.npy")
    assert image.dtype == np.float32 and image[0, :, 0].tolist() == [5, 2]


@pytest.mark.parametrize(
    "array, why",
    [
        (RNG.normal(size=(3, 5, 17)), r"shape \[3, 5, 17\], wanted \[h, w\] or"),
        (np.zeros(4), "wanted"),
        (np.zeros((0, 4)), "wanted"),
        (np.array([["a"]]), "wanted numbers"),
        (np.array([[None]]), "wanted numbers"),
        (np.array([[np.inf]]), "not finite"),
    ],
)
def test_an_array_that_is_not_an_image_is_refused(tmp_path, array, why):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(ImageError, match=f"x.npy: .*{why}"):
        read_image(tmp_path / "x.npy")


def sio(values):
    """Returns an SIO file: five 4-byte numbers (type 13 is complex), no words, the pixels."""
    head = struct.pack(">5I", 0xFF017FFE, *values.shape, 13, 8)
    return head + values.astype(">c8").tobytes()


def test_radar_files_are_read_by_sarpy(monkeypatch):
    pytest.importorskip("sarpy")
    values = RNG.normal(size=(5, 7)) + 1j * RNG.normal(size=(5, 7))
    image = decode_image(sio(values), "x.sio")
    assert image.dtype == np.float32
    np.testing.assert_allclose(image[:, :, 0], np.abs(values), rtol=1e-6)
    with pytest.raises(ImageError, match="x.ntf: not a readable image"):
        decode_image(b"NITF02.10 and no more", "x.ntf")


def test_a_missing_package_is_named_and_no_damage(monkeypatch):
    monkeypatch.setitem(sys.modules, "sarpy", None)
    monkeypatch.delitem(sys.modules, "sarpy.io", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'jaxatr\[radar\]'"):
        decode_image(sio(np.ones((2, 2))), "x.sio")


def test_a_raw_chip_of_mstar(tmp_path):
    head = (
        "[PhoenixHeaderVer01.04]\nPhoenixHeaderLength= 00128\nNumberOfColumns= 3\n"
        "NumberOfRows= 2\nTargetType= x\n"
    )
    end = "[EndofPhoenixHeader]\n"
    pixels = np.arange(12, dtype=">f4")
    (tmp_path / "chip.015").write_bytes(
        (head.ljust(128 - len(end)) + end).encode() + pixels.tobytes()
    )
    image = read_image(tmp_path / "chip.015")
    np.testing.assert_array_equal(image[:, :, 0], np.arange(6).reshape(2, 3))


def test_colours_that_pillow_would_cut_to_eight_bits_are_refused(tmp_path):
    wide = RNG.integers(0, 65536, (5, 7, 3), dtype=np.uint16)
    big = wide.astype(">u2")
    sgi = struct.pack(">hBBHHHH", 474, 0, 2, 3, 7, 5, 3).ljust(512, b"\0")
    (tmp_path / "x.ppm").write_bytes(b"P6\n7 5\n65535\n" + big.tobytes())
    (tmp_path / "x.sgi").write_bytes(sgi + np.moveaxis(big[::-1], 2, 0).tobytes())
    (tmp_path / "x.png").write_bytes(png(2, 16, [1000, 2000, 3000]))
    tifffile.imwrite(tmp_path / "x.tif", wide, photometric="rgb")
    for name in ("x.ppm", "x.sgi", "x.png", "x.tif"):
        with pytest.raises(ImageError, match="more than 8 bits"):
            as_image(Image.open(tmp_path / name))
    for name in ("x.ppm", "x.sgi"):
        with pytest.raises(ImageError, match=rf"{name}: a .* more than 8 bits"):
            read_image(tmp_path / name)
    np.testing.assert_array_equal(read_image(tmp_path / "x.tif"), wide)


@pytest.mark.parametrize("most", [256, 1000, 4095, 65535])
def test_gray_of_nine_to_sixteen_bits_is_not_rescaled(tmp_path, most):
    gray = np.linspace(0, most, 300).astype(">u2").reshape(20, 15)
    head = f"15 20\n{most}\n".encode()
    (tmp_path / "x.pgm").write_bytes(b"P5\n" + head + gray.tobytes())
    (tmp_path / "y.pgm").write_bytes(b"P2\n" + head + " ".join(map(str, gray.flat)).encode())
    for name in ("x.pgm", "y.pgm"):
        image = read_image(tmp_path / name)
        assert image.dtype == np.uint16
        np.testing.assert_array_equal(image[:, :, 0], gray)


def test_colours_of_fewer_than_eight_bits_are_read(tmp_path):
    (tmp_path / "x.ppm").write_bytes(b"P6\n2 1\n15\n" + bytes([0, 15, 7, 1, 2, 3]))
    (tmp_path / "y.ppm").write_bytes(b"P3\n2 1\n255\n0 255 7 1 2 3\n")
    bits = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 58, 0, 0, 54, 40, 2, 1, 1, 16, 0, 4, 0, 0, 0, 0)
    (tmp_path / "x.bmp").write_bytes(bits + struct.pack("<HH", 0x7C00, 0x001F))  # 5 bits each
    assert read_image(tmp_path / "x.ppm").ravel().tolist() == [0, 255, 119, 17, 34, 51]
    assert read_image(tmp_path / "y.ppm").ravel().tolist() == [0, 255, 7, 1, 2, 3]
    assert read_image(tmp_path / "x.bmp").ravel().tolist() == [255, 0, 0, 0, 0, 255]
    (tmp_path / "y.bmp").write_bytes(_bmp565(0xF800, 0x07E0))
    assert read_image(tmp_path / "y.bmp").ravel().tolist() == [255, 0, 0, 0, 255, 0]


def _bmp565(*pixels):
    """Returns a BMP of one row of two pixels with 5, 6 and 5 bits."""
    head = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 70, 0, 0, 66, 40, 2, 1, 1, 16, 3, 4, 0, 0, 0, 0)
    return head + struct.pack("<III", 0xF800, 0x07E0, 0x001F) + struct.pack("<HH", *pixels)


def png(colour_type, depth, samples):
    """Returns a PNG of one pixel with 16 bits in several channels, which Pillow cannot write."""

    def chunk(kind, body):
        whole = kind + body
        return struct.pack(">I", len(body)) + whole + struct.pack(">I", zlib.crc32(whole))

    pixel = np.array(samples, f">u{depth // 8}").tobytes()
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, depth, colour_type, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0" + pixel))
    return b"\x89PNG\r\n\x1a\n" + header + body + chunk(b"IEND", b"")


def tiff(bits, samples):
    """Returns a TIFF of one RGB or RGBA pixel, little-endian, with ``bits`` in each channel."""
    pixel, count = np.array(samples, f"<u{bits // 8}").tobytes(), len(samples)
    short, long = 3, 4
    tags = [
        (256, short, 1, 1),  # width
        (257, short, 1, 1),  # height
        (258, short, count, 8),  # bits per sample: at byte 8
        (262, short, 1, 2),  # RGB
        (273, long, 1, 16),  # pixels: at byte 16
        (277, short, 1, count),
        (279, long, 1, len(pixel)),
    ]
    if count == 4:
        tags.append((338, short, 1, 2))  # the fourth is alpha
    start = 16 + len(pixel)
    head = struct.pack("<2sHI4H", b"II", 42, start, *([bits] * 4)) + pixel
    directory = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return head + struct.pack("<H", len(tags)) + directory + bytes(4)  # no further page


WIDE = {
    "rgb.png": png(2, 16, (1, 256, 65535)),
    "gray-alpha.png": png(4, 16, (256, 65535)),
    "rgba.png": png(6, 16, (1, 256, 65535, 9)),
}


@pytest.mark.parametrize("name", WIDE)
def test_sixteen_bits_in_several_channels_are_refused_not_halved(tmp_path, name):
    (tmp_path / name).write_bytes(WIDE[name])
    with pytest.raises(ImageError, match=f"{name}: a PNG .* more than 8 bits"):
        read_image(tmp_path / name)


def test_eight_bits_in_the_same_containers_are_read():
    for content, pixel in [
        (png(2, 8, (1, 2, 255)), [1, 2, 255]),
        (png(4, 8, (7, 255)), [7]),
        (png(6, 8, (1, 2, 255, 9)), [1, 2, 255]),
        (tiff(8, (1, 2, 255)), [1, 2, 255]),
        (tiff(8, (1, 2, 255, 9)), [1, 2, 255]),
        (tiff(16, (1, 256, 65535)), [1, 256, 65535]),
        (tiff(16, (1, 256, 65535, 9)), [1, 256, 65535]),
    ]:
        assert decode_image(content, "x")[0, 0].tolist() == pixel


@pytest.mark.parametrize("error", [TypeError("bad tag"), MemoryError(), RecursionError("deep")])
def test_any_error_of_a_decoder_names_the_file(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(ImageError, match="x.png: not a readable image .(bad tag|Memory|deep)"):
        decode_image(b"content", "x.png")


def mutated(content, rng):
    """Returns a file with a few bytes changed after the first four, and sometimes truncated."""
    damaged = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        damaged[rng.integers(4, len(damaged))] = rng.integers(256)
    return bytes(damaged[: rng.integers(1, len(damaged) + 1)] if rng.random() < 0.2 else damaged)


def encoded(array, kind):
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind)
    return file.getvalue()


WHOLE = [
    *(encoded(array, kind) for kind in ("PNG", "TIFF", "JPEG") for array in (GRAY, RGB)),
    tiff(8, (1, 2, 255)),
]


@pytest.mark.filterwarnings("ignore")  # Pillow warns about some damage that it tolerates
def test_damage_gives_an_image_or_an_image_error(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)  # bounds the memory
    rng, refused = np.random.default_rng(0), 0
    for _ in range(60):
        for content in WHOLE:
            try:
                image = decode_image(mutated(content, rng), "x.png")
            except ImageError as error:
                assert str(error).startswith("x.png: ")
                refused += 1
            else:
                assert image.ndim == 3 and image.shape[2] in (1, 3)
    assert 50 < refused < 400  # of 420: the damage is neither harmless nor always fatal


def test_the_images_of_a_folder_are_in_the_natural_order_of_their_names(tmp_path):
    names = ("2.png", "010.png", "10.png", "a2.png", "a10b.png", "b1.png")
    for value, name in enumerate(names):
        Image.new("L", (2, 2), value).save(tmp_path / name)
    (tmp_path / ".hidden").write_text("")
    values = [int(image[0, 0, 0]) for image in read_folder(tmp_path)]
    assert values == list(range(len(names)))
