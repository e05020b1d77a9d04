"""The page shows complete and incomplete records, and escapes users' markup."""

import base64
import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from jaxatr import metrics, openset, reporting
from jaxatr.reporting import calibration, figures
from jaxatr.reporting.explorer import _thresholds, decisions
from jaxatr.reporting.recorded_run import read_run


def embedded(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def drawings(page):
    found = re.findall(r"<svg viewBox[^>]*role=\"img\".*?</svg>", page, re.DOTALL)
    return [ElementTree.fromstring(svg) for svg in found]


def sections(page):
    return re.findall(r'<section id="(\w+)"', page)


@pytest.mark.parametrize("ranges", [(1000, 2000), (1000.0, 1500.5)])
def test_every_section_is_present(make_run, tmp_path, ranges):
    page = reporting.render_report([make_run(tmp_path / "run", ranges=ranges)])
    wanted = ["scores", "curves", "explorer", "ranges", "confusion", "training", "settings"]
    assert sections(page) == wanted
    assert all(f'<th scope="col">{at:g} m</th>' in page for at in ranges)
    assert "Simulated images" in page and "random-3/2, version 1, seed 0" in page


def test_figures_are_the_recorded_ones(run_folder):
    page = reporting.render_report([run_folder])
    rows = json.loads((run_folder / "evaluation.json").read_text())["groups"]["all"]["scores"]
    cells = {
        name: re.findall(r"<td( class=\"best\")?>([\d.]+)", found)
        for name, found in re.findall(r'<th scope="row">(SoftMax|MLS|CBC)</th>(.*?)</tr>', page)
    }
    for title, name in (("SoftMax", "softmax"), ("MLS", "mls"), ("CBC", "cbc")):
        wanted = [rows[name][column] for column in ("auroc", "oscr", "fpr_at_tpr")]
        assert [text for _, text in cells[title][:3]] == [f"{100 * v:.1f}" for v in wanted]
        best_auroc = rows[name]["auroc"] == max(row["auroc"] for row in rows.values())
        lowest_fpr = rows[name]["fpr_at_tpr"] == min(row["fpr_at_tpr"] for row in rows.values())
        assert bool(cells[title][0][0]) == best_auroc and bool(cells[title][2][0]) == lowest_fpr
    table = re.search(r'<section id="scores".*?</section>', page, re.DOTALL)
    assert table
    columns = re.findall(r'<th scope="col">(.*?)</th>', table[0])[1:]
    explained = ", ".join(re.findall("<dt>(.*?)</dt>", table[0])).split(", ")
    assert len(columns) > 5 and set(columns) == set(explained)


def test_drawings_are_named_and_described_with_figures(run_folder):
    page = reporting.render_report([run_folder])
    auroc = json.loads((run_folder / "evaluation.json").read_text())["groups"]["all"]["scores"]
    charts = drawings(page)
    assert len(charts) == 7  # ROC, OSCR, a histogram for each of three scores, two of the training
    keys = [identity for svg in charts for identity in svg.get("aria-labelledby").split()]
    assert len(keys) == len(set(keys))
    for svg in charts:
        title, description = svg[0], svg[1]
        assert [title.get("id"), description.get("id")] == svg.get("aria-labelledby").split()
        assert title.text and re.search(r"\d", description.text)
    assert f"CBC: area {100 * auroc['cbc']['auroc']:.1f} %" in charts[0][1].text


def test_data_keeps_every_bit(run_folder):
    (run,) = embedded(reporting.render_report([run_folder]))["runs"]
    arrays = np.load(run_folder / "scores.npz")
    logits, open_logits = arrays["test_logits"], arrays["test_open_logits"]
    recorded = np.asarray(openset.cbc_score(logits, open_logits))
    assert run["scores"]["cbc"]["single"]
    values = np.frombuffer(base64.b64decode(run["scores"]["cbc"]["values"]), "<f4")
    np.testing.assert_array_equal(values, recorded)
    assert run["labels"] == arrays["test_labels"].tolist()
    assert run["predicted"] == logits.argmax(1).tolist()
    fixed, fitted = run["scores"]["cbc"]["thresholds"]
    row = read_run(run_folder).measured["cbc"]
    assert (fixed["gamma"], fixed["threshold"]) == (0.9, row["threshold"])
    assert fitted["threshold"] == row["fitted_threshold"]
    assert fitted["gamma"] == pytest.approx(1 / (1 + np.exp(-row["fitted_threshold"])))


def test_a_threshold_of_validation_examples_alone_is_called_so_where_predict_counts_others(
    run_folder,
):
    run = read_run(run_folder)
    calibration = openset.fit_calibration(np.arange(65.0))
    for count, text in ((5, " to the validation examples alone"), (65, "")):
        few = calibration._replace(unseen=count)
        run.evaluation["decision"] = {"fitted_to": few.basis}
        assert _thresholds(run, "mls")[-1]["text"] == f"fitted{text}, to accept 95%"


@pytest.mark.parametrize("threshold", [-np.inf, 0.3, 2.0, np.inf])
def test_decisions_by_a_plain_count(run_folder, threshold):
    run = read_run(run_folder)
    decided, counts = decisions(run, "mls", threshold)
    expected = np.zeros((4, 4), int)
    for label, nearest, score in zip(run.labels, run.predicted, run.scores["mls"], strict=True):
        expected[label, nearest if score >= threshold else -1] += 1
    np.testing.assert_array_equal(counts, expected)
    accuracy = metrics.open_set_accuracy(decided, run.labels, unknown=openset.UNKNOWN)
    assert accuracy == pytest.approx(np.trace(counts) / counts.sum())


def test_a_users_text_is_text(make_run, tmp_path):
    evil = "</script><script>alert('x')</script>"
    folder = make_run(tmp_path / "a&<b>", known=(evil, "b", '"c'), unknown=("<img src=x>",))
    config = json.loads((folder / "config.json").read_text())
    config["data"]["source"] = "{{ 7 * 7 }}<b>"
    (folder / "config.json").write_text(json.dumps(config))
    page = reporting.render_report([folder])
    assert page.count("<script") == 2 and page.count("</script>") == 2
    assert "<img src=x>" not in page
    assert "{{ 7 * 7 }}&lt;b&gt;" in page and "a&amp;&lt;b&gt;" in page
    (run,) = embedded(page)["runs"]
    assert run["classes"] == [evil, "b", '"c']


def test_nothing_is_fetched(run_folder):
    page = reporting.render_report([run_folder])
    assert "default-src 'none'" in page
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", page)
    assert not re.findall(r"url\((?!data:)", page)
    assert "http" not in page.replace("http-equiv", "")


def test_the_same_records_give_the_same_page(run_folder):
    assert reporting.render_report([run_folder]) == reporting.render_report([run_folder])


def test_several_runs_side_by_side(make_run, tmp_path):
    folders = [make_run(tmp_path / name, seed=seed) for seed, name in enumerate(("one", "two"))]
    page = reporting.render_report(folders)
    assert "<h3>one</h3>" in page and "<h3>two</h3>" in page
    roc = drawings(page)[0]
    assert "one: CBC: area" in roc[1].text and "two: CBC: area" in roc[1].text
    assert len(embedded(page)["runs"]) == 2
    rows = re.findall(r"<tr( class=\"differs\")?><th scope=\"row\">(seed|data.source)", page)
    assert sorted(rows) == [("", "data.source"), (' class="differs"', "seed")]


def test_runs_that_are_called_alike_are_told_apart(make_run, tmp_path):
    folders = [make_run(tmp_path / name / "run") for name in ("one", "two")]
    page = reporting.render_report(folders)
    assert f"<h3>{folders[0]}</h3>" in page and f"<h3>{folders[1]}</h3>" in page
    with pytest.raises(ValueError, match="given twice"):
        reporting.render_report([folders[0], folders[0] / ".." / "run"])


def test_without_unknown_examples_there_are_no_curves(make_run, tmp_path):
    page = reporting.render_report([make_run(tmp_path / "run", unknown=())])
    assert sections(page) == ["scores", "explorer", "confusion", "training", "settings"]


def test_of_many_curves_only_those_of_the_deciding_score_are_shown_at_first(run_folder):
    run = read_run(run_folder)
    run.evaluation["decides"] = "cbc"
    for runs, shown in ((4, {"softmax", "mls", "cbc"}), (5, {"cbc"})):  # 12 and 15 lines
        section = figures.curves([(number, run) for number in range(runs)])
        assert section and section.content["shown"] == shown


@pytest.fixture
def named_by(run_folder):
    """A run by whose score the class is another than by the network, and by the decision."""
    arrays = dict(np.load(run_folder / "scores.npz"))
    labels, network = arrays["test_labels"], arrays["test_logits"].argmax(axis=1)
    known, score = labels != openset.UNKNOWN, read_run(run_folder).scores["cbc"]
    own, decided = np.random.default_rng(0).integers(0, 3, (2, len(labels)))
    probability = np.random.default_rng(1).random(len(labels))
    arrays |= {"test_predicted_cbc": own, "decided_nearest": decided, "decided_label": labels}
    arrays |= {"decided_score": score, "decided_probability": probability}
    np.savez(run_folder / "scores.npz", **arrays)
    evaluation = json.loads((run_folder / "evaluation.json").read_text())
    row = evaluation["groups"]["all"]["scores"]["cbc"]
    row["oscr"] = metrics.oscr(score[known], (own == labels)[known], score[~known])
    area = metrics.aurc(probability[known], (network == labels)[known])
    test = {"aurc": metrics.aurc(score, decided == labels), "closed_aurc": area}
    evaluation |= {"decides": "cbc", "decision": {"by": "hand", "test": test}}
    (run_folder / "evaluation.json").write_text(json.dumps(evaluation))
    return read_run(run_folder)


def test_the_area_under_a_drawn_curve_is_the_recorded_one(named_by):
    section = figures.curves([(0, named_by)])
    assert section
    for drawn, measure in zip(section.content["charts"], ("auroc", "oscr"), strict=True):
        for line in drawn.lines:
            across, down = line.series.points.T
            recorded = named_by.measured[line.series.group][measure]
            assert np.trapezoid(down, across) == pytest.approx(recorded)


def test_the_risks_drawn_are_of_the_decision_and_of_the_network(named_by):
    section = calibration.decision([(0, named_by)])
    assert section
    areas = [line.series.points[:, 1].mean() for line in section.content["charts"][-1].lines]
    test = named_by.evaluation["decision"]["test"]
    assert areas == pytest.approx([test["aurc"], test["closed_aurc"]])


def test_the_risks_drawn_of_a_network_of_single_chips_are_of_the_chips_of_tracks(
    named_by, run_folder
):
    arrays = dict(np.load(run_folder / "scores.npz"))
    chips = {name: np.repeat(array, 3) for name, array in arrays.items() if "decided_" in name}
    arrays["test_chip_logits"] = np.random.default_rng(2).normal(size=(3 * len(named_by.labels), 3))
    np.savez(run_folder / "scores.npz", **arrays | chips)
    labels, network = chips["decided_label"], arrays["test_chip_logits"].argmax(axis=1)
    known, probability = labels != openset.UNKNOWN, chips["decided_probability"]
    section = calibration.decision([(0, read_run(run_folder))])
    assert section
    areas = [line.series.points[:, 1].mean() for line in section.content["charts"][-1].lines]
    of_all = metrics.aurc(chips["decided_score"], chips["decided_nearest"] == labels)
    of_known = metrics.aurc(probability[known], (network == labels)[known])
    assert areas == pytest.approx([of_all, of_known])


def test_an_older_evaluation_without_thumbnails(run_folder):
    (run_folder / "thumbnails.npz").unlink()
    (run_folder / "metrics.jsonl").unlink()
    page = reporting.render_report([run_folder])
    assert "has no thumbnails" in page and "training" not in sections(page)


def test_the_share_of_known_examples_to_accept_is_the_recorded_one(make_run, tmp_path):
    folders = [make_run(tmp_path / name) for name in ("one", "other")]
    for folder, tpr in zip(folders, (0.995, 0.9), strict=True):
        evaluation = json.loads((folder / "evaluation.json").read_text())
        (folder / "evaluation.json").write_text(json.dumps(evaluation | {"tpr": tpr}))
    page = " ".join(reporting.render_report(folders).split())
    assert "when 99.5 % or 90 % of the known ones are" in page
    assert "when 99.5 % or 90 % of the unknown ones are" in page
    assert "to accept 99.5% of the known" in page
    run, _ = embedded(page)["runs"]
    assert run["scores"]["mls"]["thresholds"][-1]["text"] == "fitted, to accept 99.5%"


def test_a_gamma_of_one_has_no_threshold(run_folder):
    evaluation = json.loads((run_folder / "evaluation.json").read_text())
    evaluation["gamma"] = 1.0
    for row in evaluation["groups"]["all"]["scores"].values():
        row["threshold"] = None
    (run_folder / "evaluation.json").write_text(json.dumps(evaluation))
    (run,) = embedded(reporting.render_report([run_folder]))["runs"]
    fixed = run["scores"]["cbc"]["thresholds"][0]
    assert (fixed["gamma"], fixed["threshold"]) == (1.0, None)
    assert len(run["scores"]["mls"]["thresholds"]) == 1  # the fitted one


def with_field(name, value):
    def change(one):
        *groups, last = name.split(".")
        at = one
        for group in groups:
            at = at.setdefault(group, {})
        at[last] = value
        return one

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            (with_field(name, value), message)
            for name, value, message in (
                ("groups.all.scores.cbc.auroc", None, "cbc.auroc: got null, wanted a finite"),
                ("groups.all.scores.cbc.auroc", float("nan"), "cbc.auroc: got NaN, wanted a fin"),
                ("groups.all.scores.cbc.oscr", True, "cbc.oscr: got true, wanted a finite number"),
                ("groups.all.num_known", "9", 'num_known: got "9", wanted an integer of at least'),
                ("gamma", "x", 'gamma: got "x", wanted a finite number or null'),
                ("tpr", [], r"tpr: got \[\], wanted a number in \[0, 1\]"),
                ("decision.test", [], r"decision.test: got \[\], wanted an object"),
                ("decision.thresholds", [1, "2"], r'thresholds\[1\]: got "2", wanted a finite'),
                ("drift.statistics", [3], r"statistics\[0\]: got 3, wanted an object"),
                ("outside.noise.images", -1, "noise.images: got -1, wanted an integer of at"),
            )
        ),
        (lambda one: None, "it is null, wanted an object"),
        (lambda one: one | {"known": [None]}, r"known: got \[null\], wanted a list of strings"),
        (lambda one: one | {"checkpoint": "x"}, 'checkpoint: got "x", wanted an object'),
        (lambda one: one | {"groups": {}}, "groups: the field 'all' is missing"),
        (lambda one: {k: one[k] for k in one if k != "gamma"}, "the field 'gamma' is missing"),
    ],
)
def test_an_evaluation_that_was_edited_by_hand_is_named(run_folder, change, message):
    path = run_folder / "evaluation.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match=rf"{path}.*{message}"):
        reporting.render_report([run_folder])


def test_a_further_recorded_score_is_shown(run_folder):
    evaluation = json.loads((run_folder / "evaluation.json").read_text())
    rows = evaluation["groups"]["all"]["scores"]
    rows["energy"] = {"auroc": 0.123, "threshold": None}
    (run_folder / "evaluation.json").write_text(json.dumps(evaluation))
    arrays = dict(np.load(run_folder / "scores.npz"))
    arrays["test_score_energy"] = np.linspace(-5, 5, 300)
    np.savez(run_folder / "scores.npz", **arrays)
    page = reporting.render_report([run_folder])
    (run,) = embedded(page)["runs"]
    assert not run["scores"]["energy"]["single"] and run["scores"]["energy"]["scale"] == "plain"
    assert ">12.3<" in page.replace("\n", "") and "Scores by energy" in page


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: (run / "config.json").unlink(), "is not a run's folder"),
        (lambda run: (run / "evaluation.json").unlink(), "not evaluated yet.*evaluation.json"),
        (lambda run: (run / "scores.npz").unlink(), "not evaluated yet.*scores.npz"),
        (lambda run: (run / "evaluation.json").write_text("{"), "evaluation.json is damaged"),
        (lambda run: (run / "evaluation.json").write_text('{"task": "x"}'), "with open-set scores"),
        (lambda run: (run / "record.json").write_text('{"task": "x:y"}'), "no module 'x'"),
        (lambda run: (run / "scores.npz").write_bytes(b"PK"), "scores.npz: not readable arrays"),
        (lambda run: np.savez(run / "scores.npz", a=1), "the array test_.* is missing"),
    ],
)
def test_records_that_cannot_be_used_are_named(run_folder, spoil, message):
    spoil(run_folder)
    with pytest.raises(ValueError, match=message):
        reporting.render_report([run_folder])


def test_records_of_two_evaluations_are_refused(make_run, tmp_path):
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "two", n=200)
    (two / "scores.npz").replace(one / "scores.npz")
    with pytest.raises(ValueError, match="of different evaluations"):
        reporting.render_report([one])


def test_no_run_at_all():
    with pytest.raises(ValueError, match="got none"):
        reporting.render_report([])


def test_a_page_about_a_run_that_was_trained(trained_run, tmp_path):
    reporting.write_report([trained_run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    (run,) = embedded(page)["runs"]
    assert run["mistakes"]["cbc"]["accepted"] and run["thumbnails"]
    rejected = run["mistakes"]["cbc"]["rejected"]
    assert len(rejected) == 24  # of 30 known test examples
    names = {run["thumbnails"][str(row)]["name"] for row in run["mistakes"]["cbc"]["accepted"]}
    assert len(names) == 1 and names.isdisjoint(run["classes"])  # the unknown class, by its name
