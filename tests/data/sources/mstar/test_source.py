import json

import numpy as np
import pytest
from PIL import Image

from jaxatr import data

KINDS = {
    "2S1": ("2s1_gun", "b01"),
    "BMP2": ("bmp2_tank", "9563"),
    "BRDM_2": ("brdm2_truck", "E-71"),
    "BTR60": ("btr60_transport", "k10yt7532"),
    "BTR70": ("btr70_transport", "c71"),
    "D7": ("d7_bulldozer", "92v13015"),
    "T62": ("t62_tank", "A51"),
    "T72": ("t72_tank", "132"),
    "ZIL131": ("zil131_truck", "E12"),
    "ZSU_23_4": ("zsu23-4_gun", "d08"),
}


@pytest.fixture
def write(tmp_path):
    rng = np.random.default_rng(0)

    def written(path, kind, serial, depression, shape=(5, 4), azimuth="12.5"):
        pixels = np.stack([rng.gamma(1, 0.1, shape), rng.uniform(-3, 3, shape)]).astype(">f4")
        fields = f"NumberOfColumns= {shape[1]}\nNumberOfRows= {shape[0]}\nTargetType= {kind}\n"
        fields += f"TargetSerNum= {serial}\nTargetAz= {azimuth}\n"
        fields += f"DesiredDepression= {depression}\nMeasuredDepression= {depression + 0.1}\n"
        head = (
            f"[PhoenixHeaderVer01.04]\nPhoenixHeaderLength= 00000\n{fields}[EndofPhoenixHeader]\n"
        )
        head = head.replace("00000", f"{len(head):05}")
        path = tmp_path / "MSTAR" / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(head.encode() + pixels.tobytes())
        return pixels[0].astype(np.float32)

    return written


@pytest.fixture
def chips(write):
    """Writes two chips of each class at each depression, and returns their magnitudes."""
    return {
        f"CD/{depression}_DEG/{name}/HB{number:05}.0{depression}": (
            name,
            write(
                f"CD/{depression}_DEG/{name}/HB{number:05}.0{depression}",
                *KINDS[name],
                depression,
                (5 + place, 4 + number),
            ),
        )
        for depression in (15, 17)
        for place, name in enumerate(KINDS)
        for number in range(2)
    }


def prepared(tmp_path, data_dir, **arguments):
    return data.prepare("mstar", source=tmp_path / "MSTAR", data_dir=data_dir, **arguments)


def test_every_chip_comes_back(chips, tmp_path, data_dir):
    prepared(tmp_path, data_dir)
    dataset = data.open_dataset("mstar", data_dir=data_dir)
    assert dataset.classes == tuple(KINDS) and dataset.notes == dataset.skipped == ()
    assert data.known_unknown("mstar/reference-0", dataset.classes).known
    for name, depression in (("train", 17), ("test", 15)):
        split = dataset.splits[name]
        assert len(split) == 20 and split.dtype == np.float32
        for number in range(20):
            example = split[number]
            kind, magnitude = chips[str(example["path"])]
            np.testing.assert_array_equal(example["image"][:, :, 0], magnitude)
            assert dataset.classes[example["label"]] == kind
            assert f"{depression}_DEG" in str(example["path"])
            assert example["depression_deg"] == pytest.approx(depression + 0.1)
            assert (example["aspect_deg"], example["serial"]) == (12.5, KINDS[kind][1])


def test_chips_of_other_conditions_are_left_out(chips, write, tmp_path, data_dir):
    write("CD/17_DEG/T72/SN_812/HB1.016", "t72_tank", "812", 17)
    write("CD/17_DEG/SLICY/HB2.001", "slicey", "1", 17)
    write("CD/30_DEG/2S1/HB3.000", "2s1_gun", "b01", 30)
    first = tmp_path / "MSTAR/CD/15_DEG/D7/HB00000.015"
    (tmp_path / "MSTAR/CD/again.015").write_bytes(first.read_bytes())
    whole = b"[PhoenixHeaderVer01.04]\nPhoenixHeaderLength= 00140\nPhoenixSigSize= 00180\n"
    whole += b"NumberOfColumns= 2\nNumberOfRows= 5\n[EndofPhoenixHeader]\n"
    (tmp_path / "MSTAR/CD/scene.001").write_bytes(whole.ljust(180))
    (tmp_path / "MSTAR/CD/readme").write_text("how to read the chips")
    Image.new("L", (8, 8)).save(tmp_path / "MSTAR/CD/17_DEG/T72/photograph.jpg")
    (tmp_path / "MSTAR/CD/HB4.017").symlink_to(tmp_path / "gone")
    dataset = prepared(tmp_path, data_dir)
    report = json.loads((dataset.directory / "report.json").read_text())["skipped"]
    assert {reason: row["first"] for reason, row in report.items()} == {
        "chips of the T72 '812', which is not of the standard operating condition": (
            "CD/17_DEG/T72/SN_812/HB1.016"
        ),
        "chips of 'slicey', which is not one of the classes": "CD/17_DEG/SLICY/HB2.001",
        "chips at a depression of 30.0; wanted 17 (train) or 15 (test)": "CD/30_DEG/2S1/HB3.000",
        "whole scenes": "CD/scene.001",
        "duplicate chips": "CD/again.015 = CD/15_DEG/D7/HB00000.015",
        "links to nothing": "CD/HB4.017",
    }
    assert len(dataset.splits["train"]) == 20 and dataset.skipped == ()
    assert len(dataset.notes) == 6
    why = "chips of 'slicey', which is not one of the classes (first: CD/17_DEG/SLICY/HB2.001)"
    assert f"left out: 1 {why}" in dataset.notes
    every = prepared(tmp_path, data_dir, options={"serials": "all"})
    assert len(every.splits["train"]) == 21 and len(every.notes) == 5


def test_a_damaged_chip_stops_it_or_is_listed(chips, tmp_path, data_dir):
    path = tmp_path / "MSTAR/CD/17_DEG/T72/HB00000.017"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match="HB00000.017: byte .*the file ends at byte"):
        prepared(tmp_path, data_dir)
    dataset = prepared(tmp_path, data_dir, skip_corrupt=True)
    assert [path for path, _ in dataset.skipped] == ["CD/17_DEG/T72/HB00000.017"]


def test_too_little_is_refused(write, tmp_path, data_dir):
    write("a/x.017", "t72_tank", "132", 17)
    with pytest.raises(ValueError, match="1 classes are left, 1 of train, 0 of test"):
        prepared(tmp_path, data_dir)
    with pytest.raises(ValueError, match="serials: got 'some'"):
        prepared(tmp_path, data_dir, options={"serials": "some"})


def test_class_folders_are_read_as_such(folder, data_dir):
    dataset = data.prepare("mstar", source=folder, data_dir=data_dir)
    plain = data.prepare("image_folder", source=folder, data_dir=data_dir)
    assert dataset.fingerprint == plain.fingerprint and dataset.name == "mstar"
    assert data.open_dataset("mstar", data_dir=data_dir).fingerprint == plain.fingerprint
    with pytest.raises(ValueError, match="no images in|no folder"):
        data.prepare("mstar", source=data_dir, data_dir=data_dir)
