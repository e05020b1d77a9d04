"""Chips of a pool are suggested, labelled on a page, and used."""

import csv
import json
import shutil
import zipfile

import grain  # noqa: F401 - first imported under the commands' flags, it would lose its own
import numpy as np
import pytest
from PIL import Image

from jaxatr import data, files, runs
from jaxatr.cli import suggest
from jaxatr.openset import labelling
from jaxatr.recognition.recogniser import Recogniser


@pytest.fixture(scope="module")
def recogniser(trained_run, tmp_path_factory):
    """A copy whose few validation examples can still reject something."""
    run = tmp_path_factory.mktemp("suggest") / "run"
    shutil.copytree(trained_run, run)
    config = json.loads((run / "config.json").read_text())
    config["open_set"]["tpr"] = 0.9
    files.write_fields(run / "config.json", config)
    return Recogniser.load(run, score="spatial_stage2")


@pytest.fixture
def pool(chips, tmp_path):
    """The chips of the test, one that is no image, and one of another size."""
    folder = tmp_path / "pool"
    shutil.copytree(chips / "test", folder)
    (folder / "broken.png").write_bytes(b"no image")
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(folder / "small.png")
    return folder


def test_suggestions_are_those_of_the_arrays_with_reasons_in_words(recogniser, pool):
    found = recogniser.suggest(pool, 10)
    paths = sorted(pool.glob("*/*.png"))
    answers = recogniser.predict(paths)
    rejected = [one.label == "unknown" for one in answers]
    assert found.images == 40 and found.rejected == sum(rejected) > 5
    assert [name for name, _ in found.left_out] == [
        str(pool / n) for n in ("broken.png", "small.png")
    ]
    outputs = next(
        recogniser.outputs(map(recogniser.prepare, map(data.read_image, paths)), batch_size=40)
    )
    features = outputs.more["features"]
    known = labelling.to_label(
        features / np.linalg.norm(features, axis=1, keepdims=True),
        np.array([[*one.probabilities.values()] for one in answers]),
        10,
        unknown=np.array(rejected),
    )
    of_known = [str(paths[one.row]) for one in known if not rejected[one.row]]
    assert [one.path for one in found.chips if one.prediction.label != "unknown"] == of_known
    for one in found.chips:
        best = sorted(one.prediction.probabilities.items(), key=lambda item: -item[1])
        if one.prediction.label == "unknown":
            assert one.why.startswith(("group ", "unknown, unlike"))
        elif best[0][1] - best[1][1] < 0.5:
            assert one.why == f"uncertain between {best[0][0]} and {best[1][0]}"
        else:
            assert one.why == "covers the pool"
        assert one.prediction == answers[[*map(str, paths)].index(one.path)]
    assert found == recogniser.suggest([str(pool)], 10)
    inner = pool / sorted(pool.iterdir())[1].name
    overlapping = recogniser.suggest([pool, inner, next(inner.glob("*.png"))], 10)
    assert (overlapping.images, overlapping.chips) == (40, found.chips)
    assert any(one.why.startswith("group 1 of unknown chips, ") for one in found.chips)


def test_labelled_chips_are_not_suggested_again(recogniser, pool, tmp_path):
    first = recogniser.suggest(pool, 20, method="margin")
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n" + "".join(f"{one.path},disc\n" for one in first.chips))
    second = recogniser.suggest(pool, 20, method="margin", labelled=[table])
    assert second.images == 20
    assert not {one.path for one in first.chips} & {one.path for one in second.chips}
    with pytest.raises(ValueError, match="count: got 21, wanted at most 20"):
        recogniser.suggest(pool, 21, labelled=[table])
    table.write_text("path,label\nelsewhere/000.png,disc\n")
    with pytest.raises(ValueError, match="labels.csv: there is no file .*elsewhere/000.png"):
        recogniser.suggest(pool, 2, labelled=[table])


def test_the_command_writes_a_table_with_the_columns_of_predict_and_a_page(
    recogniser, pool, flags_of, capsys, tmp_path
):
    out, page = tmp_path / "next.csv", tmp_path / "label.html"
    arguments = [f"--workdir={recogniser.workdir}", "--score=spatial_stage2", f"--pool={pool}"]
    files_ = [f"--out={out}", f"--page={page}", "--count=6"]
    suggest.main(flags_of(suggest, *arguments, *files_))
    printed = capsys.readouterr()
    assert "warning: " in printed.err and "broken.png" in printed.err
    assert "6 of 40 images to label" in printed.out and f"page: {page}" in printed.out
    rows = list(csv.DictReader(out.open()))
    found = recogniser.suggest(pool, 6)
    assert [row["path"] for row in rows] == [one.path for one in found.chips]
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert list(rows[0])[:3] == ["path", "rank", "why"]
    assert set(recogniser.columns()) <= set(rows[0])
    text = page.read_text(encoding="utf-8")
    assert "data:image/jpeg;base64," in text and str(pool / "broken.png") not in text
    with pytest.raises(ValueError, match="next.csv: is read as"):
        suggest.main(flags_of(suggest, *arguments, f"--labelled={out}", *files_))
    suggest.main(flags_of(suggest, *arguments, "--json", "--count=2", "--method=coverage"))
    one, two = map(json.loads, capsys.readouterr().out.splitlines())
    assert (one["rank"], two["rank"]) == (1, 2) and one["probabilities"].keys()
    suggest.main(flags_of(suggest, *arguments, "--count=2", "--method=margin"))
    assert "uncertain between" in capsys.readouterr().out


def test_pools_that_cannot_be_used_are_refused_in_a_line(recogniser, pool, tmp_path, trained_run):
    empty = tmp_path / "empty"
    empty.mkdir()
    archive = tmp_path / "pool.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in pool.glob("disc/*.png"):
            packed.write(path, path.name)
    for given, options, message in (
        (empty, {}, "there is no image in it"),
        (tmp_path / "none", {}, "no image can be used .*none: No such file"),
        (pool / "small.png", {}, "no image can be used .*small.png"),
        (pool, {"count": 41}, "count: got 41, wanted at most 40"),
        (pool, {"count": 0}, "count: got 0, wanted 1 or more"),
        (pool, {"method": "best"}, "method: got 'best'"),
        (archive, {"page": tmp_path / "a.html"}, "page: .*000.png is in an archive"),
    ):
        with pytest.raises(ValueError, match=message):
            recogniser.suggest(given, **{"count": 3, **options})
    assert {one.path for one in recogniser.suggest(archive, 3).chips} <= {
        f"{archive}/{path.name}" for path in pool.glob("disc/*.png")
    }
    with pytest.raises(ValueError, match="not supported by an ensemble"):
        Recogniser.load([trained_run]).suggest(pool)


@pytest.mark.slow  # a browser
def test_chips_are_labelled_by_keys_and_saved_as_a_table(
    recogniser, pool, browser, contrast, flags_of, capsys, tmp_path
):
    page = tmp_path / "label.html"
    found = recogniser.suggest(pool, 4, page=page)
    for scheme, width in (("light", 1200), ("dark", 360)):
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 800}, accept_downloads=True
        )
        tab = context.new_page()
        errors = []
        tab.on("pageerror", lambda error, errors=errors: errors.append(error))
        tab.goto(page.as_uri())
        assert min(contrast(tab).values()) >= 4.5
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        tab.keyboard.press("2")
        tab.keyboard.press("u")
        tab.keyboard.press("s")
        tab.keyboard.press("n")
        tab.keyboard.type('=big "tank"')
        tab.keyboard.press("Enter")
        assert tab.locator("#done").text_content() == "3 of 4 labelled, not saved"
        with tab.expect_download() as download:
            tab.click("#save")
        table = tmp_path / "labels.csv"
        download.value.save_as(table)
        assert not errors
        context.close()
    from jaxatr.data.sources.image_folder.table import rows

    assert [(row["path"], row["label"]) for _, row in rows(table)] == [
        (found.chips[0].path, recogniser.classes[1]),
        (found.chips[1].path, "unknown"),
        (found.chips[3].path, '=big "tank"'),
    ]


def test_a_class_is_enrolled_from_a_table_of_labels(recogniser, chips, tmp_path):
    (stranger,) = {"cross", "disc", "ring", "square"} - {*recogniser.classes}
    run = tmp_path / "run"
    shutil.copytree(recogniser.workdir, run)
    table = tmp_path / "labels.csv"
    own = [chips / "train" / stranger / f"{number:03}.png" for number in range(4)]
    other = chips / "train" / recogniser.classes[0] / "000.png"
    lines = [f"{path},{stranger}" for path in own] + [f"{other},unknown"]
    table.write_text("\n".join(["path,label", *lines]) + "\n")
    with pytest.raises(ValueError, match=f"name: got 'tank', wanted a label of .*: {stranger}"):
        runs.enrol_run(run, table, name="tank", score="spatial_stage2")
    result = runs.enrol_run(run, table, score="spatial_stage2")
    assert (result["name"], result["added"]) == (stranger, 4)
