"""Chips to label and labels to check in the console, without a browser and in one."""

import csv
import shutil

import numpy as np
import pytest
from PIL import Image

from jaxatr import data, files, training
from jaxatr.serving import labelling

HEADER = "path,rank,why,label\n"
DOUBTS = "path,label,likely,given_probability,likely_probability\n"


@pytest.fixture
def table(chips, tmp_path):
    """A table like that of ``jaxatr suggest``: four chips, a broken file and one that is gone."""
    root = tmp_path / "pool é, \u65e5\u672c"
    root.mkdir()
    some = sorted((chips / "test").rglob("*.png"))[:4]
    for number, path in enumerate(some):
        shutil.copyfile(path, root / f"=chip {number}.png")
    (root / "broken.png").write_bytes(b"no image")
    names = [*(f"=chip {n}.png" for n in range(4)), "broken.png", "gone.png"]
    rows = [
        {"path": f"{root.name}/{name}", "rank": n, "why": "uncertain", "label": "disc"}
        for n, name in enumerate(names, 1)
    ]
    data.write_table(tmp_path / "next.csv", rows, text=("path", "why"))
    return tmp_path / "next.csv"


@pytest.fixture
def doubts(trained_run, tmp_path):
    """A table like that of ``jaxatr check --suspects``, of the run's own images."""
    fields = training.load_config(trained_run).data
    split = next(iter(labelling.uncorrected(fields).splits.values()))
    paths = split.columns["path"].tolist()[:3]
    rows = [
        {
            "path": str(path),
            "label": ("ring", "disc", "cross")[number],
            "likely": "disc",
            "given_probability": 0.1,
            "likely_probability": 0.8,
        }
        for number, path in enumerate(paths)
    ]
    data.write_table(tmp_path / "suspects.csv", rows, text=("path", "label", "likely"))
    return tmp_path / "suspects.csv"


def test_a_suggested_path_in_the_other_form_of_unicode(tmp_path):
    (tmp_path / "\u0160koda.png").touch()
    row = {"path": "S\u030ckoda.png", "why": "", "label": ""}
    found = labelling._suggestion(row, tmp_path)
    assert found.path == str(tmp_path / "\u0160koda.png")


def saved(path):
    with path.open(newline="") as file:
        return {row["path"]: row["label"] for row in csv.DictReader(file)}


def test_suggested_chips_are_labelled(engine, make_console, client_of, table, monkeypatch):
    with client_of(make_console(engine, label=str(table))) as client:
        found = client.get("/api/labels").json()
        assert [chip["name"][-7:-4] for chip in found["chips"]] == ["p 0", "p 1", "p 2", "p 3"]
        assert [one["name"].rpartition("/")[2] for one in found["left_out"]] == [
            *("broken.png", "gone.png"),
        ]
        assert found["total"] == 6 and found["given"] == [""] * 4
        assert found["classes"] == list(engine.classes)
        assert found["sprite"]["source"].startswith("data:image/jpeg")
        first, second, *_ = (chip["file"] for chip in found["chips"])
        for path, label, count in (
            *((first, " S\u030ckoda", 1), (second, "unknown", 2)),
            *((second, "disc", 2), (second, None, 1), (second, "unknown", 2)),
        ):
            answer = client.post("/api/labels", json={"path": path, "label": label})
            assert answer.json() == {"count": count}
        own = table.with_name("next-labels.csv")
        assert saved(own) == {first: "\u0160koda", second: "unknown"}
        assert client.get("/api/labels.csv").content == own.read_bytes()
        after = client.get("/api/labels?start=1").json()
        assert after["given"][:2] == ["\u0160koda", "unknown"] and after["labelled"] == 2
        assert after["classes"] == [*engine.classes, "\u0160koda"]
        refused = (
            ({"path": "/etc/passwd", "label": "disc"}, "wanted a path of next.csv"),
            ({"path": first, "label": " "}, "wanted the name of a class"),
            ({"path": first}, "label: Field required"),
        )
        for body, message in refused:
            answer = client.post("/api/labels", json=body)
            assert answer.status_code == 422 and message in answer.json()["detail"]
        assert client.get("/api/labels?start=7").json()["detail"].endswith("wanted at most 6")
        foreign = {"sec-fetch-site": "cross-site"}
        body = {"path": first, "label": "disc"}
        assert client.post("/api/labels", json=body, headers=foreign).status_code == 403
        assert saved(own)[first] == "\u0160koda"
        monkeypatch.setattr("jaxatr.serving.kept_rows._LOCK_SECONDS", 0.0)
        with files.locked(own.with_name(f".{own.name}.lock")):
            answer = client.post("/api/labels", json=body)
        assert answer.status_code == 503 and "held by another process" in answer.json()["detail"]


def test_doubtful_labels_are_corrected(engine, make_console, client_of, doubts, trained_run):
    fields = training.load_config(trained_run).data
    before = labelling.uncorrected(fields)
    with client_of(make_console(engine, label=str(doubts))) as client:
        found = client.get("/api/labels").json()
        assert found["classes"] == ["cross", "disc", "ring", "square"]  # of no row: it may be cut
        assert found["chips"][0]["why"] == "likely disc (80%); the label has 10%"
        first, second, _ = (chip["file"] for chip in found["chips"])
        for path, label in ((first, "disc"), (second, "")):
            assert client.post("/api/labels", json={"path": path, "label": label}).is_success
        answer = client.post("/api/labels", json={"path": first, "label": "tank"})
        assert "wanted one of cross, disc, ring, square, or none" in answer.json()["detail"]
        assert client.get("/api/labels").json()["given"] == ["disc", " ", ""]
    after = data.corrected(before, doubts.with_name("suspects-labels.csv"))
    counts = [sum(len(one) for one in given.splits.values()) for given in (before, after)]
    assert counts[1] == counts[0] - 1


def test_a_token_is_needed_but_for_the_empty_page(engine, make_console, client_of, table):
    console = make_console(engine, label=str(table), token="a-token-of-sixteen")
    with client_of(console) as client:
        page = client.get("/label")
        assert page.status_code == 200 and "next.csv" not in page.text
        assert "connect-src 'self'" in page.headers["content-security-policy"]
        assert client.get("/api/labels").status_code == 401
        assert client.post("/api/labels", json={"path": "a", "label": "b"}).status_code == 401
    with client_of(make_console(engine)) as client:
        for path in ("/label", "/api/labels", "/api/labels.csv"):
            assert "--label=TABLE" in client.get(path).json()["detail"]


def test_a_long_table_is_shown_in_parts_from_the_first_open_chip(
    engine, make_console, client_of, tmp_path
):
    Image.fromarray(np.zeros((24, 24), np.uint8)).save(tmp_path / "0.png")
    for number in range(1, 210):
        (tmp_path / f"{number}.png").hardlink_to(tmp_path / "0.png")
    names = [f"{number}.png" for number in range(10_000)]
    text = "".join(f"{name},{n},why,disc\n" for n, name in enumerate(names))
    (tmp_path / "next.csv").write_text(HEADER + text)
    given = "".join(f"{(tmp_path / name).absolute()},disc\n" for name in names[:150])
    (tmp_path / "mine.csv").write_text("path,label\n" + given)
    console = make_console(
        engine, label=str(tmp_path / "next.csv"), labels=str(tmp_path / "mine.csv")
    )
    with client_of(console) as client:
        found = client.get("/api/labels").json()
        assert (found["start"], found["each"], found["total"]) == (101, 100, 10_000)
        assert found["given"] == ["disc"] * 50 + [""] * 50 and found["labelled"] == 150
        assert len(client.get("/api/labels?start=201").json()["chips"]) == 10


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", "{}", "wanted a table, ending in .csv or .parquet"),
        ("t.csv", "", "got the columns none, wanted a table of jaxatr suggest"),
        ("t.csv", "path,label\na,b\n", "got the columns path, label, wanted a table of jaxatr"),
        ("t.csv", HEADER + "a.png,1,why,disc\n", "there is no file a.png, nor any other"),
        ("t.csv", DOUBTS + "a.png,disc,ring,0.1,0.9\n", "the run's data, has no a.png"),
        ("t.csv", DOUBTS + "a.png,disc,ring,low,0.9\n", "line 2: could not convert"),
        ("t.csv", HEADER + "a.png\n", "line 2 has no rank"),
        ("t.csv", b"\xff", "not UTF-8"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(engine, tmp_path, name, content, message):
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        labelling.Desk(engine, tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("next.csv", None, "wanted another file"),
        ("labels.txt", "", "wanted another file"),
        ("labels.csv", "file,label\na,b\n", "line 2 has no path"),
        ("labels.csv", "path,label\na,b\na,c\n", "line 3: a has a label already"),
    ],
)
def test_a_file_of_labels_that_is_none_is_refused(engine, table, name, content, message):
    own = table.with_name(name)
    if content is not None:
        own.write_text(content)
    with pytest.raises(ValueError, match=message):
        labelling.Desk(engine, table, own)


@pytest.mark.slow  # a browser
def test_chips_are_labelled_with_keys(engine, make_console, listening, browser, table):
    console = make_console(engine, label=str(table), token="a-token-of-sixteen")
    own, told = table.with_name("next-labels.csv"), []
    with listening(console) as port:
        page = browser.new_page()
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.goto(f"http://127.0.0.1:{port}/label")
        page.fill("#token", "a-token-of-sixteen")
        page.keyboard.press("Enter")
        page.locator("#part", has_text="Chips 1 to 6 of 6").wait_for()
        assert "broken.png" in page.locator("#problem").inner_text()
        for key in ("1", "u", "n"):
            page.keyboard.press(key)
        page.fill("#name", "<b>halo")
        page.keyboard.press("Enter")
        page.locator("#done", has_text="3 of 6 labelled, saved").wait_for()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Backspace")
        page.locator("#done", has_text="2 of 6 labelled, saved").wait_for()
        assert [*saved(own).values()] == [engine.classes[0], "unknown"]
        page.reload()
        page.locator("#done", has_text="2 of 6 labelled, saved").wait_for()
        assert page.locator("#sheet .label").all_inner_texts()[:3] == [
            *(engine.classes[0], "unknown", "–"),
        ]
        own.write_text("path,label\na,b\na,c\n")  # by another program
        page.keyboard.press("2")
        page.locator("#problem", has_text="is not saved").wait_for()
        page.locator("#said", has_text="Your label").wait_for(state="hidden")
        assert page.locator("#sheet .label").all_inner_texts()[2] == "–"
        page.close()
    # The token is asked for once, by an answer of 401.
    assert all("401" in text or "422" in text for text in told), told
