"""Statements of monitoring about predictions of many days: changes, none, and false alarms."""

import csv
import json
import re

import numpy as np
import pytest
from scipy import stats

from jaxatr import data, metrics, training
from jaxatr.cli import monitor
from jaxatr.recognition import monitoring, sighted_tables
from jaxatr.recognition.sighted_tables import Sighted

NAMES = ["", "gate1", "gate2", "unknown", "tank", "truck", "run"]
GATES, UNKNOWN, CLASSES = (1, 2), 3, (4, 5)
START = 1_772_323_200  # 2026-03-01T00:00:00Z


def simulated(seed, days=10, each=30, unknown=0.1, sources=2):
    """Predictions that do not change."""
    generator = np.random.default_rng(seed)
    n = days * each * sources
    source = np.repeat(GATES[:sources], days * each)
    time = START + np.tile(np.repeat(np.arange(days), each), sources) * 86_400 + 3600
    label = np.where(generator.random(n) < unknown, UNKNOWN, generator.choice(CLASSES, n))
    return Sighted(
        NAMES,
        time,
        source,
        np.full(n, 6),
        np.zeros(n, int),
        label,
        label.copy(),
        generator.normal(size=n),
        np.full(n, 0.5),
        generator.normal(size=(n, len(data.FACTS))),
        np.zeros(n, bool),
    )


def since(rows, day):
    return rows.time >= START + day * 86_400


def test_the_probability_of_a_false_alarm_is_at_most_the_level():
    generator = np.random.default_rng(0)
    training = {name: generator.normal(size=300) for name in ("score", "brightness")}
    pages, level = 40, 0.2
    seen = [
        monitoring.look(simulated(seed, days=4, sources=1), reference=training, level=level)
        for seed in range(pages)
    ]
    assert all(one.looks > 20 for one in seen)
    # At the level, more alarms than this have a probability below 0.001.
    assert sum(bool(one.findings) for one in seen) <= stats.binom.isf(0.001, pages, level)


def test_a_single_test_alarms_about_as_often_as_its_level_says():
    alarms = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        scan = metrics.scan_values(
            generator.normal(size=200), generator.normal(size=100), np.zeros(100, int)
        )
        alarms += scan.log_p[0, 0] <= np.log(0.2)
    low, high = stats.binom.interval(0.999, 200, 0.2)
    assert 0.5 * low <= alarms <= high  # the limiting distribution is a little careful


def test_no_change_is_said():
    seen = monitoring.look(simulated(0))
    assert not seen.findings and not seen.facts
    assert seen.summary == (
        "No change was found in 600 inputs of 2 sources from 2026-03-01 to 2026-03-10, by day; "
        "1 % of such pages find a change by chance."
    )


def test_a_change_is_said_with_its_day_and_its_source():
    rows = simulated(1, each=60)
    fog = since(rows, 6) & (rows.source == 2)
    rows.facts[fog, data.FACTS.index("contrast")] -= 2.5
    rows.label[fog & (np.arange(len(fog)) % 2 == 0)] = UNKNOWN
    seen = monitoring.look(rows)
    by_source = {
        source: [f for f in seen.findings if f.source == source] for source in ("", *NAMES[1:3])
    }
    assert not by_source["gate1"] and {f.statistic for f in by_source["gate2"]} >= {
        "unknown",
        "contrast",
    }
    unknown, contrast = (
        next(f for f in by_source["gate2"] if f.statistic == name)
        for name in ("unknown", "contrast")
    )
    assert unknown.sentence.startswith("gate2: since 2026-03-07, ")
    assert " of the chips are unknown, " in unknown.sentence
    assert unknown.sentence.endswith(" before (from 2026-03-01 to 2026-03-04).")
    assert "since 2026-03-07, the chips have less contrast: the median contrast is -2." in (
        contrast.sentence
    )
    assert contrast.lasts and contrast.p_value < 0.01
    assert seen.findings[0].sentence.startswith("Since 2026-03-07, ")


def test_one_foggy_day_is_said_in_the_past():
    rows = simulated(2, each=60, sources=1)
    rows.facts[since(rows, 6) & ~since(rows, 7), 0] -= 3
    (found,) = monitoring.look(rows).findings
    assert found.sentence.startswith("On 2026-03-07, the chips were darker: ")
    assert not found.lasts and found.first == START + 6 * 86_400


def test_the_training_is_compared_from_the_first_day_on():
    rows = simulated(3, each=60, sources=1)
    rows.facts[:, 0] += 3
    training = {"brightness": np.random.default_rng(0).normal(size=500)}
    (found,) = monitoring.look(rows, reference=training).findings
    assert found.sentence.startswith(
        "Since 2026-03-01, the chips are brighter than in the training: the median brightness is "
    )


def test_a_part_that_has_moved_is_said_by_its_share():
    rows = simulated(5, each=80, sources=1)
    late = np.flatnonzero(since(rows, 5))
    rows.facts[late[::5], 0] += 6  # a fifth of the chips, beyond all earlier ones
    (found,) = monitoring.look(rows).findings
    said = "Since 2026-03-06, .*brighter: (2[5-9]|3[01]) % are above [0-9.]+, 10 % before"
    assert re.match(said, found.sentence)


def test_classes_scores_and_unusable_inputs_are_compared():
    rows = simulated(4, each=80, sources=1)
    late = since(rows, 5)
    rows.label[late] = np.where(np.arange(late.sum()) % 10 == 0, UNKNOWN, 4)
    rows.score[late] -= 2
    rows.failed[late & (np.arange(len(late)) % 3 == 0)] = True
    said = [found.sentence for found in monitoring.look(rows).findings]
    for wanted in (
        "of the accepted chips are named tank",
        "the chips score lower: the median score is",
        "of the inputs are unusable, 0 % before",
    ):
        assert sum(wanted in one and one.startswith("Since 2026-03-06, ") for one in said) == 1


def test_hours_silence_and_thresholds():
    rows = simulated(5, days=2, each=60)
    rows.time[:] = START + (rows.time - START) // 86_400 * 3600 * 5 + 60
    rows.threshold[rows.time > START + 3600] = 0.7
    rows = rows.where(~((rows.source == 2) & (rows.time > START + 3600)))
    seen = monitoring.look(rows)
    assert seen.by == "hour"
    assert seen.facts == [
        "gate2: nothing came after 2026-03-01 00:00.",
        "The threshold was changed from 0.5 to 0.7 on 2026-03-01 05:00.",
    ]


def test_thresholds_of_classes_are_compared_with_themselves():
    rows = simulated(5, days=3, each=60)
    classes = rows.texts(rows.nearest)
    rows.threshold[:] = 0.1 * rows.nearest
    assert monitoring.look(rows, by="day").facts == []
    changed = rows.nearest == rows.code(classes[0])
    rows.threshold[changed & since(rows, 1)] = 0.95
    (said,) = monitoring.look(rows, by="day").facts
    before = 0.1 * rows.code(classes[0])
    assert said == f"The threshold was changed from {before:.6g} to 0.95 on 2026-03-02."
    rows.threshold[:] = np.where(since(rows, 1) & ~since(rows, 2), 0.7, 0.5)
    rows.threshold[~changed & ~since(rows, 2)] = 0.5  # no such chip came in between
    assert monitoring.look(rows, by="day").facts == [
        "The threshold was changed from 0.5 to 0.7 on 2026-03-02.",
        "The threshold was changed from 0.7 to 0.5 on 2026-03-03.",
    ]


def test_one_period_cannot_be_compared():
    seen = monitoring.look(simulated(6, days=1))
    assert not seen.findings and "cannot be told from 60 inputs" in seen.summary


ROW = {"path": "a.png", "error": None, "time": "2026-03-01T01:00:00Z", "source": "g", "run": "r"}
ROW |= {"label": "tank", "nearest": "jeep", "score": 1.5, "threshold": 0.5, "image_brightness": 3.0}


def written(folder, name, rows):
    path = folder / name
    if name.endswith(".jsonl"):
        path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    else:
        data.write_table(path, rows)
    return path


def test_tables_of_all_formats_say_the_same(tmp_path):
    pytest.importorskip("pyarrow")
    rows = [ROW, ROW | {"label": None, "error": "damaged", "score": None}]
    said = []
    every = [
        sighted_tables.read([written(tmp_path, f"t{suffix}", rows)], said.append)
        for suffix in (".csv", ".jsonl", ".parquet")
    ]
    assert not said
    for one in every:
        assert one.time.tolist() == [START + 3600] * 2 and one.failed.tolist() == [False, True]
        assert one.score[0] == 1.5 and one.facts[0, 0] == 3 and np.isnan(one.facts[0, 1])
        assert one.texts(one.nearest[~one.failed]) == ["jeep"]
        assert one.texts(one.label[~one.failed]) == ["tank"] and one.texts(one.run) == ["r"]


def test_an_embedding_is_one_run_in_its_tables_and_in_the_consoles_record(
    embedding_run, flags_of, tmp_path, capsys
):
    run = ROW | {"run": training.run_id(embedding_run)}
    served = run | {"decides": "nearest", "score": -0.25, "threshold": -0.5}
    predicted = {name: run[name] for name in ("path", "error", "time", "source", "run", "label")}
    predicted |= {"distance": 0.25, "max_distance": 0.5}
    failed = predicted | {"error": "damaged", "label": "", "distance": None, "max_distance": None}
    tables = [
        written(tmp_path, "served.jsonl", [served]),
        written(tmp_path, "predicted.csv", [predicted, failed]),
    ]
    rows = sighted_tables.read(tables, pytest.fail)
    assert [*sighted_tables.by_run(rows)] == [(run["run"], "nearest")]
    assert rows.score[:2].tolist() == [-0.25, -0.25] and rows.threshold[:2].tolist() == [-0.5, -0.5]
    arguments = flags_of(monitor, f"--workdir={embedding_run}", f"--out={tmp_path / 'page.html'}")
    monitor.main([*arguments, *map(str, tables)])
    assert "only recognisers are compared with their training" in capsys.readouterr().err


def test_unusable_inputs_count_with_the_score_that_decided_at_their_time(tmp_path):
    """After a restart with another score, they are no change of the first one's inputs."""
    table = []
    for day in range(1, 9):
        row = {"source": "gate1", "run": "r", "decides": "vim" if day < 6 else "knn"}
        row["time"] = f"2026-03-0{day}T00:00:00Z"
        usable = row | {"path": "a", "label": "tank", "score": 1.0}
        table += [row | {"path": "b", "error": "damaged", "decides": None}] * 20 + [usable] * 180
    other = row | {"path": "c", "source": "gate2", "decides": "vim", "time": table[0]["time"]}
    late = {"error": "damaged", "decides": None, "time": "2026-03-08T23:00:00Z"}
    table += [other | {"label": "tank", "score": 1.0}, other | late]
    rows = sighted_tables.read([written(tmp_path, "served.jsonl", table)], pytest.fail)
    found = sighted_tables.by_run(rows)
    counts = {score: (len(some.time), int(some.failed.sum())) for (_, score), some in found.items()}
    assert counts == {"vim": (1002, 101), "knn": (600, 60)}
    assert not monitoring.look(found["r", "knn"]).findings
    of_gate = found["r", "vim"].source == rows.code("gate1")
    assert not monitoring.look(found["r", "vim"].where(of_gate)).findings


def test_unusable_tables_and_rows_are_named_and_the_others_kept(tmp_path):
    said = []
    times = [ROW | {"time": "noon"}, ROW | {"time": [1]}]
    unusable = {"path": "b", "error": "damaged", "time": ROW["time"]}
    good = written(tmp_path, "good.jsonl", ["{", unusable, ROW, *times, "[]", ROW])
    bad = ROW | {"score": "high"}
    mixed = written(tmp_path, "mixed.csv", [bad, ROW | {"label": ""}, ROW])
    old = written(tmp_path, "old.csv", [{"path": "a", "label": "tank"}])
    pytest.importorskip("pyarrow")
    written(tmp_path, "older.parquet", [{"path": "a", "label": "tank"}])
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    (tmp_path / "none").mkdir()
    table = mixed.read_text().splitlines()  # with the numbers of rows that pandas writes
    mixed.write_text("".join(f"{n or ''},{line}\n" for n, line in enumerate(table)))
    rows = sighted_tables.read([tmp_path, good, mixed, old, tmp_path / "none"], said.append)
    assert len(rows.time) == 4 and rows.failed.sum() == 1
    wanted = {
        "good.jsonl: 4 of 7 rows left out, the first at line 1: damaged: ",
        "mixed.csv: 2 of 3 rows left out, the first at line 2: score 'high', wanted a number",
        "old.csv: left out: no column 'time', got path, label",
        "older.parquet: left out: no column 'time', got label",
        "empty.csv: left out: the table has no rows",
        "broken.parquet: left out: ",
        "good.jsonl: given twice, read once",
        "none: there is no table in the folder",
    }
    for one in wanted:
        assert any(one in line for line in said), one
    with pytest.raises(ValueError, match="no predictions with a time"):
        sighted_tables.read([old], said.append)
    with pytest.raises(ValueError, match="there is no such file"):
        sighted_tables.read([tmp_path / "missing.csv"], said.append)


def test_names_of_two_unicode_forms_are_one_and_other_columns_can_be_named(tmp_path):
    names = ("\u0160koda", "S\u030ckoda")
    rows = [ROW | {"label": name, "source": name, "seen": "2026-03-02"} for name in names]
    read = sighted_tables.read(
        [written(tmp_path, "t.csv", rows)], print, time="seen", source="path"
    )
    assert read.texts(read.label) == ["\u0160koda"] and read.texts(read.source) == ["a.png"]
    assert read.time.tolist() == [START + 86_400] * 2
    again = sighted_tables.read([written(tmp_path, "u.csv", rows)], print)
    assert again.texts(again.source) == ["\u0160koda"]
    unnamed = [{**ROW, "label": "a", "source": source} for source in ("", None, "g")]
    named = sighted_tables.read([written(tmp_path, "v.csv", unnamed)], print)
    assert named.texts(named.source) == ["unnamed", "g"]
    assert next(csv.reader((tmp_path / "t.csv").open()))[:3] == ["path", "error", "time"]
