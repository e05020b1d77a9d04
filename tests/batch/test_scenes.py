"""A detector searches scenes in parts: every scene exactly once, and a row for each target."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import jaxatr
from jaxatr import batch
from jaxatr.batch import worker
from jaxatr.cli import detect
from jaxatr.data.sources import simulated_clutter
from jaxatr.tasks.detection.predictor import Detector

pytest.importorskip("pyarrow")


@pytest.fixture
def scenes(tmp_path):
    """A folder of five scenes: with 0, 1, 2 and 3 targets, and a damaged one."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(4):
        options = {"size": 90, "targets": (number, number), "sides": (6, 7), "contrast": 15.0}
        np.save(
            folder / f"{number}.npy", simulated_clutter.scene("test", number, **options)["image"]
        )
    (folder / "2b.npy").write_bytes((folder / "2.npy").read_bytes()[:90])
    return folder


@pytest.fixture
def search(detector, scenes, tmp_path):
    """Searches into ``tmp_path / "out"``; returns the totals."""

    def search(recognisers=(), **options):
        given = {"engine": "local", "size": 2, "say": lambda line: None} | options
        given = {"search": batch.Search([str(one) for one in recognisers], {})} | given
        return batch.predict_parts(tmp_path / "out", [str(detector)], [str(scenes)], **given)

    return search


def test_every_scene_is_searched_once_and_a_second_start_continues(
    search, scenes, detector, rows, tmp_path
):
    out = tmp_path / "out"
    assert search() == (4, 1, 3, 0)
    found = rows(out)
    names = [row["path"].rpartition("/")[2] for row in found]
    assert names == ["1.npy", "2.npy", "2.npy", "2b.npy", "3.npy", "3.npy", "3.npy"]
    loaded = jaxatr.load(detector)
    for row, name in zip(found, names, strict=True):
        if name == "2b.npy":
            assert row["error"] and row["x0"] is None
            continue
        place = names[: names.index(name)].count(name) + found.index(row) - names.index(name)
        wanted = loaded.detect(scenes / name).rows()[place]
        assert row["error"] is None and row["label"] == "unknown"
        assert {n: row[n] for n in wanted} == pytest.approx(wanted, nan_ok=True)
    before = {path.name: path.read_bytes() for path in out.glob("part-*")}
    (out / "part-00001.parquet").unlink()
    assert search() == (4, 1, 3, 2)
    assert {path.name: path.read_bytes() for path in out.glob("part-*")} == before
    with pytest.raises(ValueError, match="of another run or with other options"):
        search(options={"threshold": 0.5})


@pytest.mark.parametrize("size", [1, 3])
def test_strips_of_a_large_scene_have_each_target_once(search, detector, rows, tmp_path, size):
    folder = tmp_path / "in"
    options = {"size": 400, "targets": (40, 40), "sides": (6, 7), "contrast": 15.0}
    made = simulated_clutter.scene("test", 0, **options)
    # Two rows of tiles, 48 to 112 and 96 to 160, see a part each; the strips are divided at 104.
    made["image"][92:116, 40:42] = 100 * made["image"].mean()
    for path in folder.iterdir():
        path.unlink()
    np.save(folder / "large.npy", made["image"][:, :150])
    np.save(folder / "small.npy", made["image"][:50, :50])  # one tile, so most strips are empty
    said = []
    totals = search(search=batch.Search([], {}, strips=4), size=size, say=said.append)
    assert totals == (8, 0, -(-8 // size), 0)
    loaded = jaxatr.load(detector)
    wanted = [
        (n, row) for n in ("large", "small") for row in loaded.detect(folder / f"{n}.npy").rows()
    ]
    assert len(wanted) > 15 and any(row["y0"] < 95 and row["y1"] > 113 for _, row in wanted)
    found = [(Path(row["path"]).stem, row) for row in rows(tmp_path / "out")]

    def order(one):
        return one[0], one[1]["y0"], one[1]["x0"]

    for (name, row), (other, own) in zip(
        sorted(found, key=order), sorted(wanted, key=order), strict=True
    ):
        assert name == other and {n: row[n] for n in own} == pytest.approx(own, nan_ok=True)
    with pytest.raises(ValueError, match="made with --strips 4, got 2"):
        search(search=batch.Search([], {}, strips=2), size=size)


def test_a_recogniser_decides_about_each_target(search, earlier, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "_memory", lambda: None)
    run = earlier / "open_set"
    with pytest.raises(ValueError, match="wanted the run of a detector"):
        batch.predict_parts(
            tmp_path / "wrong",
            [str(run)],
            [str(tmp_path / "in")],
            engine="local",
            size=2,
            search=batch.Search([], {}),
        )
    search([run])
    found = [row for row in rows(tmp_path / "out") if not row["path"].endswith("2b.npy")]
    # Chips of the recogniser are uint8, and these scenes are not: a line for each target.
    assert len(found) == 6 and all("float32" in row["error"] for row in found)


def test_the_command_takes_an_engine(detector, scenes, flags_of, rows, tmp_path, capsys):
    out = tmp_path / "out"
    given = (f"--workdir={detector}", f"--out={out}", "--shard=3", scenes)
    assert detect.main(flags_of(detect, "--engine=local", *given)) == 0
    assert "4 searched, 1 failed, in 2 parts" in capsys.readouterr().err
    assert len(rows(out)) == 7
    for flag, message in (
        ("--tracks", "--tracks cannot be combined with --engine"),
        ("--json", "--json cannot be combined with --engine"),
    ):
        with pytest.raises(ValueError, match=message):
            detect.main(flags_of(detect, "--engine=local", flag, *given))
    with pytest.raises(ValueError, match="--shard needs --engine"):
        detect.main(flags_of(detect, *given))


def test_gamma_without_a_recogniser_is_that_of_the_detector(flags_of, tmp_path, monkeypatch):
    given = {}

    def load(workdir, **options):
        del workdir
        given.update(options)
        raise ValueError("loaded")

    monkeypatch.setattr(Detector, "load", load)
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / "a.png")
    scene = str(tmp_path / "a.png")
    with pytest.raises(ValueError, match="loaded"):
        detect.main(flags_of(detect, "--workdir=d", "--gamma=0.7", scene))
    assert given["gamma"] == 0.7
    with pytest.raises(ValueError, match="--gamma: got 'high', wanted a probability"):
        detect.main(flags_of(detect, "--workdir=d", "--gamma=high", scene))
