"""Sets prepared by earlier versions are found again, with the fingerprints that runs recorded.

The literals were taken before the sources became plug-ins. A change here makes every prepared set
be prepared anew, or a run's data unrecognisable: raise a source's version only where its records
change. (An archive's set has another folder since more layouts are recognised: the set of an
earlier version may have been misread. Its content, by which runs know it, is the same.)
"""

import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

from jaxatr import data

RENDERED = {"size": 8, "bands": ["thermal"], "seed": 3}
WINDOW = {"crop": "window"}  # the only crop then, so sets do not record it
VIEWS = {"aspects": 1, "ranges": [3000], **RENDERED, **WINDOW}
TRACKS = {"tracks": 1, "frames": (1, 2), **RENDERED, **WINDOW}
AIRCRAFT = {
    "variants.txt": "A320\n737-200\nA330\n",
    "families.txt": "A320\nBoeing 737\nA330\n",
    "manufacturers.txt": "Airbus\nBoeing\n",
}


class Undated:
    """A file status with the same dates on every machine and day."""

    st_mtime_ns, st_ctime_ns = 1_000, 2_000

    def __init__(self, status):
        self._status = status

    def __getattr__(self, name):
        return getattr(self._status, name)


@pytest.fixture(autouse=True)
def undated(monkeypatch):
    stat = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **how: Undated(stat(path, **how)))


def write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture(autouse=True)
def rendered(monkeypatch):
    """Renders constant numbers: real pixels may differ in the last bit between processors."""

    def render(views, size, *, crop, surround):
        assert (crop, surround) == ("window", 0)
        count = len(views) * size**2
        image = (np.arange(count) % 251).astype(np.uint8).reshape(-1, size, size, 1)
        boxes = np.tile(np.array([1, 2, 5, 6], np.float32), (len(views), 1))
        return {"image": image, "mask": image % 2, "box": boxes}

    monkeypatch.setattr("jaxatr.data.sources.simulated.views.render", render)


def gray(rows, columns, start) -> bytes:
    """Encodes an image as PGM, whose bytes are the same with every library version."""
    pixels = (start + 7 * np.arange(rows * columns)) % 256
    return f"P5 {columns} {rows} 255\n".encode() + pixels.astype(np.uint8).tobytes()


def folder(root: Path) -> Path:
    for number, name in enumerate(("a/x", "a/y", "b/x", "b/y", "b/z")):
        write(root / f"{name}.png", gray(3, 4, number))
    write(root / "coarse.json", '{"a": "one", "b": "two"}')
    return root


def archive(root: Path) -> Path:
    with tarfile.open(root.with_suffix(".tar"), "w", format=tarfile.USTAR_FORMAT) as file:
        file.add(folder(root), ".")
    return root.with_suffix(".tar")


def aircraft(root: Path) -> Path:
    rows = [
        (1, "train", "A320", "A320", "Airbus"),
        (2, "train", "737-200", "Boeing 737", "Boeing"),
        (3, "val", "A320", "A320", "Airbus"),
        (4, "test", "737-200", "Boeing 737", "Boeing"),
    ]
    for name, text in AIRCRAFT.items():
        write(root / name, text)
    for place, level in enumerate(("variant", "family", "manufacturer"), 2):
        for split in ("train", "val", "test"):
            lines = [f"{row[0]:07} {row[place]}\n" for row in rows if row[1] == split]
            write(root / f"images_{level}_{split}.txt", "".join(lines))
    write(root / "images_box.txt", "".join(f"{row[0]:07} 2 1 5 4\n" for row in rows))
    for number, *_ in rows:
        write(root / f"images/{number:07}.jpg", gray(26, 6, number))
    return root


def mstar(root: Path) -> Path:
    for number, (kind, serial) in enumerate((("t72_tank", "132"), ("bmp2_tank", "9563"))):
        for depression in (15, 17):
            head = (
                "[PhoenixHeaderVer01.04]\nPhoenixHeaderLength= 00195\nNumberOfColumns= 3\n"
                f"NumberOfRows= 2\nTargetType= {kind}\nTargetSerNum= {serial}\nTargetAz= 30.5\n"
                f"DesiredDepression= {depression}\n"
            )
            pixels = struct.pack(">12f", *(number + depression + i / 8 for i in range(12)))
            head = head.ljust(194 - len("[EndofPhoenixHeader]"), " ") + "[EndofPhoenixHeader]\n"
            write(root / f"{kind}/{depression}.x", head.encode() + pixels)
    return root


def dsiac(root: Path, files) -> Path:
    for number, (target, kind) in enumerate((("0001", "PICKUP"), ("0011", "T72"))):
        name, frames = f"cegr02003_{target}", range(4)
        images = [[np.uint16(1000 * number + 16 * np.arange(192).reshape(12, 16))] for _ in frames]
        places = [files.target(kind, pixel=(8, 6), aspect=90.0 * i, distance=990) for i in frames]
        truth = {i + 1: [place] for i, place in enumerate(places)}
        write(root / f"cegr/arf/{name}.arf", files.arf(images, 3))
        write(root / f"cegr/agt/{name}.agt", files.agt(truth))
        write(root / f"Metric/{name}.bbox_met", files.metric([(i + 1, 54, 5, 4) for i in frames]))
    return root


@pytest.mark.parametrize(
    "name, source, options, signature, fingerprint",
    [
        ("simulated", None, VIEWS, "3e250e60168d0e19", "796a17132270abbe"),
        ("simulated_tracks", None, TRACKS, "4f18c81115986b34", "004089f4b9422540"),
        ("image_folder", folder, {"test_fraction": 0.4}, "4a0c467b339cdf9c", "a6cd3829053076c0"),
        ("image_folder", archive, {}, "eae139f1a2c143a7", "a6cd3829053076c0"),
        ("mstar", folder, {}, "4a0c467b339cdf9c", "a6cd3829053076c0"),
        ("mstar", mstar, {}, "c04aa0b43a60ee72", "c7283ec250220844"),
        ("fgvc_aircraft", aircraft, {"size": 4}, "e4515bde97769653", "77a2d7fe1bfa7975"),
        ("dsiac", dsiac, {"size": 8, "every": 1}, "568409389ba7b3da", "ba5f6803fc948898"),
    ],
)
def test_it_is_found_again(
    name, source, options, signature, fingerprint, data_dir, tmp_path, dsiac_files
):
    if source is not None:
        arguments = (tmp_path / "source", dsiac_files)[: 2 if source is dsiac else 1]
        source = source(*arguments)
    dataset = data.prepare(name, source=source, data_dir=data_dir, options=options)
    assert (dataset.directory.name, dataset.fingerprint[:16]) == (signature, fingerprint)
