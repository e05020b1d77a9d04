import dataclasses
import io
import warnings

import numpy as np
import pytest
import tifffile
from PIL import Image

from jaxatr import data
from jaxatr.data import Bands, Chip, Choice, ImageError, bands, decoder, open_dataset
from jaxatr.data.images import decode_image, read_image
from jaxatr.data.intake import Intake

RNG = np.random.default_rng(0)
VALUES = RNG.integers(0, 200, (6, 8, 5))
NAMES = ("blue", "green", "red", "nir", "swir")
GDAL = "".join(
    f'<Item name="DESCRIPTION" sample="{place}" role="description">{name}</Item>'
    for place, name in enumerate(NAMES)
)


def tif(values, **options):
    file = io.BytesIO()
    tifffile.imwrite(file, values, metadata=None, **{"photometric": "minisblack"} | options)
    return file.getvalue()


def named(values, names=GDAL):
    return tif(values, planarconfig="contig", extratags=[(42112, "s", 0, names, True)])


def envi(path, values, *, interleave="bsq", code=12, order=0, **changed):
    """Writes an image of ENVI; ``changed`` replaces fields of the header."""
    axes = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}.get(interleave, (2, 0, 1))
    fields = dict(zip(("lines", "samples", "bands"), values.shape, strict=True))
    fields |= {"header offset": 3, "data type": code, "interleave": interleave}
    fields |= {"byte order": order, "band names": "{blue,\n green, red, nir, swir}"} | changed
    stored = values.astype(("<", ">")[order] + {12: "u2", 4: "f4", 1: "u1"}[code])
    path.with_suffix(".hdr").write_text(
        "ENVI\r\n" + "".join(f"{name} = {value}\n" for name, value in fields.items())
    )
    path.write_bytes(b"abc" + stored.transpose(axes).tobytes())
    return path.with_suffix(".hdr")


@pytest.mark.parametrize("interleave", ["bsq", "bil", "bip"])
@pytest.mark.parametrize("code, order", [(12, 0), (12, 1), (4, 1), (1, 0)])
def test_every_order_of_envis_numbers(tmp_path, interleave, code, order):
    header = envi(tmp_path / "x.img", VALUES, interleave=interleave, code=code, order=order)
    found = read_image(header)
    assert found.dtype == {12: np.uint16, 4: np.float32, 1: np.uint8}[code]
    np.testing.assert_array_equal(found, VALUES)
    np.testing.assert_array_equal(read_image(tmp_path / "x.img"), VALUES)
    assert bands.names_in(header.read_bytes()) == NAMES


@pytest.mark.parametrize(
    "changed, why",
    [
        ({"lines": 7}, "bytes, but the header of ENVI states"),
        ({"lines": "many"}, "'lines' is 'many', wanted a number"),
        ({"lines": 0}, "0x8 pixels"),
        ({"lines": 10**6, "samples": 10**6}, "wanted at most"),
        ({"lines": 10**5, "samples": 1500}, "of 5 bands, wanted at most"),
        ({"bands": 17}, "got 17 bands, wanted 1 to 16"),
        ({"data type": 99}, "data type 99"),
        ({"interleave": "sql"}, "interleave 'sql'"),
        ({"header offset": -3}, "header offset -3"),
        ({"file compression": 1}, "not compressed as stated"),
    ],
)
def test_a_header_of_envi_that_does_not_fit(tmp_path, changed, why):
    header = envi(tmp_path / "x", VALUES, **changed)
    with pytest.raises(ImageError, match=f"x.hdr: .*{why}"):
        read_image(header)


def test_a_header_of_envi_alone(tmp_path):
    header = envi(tmp_path / "x", VALUES)
    (tmp_path / "x").unlink()
    with pytest.raises(ImageError, match=r"x.hdr: .*without its pixels beside it, wanted one of x"):
        read_image(header)
    with pytest.raises(ImageError, match="^upload: .*without the file of its pixels"):
        decode_image(header.read_bytes(), "upload")


@pytest.mark.parametrize("code", ["u1", "u2", "i2", "f4"])
@pytest.mark.parametrize("count", [2, 4, 16])
def test_bands_of_a_tiff_in_either_order(code, count):
    values = RNG.integers(0, 100, (6, 8, count)).astype(code)
    planes = np.moveaxis(values, 2, 0)
    for order, stored in (("contig", values), ("separate", planes)):
        for compression in (None, "zlib"):
            found = decode_image(tif(stored, planarconfig=order, compression=compression), "x")
            assert found.dtype == (code if code[0] == "u" else np.float32)
            np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(data.as_image(values), values)


def test_the_last_of_more_bands_than_colours_may_be_alpha():
    options = {"photometric": "rgb", "planarconfig": "contig"}
    found = decode_image(tif(np.uint8(VALUES), extrasamples=[0, 2], **options), "x")
    np.testing.assert_array_equal(found, VALUES[..., :4])
    with pytest.raises(ImageError, match=r"ExtraSamples: \[2, 0\].* the last one"):
        decode_image(tif(np.uint8(VALUES), extrasamples=[2, 0], **options), "x")


def test_more_than_sixteen_bands_are_refused():
    values = np.zeros((6, 8, 17), np.uint8)
    with pytest.raises(ImageError, match="^x: got 17 bands, wanted 1 to 16"):
        decode_image(tif(values, planarconfig="contig"), "x")
    with pytest.raises(ImageError, match="1 to 16 bands"):
        data.as_image(values)
    with pytest.raises(ValueError, match=r"data.channels must be 0 .* or 1 to 16, got 17"):
        Chip(channels=17)


def test_a_compressed_image_of_many_bands_is_bounded():
    content = tif(np.zeros((60, 60, 16), np.uint8), planarconfig="contig", compression="zlib")
    with pytest.raises(ImageError, match="60x60 pixels of 16 bands, wanted at most 675 pixels"):
        decoder.decode(content, "x", most=3600)


def test_magnitude_and_phase(tmp_path):
    values = np.array([[3 + 4j, -2]])
    np.save(tmp_path / "x.npy", values)
    found = Bands(phase=True).read(tmp_path / "x.npy")
    np.testing.assert_allclose(found, [[[5, np.arctan2(4, 3)], [2, np.pi]]], rtol=1e-6)
    assert Bands(phase=True).read_named(tmp_path / "x.npy")[1] == ("magnitude", "phase")
    assert read_image(tmp_path / "x.npy").tolist() == [[[5], [2]]]
    np.testing.assert_array_equal(data.as_image(values, phase=True), found)
    with pytest.raises(ImageError, match="1 to 16 bands"):
        data.as_image(np.ones((2, 2, 9), np.complex64), phase=True)


PAIR = Bands(files=("_vis.png", "_ir.png"))


@pytest.fixture
def pairs(tmp_path, save):
    """Two classes of chips, each in a colour file of 8 bits and a gray one of 16."""
    for place, name in enumerate(("car", "tank")):
        for number in range(3):
            save(tmp_path / f"pairs/{name}/{number}_vis.png", np.uint8(VALUES[..., :3] + place))
            save(tmp_path / f"pairs/{name}/{number}_ir.png", np.uint16(VALUES[..., 3] * 300))
    return tmp_path / "pairs"


def test_two_files_are_one_chip(pairs, tmp_path, data_dir):
    options = {"files": "_vis.png,_ir.png"}
    found = open_dataset("image_folder", data_dir=data_dir, source=pairs, options=options)
    assert found.bands == PAIR._replace(names=("vis 1", "vis 2", "vis 3", "ir"))
    assert sum(map(len, found.splits.values())) == 6
    image = found.splits["test"].image(0)
    assert image.dtype == np.uint16
    np.testing.assert_array_equal(image[..., :3], VALUES[..., :3])
    np.testing.assert_array_equal(image[..., 3], VALUES[..., 3] * 300)
    listed = data.image_paths(str(pairs), tmp_path / "scratch", PAIR).images
    assert [one.below for one in listed[:2]] == ["car/0_vis.png", "car/1_vis.png"]
    assert len(listed) == 6
    assert len(bands.read_folder(pairs / "car", PAIR)) == 3
    before = found.directory
    Image.fromarray(np.full((6, 8), 9, np.uint16)).save(pairs / "car/0_ir.png")
    again = open_dataset("image_folder", data_dir=data_dir, source=pairs, options=options)
    assert again.directory != before  # a change of the second file is noticed


def test_a_file_of_a_pair_that_is_missing_or_of_another_size(pairs, save):
    save(pairs / "car/0_ir.png", np.zeros((5, 8), np.uint16))
    with pytest.raises(ImageError, match=r"car/0_ir.png: 5x8 pixels, wanted 6x8 as in 0_vis.png"):
        PAIR.read(pairs / "car/0_vis.png")
    with pytest.raises(ImageError, match=r"1_ir.png: belongs to 1_vis.png"):
        PAIR.read(pairs / "car/1_ir.png")
    (pairs / "car/1_ir.png").unlink()
    with pytest.raises(ImageError, match=r"1_vis.png: there is no 1_ir.png beside it"):
        PAIR.read(pairs / "car/1_vis.png")
    (pairs / "car/2_vis.png").unlink()
    assert [path.name for path in PAIR.firsts([pairs / "car/2_ir.png"])] == ["2_ir.png"]
    with pytest.raises(ImageError, match=r"2_ir.png: there is no 2_vis.png beside it"):
        PAIR.read(pairs / "car/2_ir.png")
    with pytest.raises(ImageError, match="no.png: No such file"):
        PAIR.read(pairs / "no.png")


def test_an_ending_may_be_a_part_of_another(tmp_path, save):
    save(tmp_path / "x.png", np.zeros((2, 2), np.uint8))
    save(tmp_path / "x_ir.png", np.ones((2, 2), np.uint8))
    both = Bands(files=(".png", "_ir.png"))
    assert both.firsts([tmp_path / "x.png", tmp_path / "x_ir.png"]) == [tmp_path / "x.png"]
    assert both.read(tmp_path / "x.png")[0, 0].tolist() == [0, 1]


@pytest.mark.parametrize("text", ["_vis.png", "_vis.png,", "a.png,a.png", "a/b.png,c.png"])
def test_endings_that_are_none(text):
    with pytest.raises(ValueError, match="files: got .*, wanted two or more different endings"):
        bands.endings(text)


def test_endings_that_no_file_has_are_refused(pairs, data_dir):
    options = {"files": "_VIS.png,_IR.png"}
    with pytest.raises(ValueError, match="files: got _VIS.png,_IR.png, but no .*/0_ir.png"):
        open_dataset("image_folder", data_dir=data_dir, source=pairs, options=options)


def folder_of(root, *contents):
    """Writes files of two classes, in turn."""
    for number, content in enumerate(contents):
        path = root / ("a", "b")[number % 2] / f"{number}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def test_names_are_read_or_given(tmp_path, data_dir):
    root = folder_of(tmp_path / "chips", *[named(np.uint16(VALUES))] * 4)
    found = open_dataset("image_folder", data_dir=data_dir, source=root)
    assert found.bands == Bands(names=NAMES)
    options = {"band_names": "a,b,c,d,e"}
    given = open_dataset("image_folder", data_dir=data_dir, source=root, options=options)
    assert given.bands.names == tuple("abcde") and given.directory != found.directory
    for text, why in (("a,b", "got 2 names, a, b, but the images have 5"), ("a,a", "different")):
        with pytest.raises(ValueError, match=f"band_names: {why}|band_names: got .*{why}"):
            options = {"band_names": text}
            open_dataset("image_folder", data_dir=data_dir, source=root, options=options)


def test_bands_in_another_order_than_the_trainings_are_refused(tmp_path, data_dir, save):
    turned = named(np.uint8(VALUES), GDAL.replace("blue", "x").replace("nir", "blue"))
    other = named(np.uint8(VALUES), GDAL.replace("blue", "B02"))
    (tmp_path / "turned.tif").write_bytes(turned)
    (tmp_path / "other.tif").write_bytes(other)
    envi(tmp_path / "a", VALUES, code=1, **{"band names": "{green, blue, red, nir, swir}"})
    why = "its bands are .*, wanted the order blue, green, red, nir, swir"
    run = Bands(names=NAMES)
    for name, found in (("turned.tif", "x, green, red, blue"), ("a.hdr", "green, blue, red")):
        with pytest.raises(ImageError, match=f"{name}: its bands are {found}.*, {why[18:]}"):
            run.read(tmp_path / name)
        assert Bands().read(tmp_path / name).shape == (6, 8, 5)
    with pytest.raises(ImageError, match=why):
        decode_image(turned, "upload", names=NAMES)
    for image in (run.read(tmp_path / "other.tif"), decode_image(other, "b", names=NAMES)):
        np.testing.assert_array_equal(image, VALUES)  # a name of another kind says nothing
    root = folder_of(tmp_path / "chips", *[named(np.uint8(VALUES))] * 4)
    options = {"band_names": "blue,green,nir,red,swir"}
    with pytest.raises(ValueError, match="its bands are blue, green, red, nir, swir, wanted"):
        open_dataset("image_folder", data_dir=data_dir, source=root, options=options)


def test_mixed_bands_are_refused_and_counted(tmp_path, data_dir):
    five, four = named(np.uint8(VALUES)), tif(np.uint8(VALUES[..., :4]), planarconfig="contig")
    turned = named(np.uint8(VALUES), GDAL.replace("blue", "x").replace("nir", "blue"))
    for other, why in ((four, "has 4 bands and others"), (turned, r"has 5 bands \(x, green")):
        root = folder_of(tmp_path / str(len(other)), five, five, five, other)
        with pytest.raises(ValueError, match=f"3.tif {why}"):
            open_dataset("image_folder", data_dir=data_dir, source=root)


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("", ()),
        ("4,3,2", (3, 2, 1)),
        ("nir, red,5", (3, 2, 4)),
        ("6", r"there is no band '6', wanted 1 to 5 or blue"),
        ("0", "there is no band '0'"),
        ("rad", r"there is no band 'rad'.*red"),
        ("red,3", "got band '3' twice"),
    ],
)
def test_bands_by_number_or_name(text, wanted):
    if isinstance(wanted, tuple):
        assert bands.chosen("data.bands", text, NAMES, 5) == wanted
        return
    with pytest.raises(ValueError, match=f"data.bands: {wanted}"):
        bands.chosen("data.bands", text, NAMES, 5)


def test_a_chip_has_the_chosen_bands_in_their_order():
    image = VALUES.astype(np.uint16)
    chip = Chip(size=4, choice=Choice((3, 0), 5))
    assert chip.output_shape(image.shape) == (4, 4, 2)
    np.testing.assert_array_equal(chip(image), Chip(size=4)(image)[..., [3, 0]])
    with pytest.raises(
        ValueError, match="got an image of 4 bands, wanted 5, of which data.bands=4,1"
    ):
        chip(image[..., :4])


def test_eight_bits_of_any_number_of_bands_are_resized_alike():
    image = RNG.integers(0, 256, (9, 14, 5), np.uint8)
    whole = Chip(size=6)(image)
    for band in range(5):
        np.testing.assert_array_equal(whole[..., band], Chip(size=6)(image[..., [band]])[..., 0])


def intake_of(shape, choice=None, **facts):
    return Intake(Chip(choice=choice), shape, "uint8", Bands(**facts))


@pytest.mark.parametrize(
    "intake, count, why",
    [
        (intake_of((6, 8, 5), names=NAMES), 4, r"wanted 5 bands \(blue, green, red, nir, swir\)"),
        (intake_of((6, 8, 3)), 4, "wanted 3 bands like"),
        (intake_of((6, 8, 1)), 2, "wanted 1 band like"),
        (
            intake_of((6, 8, 4), files=PAIR.files),
            3,
            "in files whose names end in _vis.png, _ir.png",
        ),
        (intake_of((6, 8, 3), choice=Choice((0, 1, 2), 5)), 3, "wanted 5 bands"),
    ],
)
def test_a_chip_of_other_bands_is_refused(intake, count, why):
    with pytest.raises(ValueError, match=f"got an image of {count} bands, .*{why}"):
        intake(np.zeros((6, 8, count), np.uint8))


def test_pictures_show_colours_by_name_or_the_first_three():
    assert bands.preview_of(NAMES, 5) == (2, 1, 0)
    assert bands.preview_of((), 4) == (0, 1, 2)
    assert bands.preview_of((), 2) == (0,)
    chip = VALUES.astype(np.float32) * np.array([1, 10, 100, 1, 1], np.float32)
    found = bands.shown(chip, (1, 2, 0))
    assert found.dtype == np.uint8 and found.shape == (6, 8, 3)
    for place, band in enumerate((1, 2, 0)):  # each is stretched by itself
        low, high = chip[..., band].min(), chip[..., band].max()
        wanted = np.rint((chip[..., band] - low) * (255 / (high - low)))
        assert np.abs(found[..., place] - wanted).max() <= 1
        assert (found[..., place].min(), found[..., place].max()) == (0, 255)
    gray = VALUES[..., :1].astype(np.float32)
    assert bands.shown(gray) is gray
    assert data.thumbnail(chip).shape == (6, 8, 3)


def test_older_records_have_no_bands():
    assert Bands.of_fields({}) == Bands()
    facts = Bands(NAMES, PAIR.files, True)
    assert Bands.of_fields(facts.as_dict()) == facts
    assert [one.name for one in dataclasses.fields(Chip)][-1] == "choice"


def test_envi_files_are_listed_once(tmp_path, data_dir):
    for place, name in enumerate("abab"):
        (tmp_path / "chips" / name).mkdir(parents=True, exist_ok=True)
        envi(tmp_path / "chips" / name / f"{place}.img", VALUES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = open_dataset("image_folder", data_dir=data_dir, source=tmp_path / "chips")
    assert sum(map(len, found.splits.values())) == 4 and not found.notes
    assert found.bands.names == NAMES
    listed = data.image_paths(str(tmp_path / "chips"), tmp_path / "scratch")
    assert [one.below for one in listed.images] == ["a/0.hdr", "a/2.hdr", "b/1.hdr", "b/3.hdr"]
    assert not listed.passed
