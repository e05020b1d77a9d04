"""The page about an embedding: figures, map and searches, from complete and incomplete records."""

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from jaxatr import reporting, runs
from jaxatr.reporting import charts
from jaxatr.tasks.embedding.map_section import SHAPES, embedding_map
from jaxatr.tasks.embedding.recorded_embedding import read_embedding

SECTIONS = "retrieval map searches scores curves explorer confusion training settings".split()


def sections(page):
    return re.findall(r'<section id="(\w+)"', page)


def text_of(page, section):
    """The words of a section, without markup."""
    found = re.search(rf'<section id="{section}".*?</section>', page, re.DOTALL)[0]
    return " ".join(re.sub(r"<[^>]*>", " ", found).split())


def rows_of(page, section):
    """The cells of a section's table rows, by the row's heading."""
    found = re.search(rf'<section id="{section}".*?</section>', page, re.DOTALL)[0]
    rows = re.findall(r'<tr[^>]*><th scope="row">(.*?)</th>(.*?)</tr>', found, re.DOTALL)
    return {name.split("<")[0]: re.findall(r"<td([^>]*)>([^<]*)", cells) for name, cells in rows}


def rewrite(folder, change):
    evaluation = json.loads((folder / "evaluation.json").read_text())
    change(evaluation)
    (folder / "evaluation.json").write_text(json.dumps(evaluation))


@pytest.fixture(scope="module")
def written(make_embedding, tmp_path_factory):
    return make_embedding(tmp_path_factory.mktemp("runs") / "one")


@pytest.fixture
def folder(written, tmp_path):
    """A run that a test may modify."""
    return Path(shutil.copytree(written, tmp_path / "one"))


def test_every_section_is_present(folder):
    page = reporting.render_report([folder])
    assert sections(page) == SECTIONS
    assert "<title>Fine-grained retrieval: one" in page and "γ" not in text_of(page, "explorer")
    assert page == reporting.render_report([folder])


def test_retrieval_is_as_recorded(folder):
    measured = json.loads((folder / "evaluation.json").read_text())["retrieval"]
    rows = rows_of(reporting.render_report([folder]), "retrieval")
    for kind in ("new", "trained"):
        names = [*(f"recall_at_{k}" for k in (1, 2, 4, 8)), "map_at_r", "nmi"]
        wanted = [f"{100 * measured[kind][name]:.1f}" for name in names]
        wanted += [str(measured[kind][name]) for name in ("examples", "classes", "duplicates")]
        assert [text.strip() for _, text in rows[f"{kind} classes"]] == wanted
        assert not any("best" in mark for mark, _ in rows[f"{kind} classes"])


@pytest.mark.slow
def test_the_best_of_several_runs_is_marked_where_they_can_be_compared(make_embedding, tmp_path):
    folders = [make_embedding(tmp_path / name, seed=seed) for seed, name in enumerate("pq")]
    page, found = reporting.render_report(folders), [read_embedding(folder) for folder in folders]
    rows = rows_of(page, "retrieval")
    for kind in ("new", "trained"):
        values = [run.retrieval[kind]["recall_at_1"] for run in found]
        for name, value in zip("pq", values, strict=True):
            assert ("best" in rows[f"{kind} classes, {name}"][0][0]) == (value == max(values))
    assert "figures cannot be compared" not in page
    rewrite(folders[0], lambda evaluation: evaluation["split"].update(seed=1))
    page = reporting.render_report(folders)
    assert "figures cannot be compared" in page
    assert not any("best" in mark for row in rows_of(page, "retrieval").values() for mark, _ in row)


def test_a_figure_that_is_absent_is_a_dash(folder):
    rewrite(folder, lambda evaluation: evaluation["retrieval"]["new"].pop("map_at_r"))
    cells = rows_of(reporting.render_report([folder]), "retrieval")["new classes"]
    assert cells[4][1].strip() == "-"


def test_the_threshold_is_a_distance(folder):
    page = reporting.render_report([folder])
    run, data = read_embedding(folder), json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    score = data["runs"][0]["scores"]["nearest"]
    fitted = run.measured["nearest"]["fitted_threshold"]
    (recorded,) = score["thresholds"]
    assert score["scale"] == "distance" and fitted < 0
    assert recorded["threshold"] == fitted and recorded["gamma"] == -fitted
    assert 0 <= score["low"] < -fitted < score["high"]
    settings = rows_of(page, "settings")
    assert settings["fixed γ"][0][1] == "–"
    assert settings["fitted distance"][0][1].startswith(f"{-fitted:.6g}, to accept 95%")
    description = re.search(r"known: a quarter below ([\d.]+), half below ([\d.]+)", page)
    distances = -run.scores["nearest"][run.labels >= 0].astype(np.float64)
    np.testing.assert_allclose(
        np.float64(description.groups()), np.quantile(distances, [0.25, 0.5]), rtol=1e-5
    )


def test_settings_name_the_loss_and_selection(folder):
    settings = rows_of(reporting.render_report([folder]), "settings")
    assert settings["coarse classes"][0][1] == "mstar (tank: a, b; truck: c)"
    assert settings["loss"][0][1] == "quadruplet"
    assert settings["selection"][0][1] == "nearest_to_reference"


def test_the_map_holds_every_point_to_scale(folder):
    run = read_embedding(folder)
    (content,) = embedding_map([(0, run)]).content["maps"]
    drawn = {
        row: place
        for group in content["groups"]
        for row, place in zip(group.rows, group.drawn, strict=True)
    }
    rows, points = run.map.rows.tolist(), run.map.points
    assert sorted(drawn) == sorted(rows)
    places = np.array([drawn[row] for row in rows])
    left, top = places.min(axis=0)
    right, low = places.max(axis=0)
    assert charts.LEFT < left and right < charts.LEFT + charts.PLOT_WIDTH
    assert charts.TOP < top and low < charts.TOP + charts.PLOT_HEIGHT
    units = np.linalg.norm(places[1:] - places[0], axis=1)
    apart = np.linalg.norm(points[1:] - points[0], axis=1)
    scale = units.sum() / apart.sum()
    np.testing.assert_allclose(units, scale * apart, atol=0.2)  # drawn to a tenth of a unit
    assert ((places[:, 1] - places[0, 1]) * (points[:, 1] - points[0, 1]) <= 0).all()  # up is more


def test_groups_are_the_classes(folder):
    run = read_embedding(folder)
    (content,) = embedding_map([(0, run)]).content["maps"]
    assert [group.name for group in content["groups"]] == ["a", "b", "c", "x", "y"]
    assert [group.kind for group in content["groups"]] == ["trained"] * 3 + ["new"] * 2
    for group in content["groups"]:
        assert {run.thumbnails[row].name for row in group.rows} == {group.name}
    looks = {(place % charts.COLOURS, place % len(SHAPES)) for place in range(56)}
    assert len(looks) == 56  # classes told apart


def test_the_map_in_words_by_plain_loops(folder):
    run = read_embedding(folder)
    page = reporting.render_report([folder])
    points = dict(zip(run.map.rows.tolist(), np.float64(run.map.points), strict=True))
    of_class = {}
    for row, point in points.items():
        of_class.setdefault(run.thumbnails[row].name, []).append(point)
    centres = {name: np.mean(members, axis=0) for name, members in of_class.items()}
    for name, cells in rows_of(page, "map").items():
        others = {n: np.hypot(*(c - centres[name])) for n, c in centres.items() if n != name}
        nearest = min(others, key=lambda other: others[other])
        spread = np.mean([np.sum((p - centres[name]) ** 2) for p in of_class[name]]) ** 0.5
        assert [text for _, text in cells] == [
            "new" if name in "xy" else "trained",
            str(len(of_class[name])),
            "{:.3g}, {:.3g}".format(*centres[name]),
            f"{spread:.3g}",
            nearest,
            f"{others[nearest]:.3g}",
        ]
    description = ElementTree.fromstring(
        re.search(r'<svg viewBox[^>]*role="group".*?</svg>', page, re.DOTALL)[0]
    )[1].text
    assert description.startswith("120 of 120 test chips, of 5 classes. Nearest to each other: ")


def test_searches_are_those_recorded(folder):
    run, page = read_embedding(folder), reporting.render_report([folder])
    heads = re.split(r"<h3>(New|Trained) classes", page)[1:]
    shown = []
    for kind, part in zip(heads[::2], heads[1::2], strict=True):
        for query in re.findall(r'<figure class="query">.*?</ol>', part, re.DOTALL):
            at, *others = re.findall(r"background-position: ([^\"]*)", query)
            verdicts = re.findall(r'<li class="(right|wrong)">', query)
            marks = re.findall(r'<b aria-hidden="true">(.)</b>', query)
            texts = re.findall(r", (right|wrong)</span></span>\s*<span>([\d.]+)<", query)
            assert [word for word, _ in texts] == verdicts
            assert ["✓" if verdict == "right" else "✗" for verdict in verdicts] == marks
            shown.append((kind.lower(), at, others, verdicts, [float(value) for _, value in texts]))
    assert len(shown) == len(run.searches.rows) > 8
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["runs"][0]["thumbnails"]
    order = np.argsort(run.labels[run.searches.rows] >= 0, kind="stable")  # the new ones first
    for (kind, at, others, verdicts, distances), place in zip(shown, order, strict=True):
        query, neighbours = run.searches.rows[place], run.searches.neighbours[place]
        assert kind == ("new" if run.labels[query] < 0 else "trained")
        assert at == data[str(query)]["at"]
        assert others == [data[str(row)]["at"] for row in neighbours]
        name = data[str(query)]["name"]
        wanted = ["right" if data[str(row)]["name"] == name else "wrong" for row in neighbours]
        assert verdicts == wanted
        np.testing.assert_allclose(distances, run.searches.distances[place], rtol=6e-3)


@pytest.mark.slow
def test_no_class_is_new(make_embedding, tmp_path):
    page = reporting.render_report([make_embedding(tmp_path / "run", unknown=())])
    assert sections(page) == [name for name in SECTIONS if name != "curves"]
    assert "new classes" not in rows_of(page, "retrieval") and "outlined" not in page
    assert "AUROC" not in text_of(page, "scores")


def test_every_class_tested_is_new(make_embedding, tmp_path):
    page = reporting.render_report([make_embedding(tmp_path / "run", tested=False)])
    assert sections(page) == [n for n in SECTIONS if n not in ("curves", "confusion")]
    assert "No test example is of a known class (0 known, 120 unknown)" in text_of(page, "scores")
    assert "Trained classes, filled" not in page


@pytest.mark.slow
def test_a_test_part_too_small_to_search(make_embedding, tmp_path):
    page = reporting.render_report([make_embedding(tmp_path / "run", n=8)])
    assert "map" in sections(page) and "searches" not in sections(page)


def test_beside_an_open_set_run(make_run, make_embedding, tmp_path):
    folders = [make_run(tmp_path / "cbc"), make_embedding(tmp_path / "embedding")]
    page = reporting.render_report(folders)
    assert sections(page) == SECTIONS
    settings = rows_of(page, "settings")
    assert [text for _, text in settings["loss"]] == ["–", "quadruplet"]
    assert [text for _, text in settings["fixed γ"]] == ["0.9", "–"]
    assert list(rows_of(page, "retrieval")) == [
        "new classes, embedding",
        "trained classes, embedding",
    ]
    assert "open acc." in text_of(page, "scores")
    assert 'data-run="1"' in re.search(r'<figure class="chart map".*?>', page)[0]


def test_without_thumbnails_there_are_figures_only(folder):
    (folder / "thumbnails.npz").unlink()
    page = reporting.render_report([folder])
    assert sections(page) == [name for name in SECTIONS if name not in ("map", "searches")]
    assert "has no thumbnails" in page


def test_thumbnails_of_another_evaluation_are_refused(folder):
    arrays = {name: values[:50] for name, values in np.load(folder / "thumbnails.npz").items()}
    np.savez(folder / "thumbnails.npz", **arrays)
    with pytest.raises(ValueError, match="scores.npz and thumbnails.npz are of different"):
        reporting.render_report([folder])


def test_a_users_class_names_are_text(make_embedding, tmp_path):
    evil = "</script><script>alert('x')</script>"
    folder = make_embedding(tmp_path / "run", known=(evil, '"b', "c"), unknown=("<img src=x>",))
    page = reporting.render_report([folder])
    assert page.count("<script") == 2 and "<img" not in page


@pytest.mark.slow
def test_a_run_that_was_trained(embedding_config, tmp_path):
    embedding_config.open_set.split = "random-3/1"
    runs.train_run(embedding_config, tmp_path / "run", progress=False)
    measured = runs.evaluate_run(tmp_path / "run")
    reporting.write_report([tmp_path / "run"], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert sections(page) == SECTIONS
    assert rows_of(page, "retrieval")["new classes"][6][1] == "10"
    assert len(re.findall(r'data-row="\d+"', page)) == 40
    settings = rows_of(page, "settings")["coarse classes"][0][1]
    for name in measured["known"]:
        assert name in settings
    assert "round: " in settings and "straight: " in settings
