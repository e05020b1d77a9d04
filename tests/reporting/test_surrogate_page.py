"""The page about a surrogate: the figures of its maps, and the maps."""

import json
import re

import numpy as np
import pytest

from jaxatr import reporting
from jaxatr.tasks.distillation.recorded_surrogate import read_surrogate


@pytest.fixture(scope="module")
def folder(make_surrogate, tmp_path_factory):
    return make_surrogate(tmp_path_factory.mktemp("runs") / "explained")


@pytest.fixture(scope="module")
def page(folder):
    return reporting.render_report([folder])


def section(page, name):
    return re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)[0]


def words(text):
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def test_sections(page, folder):
    found = re.findall(r'<section id="(\w+)"', page)
    assert found == ["methods", "saliency", "training", "settings"]
    assert "<title>Explanations: explained</title>" in page
    assert "runs/&lt;target&gt;" in page and "runs/<target>" not in page
    assert page == reporting.render_report([folder])


def test_the_table_marks_the_best(page, folder):
    recorded = json.loads((folder / "evaluation.json").read_text())["explanation"]["methods"]
    table = section(page, "methods")
    rows = dict(re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', table, re.DOTALL))
    assert list(rows) == ["surrogate", "Grad-CAM", "RISE"]
    cells = {name: re.findall(r"<td([^>]*)>([\d.]+)", row) for name, row in rows.items()}
    for name, method in (("surrogate", "surrogate"), ("Grad-CAM", "grad_cam"), ("RISE", "rise")):
        assert [text for _, text in cells[name]] == [
            f"{recorded[method][measure]:.3f}"
            for measure in ("insertion", "deletion", "mean_intensity", "share_inside")
        ]
    assert all("best" in cells["surrogate"][column][0] for column in (0, 1))
    assert not any("best" in row[2][0] for row in cells.values())  # no merit of its own
    assert "75.0 %" in words(table)


def test_the_sheet_shows_the_worst_first(page, folder):
    arrays = np.load(folder / "scores.npz")
    run = read_surrogate(folder)
    assert [one.kind for one in run.sheet] == ["worst"] * 8 + ["drawn"] * 8
    insertion = [float(one.maps[0]["insertion"]) for one in run.sheet[:8]]
    assert insertion == sorted(insertion)
    assert insertion[0] == pytest.approx(arrays["surrogate_insertion"].min(), abs=5e-4)
    assert len(run.thumbnails) == 16 * 4
    drawn = words(section(page, "saliency"))
    assert drawn.count("Grad-CAM") == 16 and "target: " in drawn
    rows = [*arrays["sheet_worst"], *arrays["sheet_drawn"]]
    assert page.count('class="miss"') == (3 in rows)


def test_a_map_lies_over_its_chip(folder):
    run, arrays = read_surrogate(folder), np.load(folder / "scores.npz")
    first = run.sheet[0]
    chip = run.thumbnails[first.picture].image
    assert chip.shape == (96, 80, 3)
    over = run.thumbnails[first.maps[1]["picture"]].image
    assert over.shape == chip.shape
    saliency = arrays["grad_cam_map"][0] / 255
    top = np.unravel_index(saliency.argmax(), saliency.shape)
    bottom = np.unravel_index(saliency.argmin(), saliency.shape)
    inside = [over[8 * y + 4, 8 * x + 4].astype(float) for y, x in (top, bottom)]
    plain = [chip[8 * y + 4, 8 * x + 4].astype(float) for y, x in (top, bottom)]
    lighter = [(o - 0.4 * p).sum() for o, p in zip(inside, plain, strict=True)]
    assert lighter[0] > lighter[1]  # what is salient is light


def test_beside_a_recogniser(folder, make_surrogate, make_run, tmp_path):
    other = make_surrogate(tmp_path / "other", methods=("surrogate",), masks=False)
    recogniser = make_run(tmp_path / "recogniser")
    page = reporting.render_report([other, recogniser, folder])
    found = re.findall(r'<section id="(\w+)"', page)
    assert found[:3] == ["methods", "saliency", "scores"] and found[-1] == "settings"
    assert "<title>Open-set recognition and explanations: recogniser, other, explained" in page
    # The pictures of the second and third run of the page, not the recogniser's.
    assert set(re.findall(r'chip of-(\d)"', section(page, "saliency"))) == {"1", "2"}
    row = re.search(r"<tr[^>]*><th[^>]*>λ.*?</tr>", page, re.DOTALL)[0]
    assert words(row).split()[-3:] != ["–"] * 3 and "–" in words(row)


def test_records_that_do_not_belong_together(make_surrogate, tmp_path):
    folder = make_surrogate(tmp_path / "one")
    path = folder / "evaluation.json"
    evaluation = json.loads(path.read_text())
    evaluation["explanation"]["methods"]["lime"] = {"insertion": 1.0}
    path.write_text(json.dumps(evaluation))
    with pytest.raises(ValueError, match="are of different evaluations"):
        reporting.render_report([folder])
