"""A class is enrolled while requests are answered."""

import copy
import os
import shutil
import time

import numpy as np
import pytest

import jaxatr
from jaxatr import data, files, runs, training
from jaxatr.serving import enrolment, metrics
from jaxatr.serving.console import Console
from jaxatr.serving.enrolment import Enroller
from jaxatr.serving.intake import Read
from jaxatr.serving.options import Options
from jaxatr.serving.served_run import Wanted, load_engine

SIZES = (1, 4)


@pytest.fixture(scope="module")
def run(trained_run, tmp_path_factory):
    copy = tmp_path_factory.mktemp("enrolled") / "run"
    shutil.copytree(trained_run, copy)
    return copy


@pytest.fixture(scope="module")
def console(run):
    wanted = Wanted(run, scores=("nearest",), method="", examples=0)
    engine = load_engine(wanted)
    engine.warm(SIZES)
    return Console(engine, Options(batches=SIZES), wanted)


@pytest.fixture(scope="module")
def client(console, client_of):
    with client_of(console) as client:
        yield client


@pytest.fixture(scope="module")
def new(run, chips):
    """Chips of the class that the run does not know."""
    (name,) = training.read_record(run)["split"]["unknown"]
    return name, [path.read_bytes() for path in sorted((chips / "test" / name).iterdir())]


def ended(client):
    end = time.monotonic() + 120
    while (state := client.get("/api/enrol").json())["state"] == "busy":
        assert time.monotonic() < end
        time.sleep(0.05)
    return state


def labels_of(client, contents, form):
    answer = client.post("/api/predict?score=nearest", files=form(contents))
    assert answer.status_code == 200, answer.text
    return [(r["verdict"]["label"], r["verdict"]["nearest"]) for r in answer.json()["results"]]


def wanted_of(run, contents):
    images = [data.decoder.decode(content, "chip", most=10**6) for content in contents]
    return [(one.label, one.nearest) for one in jaxatr.load(run, score="nearest").predict(images)]


def test_refused_enrolments_name_the_reason(client, run, new, form):
    _, contents = new
    for query, sent, words in (
        ("name=unknown", contents[:2], "wanted the name of a class"),
        ("name=%20", contents[:2], "name"),
        ("name=a%0Ab", contents[:2], "wanted the name of a class"),
        ("name=a&score=cbc", contents[:2], "score: got 'cbc', wanted one of auto, "),
        ("name=a", contents[:2], "score: cbc decides, but cannot take new classes; wanted one of "),
        ("name=a&scor=auto", contents[:2], "no parameter 'scor'; did you mean 'score'?"),
        ("name=a&score=auto", [contents[0], b"no image"], "1.png cannot be used: not a"),
        ("", contents[:1], "name"),
    ):
        answer = client.post(f"/api/enrol?{query}", files=form(sent))
        assert answer.status_code == 422 and words in answer.json()["detail"], answer.text
    assert client.get("/api/enrol").json()["state"] == "idle"
    assert not (run / "enrolled.json").exists()


def test_an_upload_that_is_enrolled_as_another_class_is_named(client, run, new, form, tmp_path):
    name, contents = new
    (tmp_path / "chip.png").write_bytes(contents[1])
    runs.enrol_run(run, tmp_path / "chip.png", name="other", score="nearest")
    query = f"name={name}&score=nearest"
    assert client.post(f"/api/enrol?{query}", files=form(contents[:2])).status_code == 202
    state = ended(client)
    runs.remove_class(run, "other")
    assert state["state"] == "failed" and state["detail"] == "1.png: already enrolled as other"


def test_a_class_is_enrolled_and_no_answer_is_wrong(client, console, run, new, form, contents):
    name, own = new
    asked, lasting = [own[0], *own[5:7], contents[0]], console.engine.lasting
    before = wanted_of(run, asked)
    assert labels_of(client, asked, form) == before
    begun = client.post(f"/api/enrol?name={name}&score=nearest", files=form(own[:5]))
    assert begun.status_code == 202 and begun.json()["state"] == "busy"
    again = client.post(f"/api/enrol?name={name}&score=nearest", files=form(own[:5]))
    assert again.status_code == 409 and "is being enrolled" in again.json()["detail"]
    meanwhile = []
    while client.get("/api/enrol").json()["state"] == "busy":
        meanwhile.append(labels_of(client, asked, form))
    state = ended(client)
    assert state["state"] == "done", state
    assert state["detail"] == "5 chips added; nearest decides"
    after = wanted_of(run, asked)
    assert before[0][1] != name and after[0][1] == name
    assert labels_of(client, asked, form) == after
    assert meanwhile and all(found in (before, after) for found in meanwhile)
    first = meanwhile.index(after) if after in meanwhile else len(meanwhile)
    assert meanwhile[first:] == [after] * (len(meanwhile) - first)
    described = client.get("/api/run").json()
    assert name in described["classes"] and described["scores"][0]["name"] == "nearest"
    compiled = metrics.compilations()
    for count in (1, 2, 3, 4):
        labels_of(client, asked[:count], form)
    assert metrics.compilations() == compiled
    assert console.engine.lasting.network is lasting.network
    again = client.post("/api/enrol?name=second&score=nearest", files=form(own[7:10]))
    assert again.status_code == 202 and ended(client)["state"] == "done"
    assert labels_of(client, own[7:8], form) == wanted_of(run, own[7:8])
    assert runs.remove_class(run, "second") == 3
    # The program that searches for the nearest of up to eight added chips, for batches of 1 and 4.
    assert metrics.compilations() - compiled <= 6


def test_an_enrolment_waits_for_a_lock_only_until_it_is_stopped(console, run, new, form):
    enroller = Enroller(console.engine, Wanted(run, score="nearest"), SIZES, lambda engine: None)
    read = [Read("a.png", "", np.zeros(console.engine.intake.shape, np.uint8))]
    before = (run / "enrolled.json").read_text()
    with files.locked(run / ".enrolled.json.lock"):
        enroller.start("late", None, read)
        start = time.monotonic()
        assert enroller.finish(20.0) and time.monotonic() - start < 10
    assert enroller.state["state"] == "failed" and "another process" in enroller.state["detail"]
    assert (run / "enrolled.json").read_text() == before


def test_no_class_is_enrolled_in_another_folder_of_that_name(console, run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    engine = copy.copy(console.engine)
    engine.run = tmp_path / "run"
    enroller = Enroller(engine, Wanted(tmp_path / "run"), SIZES, lambda engine: None)
    os.rename(tmp_path / "run", tmp_path / "moved")
    shutil.copytree(run, tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="is no longer the folder"):
        enroller.start("late", "nearest", [Read("a.png", "", engine.blank)])
    assert enroller.finish() and enroller.state["state"] == "idle"


@pytest.mark.slow
def test_a_given_threshold_is_kept(trained_run, new, form, contents, client_of, tmp_path):
    shutil.copytree(trained_run, tmp_path / "run")
    for number, content in enumerate(new[1][:3]):
        (tmp_path / "chips").mkdir(exist_ok=True)
        (tmp_path / "chips" / f"{number}.png").write_bytes(content)
    runs.enrol_run(tmp_path / "run", tmp_path / "chips", name=new[0], score="nearest")
    wanted = Wanted(tmp_path / "run", gamma=-0.75, method="", examples=0)
    engine = load_engine(wanted)
    engine.warm(SIZES)
    console = Console(engine, Options(batches=SIZES), wanted)
    assert engine.scales[0].name == "nearest" and engine.scales[0].threshold == -0.75
    with client_of(console) as client:
        assert client.post("/api/enrol?name=x", files=form(new[1][5:8])).status_code == 202
        assert ended(client)["state"] == "done"
        (scale, *_) = client.get("/api/run").json()["scores"]
        assert "x" in client.get("/api/run").json()["classes"]
        assert (scale["name"], scale["threshold"]) == ("nearest", -0.75)


@pytest.mark.parametrize("deciding", [True, False])
def test_a_score_of_ones_own_takes_a_class(trained_run, new, tmp_path, monkeypatch, deciding):
    (tmp_path / "served_taker.py").write_text(
        "from jaxatr import openset\n"
        "nearest = openset.SCORES['nearest']\n"
        "PART = openset.Score('taker', 'taker', nearest.score, nearest.fit, ('features',),\n"
        "                     comparing=nearest.comparing, model=nearest.model)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    jaxatr.trust("served_taker")
    run, path = shutil.copytree(trained_run, tmp_path / "run"), "served_taker:PART"
    named = {"score": path, "gamma": -0.75} if deciding else {"score": "cbc", "scores": (path,)}
    wanted, found = Wanted(run, method="", examples=0, **named), []
    enroller = Enroller(load_engine(wanted), wanted, (), found.append)
    images = [data.decoder.decode(one, "chip", most=10**6) for one in new[1][:3]]
    read = [Read("a.png", "", enroller._engine.intake(one)) for one in images]
    enroller.check(new[0], None if deciding else "taker")
    enroller.start(new[0], "taker", read)
    assert enroller.finish() and enroller.state["state"] == "done", enroller.state
    (engine,) = found
    assert engine.classes[-1] == new[0] and "taker" in engine.takers
    assert engine.scales[0].name == "taker"
    assert (engine.scales[0].threshold == -0.75) == deciding  # given, in the score's unit


def test_a_class_that_is_saved_but_cannot_be_served_is_reported(
    console, run, new, form, client, monkeypatch
):
    def full(wanted, before):
        raise MemoryError("out of memory")

    monkeypatch.setattr("jaxatr.serving.enrolment.load_engine", full)
    engine = console.engine
    query = "/api/enrol?name=late&score=nearest"
    assert client.post(query, files=form(new[1][5:8])).status_code == 202
    state = ended(client)
    assert runs.remove_class(run, "late") == 3
    assert state["state"] == "failed" and console.engine is engine
    assert state["detail"].startswith("the run has the chips now, but cannot be loaded with them (")


def test_a_search_enrols_nothing(retriever_engine, make_console, client_of, form, new):
    with client_of(make_console(retriever_engine)) as client:
        assert client.get("/api/run").json()["enrols"] == []
        assert client.get("/api/enrol").json()["state"] == "idle"
        answer = client.post("/api/enrol?name=a", files=form(new[1][:1]))
        assert answer.status_code == 404


def test_an_enrolment_imports_nothing_while_requests_are_answered(run, console, monkeypatch):
    imported = []
    monkeypatch.setattr(enrolment, "tfds", lambda: imported.append("tfds"))
    Enroller(console.engine, Wanted(run), SIZES, print)
    assert imported == ["tfds"]
