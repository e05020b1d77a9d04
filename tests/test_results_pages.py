"""The results pages: their tables and figures are made from the recorded runs."""

import importlib.util
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="extra 'dev' is not installed")

DOCS = Path(__file__).parents[1] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results():
    before, modules = list(sys.path), set(sys.modules)
    yield load("make_results")
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] in ("make_results", "charts", "result_pages"):
            del sys.modules[name]


@pytest.fixture
def charts(results):
    return sys.modules["charts"]


def test_a_table_is_made_between_its_marks_with_their_indent(results, monkeypatch):
    monkeypatch.setitem(results.TABLES, "one", lambda: "| a |\n| --- |\n| 1 |")
    page = "x\n    <!-- recorded: one -->\n    stale\n    <!-- end of the record -->\ny\n"
    made = results.filled(page)
    assert "stale" not in made and "\n    | 1 |\n" in made
    assert made.startswith("x\n") and made.endswith("\ny\n")
    assert results.filled(made) == made


def test_pages_name_known_tables_and_all_figures(results):
    pages = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    names = {name for page in pages for name in re.findall(r"<!-- recorded: (\w+) -->", page)}
    assert names == set(results.TABLES)
    shown = {name for page in pages for name in re.findall(r"images/results/(\w+)\.svg", page)}
    drawn = {path.stem for path in (DOCS / "images" / "results").iterdir()}
    assert shown == drawn == set(results.FIGURES)


def test_every_table_and_figure_can_be_made(results, charts):
    for make in results.TABLES.values():
        assert make().strip()
    for make, legend in results.FIGURES.values():
        picture = ET.fromstring(charts.svg("title", make(), legend))
        assert len(picture.findall(f".//{SVG}text")) > 3


@pytest.mark.parametrize("log", [False, True])
def test_a_mark_stands_at_its_value(charts, log):
    values = (0.5, 1.0, 2.0, 5.0)
    rows = [charts.Row(str(value), [charts.Mark(charts.OURS, value)], "") for value in values]
    section = charts.Section("title", rows, "unit", log=log)
    picture = ET.fromstring(charts.svg("title", [section], {}))
    places = [float(circle.get("cx")) for circle in picture.findall(f"{SVG}circle")]
    ticks = {
        float(text.text): float(text.get("x"))
        for text in picture.findall(f"{SVG}text")
        if text.get("text-anchor") == "middle"
    }
    assert places == sorted(places) and len(places) == len(values)
    for value, place in zip(values, places, strict=True):
        if value in ticks:
            assert place == pytest.approx(ticks[value], abs=0.11)
    assert set(values) & set(ticks)


def test_a_row_without_a_run_says_so(charts):
    section = charts.Section("title", [charts.Row("a run")], "unit")
    assert ">not run</text>" in charts.svg("title", [section], {})


@pytest.fixture(scope="module")
def architecture():
    pytest.importorskip("grimp")
    return load("make_architecture")


def test_the_drawing_of_the_rooms_is_that_of_the_imports(architecture):
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.drawing()


def test_lines_of_the_architecture_pass_beside_its_boxes_and_each_other(architecture):
    passage = architecture.passage
    taken = [(100.0, 124.0), (250.0, 124.0)]  # middle and width; the gap between the two is 26
    for wanted in (0.0, 100.0, 100.0, 170.0, 260.0, 400.0):
        place = passage(wanted, taken)
        assert all(abs(place - middle) >= width / 2 + 13 for middle, width in taken)
        taken.append((place, 0.0))
    assert passage(0.0, taken[:2]) == 0.0  # nothing is in the way
