"""Images of other data as unknown examples of an evaluation."""

import json
import shutil
import tarfile
import zipfile

import numpy as np
import pytest
from absl import flags
from ml_collections import config_flags
from PIL import Image

import jaxatr
from jaxatr import config as configuration
from jaxatr import data, metrics, openset, reporting, runs, training
from jaxatr.cli import evaluate as command
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks.open_set import OpenSet
from jaxatr.tasks.open_set.checks import parse_sources
from jaxatr.tasks.parts import part_of_chips

GRAY, COLOUR = (24, 24, 1), (24, 24, 3)

# One of every kind: of logits, fitted to them, to features and to maps, of a gradient, of pixels.
SCORES = "softmax,mls,cbc,openmax,mahalanobis,nearest,odin,spatial_stage2,nndr_image,fusion"


def intake(shape=GRAY, dtype="uint8", **chip):
    channels = shape[2] if shape[2] in (1, 3) else None
    return data.Intake(data.Chip(channels=channels, **chip), shape, dtype)


@pytest.fixture(scope="module")
def near(tmp_path_factory):
    """Six gray images of the size of chips, one with 16 bits, and a file that is not an image."""
    root, rng = tmp_path_factory.mktemp("outside") / "near", np.random.default_rng(1)
    (root / "deep" / "er").mkdir(parents=True)
    for index in range(6):
        folder = root / "deep" / "er" if index == 5 else root
        image = np.uint8(rng.integers(0, 255, (24, 24)))
        Image.fromarray(image).save(folder / f"{index}.png")
    (root / "torn.png").write_text("no image")
    (root / "notes.txt").write_text("not counted")
    (root / ".hidden").write_text("neither")
    return root


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """An archive of eight colour images of another size."""
    folder, rng = tmp_path_factory.mktemp("far"), np.random.default_rng(2)
    with tarfile.open(folder / "far.tar.gz", "w:gz") as archive:
        for index in range(8):
            path = folder / f"{index}.png"
            Image.fromarray(np.uint8(rng.integers(0, 255, (40, 32, 3)))).save(path)
            archive.add(path, f"images/{index}.png")
    return folder / "far.tar.gz"


@pytest.fixture(scope="module")
def run(trained_run, tmp_path_factory):
    copy = tmp_path_factory.mktemp("with-outside") / "run"
    shutil.copytree(trained_run, copy)
    return copy


def test_chips_are_those_of_predict(near):
    found = data.read_others(near, intake())
    assert found.chips.shape == (6, *GRAY) and found.chips.dtype == np.uint8
    np.testing.assert_array_equal(found.chips[0], intake()(data.read_image(str(near / "0.png"))))
    ((name, reason),) = found.left_out
    assert name == f"{near}/torn.png" and reason.startswith("not a readable image")
    split = found.split("near")
    np.testing.assert_array_equal(split.image(3), found.chips[3])
    assert set(split.columns["label"].tolist()) == {-1}


def test_a_link_to_nothing_is_left_out(near, tmp_path):
    (tmp_path / "0.png").symlink_to(near / "0.png")
    (tmp_path / "gone.png").symlink_to(near / "gone.png")
    found = data.read_others(tmp_path, intake())
    assert len(found.chips) == 1 and found.left_out == [(str(tmp_path), "1 links to nothing")]
    with pytest.raises(ValueError, match="1 links to nothing"):  # a training needs all of them
        data.read_chips(tmp_path, data.Chip())


def test_images_of_another_size_and_colour_become_chips(near, far):
    gray = data.read_others(far, intake()).chips
    assert gray.shape == (8, *GRAY)
    image = data.read_image(str(far.parent / "0.png"))
    np.testing.assert_array_equal(gray[0], data.Chip(size=24, channels=1)(image))
    colour = data.read_others(near, intake(COLOUR)).chips
    assert colour.shape == (6, *COLOUR) and (colour == colour[..., :1]).all()
    # An image that is large enough is cut as the run's own are; a smaller one is resized whole.
    wide = intake((16, 16, 3), center_crop=16)
    np.testing.assert_array_equal(wide.resized(image), image[12:28, 8:24])
    small = image[:10, :10]
    np.testing.assert_array_equal(wide.resized(small), data.Chip(size=16)(small))


def test_at_most_so_many_are_drawn(near):
    every = data.read_others(near, intake())
    drawn = [data.read_others(near, intake(), most=3, seed=seed) for seed in (0, 0, 1, 2)]
    numbers = [one.numbers.tolist() for one in drawn]
    assert numbers[0] == numbers[1] and len({tuple(one) for one in numbers}) > 1
    for one in drawn:
        assert len(one.chips) == 3 and one.numbers.tolist() == sorted(one.numbers)
        rows = np.searchsorted(every.numbers, one.numbers)
        np.testing.assert_array_equal(one.chips, every.chips[rows])
    # What cannot be used does not count.
    assert len(data.read_others(near, intake(), most=6, seed=3).chips) == 6


def test_a_zip_and_a_data_set_by_its_name(near, tmp_path, chips):
    with zipfile.ZipFile(tmp_path / "near.zip", "w") as archive:
        for index in range(5):
            archive.write(near / f"{index}.png", f"{index}.png")
        archive.writestr("a/bad.png", "no image")
    found = data.read_others(tmp_path / "near.zip", intake())
    ((name, reason),) = found.left_out
    assert name == f"{tmp_path}/near.zip/a/bad.png" and reason.startswith("not a readable image")
    np.testing.assert_array_equal(found.chips, data.read_others(near, intake()).chips[:5])
    data.prepare("image_folder", source=chips, data_dir=tmp_path / "sets", as_name="shapes")
    everything = data.read_others("shapes", intake(), data_dir=str(tmp_path / "sets"))
    assert len(everything.chips) == 4 * (24 + 10)


def test_unreadable_sources_are_refused(near, tmp_path):
    with pytest.raises(ValueError, match="nowhere: there is no such folder"):
        data.read_others("nowhere", intake())
    with pytest.raises(ValueError, match="0.png: got a file, wanted an archive"):
        data.read_others(near / "0.png", intake())
    with pytest.raises(ValueError, match="no image in it that can be used.*wanted uint16"):
        data.read_others(near, intake(dtype="uint16"))
    with pytest.raises(ValueError, match="there is no image in it$"):
        data.read_others(tmp_path, intake())


@pytest.mark.slow
def test_groups_are_measured_against_the_known_test_examples(run, near, far):
    with pytest.warns(UserWarning, match="skipped 1 unusable images of .*near, such.*torn"):
        result = runs.evaluate_run(run, outside=f"near={near},far={far}", scores=SCORES, fresh=True)
    assert list(result["groups"]) == ["all", "near", "far"]
    arrays, everything = dict(np.load(run / "scores.npz")), result["groups"]["all"]
    known = arrays["test_labels"] != openset.UNKNOWN
    for name, count in (("near", 6), ("far", 8)):
        group = result["groups"][name]
        assert group["num_known"] == everything["num_known"] == 30
        assert group["num_unknown"] == count and len(arrays[f"outside_{name}_id"]) == count
        assert group["closed_accuracy"] == everything["closed_accuracy"]
        assert list(group["scores"]) == list(everything["scores"])
        for score, row in group["scores"].items():
            inside = arrays[f"test_score_{score}"][known]
            other = arrays[f"outside_{name}_score_{score}"]
            assert row["auroc"] == metrics.auroc(inside, other)
            assert row["aupr_in"] == metrics.aupr_in(inside, other)
            assert row["aupr_out"] == metrics.aupr_out(inside, other)
            assert row["fpr_at_tpr"] == metrics.fpr_at_tpr(inside, other, tpr=0.95)
            assert {"fpr_at_tpr_of_unknown", "ccr_at_fpr", "oscr"} < set(row)
            for figure in ("fitted_threshold", "closed_accuracy"):
                assert row.get(figure) == everything["scores"][score].get(figure)
    assert result["outside"]["near"]["images"] == 6 and result["outside"]["near"]["left_out"] == 1
    assert 0 <= result["outside"]["far"]["unknown_accepted"] <= 1
    text = reporting.open_set_table(result)
    assert f"far: 8 images of {far}; accepted as known: " in text and "\nnear " in text
    page = reporting.render_report([run])
    assert "Images of other data" in page and "8 images of" in page


def test_a_predictor_scores_an_outside_image_as_the_evaluation_does(run, far):
    result = runs.evaluate_run(run, outside=f"far={far}", scores="mls", fresh=True)
    assert list(result["groups"]) == ["all", "far"]
    arrays = dict(np.load(run / "scores.npz"))
    recogniser = Recogniser.load(run, score="mls")
    chips = data.read_others(far, recogniser.chip).chips
    found = [prediction.score for prediction in recogniser(chips)]
    np.testing.assert_allclose(found, arrays["outside_far_score_mls"], rtol=1e-5)


def test_they_may_change_and_are_not_there_to_load_a_run(run, near, small_config):
    config = small_config.copy_and_resolve_references()
    config.open_set.outside, config.open_set.outside_most = f"near={near}", 2
    training.check_config(run, config, free=OpenSet.free_fields)
    config.open_set.outside = "near=nowhere"
    task = OpenSet(config)  # which other uses of the run need
    with pytest.raises(ValueError, match="open_set.outside: near: nowhere: there is no such fol"):
        task.batches(task.phases[0])


@pytest.mark.parametrize(
    "text, message",
    [
        ("folder", "got 'folder', wanted NAME=SOURCE"),
        ("near=", "got 'near=', wanted NAME=SOURCE"),
        ("a b=folder", "got 'a b=folder', wanted NAME=SOURCE"),
        ("near=a,near=b", "the name 'near' is taken"),
        ("all=a", "the name 'all' is taken"),
    ],
)
def test_malformed_values_are_refused(small_config, text, message):
    config = small_config.copy_and_resolve_references()
    config.open_set.outside = text
    with pytest.raises(ValueError, match=f"open_set.outside: {message}"):
        OpenSet(config)


def test_the_command_line_sets_them(flags_of, monkeypatch):
    assert parse_sources("near=a=b/c,far=d") == {"near": "a=b/c", "far": "d"}
    given = {}
    monkeypatch.setattr(runs, "evaluate_run", lambda workdir, **options: given.update(options))
    flags_of(command, "--workdir=run", "--outside=near=a,far=b", "--json")
    command.main([])
    assert given["outside"] == "near=a,far=b" and "scores" not in given
    flags_of(command, "--workdir=run", "--outside=", "--json")  # none, whatever is configured
    command.main([])
    assert given["outside"] == ""
    # A field of the configuration with commas and equals signs stays one text.
    values, line = flags.FlagValues(), ["train", "--config.open_set.outside=near=a,far=b"]
    config = configuration.of_task()
    config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=line)
    values(line)
    assert config.open_set.outside == "near=a,far=b"


@pytest.fixture(scope="module")
def flight(run, chips, tmp_path_factory):
    """The chips of the run's own test, its unknown shape as a class "boat", and a torn file."""
    root = tmp_path_factory.mktemp("flights") / "Dienstag 2"
    (unknown,) = training.read_record(run)["split"]["unknown"]
    shutil.copytree(chips / "test", root)
    (root / unknown).rename(root / "boat")
    (root / "boat" / "torn.png").write_text("no image")
    return root


def kept_files(run):
    """The content of every file that the run's own evaluation and training wrote."""
    own = [path for path in run.rglob("*") if path.is_file() and training.SETS not in path.parts]
    return {path: path.read_bytes() for path in own if path.suffix in (".json", ".npz")}


def test_another_set_is_measured_beside_the_runs_own_test(run, flight, tmp_path):
    own = runs.evaluate_run(run, fresh=True)
    assert reporting.sets_table(run) == ""
    before = kept_files(run)
    with pytest.warns(UserWarning, match="skipped 1 of 41 images: boat/torn.png: not a readable"):
        result = jaxatr.evaluate(run, data=flight)
    assert kept_files(run) == before  # the chips are those of its test, and so are the figures
    assert result["groups"] == own["groups"]
    assert result["decision"]["thresholds"] == own["decision"]["thresholds"]
    shares = {name: own["decision"]["test"][name] for name in ("known_accepted", "open_accuracy")}
    assert shares.items() <= result["decision"]["test"].items()
    assert result["known"] == own["known"]
    assert result["unknown"] == ["boat"] and result["set"]["classes"]["boat"] == 10
    place = run / "sets" / "Dienstag 2"
    assert json.loads((place / "evaluation.json").read_text()) == json.loads(json.dumps(result))
    assert result["drift"]["sentence"].startswith("drift: none found in 30 known chips")
    assert '<th scope="row" style="text-align: left">AUROC</th>' in result._repr_html_()
    text = reporting.report_of(run).text(result)
    assert f"set Dienstag 2: 40 images of {flight}, 1 left out\ntrained on: image_folder" in text
    shown = set(np.load(place / "thumbnails.npz")["class"].tolist())
    assert shown == {*own["known"], "boat"}

    # The same chips in an archive, under a name: both stand beside the run's own test.
    packed = shutil.make_archive(str(tmp_path / "f"), "zip", flight.parent, flight.name)
    with pytest.warns(UserWarning, match="skipped 1 of 41"):
        again = jaxatr.evaluate(run, data=packed, name="Mittwoch")
    assert again["set"]["fingerprint"] == result["set"]["fingerprint"]
    header, _, first, *others = reporting.sets_table(run).splitlines()
    assert header.startswith("set") and first.startswith("own test")
    assert [line[:10].strip() for line in others] == ["Dienstag 2", "Mittwoch"]
    rows = [line[10:].split() for line in (first, *others)]
    assert len({tuple(row[:-1]) for row in rows}) == 1
    assert [row[-1] for row in rows] == ["-", "none", "none"]  # the drift of the known chips
    page = reporting.render_report([run])
    for shown in ("run on Dienstag 2", "run on Mittwoch", '<section id="sets"', "own test"):
        assert shown in page
    # The name is taken, except by the same source, whose earlier scores stay.
    with pytest.raises(ValueError, match=f"'Mittwoch' is already .* {packed}: give {flight} anoth"):
        jaxatr.evaluate(run, data=flight, name="Mittwoch")
    images = np.stack([data.read_image(str(path)) for path in sorted(flight.glob("[!b]*/*.png"))])
    names = [path.parent.name for path in sorted(flight.glob("[!b]*/*.png"))]
    known_only = jaxatr.evaluate(run, data=(images, names), name="Mittwoch", fresh=True)
    assert known_only["unknown"] == [] and known_only["set"]["source"] == "arrays in memory"


@pytest.mark.parametrize(
    ("files", "name", "message"),
    [
        ({"boat/0.png": "", "cros/0.png": ""}, None, "none of its classes is known to the run: got "
         "boat, cros, wanted at least one of .*; did you mean 'cross'"),
        ({"cross/0.png": "torn", "boat/0.png": ""}, None, "no image of a known class can be used "
         r"\(cross/0.png: not a readable image"),
        ({}, None, "no images in .*set"),
        ({"cross/0.png": ""}, "../x", "name: got '../x', wanted the name of a folder in .*sets: "),
        ({"cross/0.png": ""}, ".x", "name: got '.x', wanted"),
        ({"cross/0.png": ""}, "", "name: got '', wanted"),
    ],
)  # fmt: skip
def test_a_set_that_cannot_be_measured_is_refused(run, near, tmp_path, files, name, message):
    root = tmp_path / "set"
    root.mkdir()
    for path, text in files.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(text.encode() or (near / "0.png").read_bytes())
    before = kept_files(run)
    with pytest.raises(ValueError, match=message):
        jaxatr.evaluate(run, data=root, name=name)
    assert kept_files(run) == before and not (run / "sets" / "set").exists()


def test_a_table_of_predictions_is_no_truth(run, near, tmp_path):
    recogniser = Recogniser.load(run)
    (prediction,) = recogniser.predict([data.read_image(str(near / "0.png"))])
    row = {"path": str(near / "0.png"), **recogniser.to_row(prediction)}
    data.write_table(tmp_path / "found.csv", [row])
    with pytest.raises(ValueError, match="found.csv: got a table of predictions, whose labels are"):
        jaxatr.evaluate(run, data=tmp_path / "found.csv")


def test_a_known_class_has_one_form_of_its_name():
    part = part_of_chips(np.zeros((3, 4, 4, 1), np.uint8), ["\u0160", "b", "c"], ["c", "S\u030c"])
    assert part.labels.tolist() == [1, openset.UNKNOWN, 0]
    assert [part.split.classes[label] for label in part.classes] == ["\u0160", "b", "c"]


def test_an_enrolled_class_is_known_in_another_set(run, flight, chips, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    (unknown,) = training.read_record(run)["split"]["unknown"]
    runs.enrol_run(tmp_path / "run", chips / "train" / unknown, name="boat", score="nearest")
    with pytest.warns(UserWarning, match="skipped 1 of 41"):
        result = jaxatr.evaluate(tmp_path / "run", data=flight, scores="mls")
    assert result["known"][-1] == "boat" and result["unknown"] == []
    row = result["enrolled"]["classes"]["boat"]
    assert (row["chips"], row["test"]) == (24, 10)
