import struct

import numpy as np
import pytest

from jaxatr.data.sources import dsiac

TYPES = (0, 1, 2, 3, 5, 6, 7, 8)


@pytest.fixture
def open_bytes(tmp_path):
    def opened(content):
        path = tmp_path / "clip.arf"
        path.unlink(missing_ok=True)  # a memory-mapped file must not be overwritten
        path.write_bytes(content)
        return dsiac.open_arf(path)

    return opened


def image(rng, kind, rows, columns):
    """Random values over the full range of a type."""
    dtype = {0: "u1", 6: "u4", 7: "f4", 8: "f8"}.get(kind, "u2")
    if dtype[0] == "f":
        return (rng.normal(size=(rows, columns)) * 1e6).astype(dtype)
    made = rng.integers(0, np.iinfo(dtype).max, (rows, columns), dtype, endpoint=True)
    made[0, 0], made[-1, -1] = 0, np.iinfo(dtype).max
    return made


def check(arf, files, content, frames):
    plain = files.plain_arf(content)
    assert (arf.frames, arf.footer_bytes) == (len(frames), plain.tail)
    assert len(arf.bands) == len(frames[0])
    for number, images in enumerate(frames):
        for band, wanted in enumerate(images):
            np.testing.assert_array_equal(arf.frame(number, band), wanted)
            np.testing.assert_array_equal(arf.frame(number, band), plain.image(number, band))


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_with_every_flag_and_footer(dsiac_files, open_bytes, kind, unchecked):
    rng = np.random.default_rng(kind)
    for flags in range(64):
        frames = [[image(rng, kind, 3, 5)] for _ in range(2)]
        for footer_flags in range(4) if flags & dsiac_files.FOOTERS else (0,):
            content = dsiac_files.arf(frames, kind, flags=flags, footer_flags=footer_flags)
            arf = open_bytes(content)
            check(arf, dsiac_files, content, frames)
            assert arf.note == "" and arf.offset == arf.subheaders.end
            for number in range(2):
                written, found = dsiac_files.footer(number, footer_flags), arf.footer(number)
                if not written:
                    assert found is None
                else:
                    numbers = struct.pack(">10i", *found.numbers) if found.numbers else b""
                    assert numbers + found.rest == written


@pytest.mark.parametrize("more", range(8))
@pytest.mark.parametrize("kinds", [(0,), (5, 0, 7), (1,) * 16, (8, 6)])
def test_several_bands(dsiac_files, open_bytes, kinds, more):
    rng, files = np.random.default_rng(more), dsiac_files
    flags = [files.COMMENT, files.FOOTERS, files.SOURCE]
    flags = sum(flag for bit, flag in enumerate(flags) if more >> bit & 1)
    multi = [[image(rng, kind, 3, 5) for kind in kinds] for _ in range(2)]
    content = files.arf(multi, 10, flags=flags | files.BANDS, footer_flags=3, types=kinds)
    arf = open_bytes(content)
    check(arf, files, content, multi)
    assert [band.name for band in arf.bands] == [f"band {i}" for i in range(len(kinds))]
    hyper = [[image(rng, kind, 2 + i, 7 - i % 5) for i, kind in enumerate(kinds)] for _ in "ab"]
    content = files.arf(hyper, 13, flags=flags | files.HYPERBANDS, footer_flags=1, types=kinds)
    arf = open_bytes(content)
    check(arf, files, content, hyper)
    assert [band.name for band in arf.bands] == [f"hyper {i}" for i in range(len(kinds))]
    assert [(band.rows, band.columns) for band in arf.bands] == [i.shape for i in hyper[0]]


def test_the_values_of_the_subheaders(dsiac_files, open_bytes):
    flags = 63 - dsiac_files.BANDS
    content = dsiac_files.arf([[np.zeros((2, 2), np.uint8)]], 0, flags=flags, footer_flags=1)
    parts = open_bytes(content).subheaders
    assert parts.source.numbers == tuple(range(11))
    assert (parts.source.location, parts.source.sensor) == ("Fort A", "MWIR camera")
    assert (parts.source.digitizer, parts.source.samples_per_dwell) == ("", 7)
    assert parts.source.fov_deg == (3.5, 2.5)
    assert parts.colours == bytes(i % 251 for i in range(3072))
    assert parts.comment == "a comment of 25 characters"
    assert (parts.footer_flags, parts.bands, parts.hyperbands) == (1, None, None)
    assert parts.ranging == (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)


@pytest.mark.parametrize("colour_bytes", [3072, 768])
@pytest.mark.parametrize("footer_flags", [0, 1, 2, 3])
def test_both_lengths_of_the_colour_map(dsiac_files, open_bytes, colour_bytes, footer_flags):
    frames = [[np.arange(6, dtype=np.uint16).reshape(2, 3) + n] for n in range(3)]
    content = dsiac_files.arf(
        frames,
        5,
        flags=dsiac_files.COLOURS | dsiac_files.COMMENT | dsiac_files.FOOTERS,
        footer_flags=footer_flags,
        colour_bytes=colour_bytes,
    )
    arf = open_bytes(content)
    check(arf, dsiac_files, content, frames)
    assert arf.subheaders.comment == dsiac_files.TEXT
    assert len(arf.subheaders.colours) == colour_bytes


@pytest.mark.parametrize("tail", [40, 96, 136])
def test_where_flags_and_size_differ_the_size_decides(dsiac_files, open_bytes, tail):
    frames = [[np.full((4, 6), n, np.uint16)] for n in range(3)]
    plain = dsiac_files.arf(frames, 1)
    size = 4 * 6 * 2
    parts = [plain[32 + n * size : 32 + (n + 1) * size] + b"\xff" * tail for n in range(3)]
    content = plain[:32] + b"".join(parts)
    arf = open_bytes(content)
    check(arf, dsiac_files, content, frames)
    assert f"footers of {tail} bytes by the file's size, 0 by its flags" in arf.note
    told = dsiac_files.arf(frames, 1, flags=dsiac_files.FOOTERS, footer_flags=1)
    start = 32 + 4
    bare = [told[start + n * (size + 40) :][:size] for n in range(3)]
    content = told[:start] + b"".join(bare)
    arf = open_bytes(content)
    check(arf, dsiac_files, content, frames)
    assert arf.footer(0) is None and "0 bytes by the file's size, 40 by" in arf.note


def test_padding_before_the_frames_and_a_comment_without_a_length(dsiac_files, open_bytes):
    frames = [[np.arange(12, dtype=np.uint8).reshape(3, 4)]]
    content = dsiac_files.arf(frames, 0, flags=dsiac_files.COMMENT, padding=52)
    check(open_bytes(content), dsiac_files, content, frames)
    text = b"captured in autumn".ljust(256, b"\0")
    header = struct.pack(">8I", 0xBBBBBAAD, 2, 3, 4, 0, 1, 288, 1)
    content = header + text + frames[0][0].tobytes()
    arf = open_bytes(content)
    check(arf, dsiac_files, content, frames)
    assert arf.subheaders.comment == "captured in autumn"


def test_frames_are_views_of_the_file(dsiac_files, open_bytes):
    arf = open_bytes(dsiac_files.arf([[np.full((2, 3), 7, np.uint16)]] * 2, 2))
    frame = arf.frame(1)
    assert frame.dtype == np.dtype(">u2") and not frame.flags.owndata and not frame.flags.writeable
    for number in (-1, 2):
        with pytest.raises(IndexError, match=f"clip.arf: frame {number} of 2"):
            arf.frame(number)
    with pytest.raises(IndexError):
        arf.footer(2)
    with pytest.raises(IndexError):
        arf.frame(0, band=1)


def changed(content, at, value):
    return content[:at] + struct.pack(">I", value) + content[at + 4 :]


@pytest.mark.parametrize(
    "at, value, match",
    [
        (0, 0xADBABBBB, "byte 0: not an ARF file: starts with 0xadbabbbb"),
        (4, 3, "byte 4: version: got 3, wanted 2"),
        (8, 0, "byte 8: rows: got 0"),
        (12, 0, "byte 12: columns: got 0"),
        (16, 4, "byte 16: image type: got 4, wanted one of"),
        (16, 10, "byte 28: image type 10 without band subheader"),
        (20, 0, "byte 20: number of frames: got 0"),
        (20, 0xFFFFFFFF, "end at byte .*; the file ends at byte 76"),
        (8, 0xFFFFFFFF, "byte 76: 2 frames of"),
        (24, 31, "byte 24: first frame: got byte 31"),
        (24, 0xFFFFFFF0, "byte 24: first frame: got byte 4294967280 of a file of 76"),
        (28, 128, "byte 28: flags: got 0x80"),
        (28, 4, "byte 32: length of the comment of 4 bytes reaches beyond"),
    ],
)
def test_a_header_that_contradicts_its_file_is_refused(dsiac_files, open_bytes, at, value, match):
    content = dsiac_files.arf([[np.zeros((2, 11), np.uint8)]] * 2, 0)
    with pytest.raises(ValueError, match=f"clip.arf: .*{match}|clip.arf: {match}"):
        open_bytes(changed(content, at, value))


@pytest.mark.parametrize("cut", [0, 5, 31, 40, 75, 77])
def test_a_file_of_another_length_is_refused(dsiac_files, open_bytes, cut):
    content = dsiac_files.arf([[np.zeros((2, 11), np.uint8)]] * 2, 0)
    with pytest.raises(ValueError, match=r"clip.arf: byte \d+: "):
        open_bytes((content + b"\0" * 9)[:cut])


@pytest.mark.parametrize(
    "count, match", [(0, "number of bands: got 0"), (17, "got 17"), (-1, "got -1")]
)
def test_a_wild_number_of_bands_is_refused(dsiac_files, open_bytes, count, match):
    frames = [[np.zeros((2, 2), np.uint8)] * 2]
    content = dsiac_files.arf(frames, 10, flags=dsiac_files.BANDS, types=(0, 0))
    at = 32 + 4 + 8
    with pytest.raises(ValueError, match=f"byte {at}: .*{match}"):
        open_bytes(changed(content, at, count & 0xFFFFFFFF))


def test_a_wild_number_of_hyperbands_ends_at_the_first_frame(dsiac_files, open_bytes):
    frames = [[np.zeros((2, 2), np.uint8)] * 2]
    content = dsiac_files.arf(frames, 13, flags=dsiac_files.HYPERBANDS, types=(0, 0))
    with pytest.raises(ValueError, match="hyperband of 4 bytes reaches beyond"):
        open_bytes(changed(content, 32 + 4 + 8, 0x7FFFFFFF))
