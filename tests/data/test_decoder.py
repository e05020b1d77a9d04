"""A file's statements are applied to every type or refused, and bounded before it is unpacked."""

import io
import itertools
import os
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageFile, ImageOps, PngImagePlugin

from jaxatr import data
from jaxatr.data import decoder
from jaxatr.data.images import ImageError, decode_image, read_image
from jaxatr.data.scene_image import open_scene

RNG = np.random.default_rng(0)
VALUES = RNG.integers(0, 100, (20, 36))
COLOURS = RNG.integers(0, 200, (20, 36, 3)).astype(np.uint8)
SHORT, LONG = 3, 4


def written(array, **options):
    file = io.BytesIO()
    tifffile.imwrite(file, array, metadata=None, **options)
    return file.getvalue()


def tiff(pixels, *, order="<", **tags):
    """Returns a TIFF of one strip, 8 x 6 pixels of 8-bit gray unless ``tags`` say otherwise."""
    usual = {"t256": 8, "t257": 6, "t258": 8, "t259": 1, "t262": 1, "t277": 1, "t278": 6}
    found = {int(name[1:]): value for name, value in (usual | tags).items() if value is not None}
    found |= {273: 8, 279: len(pixels)}
    body = bytearray(pixels + b"\0" * (len(pixels) % 2))
    entries = []
    for tag, value in sorted(found.items()):
        values = value if isinstance(value, tuple) else (value,)
        raw = struct.pack(f"{order}{len(values)}L", *values)
        if len(values) > 1:
            body += raw
            raw = struct.pack(f"{order}L", 8 + len(body) - len(raw))
        entries.append(struct.pack(f"{order}HHL", tag, LONG, len(values)) + raw)
    head = struct.pack(f"{order}2sHL", b"II" if order == "<" else b"MM", 42, 8 + len(body))
    count = struct.pack(f"{order}H", len(entries))
    return head + bytes(body) + count + b"".join(entries) + bytes(4)


LAYOUTS = list(itertools.product((None, "zlib"), (None, (16, 16)), "<>"))


@pytest.mark.parametrize("code", "u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 c8".split())
def test_recorded_numbers_come_back_from_every_kind_of_tiff(code):
    values = VALUES - 50 * (code[0] == "i")
    if code in ("u2", "u4"):
        values = values + np.iinfo(code).max - 200
    wanted = values.astype(code)
    for compression, tile, order in LAYOUTS:
        content = written(wanted, compression=compression, tile=tile, byteorder=order)
        image = decode_image(content, "x")
        assert image.dtype == (code if code in ("u1", "u2") else np.float32)
        np.testing.assert_array_equal(image[:, :, 0], np.float32(wanted.real))


@pytest.mark.parametrize("code, white", [("u1", 255), ("u2", 65535), ("u4", 0), ("u8", 0)])
def test_white_is_zero_for_every_number_of_bits(code, white):
    for compression, tile, order in LAYOUTS:
        content = written(
            VALUES.astype(code),
            photometric="miniswhite",
            compression=compression,
            tile=tile,
            byteorder=order,
        )
        np.testing.assert_array_equal(decode_image(content, "x")[:, :, 0], white - VALUES)


@pytest.mark.parametrize("code", ["i1", "i2", "f4", "f8", "c8"])
def test_white_is_zero_without_a_black_is_refused(code):
    with pytest.raises(ImageError, match="0 is white and the samples are signed"):
        decode_image(written(VALUES.astype(code), photometric="miniswhite"), "x")


@pytest.mark.parametrize("bits, scale", [(1, 255), (2, 85), (4, 17), (12, 1)])
@pytest.mark.parametrize("white", [False, True])
def test_samples_that_share_bytes(bits, scale, white):
    values = RNG.integers(0, 1 << bits, (6, 8))
    rows = (values[..., None] >> np.arange(bits)[::-1]) & 1
    content = tiff(np.packbits(rows.astype(bool)).tobytes(), t258=bits, t262=int(not white))
    wanted = (((1 << bits) - 1 - values) if white else values) * scale
    np.testing.assert_array_equal(decode_image(content, "x")[:, :, 0], wanted)


@pytest.mark.parametrize("tile", [None, (16, 16)])
def test_a_big_tiff_of_big_endian_numbers_which_pillow_does_not_know(tile):
    """Its tags are applied all the same, or the file is refused."""
    options = {"bigtiff": True, "byteorder": ">", "compression": "zlib", "tile": tile}
    bits, values = VALUES % 2 == 1, VALUES.astype(np.uint8)
    for pixels, white in ((bits, 255), (values, 255), (values.astype(np.uint16), 65535)):
        plain = pixels * np.uint8(255) if pixels is bits else pixels
        for photometric, wanted in (("minisblack", plain), ("miniswhite", white - plain)):
            content = written(pixels, photometric=photometric, **options)
            np.testing.assert_array_equal(decode_image(content, "x")[:, :, 0], wanted)
    palette = written(values, photometric="palette", colormap=np.zeros((3, 256), "u2"), **options)
    inks = written(values[..., None].repeat(4, 2), photometric="separated", **options)
    for content in (palette, inks):
        with pytest.raises(ImageError, match="in an unusual layout: save it as RGB"):
            decode_image(content, "x")


@pytest.mark.parametrize("code, bands", [("u2", 1), ("u1", 3), ("i4", 2)])
@pytest.mark.parametrize("compression", [1, 5, 8, 32773])
def test_bits_that_were_turned_before_or_after_packing(code, bands, compression):
    """FillOrder 2 turns the stored bytes, packed or not (TIFF 6.0, section 8)."""
    wanted = RNG.integers(0, 100, (6, 8, bands)).astype("<" + code)
    name = {5: "tiff_lzw", 8: "tiff_adobe_deflate", 32773: "packbits", 1: "raw"}[compression]
    content = packed(wanted.tobytes(), name)
    turned = bytes(int(f"{byte:08b}"[::-1], 2) for byte in content)
    form = {"u": 1, "i": 2}[code[0]]
    size = {"t258": 8 * wanted.itemsize, "t277": bands, "t339": form, "t259": compression}
    extra = {"t338": (0,) * (bands - 1) if bands > 2 else 0} if bands > 1 else {}
    np.testing.assert_array_equal(decode_image(tiff(turned, t266=2, **size, **extra), "x"), wanted)
    if compression == 1 and bands > 1:  # Pillow does not turn the bits of uncompressed planes
        planes = wanted.transpose(2, 0, 1).tobytes()
        turned = bytes(int(f"{byte:08b}"[::-1], 2) for byte in planes)
        each = len(planes) // bands
        tiles = {"t284": 2, "t322": 8, "t323": 6, "t324": tuple(range(8, 8 + len(planes), each))}
        tiles["t325"] = (each,) * bands
        content = tiff(turned, t266=2, t262=2 if bands == 3 else 1, **size, **tiles)
        np.testing.assert_array_equal(decode_image(content, "x"), wanted)


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("code", "u1 i1 u2 i2 i4 f4 u8".split())
def test_a_predictor_is_only_meant_where_differences_are_compressed(code, tiled):
    """As libtiff, whose codecs without a predictor pass over the tag; one plane is both kinds."""
    wanted = np.arange(16 * 16).reshape(16, 16).astype(code)
    tile = {"t322": 16, "t323": 16, "t324": 8, "t325": wanted.nbytes} if tiled else {}
    form = {"u": 1, "i": 2, "f": 3}[code[0]]
    bits = 8 * wanted.itemsize
    for order in "<>":
        raw = wanted.astype(order + code).tobytes()
        size = {"t256": 16, "t257": 16, "t278": 16, "t258": bits, "t339": form}
        content = tiff(raw, order=order, **size, t317=2, t284=2, **tile)
        np.testing.assert_array_equal(
            decode_image(content, "x")[:, :, 0], np.float32(wanted).astype(np.float32)
        )


@pytest.mark.parametrize("order", "<>")
def test_floats_that_were_compressed_by_differences(order):
    values = RNG.normal(size=(6, 8)).astype("f4")
    planes = [row.astype(">f4").view(np.uint8).reshape(-1, 4).T.ravel() for row in values]
    rows = b"".join(np.diff(row, prepend=np.uint8(0)).tobytes() for row in planes)
    content = tiff(zlib.compress(rows), order=order, t258=32, t259=8, t317=3, t339=3)
    np.testing.assert_array_equal(decode_image(content, "x")[:, :, 0], values)


@pytest.mark.parametrize("code", ["u1", "f8"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_tiff_is_turned_whatever_its_type(code, orientation):
    content = written(VALUES.astype(code), extratags=[(274, "H", 1, orientation, True)])
    picture = Image.fromarray(VALUES.astype(np.uint8))
    picture.getexif()[274] = orientation
    wanted = np.array(ImageOps.exif_transpose(picture))
    np.testing.assert_array_equal(decode_image(content, "x")[:, :, 0], wanted)
    assert decoder.header(content, "x", most=720).work == 720


@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("colours", [COLOURS, COLOURS[..., :1]], ids=["rgb", "gray"])
def test_alpha_is_dropped_and_never_divides_the_colours(planar, colours):
    gray = colours.shape[2] == 1
    options = {"photometric": "minisblack" if gray else "rgb", "planarconfig": planar}

    def read(extra, alpha, compression):
        planes = np.concatenate([colours, np.full_like(colours[..., :1], alpha)], axis=2)
        planes = np.moveaxis(planes, 2, 0) if planar == "separate" else planes
        options["extrasamples"] = [extra]
        return decode_image(written(planes, compression=compression, **options), "x")

    for compression in (None, "zlib"):
        for extra, alpha in (("unassalpha", 7), ("assocalpha", 255)):
            np.testing.assert_array_equal(read(extra, alpha, compression), colours)
        with pytest.raises(ImageError, match="multiplied by alpha"):
            read("assocalpha", 250, compression)
        found = read("unspecified", 7, compression)
        assert found.shape[2] == colours.shape[2] + 1 and np.all(found[..., -1] == 7)


@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_a_fourth_band_that_no_tag_explains_is_no_alpha(planar, compression):
    planes = np.concatenate([COLOURS, np.full_like(COLOURS[..., :1], 7)], axis=2)
    stored = np.moveaxis(planes, 2, 0) if planar == "separate" else planes
    content = written(
        stored,
        photometric="rgb",
        planarconfig=planar,
        compression=compression,
        extrasamples=["unspecified"],
    )
    extra, printer = (struct.pack("<HHL", tag, SHORT, 1) for tag in (338, 337))
    assert extra in content
    found = decode_image(content.replace(extra, printer), "x")
    np.testing.assert_array_equal(found, planes)


@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("code", ["i1", "f4"])
def test_colours_of_measured_numbers(planar, code):
    planes = COLOURS.astype(code)
    stored = np.moveaxis(planes, 2, 0) if planar == "separate" else planes
    content = written(stored, photometric="rgb", planarconfig=planar, compression="zlib")
    np.testing.assert_array_equal(decode_image(content, "x"), planes.astype(np.float32))


@pytest.mark.parametrize(
    "tags, why",
    [
        ({"t262": None}, "PhotometricInterpretation is missing"),
        ({"t262": 9}, "PhotometricInterpretation is 9"),
        ({"t262": 32803}, "PhotometricInterpretation is 32803"),
        ({"t262": 4}, "only reduced copies or masks"),
        ({"t254": 1}, "only reduced copies or masks"),
        ({"t262": 3, "t258": 16}, "wanted 8 bits at most"),
        ({"t339": 4}, "SampleFormat 4"),
        ({"t339": 5, "t258": 32}, "SampleFormat 5"),
        ({"t258": 24}, "24 bits"),
        ({"t258": (8, 4), "t277": 2}, "samples differ"),
        ({"t256": (8, 8)}, "tag 256 has 2 values, wanted one"),
        ({"t256": 0}, "states no size"),
        ({"t262": 5, "t277": 4, "t332": 2}, "inks other than CMYK"),
        ({"t262": 6, "t277": 3}, "YCbCr that is subsampled"),
        ({"t262": 2, "t277": 5, "t338": (2, 0)}, "5 samples per pixel"),
        ({"t277": 2**32 - 1}, "got 4294967295 bands"),
        ({"t258": 4, "t277": 4, "t338": (0, 0, 0)}, "4 bands of 4 bits"),
        ({"t277": 4, "t338": (0, 0, 0), "t259": 50001}, "with compression 50001"),
        ({"t278": 0}, "strips or tiles are empty"),
        ({"t322": 60_000, "t323": 60_000}, "in 1 tiles of 60000x60000"),
        ({"t256": 1, "t257": 320, "t322": 2**20, "t323": 16}, "in 20 tiles of 16x1048576"),
    ],
)
def test_a_tiff_that_no_image_represents_is_refused(tags, why):
    content = tiff(bytes(range(240)), **tags)
    for read in (decode_image, lambda *args: decoder.decode(*args, most=100)):
        with pytest.raises(ImageError, match=f"^x: .*{why}"):
            read(content, "x")


def packed(content, compression):
    """Returns bytes as libtiff packs them."""
    file = io.BytesIO()
    Image.frombytes("L", (len(content), 1), content).save(file, "TIFF", compression=compression)
    with tifffile.TiffFile(io.BytesIO(file.getvalue())) as tif:
        (at,), (count,) = tif.pages[0].dataoffsets, tif.pages[0].databytecounts
    return file.getvalue()[at : at + count]


@pytest.mark.parametrize(
    "name, number", [("tiff_lzw", 5), ("zstd", 50000), ("packbits", 32773), ("raw", 1)]
)
def test_bands_and_windows_of_any_packing_are_read(tmp_path, name, number):
    values = RNG.integers(0, 60_000, (20, 36, 4)).astype("<u2")
    size = {"t256": 36, "t257": 20, "t258": 16, "t259": number, "t278": 20}
    strip = packed(values.tobytes(), name)
    bands = size | {"t277": 4, "t338": (0, 0, 0)}
    np.testing.assert_array_equal(decode_image(tiff(strip, **bands), "x"), values)
    with pytest.raises(ImageError, match="x: "):
        decode_image(tiff(strip[: len(strip) // 2], **bands), "x")
    gray = values[:, :, 0].tobytes()
    (tmp_path / "x.tif").write_bytes(tiff(packed(gray, name), **size))
    with open_scene(tmp_path / "x.tif") as scene:
        np.testing.assert_array_equal(scene.window(3, 2, 30, 19)[:, :, 0], values[2:19, 3:30, 0])


@pytest.mark.parametrize("code", ["f2", "f4", "f8"])
@pytest.mark.parametrize("order", "<>")
def test_differences_of_floats_are_undone(code, order):
    values = RNG.normal(size=(20, 36, 2)).astype(code)  # TIFF technical note 3
    size = np.dtype(code).itemsize
    planes = values.astype(f">{code}").view(np.uint8).reshape(20, 72, size).swapaxes(1, 2)
    steps = np.diff(planes.reshape(20, -1, 2), axis=1, prepend=np.uint8(0))
    tags = {"t256": 36, "t257": 20, "t258": 8 * size, "t259": 8, "t278": 20, "t317": 3}
    content = tiff(zlib.compress(steps.tobytes()), order=order, t277=2, t338=0, t339=(3, 3), **tags)
    np.testing.assert_array_equal(decode_image(content, "x"), values.astype(np.float32))


@pytest.mark.parametrize("code", ["u1", "u2", "f4", "f8"])
@pytest.mark.parametrize("kind", [1, 4, 8])
@pytest.mark.parametrize("first", [False, True])
def test_copies_and_masks_in_a_tiff_are_no_pages(code, kind, first):
    file, image = io.BytesIO(), VALUES.astype(code)
    with tifffile.TiffWriter(file) as tif:
        for part in (image[::2, ::2], image) if first else (image, image[::2, ::2]):
            tif.write(part.copy(), tile=(16, 16), subfiletype=0 if part is image else 1)
    tag = struct.pack("<HHL", 254, LONG, 1)
    content = file.getvalue().replace(tag + b"\1\0\0\0", tag + struct.pack("<L", kind))
    np.testing.assert_array_equal(decode_image(content, "x")[:, :, 0], image)


@pytest.mark.parametrize("nodata", [None, 7, -9999])
@pytest.mark.parametrize("code", ["u1", "u2", "f4"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_tiles_that_a_sparse_tiff_leaves_out(tmp_path, code, compression, nodata):
    """GDAL's SPARSE_OK; a missing tile has the value of missing pixels, or 0."""
    values = VALUES.astype(code) + np.array(9, code)
    extra = [(42113, "s", 0, str(nodata), True)] if nodata else ()
    options = {"photometric": "minisblack", "compression": compression, "extratags": extra}
    content = bytearray(written(values, tile=(16, 16), **options))
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        for name in ("TileOffsets", "TileByteCounts"):
            tag = file.pages[0].tags[name]
            width = tag.valuebytecount // tag.count
            at = tag.valueoffset + width
            content[at : at + width] = bytes(width)
    wanted = values[:, :, None].copy()
    wanted[:16, 16:32] = nodata if nodata and (nodata > 0 or code == "f4") else 0
    np.testing.assert_array_equal(decode_image(bytes(content), "x"), wanted)
    (tmp_path / "x.tif").write_bytes(content)
    with open_scene(tmp_path / "x.tif") as scene:  # in which missing pixels are 0
        found = scene.window(0, 0, 36, 20)
    np.testing.assert_array_equal(found, np.where(wanted == nodata, 0, wanted))


@pytest.mark.parametrize("tag, bits, form", [("strip", 8, 1), ("strip", 64, 3), ("strip", 128, 6)])
def test_a_strip_larger_than_its_page_is_not_unpacked(tag, bits, form):
    packer = zlib.compressobj()
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(100)) + packer.flush()
    content = tiff(packed, t258=bits, t259=8, t339=form)
    tracemalloc.start()
    try:
        decode_image(content, "x")
    except ImageError as error:
        assert "unpacks to more than its size" in str(error)
    else:
        assert bits == 8  # libtiff stops at the end of the page
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 50 << 20


@pytest.mark.parametrize("code", ["i1", "f2", "f8", "c8", "u8"])
@pytest.mark.parametrize("compression, tile", [(None, None), ("zlib", None), ("zlib", (16, 16))])
def test_missing_pixels_of_any_type_are_not_made_up(code, compression, tile):
    values = VALUES.astype(code)
    content = written(values, compression=compression, tile=tile, rowsperstrip=5)
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        tag = file.pages[0].tags["TileByteCounts" if tile else "StripByteCounts"]
        form, at = f"<{tag.count}{'H' if tag.dtype == SHORT else 'L'}", tag.valueoffset
    counts = struct.unpack_from(form, content, at)
    for place in range(len(counts)):
        damaged = bytearray(content)
        less = [count // 2 if n == place else count for n, count in enumerate(counts)]
        struct.pack_into(form, damaged, at, *less)
        try:  # Pillow does without the lengths of strips that are not compressed
            found = decode_image(bytes(damaged), "x")
        except ImageError as error:
            assert str(error).startswith("x: ")
        else:
            assert compression is None
            np.testing.assert_array_equal(found[:, :, 0], values.real)


def test_tags_that_share_their_bytes_are_refused():
    content = tiff(bytes(48), t320=tuple(range(2000)), t512=5)
    shared = content.replace(
        struct.pack("<HHL", 512, LONG, 1), struct.pack("<HHL", 512, LONG, 2000)
    )
    at = struct.unpack_from("<L", content, content.index(struct.pack("<HHL", 320, LONG, 2000)) + 8)
    shared = shared.replace(
        struct.pack("<HHLL", 512, LONG, 2000, 5), struct.pack("<HHLL", 512, LONG, 2000, at[0])
    )
    with pytest.raises(ImageError, match="refer to the same bytes"):
        decode_image(shared, "x")


def progressive(scans, side=64):
    file = io.BytesIO()
    Image.fromarray(np.zeros((side, side), np.uint8)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last = content.rindex(b"\xff\xda")
    own = content.count(b"\xff\xda")
    return content[:last] + content[last:-2] * (scans - own + 1) + b"\xff\xd9"


def test_scans_of_a_jpeg_are_counted_and_bounded():
    assert decoder.header(progressive(12), "x", most=4096).work == 12 * 4096
    assert decoder.decode(progressive(32), "x", most=11_000).shape == (64, 64, 1)
    for read in (decoder.decode, decoder.header):
        with pytest.raises(ImageError, match="x: 33 passes over the image"):
            read(progressive(33), "x", most=11_000)
        with pytest.raises(ImageError, match="64x64 pixels in 13 passes .* at most 3780 pixels"):
            read(progressive(13), "x", most=4096)
    content = progressive(33)
    strip = tiff(content, t256=64, t257=64, t278=64, t259=7)
    with pytest.raises(ImageError, match="x: 33 passes"):
        decode_image(strip, "x")


@pytest.mark.slow
def test_parts_of_a_file_that_cost_time_of_their_own_are_bounded():
    file = io.BytesIO()
    Image.fromarray(COLOURS).save(file, "JPEG")
    jpeg, most = file.getvalue(), decoder.MOST_PARTS
    wanted = decode_image(jpeg, "x")
    for between in (
        b"\xff" * 5,
        b"\xff\x00" * 5,
        b"\xff\xd0" * 5,
        b"any bytes",
        b"\xff\xfe\0\2" * 50,
    ):
        np.testing.assert_array_equal(decode_image(jpeg[:20] + between + jpeg[20:], "x"), wanted)
    for segment in (b"\xff\xfe\0\2", b"\xff\x01", b"\xff\xc4\0\2"):
        with pytest.raises(ImageError, match=f"x: more than {most} segments of a JPEG"):
            decode_image(jpeg[:2] + segment * most + jpeg[2:], "x")
    with pytest.raises(ImageError, match="it has no scan"):
        decode_image(jpeg[:2] + b"\xff\x00" * 9, "x")
    file = io.BytesIO()
    Image.fromarray(COLOURS).save(file, "PNG")
    png = file.getvalue()
    for kind in (b"IDAT", b"tEXt"):
        chunk = struct.pack(">L", 0) + kind + struct.pack(">L", zlib.crc32(kind))
        with pytest.raises(ImageError, match=f"x: more than {2 * most} chunks of a PNG"):
            decode_image(png[:33] + chunk * 2 * most + png[33:], "x")
    file = io.BytesIO()
    Image.fromarray(COLOURS[:, :, 0]).save(file, "GIF")
    gif, frame = file.getvalue(), file.getvalue().index(b"\x2c\0\0\0\0")
    for blocks in (b"\x21\xfe\0" * (most + 1), b"\x21\xfe" + b"\1a" * most + b"\0"):
        with pytest.raises(ImageError, match=f"x: more than {most} blocks of a GIF"):
            decode_image(gif[:frame] + blocks + gif[frame:], "x")
    rows = tiff(b"", t256=1, t257=most + 1, t278=1)
    with pytest.raises(ImageError, match=f"x: more than {most} strips or tiles of a TIFF"):
        decode_image(rows, "x")


def test_strips_of_several_sizes_are_unpacked_in_their_order():
    pieces = [RNG.integers(0, 256, size, np.uint8).tobytes() for size in (90, 90, 33, 90, 90, 7)]
    packed = [bytes([len(piece) - 1]) + piece for piece in pieces]  # PackBits: a literal run
    sizes = [len(piece) for piece in pieces]
    assert decoder.compression.unpack_segments(packed, 32773, sizes) == pieces
    assert decoder.compression.unpack_segments(packed[:1], 32773, [60]) == [pieces[0][:60]]
    with pytest.raises(OSError, match="decoder error"):
        decoder.compression.unpack_segments([*packed[:4], packed[4][:50], packed[5]], 32773, sizes)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_profiles_and_orientation_of_a_jpeg_do_not_reach_the_pixels(mode):
    picture = Image.fromarray(COLOURS).convert(mode)
    exif = Image.Exif()
    exif[274] = 6
    plain, full = io.BytesIO(), io.BytesIO()
    picture.save(plain, "JPEG")
    picture.save(full, "JPEG", exif=exif, icc_profile=bytes(200_000), comment=b"a" * 60_000)
    with Image.open(plain) as image:
        wanted = np.array(image.convert("L" if mode == "L" else "RGB")).reshape(20, 36, -1)
    for file in (plain, full):
        np.testing.assert_array_equal(decode_image(file.getvalue(), "x"), wanted)


def test_text_and_profiles_of_a_png_of_any_length_or_checksum():
    info = PngImagePlugin.PngInfo()
    info.add_text("a", "b" * (2 << 20))
    info.add_text("z", "<x/>" * 600_000, zip=True)
    info.add_itxt("XML:com.adobe.xmp", "<x/>" * 600_000, zip=True)
    file = io.BytesIO()
    Image.fromarray(COLOURS).save(file, "PNG", pnginfo=info, icc_profile=bytes(2 << 20))
    content = file.getvalue()
    np.testing.assert_array_equal(decode_image(content, "x.png"), COLOURS)
    end = content.index(b"tEXt") + 4 + 2 + (2 << 20)
    wrong = content[:end] + b"????" + content[end + 4 :]
    np.testing.assert_array_equal(decode_image(wrong, "x.png"), COLOURS)
    pixels = content.index(b"IDAT") + 20
    with pytest.raises(ImageError, match="not a readable image"):
        decode_image(content[:pixels] + b"\xff" + content[pixels + 1 :], "x.png")


def test_comments_of_a_gif_are_not_joined():
    file = io.BytesIO()
    Image.fromarray(COLOURS[..., 0]).save(file, "GIF")
    content = file.getvalue()
    start = 13 + 3 * 256
    comments = b"\x21\xfe" + (b"\xff" + bytes(255)) * 4000 + b"\0"
    content = content[:start] + comments * 4 + content[start:]
    np.testing.assert_array_equal(decode_image(content, "x")[:, :, 0], COLOURS[..., 0])


def jpeg2000(values):
    file = io.BytesIO()
    Image.fromarray(values).save(file, "JPEG2000", irreversible=False)
    return bytearray(file.getvalue())


def test_bits_of_a_jpeg_2000_are_not_shifted():
    content = jpeg2000(np.uint16(32768 - 2048 + 40 * VALUES))  # 0 to 4095 as 12 bits
    start = content.find(b"\xff\x4f\xff\x51")
    content[start + 42] = 11
    np.testing.assert_array_equal(decode_image(bytes(content), "x")[:, :, 0], 40 * VALUES)
    content[start + 42] |= 0x80
    with pytest.raises(ImageError, match="signed samples"):
        decode_image(bytes(content), "x")


@pytest.mark.parametrize(
    "at, code, value, why",
    [
        (8, ">L", 60_000, "states 20x36 pixels, and 20x60000 in its codestream"),
        (40, ">H", 16_000, "16000 channels"),
    ],
)
def test_sizes_of_a_jpeg_2000_agree(at, code, value, why):
    content = jpeg2000(VALUES.astype(np.uint8))
    struct.pack_into(code, content, content.find(b"\xff\x4f\xff\x51") + at, value)
    with pytest.raises(ImageError, match=why):
        decode_image(bytes(content), "x")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="the system has no such device")
def test_no_device_or_pipe_is_read(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    for path in ("/dev/zero", tmp_path / "a.png"):
        with pytest.raises(ImageError, match="a device or a pipe, wanted a regular file"):
            read_image(path)
    (tmp_path / "list.csv").write_text("path\n/dev/zero\na.png\n")
    for one in data.image_paths(str(tmp_path / "list.csv"), tmp_path / "scratch").images:
        with pytest.raises(ImageError, match="a device or a pipe"):
            read_image(one.file)


def test_a_file_larger_than_memory_is_not_read(tmp_path):
    with open(tmp_path / "a.npy", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ImageError, match="a file of 1099511627776 bytes, wanted at most"):
        read_image(tmp_path / "a.npy")


def field(value, width):
    return (str(value).zfill(width) if isinstance(value, int) else value.ljust(width)).encode()


def nitf(values, mode, blocks, *, kind="INT", subs=None, version="NITF02.10", **more):
    """Returns a NITF 2.1 file of ``values``, ``[h, w, c]``, without compression.

    ``mask`` is put before the blocks; of 1 or 12 ``bits``, the file has one block; ``tables`` are
    the look-up tables of its band.
    """
    packed, mask, tables = (more.get(name) for name in ("bits", "mask", "tables"))
    (height, width, bands), (rows, columns) = values.shape, blocks
    bits = packed or 8 * values.itemsize
    head = b"IM" + field("A", 10) + field("20200101000000", 14) + field("", 17 + 80) + b"U"
    head += field("", 166) + b"0" + field("", 42) + field(height, 8) + field(width, 8)
    head += field(kind, 3) + field("RGB" if bands == 3 else "NODISPLY" if subs else "MONO", 8)
    head += field("SAR" if subs else "VIS", 8) + field(bits, 2)
    head += b"R 0" + (b"NC" if mask is None else b"NM") + field(bands, 1)
    for band in range(bands):
        head += field("RGB"[band] if bands == 3 else "" if subs else "M", 2)
        head += field(subs[band] if subs else "", 6) + b"N" + field("", 3)
        head += field(len(tables or ()), 1)
        head += field(len(tables[0]), 5) + b"".join(tables) if tables else b""
    down, across = -(-height // rows), -(-width // columns)
    head += b"0" + mode.encode() + field(across, 4) + field(down, 4) + field(columns, 4)
    head += field(rows, 4) + field(bits, 2) + field(1, 3) + field(0, 3) + field(0, 10)
    head += field("1.0", 4) + field(0, 10)
    padded = np.zeros((down * rows, across * columns, bands), values.dtype.newbyteorder(">"))
    padded[:height, :width] = values
    cut = padded.reshape(down, rows, across, columns, bands)
    axes = {"B": (0, 2, 4, 1, 3), "P": (0, 2, 1, 3, 4), "R": (0, 2, 1, 4, 3), "S": (4, 0, 2, 1, 3)}
    stored = cut.transpose(axes[mode])
    if packed:
        shifts = np.arange(bits)[::-1]
        stored = np.packbits(stored.reshape(-1, 1) >> shifts & 1)
    body = head + (mask or b"") + stored.tobytes()
    start = version.encode() + field(3, 2) + b"BF01" + field("A", 10) + field("20200101000000", 14)
    start += field("", 80) + b"U" + field("", 166) + field(0, 10) + b"0" + bytes(3)
    start += field("", 42)
    rest = field(1, 3) + field(len(head), 6) + field(len(body) - len(head), 10) + b"000" * 5
    rest += field(0, 10)
    length = len(start) + 12 + 6 + len(rest)
    return start + field(length + len(body), 12) + field(length, 6) + rest + body


@pytest.mark.parametrize("version", ["NITF02.10", "NSIF01.00"])
@pytest.mark.parametrize("mode", "BPRS")
def test_every_order_of_a_nitfs_bands(mode, version):
    pytest.importorskip("sarpy")
    for blocks in ((20, 36), (8, 12)):
        for array in (COLOURS, VALUES[..., None].astype(np.uint16)):
            found = decode_image(nitf(array, mode, blocks, version=version), "x.nsf")
            np.testing.assert_array_equal(found, array)
        parts = RNG.normal(size=(20, 36, 2)).astype("f4")
        found = decode_image(nitf(parts, mode, blocks, kind="R", subs="IQ", version=version), "x")
        np.testing.assert_allclose(found[..., 0], np.hypot(parts[..., 0], parts[..., 1]), rtol=1e-6)


@pytest.mark.parametrize("mode", "BPRS")
def test_blocks_masks_and_bits_of_a_nitf(mode):
    """sarpy reads one block as if it were as large as the image and began before the mask."""
    pytest.importorskip("sarpy")

    def found(*args, **options):
        return decode_image(nitf(*args, **options), "x")

    def mask(*places, transparent=(), pad=b""):
        sizes = 4 * bool(places), 4 * bool(transparent), 8 * len(pad)
        numbers = (*places, *transparent)
        length = 10 + len(pad) + 4 * len(numbers)
        return struct.pack(f">LHHH{len(pad)}s{len(numbers)}L", length, *sizes, pad, *numbers)

    absent, wide = 0xFFFFFFFF, VALUES[:8, :8, None].astype(np.uint16)
    np.testing.assert_array_equal(found(COLOURS, mode, (32, 40)), COLOURS)
    one = mask(*range(0, 3 * 720, 720)) if mode == "S" else mask(0)
    np.testing.assert_array_equal(found(COLOURS, mode, (20, 36), mask=one), COLOURS)
    places = mask(32, absent, 64, 96, transparent=[absent] * 4, pad=b"\1\2")
    values = found(wide, mode, (4, 4), mask=places)
    np.testing.assert_array_equal(values[:4, :4], wide[:4, 4:])  # the second block is the first
    assert (values[:4, 4:] == 0x0102).all()
    np.testing.assert_array_equal(values[4:], wide[4:])
    # This mask says where transparent pixels are; all blocks are there.
    places = mask(transparent=(absent, 32, absent, absent))
    np.testing.assert_array_equal(found(wide, mode, (4, 4), mask=places), wide)
    twelve = RNG.integers(0, 1 << 12, (5, 8, 2), dtype=np.uint16)
    np.testing.assert_array_equal(found(twelve, mode, (5, 8), bits=12), twelve)
    bits = RNG.integers(0, 2, (5, 7, 1), dtype=np.uint8)
    np.testing.assert_array_equal(found(bits, mode, (5, 7), kind="B", bits=1), bits * 255)
    with pytest.raises(ImageError, match="truncated: block 0 has 79 bytes, wanted 80"):
        decode_image(nitf(twelve[:, :, :1], mode, (5, 8))[:-1], "x")


def test_tables_and_polar_parts_of_a_nitf():
    pytest.importorskip("sarpy")
    places = RNG.integers(0, 3, (4, 5, 1), dtype=np.uint8)
    low, high = b"\1\2\3", b"\4\5\6"
    colours = decode_image(nitf(places, "B", (4, 5), tables=(low, high, low)), "x")
    np.testing.assert_array_equal(colours, places + np.array([1, 4, 1]))
    two = decode_image(nitf(places, "B", (4, 5), tables=(low, high)), "x")
    np.testing.assert_array_equal(two, (places + 1) * 256.0 + places + 4)
    with pytest.raises(ImageError, match="the look-up table ends at 2, a pixel has 2"):
        decode_image(nitf(places, "B", (4, 5), tables=(low[:2],)), "x")
    parts = np.array([[[10, 0], [20, 64], [30, 192]]], np.uint8)  # 64 of 256 are a quarter turn
    found = decode_image(nitf(parts, "P", (1, 3), subs="MP"), "x", phase=True)
    np.testing.assert_allclose(found[0, :, 0], [10, 20, 30])
    np.testing.assert_allclose(found[0, :, 1], [0, np.pi / 2, -np.pi / 2], atol=1e-6)
    with pytest.raises(ImageError, match="parts I and Q of type INT, wanted signed ones"):
        decode_image(nitf(parts, "P", (1, 3), subs="IQ"), "x")


def test_a_nitf_changes_nothing_for_others_and_is_bounded(monkeypatch):
    pytest.importorskip("sarpy")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 12345)
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", False)
    content = nitf(COLOURS, "B", (20, 36))
    decode_image(content, "x")
    assert (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES) == (12345, False)
    for old, new in ((b"0000002000000036", b"9999999999999999"), (b"00010001", b"99999999")):
        with pytest.raises(ImageError, match="x: .*pixels"):
            decode_image(content.replace(old, new, 1), "x")


@pytest.mark.parametrize("error", [TypeError(b"\xff"), RecursionError(), KeyError("\udcff")])
def test_any_error_is_a_line_that_can_be_sent(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(decoder.png, "header", fail)
    with pytest.raises(ImageError, match="^x: not a readable image") as raised:
        decoder.header(b"\x89PNG\r\n\x1a\n", "x", most=1)
    str(raised.value).encode()


def test_a_scene_of_seven_bytes_is_no_readable_image(tmp_path):
    (tmp_path / "x.tif").write_bytes(b"II*\0bad")
    with pytest.raises(ImageError, match=r"x.tif: not a readable image \("):
        with open_scene(tmp_path / "x.tif"):
            pass
