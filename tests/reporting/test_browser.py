"""The page in a browser: γ changes the figures, and there are no network requests."""

import collections
import json
import re
import shlex

import numpy as np
import pytest

from jaxatr import metrics, openset, reporting
from jaxatr.reporting import score_record
from jaxatr.reporting.recorded_run import read_run


@pytest.fixture(scope="module")
def folders(make_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    evil = "<script>document.title = 'caught'</script>"
    one = make_run(root / "one", ranges=(1000, 2000, 3000), known=("a", evil, "c"))
    return [one, make_run(root / "two", seed=1)]


@pytest.fixture(scope="module")
def written(folders, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    reporting.write_report(folders, path)
    return path


NAMES = [
    pytest.param("softmax", marks=pytest.mark.slow),
    pytest.param("mls", marks=pytest.mark.slow),
    "cbc",
]
THRESHOLDS = {
    "softmax": np.log,
    "mls": lambda gamma: gamma,
    "cbc": lambda gamma: np.log(gamma) - np.log1p(-gamma),
    "nearest": lambda distance: -distance,
}


def shown(panel):
    """The figures of a panel, as numbers."""
    figures = {
        name: float(panel.locator(f"output.{name}").inner_text().removesuffix(" %")) / 100
        for name in ("accuracy", "alarms", "rejected", "right")
    }
    cells = panel.locator(".matrix td").all_inner_texts()
    side = round(len(cells) ** 0.5)
    return figures, np.array(cells, int).reshape(side, side)


def check(panel, run, name, threshold):
    figures, counts = shown(panel)
    decided = np.where(run.scores[name] >= threshold, run.predictions[name], openset.UNKNOWN)
    known, wanted = run.labels >= 0, np.zeros_like(counts)
    for label, decision in zip(run.labels, decided, strict=True):
        wanted[label, decision] += 1
    np.testing.assert_array_equal(counts, wanted)
    expected = {
        "accuracy": metrics.open_set_accuracy(decided, run.labels, unknown=openset.UNKNOWN),
        "alarms": np.mean(run.scores[name][~known] >= threshold),
        "rejected": np.mean(run.scores[name][known] < threshold),
        "right": np.mean((decided == run.labels)[known]),
    }
    assert figures == pytest.approx(expected, abs=5.1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_moving_gamma_shows_the_measures_at_it(opened, written, folders, name):
    gammas = (-1.0, 0.5, 3.0, 12.0) if name == "mls" else (0.0, 0.05, 0.5, 0.97, 0.9999, 1.0)
    with opened(written) as page:
        for number, folder in enumerate(folders):
            panel, run = page.locator(".explorer").nth(number), read_run(folder)
            page.locator("details.card").nth(number).evaluate("panel => panel.open = true")
            panel.locator(".score").select_option(name)
            check(panel, run, name, run.measured[name]["threshold"])
            for gamma in gammas:
                panel.locator(".gamma").fill(str(gamma))
                with np.errstate(divide="ignore"):
                    check(panel, run, name, THRESHOLDS[name](np.float64(gamma)))
            panel.locator(".thresholds button").last.click()
            check(panel, run, name, run.measured[name]["fitted_threshold"])


def test_a_score_from_another_network_has_its_own_predictions(opened, make_run, tmp_path):
    folder = make_run(tmp_path / "run")
    arrays = dict(np.load(folder / "scores.npz"))
    arrays["test_predicted_mls"] = (arrays["test_logits"].argmax(axis=1) + 1) % 3
    np.savez(folder / "scores.npz", **arrays)
    reporting.write_report([folder], tmp_path / "report.html")
    run = read_run(folder)
    with opened(tmp_path / "report.html") as page:
        panel = page.locator(".explorer")
        for name in ("mls", "cbc"):
            panel.locator(".score").select_option(name)
            check(panel, run, name, run.measured[name]["threshold"])
        panel.locator(".score").select_option("mls")
        panel.locator(".gamma").fill("-5")
        wrong = panel.locator('.sheet[data-kind="misclassified"] figcaption').first.inner_text()
        nearest = set(run.classes) - {wrong.split(",")[0]}
        assert any(f"taken for {name}" in wrong for name in nearest)


@pytest.mark.parametrize("name", NAMES)
def test_slider_by_keyboard(opened, written, folders, name):
    run = read_run(folders[0])
    with opened(written) as page:
        panel = page.locator(".explorer").first
        panel.locator(".score").select_option(name)
        slider, field = panel.locator(".slider"), panel.locator(".gamma")
        slider.focus()
        seen = set()
        for key in ("Home", "PageUp", "PageUp", "ArrowRight", "PageUp", "ArrowLeft", "End"):
            page.keyboard.press(key)
            gamma = field.input_value()
            assert slider.get_attribute("aria-valuetext") == f"γ {gamma}"
            check(panel, run, name, THRESHOLDS[name](np.float64(gamma)))
            seen.add(gamma)
        assert len(seen) == 7


def test_a_gamma_that_is_none_changes_nothing(opened, written):
    with opened(written) as page:
        panel = page.locator(".explorer").first
        panel.locator(".score").select_option("cbc")
        before = shown(panel)
        for text in ("1.5", "-1", ""):
            panel.locator(".gamma").fill(text)
            assert panel.locator(".gamma").get_attribute("aria-invalid") == "true"
            assert shown(panel)[0] == before[0]
        panel.locator(".gamma").fill("0.5")
        assert panel.locator(".gamma").get_attribute("aria-invalid") == "false"


def test_mistakes_follow_gamma(opened, seen, written, folders):
    run = read_run(folders[0])
    with opened(written) as page:
        panel = page.locator(".explorer").first
        panel.locator(".score").select_option("cbc")
        found = score_record.confident_mistakes(run.labels, run.predicted, run.scores["cbc"])
        for gamma in (0.2, 0.9, 0.999):
            panel.locator(".gamma").fill(str(gamma))
            threshold = THRESHOLDS["cbc"](gamma)
            for kind, rows in found.items():
                accepted = run.scores["cbc"][rows] >= threshold
                wanted = rows[~accepted if kind == "rejected" else accepted]
                figures = panel.locator(f".sheet[data-kind={kind}] figure")
                assert figures.count() == len(wanted)
                for place, row in enumerate(wanted[:3]):
                    text = figures.nth(place).inner_text()
                    assert text.startswith(run.thumbnails[row].name)
                    assert f"{run.ranges[row]} m" in text
        chips = panel.locator(".sheet[data-kind=rejected] .chip")
        for place, row in enumerate(wanted[:3]):
            assert seen(chips.nth(place), run) == row


@pytest.mark.slow
def test_a_distance_moves_the_figures(opened, embedding):
    run, path = embedding
    with opened(path) as page:
        panel = page.locator(".explorer")
        check(panel, run, "nearest", run.measured["nearest"]["fitted_threshold"])
        fitted = float(panel.locator(".gamma").input_value())
        assert fitted == pytest.approx(-run.measured["nearest"]["fitted_threshold"], rel=1e-3)
        for distance in (0.0, 0.2, 0.6, 5.0):
            panel.locator(".gamma").fill(str(distance))
            check(panel, run, "nearest", -distance)
            command = panel.locator(".command code").inner_text()
            assert command.endswith(f" --max_distance={distance:g} IMAGE...")
        panel.locator(".gamma").fill("-1")
        assert panel.locator(".gamma").get_attribute("aria-invalid") == "true"
        panel.locator(".gamma").fill("0.3")
        marker = panel.locator(".marker").get_attribute("transform")
        across = float(re.search(r"[\d.]+", marker)[0])
        rejecting = panel.locator(".rejecting")
        left, width = (float(rejecting.get_attribute(name)) for name in ("x", "width"))
        assert left == pytest.approx(across) and left + width == pytest.approx(330)  # beyond it
        slider = panel.locator(".slider")
        slider.focus()
        page.keyboard.press("ArrowRight")
        distance = float(panel.locator(".gamma").input_value())
        assert distance > 0.3 and slider.get_attribute("aria-valuetext") == f"distance {distance:g}"
        check(panel, run, "nearest", -distance)


def test_a_class_name_is_not_run_as_a_script(opened, written):
    with opened(written) as page:
        assert "caught" not in page.title()
        assert page.locator(".matrix th", has_text="document.title").count()


def test_a_score_can_be_switched_off(opened, written):
    with opened(written) as page:
        lines = page.locator('#curves svg[role=img] [data-group="mls"]')
        assert lines.count() == 4 and lines.first.is_visible()  # two charts, two runs
        page.locator(".switches input[value=mls]").uncheck()
        assert not lines.first.is_visible()
        assert page.locator('#curves svg[role=img] [data-group="cbc"]').first.is_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("about", ["open_set", "embedding"])
def test_it_fits_and_can_be_read(opened, contrast, written, embedding, about, theme, width):
    size = {"width": width, "height": 800}
    path = written if about == "open_set" else embedding[1]
    with opened(path, color_scheme=theme, viewport=size) as page:
        if about == "embedding":
            page.locator(".points use").first.focus()
            page.locator("details").last.evaluate("details => details.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        least = contrast(page)
        assert least and min(least.values()) >= 4.5, sorted((v, k) for k, v in least.items())[:4]


def test_many_classes_are_a_heat_map_with_a_search(opened, make_run, tmp_path):
    known = tuple(f"kind {n:02}" for n in range(30))
    folder = make_run(tmp_path / "run", known=known, n=600)
    reporting.write_report([folder], tmp_path / "report.html")
    run = read_run(folder)
    tested = run.labels >= 0
    pairs = list(zip(run.labels[tested], run.predicted[tested], strict=True))
    wrong = collections.Counter((int(a), int(b)) for a, b in pairs if a != b)
    with opened(tmp_path / "report.html") as page:
        box = page.locator("#confusion .confusions")
        assert not page.locator(".matrix").count()
        assert box.locator(".cells rect").count() == len(set(pairs))
        rows = box.locator(".worst tbody tr")
        first = rows.first.locator("td").all_inner_texts()
        count = max(wrong.values())
        label, decision = known.index(first[0]), known.index(first[1])
        assert wrong[label, decision] == count == int(first[2]) and rows.count() == 15
        share = count / np.sum(run.labels == label)
        assert float(first[3].removesuffix(" %")) == pytest.approx(100 * share, abs=0.06)
        box.locator("input").fill("KIND 07")
        mine = {pair: n for pair, n in wrong.items() if 7 in pair}
        shown = {tuple(row.split("\t")[:2]) for row in rows.all_inner_texts()}
        assert shown == {(known[a], known[b]) for a, b in mine}
        assert box.locator(".found rect").count() == 2
        right = sum(a == b == 7 for a, b in pairs)
        of = int(np.sum(run.labels == 7))
        assert f"kind 07: {right} of {of} right" in box.locator(".summary").inner_text()
        box.locator("input").fill("nothing")
        assert "No class name matches" in box.locator(".summary").inner_text() and not rows.count()
        # The explorer's follows γ: where everything is rejected, one column is left.
        explorer = page.locator(".explorer .confusions .cells rect")
        page.locator(".explorer .score").select_option("mls")
        page.locator(".explorer .gamma").fill("1000")
        assert explorer.count() == len(set(run.labels.tolist()))


@pytest.mark.parametrize("name, gamma, number", [("cbc", "0.75", 0.75), ("mls", "-2.5", -2.5)])
def test_the_command_predicts_at_the_gamma_shown(opened, written, folders, name, gamma, number):
    with opened(written) as page:
        panel = page.locator(".explorer").first
        panel.locator(".score").select_option(name)
        panel.locator(".gamma").fill(gamma)
        words = shlex.split(panel.locator(".command code").inner_text())
        assert words[:2] == ["jaxatr", "predict"] and words[-1] == "IMAGE..."
        given = dict(word.removeprefix("--").split("=", 1) for word in words[2:-1])
        assert given.keys() == {"workdir", "score", "gamma"}
        assert given["workdir"] == str(folders[0]) and given["score"] == name
        assert float(given["gamma"]) == number
        assert (
            panel.locator(".rule").inner_text().startswith(f"Images that score below {gamma} are")
        )


@pytest.mark.slow
def test_the_command_has_the_score_s_own_unit(opened, make_run, tmp_path):
    """The page shows a probability or a distance; predict takes the recorded score."""
    folder = make_run(tmp_path / "a run")
    arrays = dict(np.load(folder / "scores.npz"))
    recorded = json.loads((folder / "evaluation.json").read_text())
    for group in recorded["groups"].values():
        group["scores"] |= dict.fromkeys(("nearest", "gopenmax"), group["scores"]["mls"])
    for further in ("nearest", "gopenmax"):
        arrays[f"test_score_{further}"] = arrays["test_logits"].max(axis=1) - 10
    (folder / "evaluation.json").write_text(json.dumps(recorded))
    np.savez(folder / "scores.npz", **arrays)
    reporting.write_report([folder], tmp_path / "report.html")
    with opened(tmp_path / "report.html") as page:
        panel = page.locator(".explorer")
        panel.locator(".score").select_option("nearest")
        panel.locator(".gamma").fill("1.5")
        command = panel.locator(".command code").inner_text()
        assert command.endswith("a run' --score=nearest --gamma=-1.5 IMAGE...")
        assert panel.locator(".rule").inner_text() == (
            "Images further away than 1.5 are rejected as unknown."
        )
        assert panel.locator(".named").inner_text() == "Largest distance"
        panel.locator(".score").select_option("softmax")
        panel.locator(".gamma").fill("0.5")
        command = panel.locator(".command code").inner_text()
        assert float(re.search("--gamma=(.*) IMAGE", command)[1]) == np.log(0.5)
        assert "below 0.5" in panel.locator(".rule").inner_text()
        panel.locator(".score").select_option("gopenmax")
        assert not panel.locator(".command code").inner_text()
        assert "cannot decide by" in panel.locator(".reason").inner_text()
