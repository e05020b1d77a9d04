"""Writes files of the DSIAC database byte by byte, and reads ARF with a minimal reader.

Both are made from the published layout alone and share nothing with what they test.
"""

import struct

import numpy as np

CODES = {0: "B", 1: "H", 2: "H", 3: "H", 5: "H", 6: "I", 7: "f", 8: "d"}
SOURCE, COLOURS, COMMENT, BANDS, FOOTERS, RANGING, HYPERBANDS = 1, 2, 4, 8, 16, 32, 64
LOCATION, SENSOR, DIGITIZER, TEXT = "Fort A", "MWIR camera", "", "a comment of 25 characters"


def string(text):
    return struct.pack(">I", len(text)) + text.encode() + b"\0" * (-len(text) % 4)


def subheaders(flags, *, types=(0,), sizes=((1, 1),), footer_flags=0, colour_bytes=3072):
    out = b""
    if flags & SOURCE:
        out += struct.pack(">11i", *range(11))
        out += string(LOCATION) + string(SENSOR) + string(DIGITIZER)
        out += struct.pack(">2fi", 3.5, 2.5, 7)
    if flags & COLOURS:
        out += bytes(i % 251 for i in range(colour_bytes))
    if flags & COMMENT:
        out += string(TEXT)
    if flags & BANDS:
        out += string("bands") + struct.pack(">i", len(types))
        for slot in range(16):
            used = slot < len(types)
            out += string(f"band {slot}" if used else "")
            out += struct.pack(">i", types[slot] if used else 0)
    if flags & FOOTERS:
        out += struct.pack(">i", footer_flags)
    if flags & RANGING:
        out += struct.pack(">6f", *(i / 2 for i in range(6)))
    if flags & HYPERBANDS:
        out += string("hyper") + struct.pack(">i", len(types))
        for number, (kind, (rows, columns)) in enumerate(zip(types, sizes, strict=True)):
            out += string(f"hyper {number}") + struct.pack(">3i", kind, columns, rows)
    return out


def footer(number, flags):
    out = struct.pack(">10i", number, -number, 3, 4, 2006, 300, 12, 30, 59, 999) * (flags & 1)
    return out + bytes([number % 256]) * (96 * (flags >> 1 & 1))


def arf(frames, image_type, *, flags=0, footer_flags=0, padding=0, colour_bytes=3072, types=None):
    """Writes an ARF file; ``frames`` holds a list of images per frame, usually one."""
    types = types or (image_type,)
    first = frames[0]
    sizes = [image.shape for image in first]
    parts = subheaders(
        flags, types=types, sizes=sizes, footer_flags=footer_flags, colour_bytes=colour_bytes
    )
    parts += b"\xee" * padding
    rows, columns = first[0].shape
    out = struct.pack(
        ">8I", 0xBBBBBAAD, 2, rows, columns, image_type, len(frames), 32 + len(parts), flags
    )
    out += parts
    for number, images in enumerate(frames):
        for image, kind in zip(images, types, strict=True):
            for row in image:
                out += struct.pack(f">{len(row)}{CODES[kind]}", *row.tolist())
        out += footer(number, footer_flags if flags & FOOTERS else 0)
    return out


class Plain:
    """Reads forward over bytes; reading beyond the end is a ValueError."""

    def __init__(self, content, at, end):
        self.content, self.at, self.end = content, at, end

    def take(self, layout):
        size = struct.calcsize(">" + layout)
        if self.at + size > self.end:
            raise ValueError("beyond the end")
        values = struct.unpack_from(">" + layout, self.content, self.at)
        self.at += size
        return values

    def skip(self, count):
        if self.at + count > self.end:
            raise ValueError("beyond the end")
        self.at += count

    def skip_string(self):
        (length,) = self.take("I")
        self.skip((length + 3) // 4 * 4)


def plain_arf(content):
    """Returns a function from frame number and band to the image, and the numbers of both."""
    if len(content) < 32:
        raise ValueError("short")
    magic, version, rows, columns, kind, count, offset, flags = struct.unpack_from(">8I", content)
    if (magic, version) != (0xBBBBBAAD, 2) or not rows * columns * count or flags >= 128:
        raise ValueError("header")
    if not 32 <= offset <= len(content):
        raise ValueError("offset")
    layouts = []
    for colours in (3072, 768) if flags & COLOURS else (0,):
        try:
            layouts.append(_plain_layout(content, rows, columns, kind, offset, flags, colours))
        except ValueError:
            continue
    layouts.sort(key=lambda layout: layout[0] != offset)  # stable: 3072 first
    for _, bands, told in layouts:
        size = sum(r * c * struct.calcsize(">" + CODES[t]) for t, r, c in bands)
        for tail in (told, 0, 40, 96, 136):
            if offset + count * (size + tail) == len(content):
                return _PlainArf(content, offset, size + tail, bands, count, tail)
    raise ValueError("nothing fits")


def _plain_layout(content, rows, columns, kind, offset, flags, colours):
    at, bands, hyper, told = Plain(content, 32, offset), None, None, 0
    if flags == SOURCE and offset == 288:
        at.skip(256)
        flags = 0
    if flags & SOURCE:
        at.skip(44)
        for _ in range(3):
            at.skip_string()
        at.skip(12)
    at.skip(colours)
    if flags & COMMENT:
        at.skip_string()
    if flags & BANDS:
        at.skip_string()
        (number,) = at.take("i")
        if not 0 < number < 17:
            raise ValueError("bands")
        bands = []
        for slot in range(16):
            at.skip_string()
            (band,) = at.take("i")
            if slot < number:
                bands.append((band, rows, columns))
    if flags & FOOTERS:
        (bits,) = at.take("i")
        told = 40 * (bits & 1) + 96 * (bits >> 1 & 1)
    if flags & RANGING:
        at.skip(24)
    if flags & HYPERBANDS:
        at.skip_string()
        (number,) = at.take("i")
        hyper = []
        while number > 0:
            at.skip_string()
            band, wide, high = at.take("3i")
            if wide < 1 or high < 1:
                raise ValueError("size")
            hyper.append((band, high, wide))
            number -= 1
        if not hyper:
            raise ValueError("bands")
    for listed in (bands, hyper):
        if any(band not in CODES for band, _, _ in listed or ()):
            raise ValueError("type")
    images = {10: bands, 13: hyper}.get(kind, [(kind, rows, columns)])
    if not images or any(band not in CODES for band, _, _ in images):
        raise ValueError("type")
    return at.at, images, told


class _PlainArf:
    def __init__(self, content, offset, stride, bands, count, tail):
        self.content, self.offset, self.stride = content, offset, stride
        self.bands, self.count, self.tail = bands, count, tail

    def image(self, number, band):
        at = self.offset + number * self.stride
        for kind, rows, columns in self.bands[:band]:
            at += rows * columns * struct.calcsize(">" + CODES[kind])
        kind, rows, columns = self.bands[band]
        values = struct.unpack_from(f">{rows * columns}{CODES[kind]}", self.content, at)
        return np.array(values, np.dtype({"B": "u1", "H": "u2"}.get(CODES[kind], CODES[kind])))[
            :
        ].reshape(rows, columns)


def target(kind="T72", ply="054", aspect=90.0, distance=1000, pixel=(20, 15), **more):
    """Writes the fields of a Tgt, leaving out those that are None."""
    fields = {
        "TgtType": None if kind is None else f'"{kind}"',
        "PlyId": None if ply is None else f'"{ply}"',
        "Aspect": aspect,
        "Range": distance,
        "PixLoc": None if pixel is None else f"{pixel[0]} {pixel[1]}",
    }
    fields |= {name: " ".join(map(str, value)) for name, value in more.items()}
    return {name: value for name, value in fields.items() if value is not None}


def agt(frames, *, fov=None, note='Keyword  "Frame# {}"'):
    """Writes an AGT file; ``frames`` maps frame numbers to targets."""
    lines = ["Agt", " {", "  PrjSect", "   {", '    Name   "ATR"', '    Scenario "02003"', "   }"]
    lines += ["  SenSect", "   {", '    Name     "cegr"']
    lines += [f"    Fov      {fov[0]} {fov[1]}"] if fov else []
    lines += ["   }", "  TgtSect", "   {"]
    for number, targets in frames.items():
        lines += ["    TgtUpd", "     {", f"      Time     2006 300 12 30 {number % 60} 500"]
        lines += ["      " + note.format(number)] if note else []
        for fields in targets:
            lines += ["      Tgt", "       {"]
            lines += [f"        {name:<11} {value}" for name, value in fields.items()]
            lines += ['        Keyword     "Speed 5.1 m/s"', "        TgtSenRel", "         {"]
            lines += ["          Azimuth   354", "          Obscuration  10", "         }"]
            lines += ["       }"]
        lines += ["     }"]
    return "\n".join([*lines, "   }", " }", ""])


def metric(rows):
    """Writes a metric file; ``rows`` holds (frame, ply, x, y) of upper left corners."""
    return "".join(
        f"APHILL,NA,base,cegr,02003,{frame},{ply},3.2,NULL,{x},{y},9000,120,300,280,8800,90,900\n"
        for frame, ply, x, y in rows
    )
