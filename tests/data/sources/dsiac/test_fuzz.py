"""Damaged files either give a clear error or their content: seeded mutations of intact files.

``JAXATR_MUTATIONS=100000 pytest -m slow tests/data/dsiac`` takes a quarter of an hour.
"""

import os
import re
import struct
import tracemalloc

import numpy as np
import pytest

from jaxatr.data.decoder import phoenix
from jaxatr.data.sources import dsiac

# Without shape checks, as for a user: they would take most of the time and find nothing here.
pytestmark = pytest.mark.usefixtures("unchecked")
TOLD = re.compile(r".*: byte \d+: ", re.DOTALL)
TRIALS = [
    pytest.param(200, id="fast"),
    pytest.param(int(os.environ.get("JAXATR_MUTATIONS", 5_000)), id="slow", marks=pytest.mark.slow),
]
# Numbers that break readers: signs, limits and overflowing sizes.
WILD = (0, 1, 2, 31, 32, 33, 40, 136, 255, 256, 768, 3072, 1 << 16, 0x7FFFFFFF, 0x80000000)
WILD += (0xFFFFFFFF, 0xFFFFFFF0)


def mutated(rng, content, header):
    """Changes, cuts, duplicates, inserts or removes bytes, mostly among the first ``header``."""
    out = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        near = min(header, len(out)) if rng.random() < 0.9 else len(out)
        at = int(rng.integers(near)) if near else 0
        what = rng.integers(6)
        if what == 0 and out:
            out[at % len(out)] ^= 1 << int(rng.integers(8))
        elif what == 1:
            word = at // 4 * 4
            value = WILD[rng.integers(len(WILD))] if rng.random() < 0.7 else rng.integers(64)
            out[word : word + 4] = struct.pack(">I", int(value))
        elif what == 2:
            del out[len(out) - int(rng.integers(1, 60)) :]
        elif what == 3:
            out += bytes(int(rng.integers(1, 60)))
        elif what == 4:
            del out[at : at + int(rng.integers(1, 9))]
        else:
            out[at:at] = rng.bytes(int(rng.integers(1, 9)))
    return bytes(out)


def seeds(files):
    rng = np.random.default_rng(0)
    small = [[rng.integers(0, 256, (3, 4), np.uint8)] for _ in range(3)]
    wide = [[rng.integers(0, 65536, (2, 5), np.uint16)] for _ in range(2)]
    floats = [[rng.normal(size=(3, 2)).astype(np.float32)] for _ in range(2)]
    two = [[small[0][0], wide[0][0][:, :4].repeat(2, 0)[:3]] for _ in range(2)]
    mixed = [[small[0][0], wide[0][0]]] * 2
    yield files.arf(small, 0)
    yield files.arf(wide, 3, flags=files.COMMENT | files.FOOTERS, footer_flags=1)
    yield files.arf(wide, 5, flags=files.SOURCE | files.RANGING | files.FOOTERS, footer_flags=3)
    yield files.arf(floats, 7, flags=files.COLOURS, colour_bytes=768)
    yield files.arf(two, 10, flags=files.BANDS | files.FOOTERS, footer_flags=2, types=(0, 5))
    yield files.arf(mixed, 13, flags=files.HYPERBANDS | files.COMMENT, types=(0, 5))


@pytest.mark.parametrize("trials", TRIALS)
def test_arf(dsiac_files, tmp_path, trials):
    """The reader opens exactly the files that the minimal reader opens, with the same pixels."""
    rng, path, whole = np.random.default_rng(1), tmp_path / "clip.arf", [*seeds(dsiac_files)]
    opened = 0
    for trial in range(trials):
        seed = whole[trial % len(whole)]
        content = mutated(rng, seed, len(seed) // 2)
        path.unlink(missing_ok=True)  # a memory-mapped file must not be overwritten
        path.write_bytes(content)
        watched = trial % 10 == 0
        if watched:
            tracemalloc.start()
        try:
            arf = dsiac.open_arf(path)
        except ValueError as error:
            arf = None
            assert str(error).startswith(f"{path}: byte ") and TOLD.match(str(error))
        if watched:
            assert tracemalloc.get_traced_memory()[1] < len(content) + 100_000
            tracemalloc.stop()
        try:
            plain = dsiac_files.plain_arf(content)
        except ValueError:
            plain = None
        assert (arf is None) == (plain is None), content
        if arf is not None and plain is not None:
            opened += 1
            assert (arf.frames, len(arf.bands)) == (plain.count, len(plain.bands))
            for number in {0, arf.frames // 2, arf.frames - 1}:
                for band in range(len(arf.bands)):
                    image = arf.frame(number, band)
                    np.testing.assert_array_equal(image, plain.image(number, band))
    assert opened > trials / 50  # some damaged files are still readable


PIECES = [
    "{",
    "}",
    '"',
    "\n",
    " ",
    "\t",
    "\0",
    "TgtUpd",
    "Tgt",
    "PixLoc",
    "Frame# 2",
    "-",
    "9",
    "e9",
]
PIECES += ["Agt {", "} }", '"x"', "PixLoc 1 2", "NULL", ",", ".", "\xff"]


def mutated_text(rng, text):
    """Returns a text with one change, and the position of the change in the original."""
    at, what = int(rng.integers(len(text))), rng.integers(4)
    piece = PIECES[rng.integers(len(PIECES))]
    if what == 0:
        return text[:at] + piece + text[at:], at
    if what == 1:
        return text[:at] + piece + text[at + len(piece) :], at
    if what == 2:
        return text[:at] + text[at + int(rng.integers(1, 4)) :], at
    return text[:at] + chr(int(rng.integers(256))) + text[at + 1 :], at


def without_place(targets):
    return [(t.kind, t.ply, t.aspect_deg, t.range_m, t.pixel, t.box) for t in targets]


@pytest.mark.parametrize("trials", TRIALS)
def test_agt(dsiac_files, tmp_path, trials):
    """One change affects only the frames that it touches."""
    rng, path = np.random.default_rng(2), tmp_path / "clip.agt"
    frames = {
        n: [
            dsiac_files.target(
                pixel=(100 + n, 200 + n), aspect=10.5 * n, PixBox=(1, 2, 30 + n, 40)
            ),
            dsiac_files.target(kind="D20", ply=n, pixel=(n, -n)),
        ]
        for n in (1, 2, 3)
    }
    text = dsiac_files.agt(frames, fov=(3.4, 2.6))
    path.write_bytes(text.encode("latin-1"))
    whole = {n: without_place(t) for n, t in dsiac.read_agt(path).frames.items()}
    assert sorted(whole) == [1, 2, 3] and all(len(targets) == 2 for targets in whole.values())
    starts = [match.start() for match in re.finditer("TgtUpd", text)] + [len(text)]
    read = 0
    for _ in range(trials):
        broken, at = mutated_text(rng, text)
        path.write_bytes(broken.encode("latin-1"))
        try:
            truth = dsiac.read_agt(path)
        except ValueError as error:
            assert TOLD.match(str(error)) and str(error).startswith(str(path))
            continue
        read += 1
        # Text that replaces the original may extend into the next update.
        touched = {n for n in whole if starts[n - 1] - 12 <= at < starts[n]}
        for number, targets in truth.frames.items():
            if number in touched:
                continue
            found = without_place(targets)
            if number in whole:  # complete, or with some of its targets missing
                assert [row for row in whole[number] if row in found] == found, broken
            else:
                assert touched, broken  # a number that was changed
        plain = re.sub('"[^"\n]*"', lambda match: " " * len(match[0]), broken)
        for number in touched & truth.frames.keys():
            for target in truth.frames[number]:
                check_literally(plain, target)
    assert read > trials / 2


def check_literally(text, target):
    """Compares a target with the text after its offset; ``text`` has no strings."""
    if target.pixel is not None:
        match = re.compile(r"(?<![^\s{}\"])pixloc\s+([^\s{}]+)\s+([^\s{}]+)", re.IGNORECASE)
        x, y = match.search(text, target.at).groups()
        assert (float(x), float(y)) == target.pixel
    if target.range_m is not None:
        match = re.compile(r"(?<![^\s{}\"])range\s+([^\s{}]+)", re.IGNORECASE).search(
            text, target.at
        )
        assert float(match[1]) == target.range_m


@pytest.mark.parametrize("trials", TRIALS)
def test_metric(dsiac_files, tmp_path, trials):
    rng, path = np.random.default_rng(3), tmp_path / "clip.bbox_met"
    rows = [(n, 54 + n % 2, 100 + n, 200 - n) for n in range(1, 9)]
    text = dsiac_files.metric(rows)
    whole = {(n, str(ply)): (x, y) for n, ply, x, y in rows}
    lines = [match.start() for match in re.finditer("APHILL", text)] + [len(text)]
    for _ in range(trials):
        broken, at = mutated_text(rng, text)
        path.write_bytes(broken.encode("latin-1"))
        corners = dsiac.read_corners(path)
        touched = {row[0] for row, start in zip(rows, lines, strict=False) if start - 12 <= at}
        touched = {n for n in touched if at < lines[n]}
        told = {}
        for line in re.split("\r\n|\n|\r", broken):
            values = [value.strip(' \t"') for value in line.split(",")]
            if len(values) == 18:
                told.setdefault((values[5].lstrip("0"), values[6].lstrip("0")), []).append(values)
        for (frame, ply), corner in corners.of.items():
            if frame not in touched and (frame, ply) in whole:
                assert corner == whole[frame, ply], broken
            stands = told[str(frame), ply.lstrip("0")]
            assert (float(stands[0][9]), float(stands[0][10])) == corner, broken


def raw_chip(rng, rows=5, columns=4, native=0):
    pixels = rng.random((2, rows, columns)).astype(">f4")
    fields = {
        "PhoenixHeaderLength": "{length:05}",
        "PhoenixSigSize": "{total:08}",
        "native_header_length": native,
        "Filename": "HB03333.015",
        "NumberOfColumns": columns,
        "NumberOfRows": rows,
        "TargetType": "t72_tank",
        "TargetSerNum": 132,
        "TargetAz": 123.5,
        "DesiredDepression": 15,
    }
    text = "[PhoenixHeaderVer01.04]\n"
    text += "".join(f"{name}= {value}\n" for name, value in fields.items())
    text += "[EndofPhoenixHeader]\n"
    length = len(text) - len("{length:05}{total:08}") + 13
    total = length + native + pixels.nbytes
    return text.format(length=length, total=total).encode() + bytes(native) + pixels.tobytes()


def plain_chip(content):
    """Reads magnitudes and phases where the header places them, by splitting its lines."""
    head = content.split(b"[EndofPhoenixHeader]")[0]
    fields = {}
    for line in head.split(b"\n"):
        name, separator, value = line.partition(b"=")
        if separator:
            fields.setdefault(name.strip(), value.strip())
    start = int(fields[b"PhoenixHeaderLength"]) + int(fields.get(b"native_header_length", 0) or 0)
    rows, columns = int(fields[b"NumberOfRows"]), int(fields[b"NumberOfColumns"])
    values = struct.unpack_from(f">{2 * rows * columns}f", content, start)
    return np.array(values, np.float32).reshape(2, rows, columns)


@pytest.mark.parametrize("trials", TRIALS)
def test_raw_chips(tmp_path, trials):
    rng, path = np.random.default_rng(4), tmp_path / "HB03333.015"
    whole = [raw_chip(rng), raw_chip(rng, native=512)]
    read = 0
    for trial in range(trials):
        content = whole[trial % 2]
        if rng.random() < 0.5:
            text, _ = mutated_text(rng, content[:300].decode("latin-1"))
            content = text.encode("latin-1") + content[300:]
        else:
            content = mutated(rng, content, 330)
        path.write_bytes(content)
        watched = trial % 10 == 0
        if watched:
            tracemalloc.start()
        try:
            chip = phoenix.read_chip(path)
        except ValueError as error:
            assert TOLD.match(str(error)) and str(error).startswith(str(path))
        else:
            read += 1
            plain = plain_chip(content)
            np.testing.assert_array_equal(np.stack([chip.magnitude, chip.phase]), plain)
        if watched:
            assert tracemalloc.get_traced_memory()[1] < 4 * len(content) + 100_000
            tracemalloc.stop()
    assert read > trials / 20
