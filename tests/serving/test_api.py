"""The API gives the same predictions as the package without it."""

import concurrent.futures
import copy
import errno
import hashlib
import io
import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

import jaxatr
from jaxatr import config as configuration
from jaxatr import data, training
from jaxatr.recognition import sighted_tables, store
from jaxatr.recognition.drift import Drift, Reference
from jaxatr.recognition.neighbours import NEAREST
from jaxatr.recognition.session import Session
from jaxatr.serving import drift, metrics
from jaxatr.serving.options import Limits
from jaxatr.serving.record import Record
from jaxatr.serving.served_run import Wanted, load_detector, load_engine

ROOT = Path(__file__).parents[2]


def images_of(contents):
    return [data.decoder.decode(content, "chip", most=10**6) for content in contents]


def test_predictions_are_the_recognisers(client, contents, trained_run, form):
    wanted = jaxatr.load(trained_run).predict(images_of(contents[:7]))
    answer = client.post("/api/predict", files=form(contents[:7])).json()
    for n, (result, one) in enumerate(zip(answer["results"], wanted, strict=True)):
        assert result["name"] == f"{n}.png"
        assert result["id"] == hashlib.sha256(contents[n]).hexdigest()
        verdict = result["verdict"]
        assert (verdict["label"], verdict["nearest"]) == (one.label, one.nearest)
        assert verdict["score"] == pytest.approx(one.score, rel=1e-4)
        finite = np.isfinite(one.threshold)
        assert verdict["threshold"] == (pytest.approx(one.threshold) if finite else None)
        assert verdict["probabilities"] == pytest.approx(one.probabilities, rel=1e-3, abs=1e-6)
        assert result.keys() == {"name", "id", "verdict"}


def test_answers_in_a_precision_are_the_recognisers(trained_run, contents, tmp_path):
    run = shutil.copytree(trained_run, tmp_path / "run")
    runtime = "onnxruntime:int8"
    options = {"score": "cbc", "runtime": runtime}  # cbc needs no maps
    served = load_engine(Wanted(run, scores=("spatial_stage2",), method="", **options))
    recogniser = jaxatr.load(run, neighbours=3, **options)
    chips = np.stack([recogniser.prepare(one) for one in images_of(contents[:32])])
    found = served.answer(chips, neighbours=True, scores=["spatial_stage2"])
    for answer, wanted in zip(found, recogniser.answers(chips), strict=True):
        assert answer.verdicts["cbc"]["score"] == pytest.approx(wanted.score, rel=1e-5)
        near = [one.distance for one in answer.neighbours[:3]]
        assert near == pytest.approx([one.distance for one in wanted.neighbours], abs=1e-6)
    other = jaxatr.load(run, score="spatial_stage2", runtime=runtime)
    for answer, wanted in zip(found, other.answers(chips), strict=True):
        assert answer.verdicts["spatial_stage2"]["score"] == pytest.approx(wanted.score, rel=1e-5)


def test_below_float32_a_score_has_the_network_of_its_own_needs(engine):
    run, every = engine.lasting.run, {"features", "map_stage2"}
    wide = Session(run, every, runtime="onnxruntime:int8")
    assert wide.wider({"map_stage2"}) is wide  # features need no computation
    assert wide.wider({"open_logits"}).needs == {"open_logits"}
    assert Session(run, every).wider({"open_logits"}).needs == {*every, "open_logits"}


def test_a_score_that_cannot_be_loaded_is_left_out_with_the_reason(trained_run, tmp_path):
    run = shutil.copytree(trained_run, tmp_path / "run")
    options = {"score": "cbc", "examples": 0, "method": ""}
    assert load_engine(Wanted(run, scores=("softmax",), **options)).scales[1].name == "softmax"
    store.path_of(run, training.saved_steps(run)[-1], "softmax").write_bytes(b"damaged")
    served = load_engine(Wanted(run, **options))
    assert [scale.name for scale in served.scales] == ["cbc"]
    assert "softmax is not offered: " in served.note and "not a readable fit" in served.note
    with pytest.raises(ValueError, match="not a readable fit"):
        load_engine(Wanted(run, scores=("softmax",), **options))


def test_an_image_on_which_the_network_overflows_is_unknown(
    client, engine, contents, form, monkeypatch
):
    session, path = engine.lasting.network.session, "/api/predict?every_score=1&neighbours=2"
    files = form(contents[:3])  # of one batch
    wanted = client.post(path, files=files).json()["results"][0]
    compute = session.batch

    def overflowing(chips, *, count):
        out = compute(chips, count=count)
        logits, open_logits = out.logits.copy(), out.open_logits.copy()
        more = {name: value.astype(np.float32) for name, value in out.more.items()}
        logits[1:] = open_logits[1:] = more["features"][1:] = np.nan
        return out._replace(logits=logits, open_logits=open_logits, more=more)

    monkeypatch.setattr(session, "batch", overflowing)
    answer = client.post(path, files=files)
    assert answer.status_code == 200, answer.text
    other, *overflown = answer.json()["results"]
    assert other == wanted
    assert len(other["neighbours"]) == 2 and not any(one["neighbours"] for one in overflown)
    for verdict in (verdict for one in overflown for verdict in one["by_score"].values()):
        assert verdict["label"] == "unknown" and verdict["score"] is None
        assert set(verdict["probabilities"].values()) == {None}


@pytest.mark.parametrize("limit", [None, 0.5])
def test_an_image_on_which_an_embedding_overflows_is_unknown(
    retriever_engine, make_console, client_of, contents, form, monkeypatch, limit, tmp_path
):
    retriever, record = retriever_engine._retriever, tmp_path / "record.jsonl"
    compute = retriever.of_chips
    rows = np.array([[1], [np.nan], [1], [np.inf]], np.float32)
    monkeypatch.setattr(retriever, "of_chips", lambda chips: compute(chips) * rows[: len(chips)])
    monkeypatch.setattr(retriever, "max_distance", limit)
    with client_of(make_console(retriever_engine, record=str(record))) as client:
        answer = client.post("/api/predict?neighbours=2", files=form(contents[:4]))
        assert answer.status_code == 200, answer.text
        assert "nan" not in client.get("/metrics").text.lower()
    verdicts = [one["verdict"] for one in answer.json()["results"]]
    assert [one["score"] is None for one in verdicts] == [False, True, False, True]
    assert {one["label"] for one in (verdicts[1], verdicts[3])} == {"unknown"}
    assert [len(one["neighbours"]) for one in answer.json()["results"]] == [2, 0, 2, 0]
    assert [json.loads(line)["score"] for line in record.open()] == [v["score"] for v in verdicts]


def test_the_choice_of_auto_is_offered_once(engine, tmp_path):
    run = shutil.copytree(engine.run, tmp_path / "run")
    store.save_choice(run, engine.step, {"decides": "softmax"})
    found = load_engine(Wanted(run, scores=("auto", "softmax"), examples=0, method=""))
    assert [scale.name for scale in found.scales] == ["softmax", "cbc"]


def test_an_image_can_be_the_body(client, contents, form):
    (wanted,) = client.post("/api/predict", files=form(contents[:1])).json()["results"]
    for kind in ("image/png", "application/octet-stream"):
        answer = client.post("/api/predict", content=contents[0], headers={"content-type": kind})
        assert answer.json()["results"] == [{**wanted, "name": "image"}]


def test_another_score_and_another_threshold_decide(client, contents, trained_run, form):
    (wanted,) = jaxatr.load(trained_run, score="softmax").predict(images_of(contents[:1]))
    path = "/api/predict?score=softmax&every_score=1"
    (result,) = client.post(path, files=form(contents[:1])).json()["results"]
    assert result["verdict"] == result["by_score"]["softmax"]
    assert result["verdict"]["score"] == pytest.approx(wanted.score, rel=1e-4)
    assert result["verdict"]["label"] == wanted.label
    assert set(result["by_score"]) == {"cbc", "softmax"}
    for threshold, label in ((-1e9, wanted.nearest), (1e9, "unknown")):
        path = f"/api/predict?score=softmax&threshold={threshold}"
        (moved,) = client.post(path, files=form(contents[:1])).json()["results"]
        assert moved["verdict"] == {
            **result["verdict"],
            "label": label,
            "threshold": threshold,
            "guarantee": None,
        }


def test_the_nearest_chips_are_those_of_the_features(client, contents, engine, form):
    results = client.post("/api/neighbours?count=4", files=form(contents[:3])).json()["results"]
    chips = np.stack([engine.intake(image) for image in images_of([*contents[:3], contents[0]])])
    features = engine.lasting.network.features(chips)[:3].copy()
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    bank = np.asarray(engine.examples._bank)
    assert len(bank) == 40
    distances = np.linalg.norm(features[:, None] - bank, axis=2)
    for row, result in enumerate(results):
        order = np.argsort(distances[row])[:4]
        assert [near["distance"] for near in result["neighbours"]] == pytest.approx(
            distances[row][order], abs=1e-3
        )
        nearest = result["neighbours"][0]
        if distances[row][order[1]] - distances[row][order[0]] > 1e-3:
            rows = engine.examples._rows
            wanted = engine.examples._part.labels[rows[order[0]]]
            assert nearest["label"] == engine.classes[wanted]
    with_verdict = client.post("/api/predict?neighbours=4", files=form(contents[:3])).json()
    assert [r["neighbours"] for r in with_verdict["results"]] == [r["neighbours"] for r in results]


def test_a_training_chip_finds_itself_and_can_be_seen(client, engine, form):
    part, rows = engine.examples._part, engine.examples._rows
    (chip,) = part.chips(rows[:1])
    file = io.BytesIO()
    Image.fromarray(chip[:, :, 0]).save(file, "PNG")
    (result,) = client.post("/api/neighbours", files=form([file.getvalue()])).json()["results"]
    near = result["neighbours"][0]
    assert near["distance"] < 1e-2
    picture = client.get(f"/api/examples/{near['id']}")
    assert picture.headers["content-type"] == "image/png"
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(picture.content))), chip[..., 0])


def test_a_map_is_the_explainers(client, contents, trained_run):
    wanted = next(jaxatr.Explainer.load(trained_run)(images_of(contents[:1])))
    headers = {"content-type": "image/png"}
    answer = client.post("/api/explain", content=contents[0], headers=headers).json()
    assert (answer["label"], answer["method"]) == (wanted.label, "grad_cam")
    assert [answer["height"], answer["width"]] == list(wanted.saliency.shape)
    np.testing.assert_allclose(answer["saliency"], wanted.saliency, atol=2e-3)


def test_the_surrogate_of_another_network_is_refused(earlier, trained_run):
    own = Wanted(earlier / "open_set", surrogate=str(earlier / "distillation"), examples=0)
    explainer = load_engine(own).explainer
    assert explainer is not None and explainer.method == "surrogate"
    with pytest.raises(ValueError, match=rf"does not explain {trained_run} at step \d+"):
        load_engine(own._replace(workdir=trained_run))


def test_a_search_is_the_retrievers(
    retriever_engine, make_console, contents, embedding_run, client_of, form
):
    wanted = jaxatr.load(embedding_run, neighbours=3).predict(images_of(contents[:5]))
    with client_of(make_console(retriever_engine)) as client:
        path = "/api/predict?neighbours=3"
        results = client.post(path, files=form(contents[:5])).json()["results"]
        number = results[0]["neighbours"][0]["id"]
        assert client.get(f"/api/examples/{number}").headers["content-type"] == "image/png"
        explained = client.post("/api/explain", files=form(contents[:1]))
        assert explained.status_code == 404 and client.get("/api/run").json()["explains"] == ""
    for result, one in zip(results, wanted, strict=True):
        assert result["verdict"]["label"] == one.label
        assert result["verdict"]["score"] == pytest.approx(-one.distance, abs=1e-4)
        assert [near["id"] for near in result["neighbours"]] == [n.id for n in one.neighbours]


def test_an_image_that_cannot_be_used_spoils_no_other(client, contents, form):
    answer = client.post("/api/predict", files=form([contents[0], b"no image", contents[1]]))
    first, broken, last = answer.json()["results"]
    assert answer.status_code == 200 and "verdict" in first and "verdict" in last
    assert broken["name"] == "1.png" and "not a readable image" in broken["error"]
    alone = client.post("/api/predict", files=form([b"no image", b""]))
    assert alone.status_code == 422
    assert alone.json()["detail"].startswith("0.png cannot be used, nor can 1 others: not a read")
    assert len(alone.json()["results"]) == 2


def test_the_wrong_type_is_reported(client, form):
    file = io.BytesIO()
    np.save(file, np.zeros((24, 24), np.float32))
    answer = client.post("/api/predict", files=form([file.getvalue()]))
    assert answer.status_code == 422
    assert "got an image of float32, wanted uint8" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "options", "status", "words"),
    [
        ("/api/predict?score=nonsense", {}, 422, "wanted one of cbc, softmax"),
        ("/api/predict?threshold=nan", {}, 422, "threshold"),
        (f"/api/predict?neighbours={NEAREST + 1}", {}, 422, "neighbours"),
        ("/api/neighbours?count=0", {}, 422, "count"),
        ("/api/predict?treshold=3", {}, 422, "'treshold'; did you mean 'threshold'?"),
        ("/api/neighbours?score=cbc", {}, 422, "no parameter 'score'"),
        ("/api/explain?method=rise", {}, 422, "no parameter 'method'"),
        ("/api/predict", {"data": {"images": "text"}}, 415, "wanted a form"),
        ("/api/predict", {"json": {}}, 415, "application/json"),
        ("/api/predict", {"files": {}}, 415, "no type"),
        ("/api/predict", {"headers": {"Content-Encoding": "gzip"}}, 415, "coding gzip"),
        ("/api/explain", {"files": 2}, 422, "got 2, wanted one"),
    ],
)
def test_a_mistake_is_one_line(client, contents, path, options, status, words, form):
    options = {"files": form(contents[:1]), **options}
    if options["files"] == 2:
        options["files"] = form(contents[:2])
    if options.keys() & {"data", "json"}:
        del options["files"]
    answer = client.post(path, **options)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["detail"] and "\n" not in answer.json()["detail"]


def test_too_many_images_are_refused(engine, make_console, contents, client_of, form):
    with client_of(make_console(engine, limits=Limits(images=2))) as client:
        assert client.post("/api/predict", files=form(contents[:2])).status_code == 200
        answer = client.post("/api/predict", files=form(contents[:3]))
        assert answer.status_code == 400 and "more than 2 parts" in answer.json()["detail"]


def test_nothing_is_compiled_after_the_start(client, contents, form):
    """Requests of every size and kind, sequential and concurrent."""

    def ask(count):
        path = f"/api/predict?neighbours={count % 3}&every_score={count % 2}"
        return client.post(path, files=form(contents[:count])).status_code

    before = metrics.compilations()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, [*range(1, 12), 1, 1, 1, 2, 5])) == {200}
    assert client.post("/api/explain", files=form(contents[:1])).status_code == 200
    assert client.post("/api/neighbours", files=form(contents[:3])).status_code == 200
    assert metrics.compilations() == before


def test_compilations_are_counted(client):
    import jax

    before = metrics.compilations()
    jax.jit(lambda x: x * 3 + 1)(np.arange(7.0))
    assert metrics.compilations() > before


def test_the_run_is_described(client, engine, trained_run):
    found = client.get("/api/run").json()
    assert found["run"] == trained_run.name and found["kind"] == "recogniser"
    assert found["classes"] == list(engine.classes) and found["chip"] == [24, 24, 1]
    assert [score["name"] for score in found["scores"]] == ["cbc", "softmax"]
    assert found["neighbours"] == NEAREST and found["explains"] == "grad_cam"
    assert client.get("/api/health").json() == {
        "status": "ready",
        "waiting": 0,
        "decoding": 0,
        "decoding_seconds": 0.0,
        "runtime": "jax",
    }


def test_the_counts_are_those_of_the_requests(client, contents, form):
    client.post("/api/predict", files=form([*contents[:5], b""]))
    client.get("/nowhere")
    client.get("/api/examples/123456")
    counts = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }
    assert counts["jaxatr_requests_total", "/api/predict", "200"] == 1
    assert counts["jaxatr_requests_total", "other", "404"] == 1
    assert counts["jaxatr_requests_total", "/api/examples/{id}", "404"] == 1
    assert counts["jaxatr_images_total", "answered"] == 5
    assert counts["jaxatr_images_total", "refused"] == 1
    assert counts[("jaxatr_batch_chips_total",)] == 5
    assert counts[("jaxatr_waiting_chips",)] == 0


def test_an_answer_from_before_an_enrolment_is_sent_and_counted(
    engine, make_console, client_of, contents, form, monkeypatch
):
    console, after = make_console(engine), copy.copy(engine)
    after.scales, after.reference = engine.scales[::-1], Reference(dict(engine.reference.values))
    answer = console.batcher.answer

    async def enrolled_meanwhile(*chips, **options):
        found = await answer(*chips, **options)
        console._replace(after)
        return found

    monkeypatch.setattr(console.batcher, "answer", enrolled_meanwhile)
    with client_of(console) as client:
        (result,) = client.post("/api/predict", files=form(contents[:1])).json()["results"]
        (hour,) = client.get("/api/drift").json()["hours"]
        assert client.get("/api/drift").json()["waiting"] == 0  # its score may be another one
        monkeypatch.undo()
        client.post("/api/predict", files=form(contents[:1]))
        assert client.get("/api/drift").json()["waiting"] == 1
    assert result["verdict"]["decides"] == engine.scales[0].name != after.scales[0].name
    assert hour["chips"] == 1


def test_each_full_window_of_chips_is_compared_once(
    engine, make_console, client_of, contents, form, monkeypatch, tmp_path
):
    monkeypatch.setattr(drift, "WINDOW", 25)
    record = tmp_path / "served.jsonl"
    with client_of(make_console(engine, record=str(record))) as client:
        before = client.get("/api/drift").json()
        assert before["windows"] == before["chips"] == 0 and not before["found"]
        client.post("/api/predict?source=gate1", files=form(contents[:20]))
        told = "drift: not compared yet: 20 chips came, and 25 of one source are compared at a time"
        assert client.get("/api/drift").json()["sentence"] == told
        client.post("/api/predict?source=gate1", files=form(contents[20:]))
        client.post("/api/predict?source=gate2", files=form(contents[:2]))
        client.post("/api/predict", files=form([b"no image", contents[0]]))
        assert client.post("/api/predict?source=a%0Ab", files=form(contents[:1])).status_code == 422
        assert client.post("/api/explain?source=a", files=form(contents[:1])).status_code == 422
        now = client.get("/api/drift").json()
        assert now["windows"] == 1 and now["chips"] == 25 and now["waiting"] == 18
        assert now["source"] == "gate1"
        counts = {one["source"]: (one["chips"], one["windows"]) for one in now["hours"]}
        assert counts == {"gate1": (40, 1), "gate2": (2, 0), "unnamed": (1, 0)}
        compared = {one["name"]: one["distance"] for one in now["statistics"]}
        assert [*compared] == list(engine.reference.values) and "brightness" in compared
        assert now["sentence"].startswith("drift: ")
        exposed = [
            sample
            for family in text_string_to_metric_families(client.get("/metrics").text)
            for sample in family.samples
        ]
    samples = {(sample.name, *sample.labels.values()): sample.value for sample in exposed}
    found = "yes" if now["found"] else "no"
    assert samples["jaxatr_drift_windows_total", found, "gate1"] == 1
    for name, distance in compared.items():
        assert samples["jaxatr_drift_distance", "gate1", name] == pytest.approx(distance)
        assert 0 <= samples["jaxatr_drift_p_value", "gate1", name] <= 1
    verdicts = [samples["jaxatr_decided_chips_total", "gate1", one] for one in ("known", "unknown")]
    assert sum(verdicts) == 40 and samples["jaxatr_score_count", "gate2"] == 2
    by_class = [value for name, value in samples.items() if name[0] == "jaxatr_named_chips_total"]
    assert sum(by_class) == 43
    _shown_on_the_board(exposed)
    rows = sighted_tables.read([record], pytest.fail)
    assert rows.texts(rows.source) == ["gate1", "gate2", "unnamed"]
    assert len(rows.time) == 44 and rows.failed.sum() == 1
    assert (rows.label[~rows.failed] == rows.code("unknown")).sum() == (
        samples["jaxatr_named_chips_total", "unknown"]
    )
    assert np.isfinite(rows.facts[~rows.failed]).all()
    assert rows.texts(rows.run) == [training.run_id(engine.run)]


def _shown_on_the_board(exposed):
    """Checks that the metrics exposed have all names, labels and values that the board asks for."""
    board = json.loads((ROOT / "docs/examples/grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [one["definition"] for one in board["templating"]["list"] if "definition" in one]
    selectors = [
        found for query in queries for found in re.findall(r"(jaxatr_\w+)(?:\{(.*?)\})?", query)
    ]
    assert len(queries) == 13 and len(selectors) > 15
    for name, matchers in selectors:
        labels = [sample.labels for sample in exposed if sample.name == name]
        assert labels, name
        for label, is_equal, value in re.findall(r'(\w+)(=|!=|=~)"(.*?)"', matchers):
            if label == "job":  # which Prometheus adds
                continue
            assert all(label in one for one in labels), (name, label)
            if is_equal == "=" and "$" not in value:
                assert any(one[label] == value for one in labels), (name, label, value)
    for query in queries:
        for by in re.findall(r"by \((.*?)\)", query):
            (name, *_) = re.findall(r"jaxatr_\w+", query)
            labels = next(sample.labels for sample in exposed if sample.name == name)
            assert set(by.split(", ")) <= labels.keys(), query


def test_a_record_is_continued_and_another_file_is_not(tmp_path):
    path = tmp_path / "served.jsonl"
    for _ in range(2):
        record = Record(path, "run", "jax")
        record.write([record.row("a\udcff.png", "gate1", None, error="damaged")])
        with path.open("a") as file:
            file.write('{"path": "b')  # killed
    said = []
    rows = sighted_tables.read([path], said.append)
    assert rows.failed.tolist() == [True, True] and "2 of 4 rows left out" in said[0]
    for content in ("other\n", "[1]\n", '{"id": 1}\n'):
        (tmp_path / "marks.jsonl").write_text(content)
        with pytest.raises(ValueError, match="marks.jsonl has other content than predictions"):
            Record(tmp_path / "marks.jsonl", "run", "jax")
        assert (tmp_path / "marks.jsonl").read_text() == content
    with pytest.raises(ValueError, match="wanted a name that ends in .jsonl"):
        Record(tmp_path / "served.csv", "run", "jax")


def test_a_record_goes_on_after_a_full_disk_and_begins_anew_after_it_was_moved(
    tmp_path, monkeypatch
):
    path, old = tmp_path / "served.jsonl", tmp_path / "old.jsonl"
    record = Record(path, "run", "jax")

    def write(name):
        record.write([record.row(name, "gate1", None, error="damaged")])

    class Full(io.FileIO):
        def write(self, content):
            if len(content) <= 40:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(content[:-40])

    write("a.png")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda file, mode, **_: Full(file, mode))
        with pytest.raises(OSError, match="No space"):
            write("lost.png")
    write("b.png")
    path.rename(old)
    write("c.png")
    Record(path, "run", "jax")
    found = [
        [json.loads(line)["path"] for line in file.read_text().splitlines() if line.endswith("}")]
        for file in (old, path)
    ]
    assert found == [["a.png", "b.png"], ["c.png"]]


def test_sources_beyond_the_most_are_counted_together(engine, monkeypatch):
    monkeypatch.setattr(drift, "MOST_SOURCES", 2)
    watched = drift.Drifting(engine.reference, print)
    assert [watched.known(name) for name in ("", "a", "b", "a")] == ["", "a", "others", "a"]


def test_a_record_has_each_prediction_with_its_own_source(
    engine, make_console, client_of, contents, form, monkeypatch, tmp_path
):
    monkeypatch.setattr(drift, "MOST_SOURCES", 1)
    record, broken = tmp_path / "served.jsonl", form([b"no image"])
    with client_of(make_console(engine, record=str(record))) as client:
        for source in ("a", "b", "c"):
            client.post(f"/api/predict?source={source}", files=form(contents[:1]))
        client.post("/api/neighbours?source=c", files=broken)
        for path in ("/api/explain", "/api/explain", "/api/enrol?name=x"):
            assert client.post(path, files=broken).status_code in (404, 422)
        hours = client.get("/api/drift").json()["hours"]
    assert {one["source"]: one["chips"] for one in hours} == {"a": 1, "others": 2}
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(row["source"], row["error"] is None) for row in rows] == [
        ("a", True),
        ("b", True),
        ("c", True),
        ("c", False),
    ]


@pytest.mark.parametrize("path", ["run", "marks", "marks.csv", "drift", "labels"])
def test_an_unknown_parameter_is_refused_everywhere(client, path):
    answer = client.get(f"/api/{path}?strat=1")
    assert answer.status_code == 422 and "no parameter 'strat'" in answer.json()["detail"]
    for page in ("/", "/api/health", "/metrics"):
        assert client.get(f"{page}?strat=1").status_code == 200


def test_the_counts_of_long_ago_are_forgotten(engine, monkeypatch):
    watched, chip = drift.Drifting(engine.reference, print), (np.zeros(6), 0.5, "a", False)
    watched.add(watched.known("one"), [drift.Seen(*chip, engine.reference)])
    now = time.time()
    for hours, count in ((46, 1), (49, 0)):
        monkeypatch.setattr(drift.time, "time", lambda hours=hours: now + 3600 * hours)
        assert len(watched.hours()) == count


@pytest.mark.parametrize("replaced", [False, True])
def test_a_window_is_compared_without_the_lock_unless_its_reference_is_replaced(
    engine, monkeypatch, replaced
):
    compared = []
    watched = drift.Drifting(engine.reference, lambda *found: compared.append(found))

    def slow(watch):
        # A request of another source in the meantime.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert pool.submit(watched.known, "other").result(20) == "other"
        if replaced:
            watched.replace(Reference({}))
        return Drift(len(watch), ())

    monkeypatch.setattr(drift.Watch, "drift", slow)
    source = watched.known("one")
    chip = drift.Seen(np.zeros(6), 0.5, "a", False, engine.reference)
    assert watched.compares(source, drift.WINDOW) and not watched.compares(source, 1)
    watched.add(source, [chip] * (drift.WINDOW + 3))
    assert watched.windows == len(compared) == (0 if replaced else 1)
    assert (watched.last is None) == replaced
    assert watched.waiting == (0 if replaced else 3)


def test_without_training_data_there_are_no_neighbours(
    trained_run, make_console, contents, client_of, form
):
    found = load_engine(Wanted(trained_run, data_dir="/nowhere", source="/nowhere", method=""))
    found.warm((1, 4))
    with client_of(make_console(found)) as client:
        assert client.post("/api/predict", files=form(contents[:1])).status_code == 200
        answer = client.post("/api/neighbours", files=form(contents[:1]))
        assert answer.status_code == 404
        assert "the training data cannot be read" in answer.json()["detail"]
        assert client.post("/api/explain", files=form(contents[:1])).status_code == 404
        assert client.get("/api/examples/0").status_code == 404


def test_features_are_kept_for_the_next_start(trained_run, engine, monkeypatch):
    monkeypatch.setattr("jaxatr.recognition.neighbours._computed", lambda *_: pytest.fail("again"))
    again = load_engine(Wanted(trained_run, examples=40))
    np.testing.assert_array_equal(again.examples._bank, engine.examples._bank)


def test_unsuitable_folders_and_flags_are_named(embedding_run, tmp_path):
    with pytest.raises(ValueError, match="is not a run's folder"):
        load_engine(Wanted(tmp_path))
    with pytest.raises(ValueError, match="--score is for recognisers"):
        load_engine(Wanted(embedding_run, score="cbc"))
    (tmp_path / "record.json").write_text("{}")
    of_detector = configuration.of_task("jaxatr.tasks.detection:Detection")
    (tmp_path / "config.json").write_text(of_detector.to_json())
    with pytest.raises(ValueError, match="a detector is served beside one: --detector=DIR"):
        load_engine(Wanted(tmp_path))
    with pytest.raises(ValueError, match=str(embedding_run)):
        load_detector(Wanted(embedding_run, detector=embedding_run))
    assert load_detector(Wanted(embedding_run)) is None


def test_marks_are_kept_and_forgotten(engine, make_console, tmp_path, client_of):
    mark = {
        "id": "0" * 64,
        "name": "=chip.png",
        "wrong": True,
        "group": "",
        "label": "unknown",
        "nearest": "ring",
        "decides": "cbc",
        "score": 0.25,
        "threshold": None,
    }
    named = dict.fromkeys(("group", "label", "nearest"), "\u0160koda")
    other = {**mark, **named, "id": "1" * 64, "wrong": False}
    with client_of(make_console(engine)) as client:
        assert client.get("/api/marks").json() == {"marks": []}
        given = other | dict.fromkeys(named, " S\u030ckoda")
        answer = client.post("/api/marks", json={"marks": [mark, given]})
        assert answer.json() == {"count": 2}, answer.text
        assert client.post("/api/marks", json={"marks": [mark]}).json() == {"count": 2}
    lines = (tmp_path / "marks.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"][0] for line in lines] == ["0", "1"]
    with client_of(make_console(engine)) as client:  # after another start
        first, second = client.get("/api/marks").json()["marks"]
        assert {name: first[name] for name in mark} == mark
        assert {name: second[name] for name in other} == other
        table = client.get("/api/marks.csv")
        assert table.headers["content-type"].startswith("text/csv")
        head, row, _ = table.text.splitlines()
        assert head.startswith("id,name,wrong,group") and row.split(",")[1] == "'=chip.png"
        path = f"/api/marks?id={mark['id']}&id={'2' * 64}"
        assert client.delete(path).json() == {"count": 1}
        assert client.delete("/api/marks?id=x").status_code == 422
        assert len(client.get("/api/marks").json()["marks"]) == 1
        for spoilt in (
            {"score": "x"},
            {"id": "../../etc/passwd"},
            {"more": 1},
            {"name": "a" * 201},
        ):
            bad = client.post("/api/marks", json={"marks": [{**mark, **spoilt}]})
            assert bad.status_code == 422


def test_marks_that_wait_for_another_console_hold_up_nothing(engine, make_console, client_of):
    console = make_console(engine)
    with client_of(console) as client, concurrent.futures.ThreadPoolExecutor() as pool:
        with console.marks._lock:  # as of a change that waits for another console
            tables = [pool.submit(client.get, path) for path in ("/api/marks", "/api/marks.csv")]
            health = pool.submit(client.get, "/api/health")
            assert health.result(timeout=20).status_code == 200
            assert not any(table.done() for table in tables)
        assert [table.result(timeout=20).status_code for table in tables] == [200, 200]


def test_a_broken_file_of_marks_is_named(engine, make_console, tmp_path):
    (tmp_path / "marks.jsonl").write_text('{"id": "x"}\nno json\n')
    with pytest.raises(ValueError, match=r"marks\.jsonl: line 2 is not a mark"):
        make_console(engine)


def test_marks_that_another_program_broke_are_named(engine, make_console, tmp_path, client_of):
    with client_of(make_console(engine)) as client:
        (tmp_path / "marks.jsonl").write_text("no json\n")
        path = f"/api/marks?id={'0' * 64}"
        for answer in map(client.get, ("/api/marks", "/api/marks.csv")):
            assert answer.status_code == 422
            assert answer.json()["detail"].endswith("marks.jsonl: line 1 is not a mark")
        assert client.delete(path).status_code == 422
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        make_console(engine, marks=str(tmp_path / "nowhere" / "marks.jsonl"))


def test_a_run_is_loaded_once_for_its_answers_and_its_maps(trained_run, embedding_run, monkeypatch):
    loaded, load = [], training.load_run
    monkeypatch.setattr(
        training, "load_run", lambda *arguments: loaded.append(load(*arguments)) or loaded[-1]
    )
    step = training.saved_steps(trained_run)[0]  # not the newest
    served = load_engine(Wanted(trained_run, checkpoint=step, score="cbc", examples=0))
    assert [run.step for run in loaded] == [step] == [served.step]
    assert served.explainer.source["step"] == step
    loaded.clear()
    served = load_engine(Wanted(embedding_run, examples=0))
    assert len(loaded) == 1 and served.step == loaded[0].step
