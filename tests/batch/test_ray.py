"""A local Ray cluster: workers and the driver are killed, and no chip is lost."""

import os
import re
import signal
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest

from jaxatr import batch
from jaxatr.data.sources import simulated_clutter

pytest.importorskip("pyarrow")
pytest.importorskip("ray", reason="the extra ray is not installed")

pytestmark = pytest.mark.slow


@pytest.fixture
def given(trained_run, test_chips, tmp_path):
    """One chip per shard, so that there is time to kill workers in between."""
    common = [f"--workdir={trained_run}", "--shard=1", f"--out={tmp_path / 'out'}"]
    return [*common, "--engine=ray", "--workers=2", test_chips]


def parts(out):
    return sorted(path.name for path in out.glob("part-*.parquet"))


def wait_for_parts(process, out, count):
    deadline = time.monotonic() + 240
    while len(parts(out)) < count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert process.poll() is None, process.communicate()[1]


def descendants(process):
    """Lists the ids of the descendants of a process."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found = {process.pid}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process.pid}


def workers_of(process):
    """Lists the actors with a model, as Ray names their processes."""
    found = []
    for pid in descendants(process):
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
        except OSError:
            continue
        if re.match(r"ray::Worker", title):
            found.append(pid)
    return found


def check_rows(rows, out, test_chips):
    found = [row["path"] for row in rows(out)]
    assert found == sorted(map(str, test_chips.rglob("*.png")))
    assert all(row["error"] is None and row["label"] for row in rows(out))


def test_a_worker_that_is_killed_costs_no_chip(start, given, rows, test_chips, tmp_path):
    out = tmp_path / "out"
    process = start(*given)
    wait_for_parts(process, out, 3)
    actors = workers_of(process)
    assert actors
    os.kill(actors[0], signal.SIGKILL)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert re.search(r"a worker died at shard \d+; another one takes it", said)
    assert "40 predicted, 0 failed, in 40 parts" in said
    check_rows(rows, out, test_chips)


def test_a_killed_driver_continues(start, given, rows, test_chips, tmp_path):
    out = tmp_path / "out"
    process = start(*given)
    wait_for_parts(process, out, 3)
    actors = workers_of(process)
    assert actors
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in actors) and time.monotonic() < deadline:
        time.sleep(0.1)
    there = parts(out)
    assert 3 <= len(there) < 40
    again = start(*given)
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert f"in 40 parts, {len(there)} of them already there" in said
    check_rows(rows, out, test_chips)


def test_both_engines_and_a_gallery_in_pieces_write_the_same(
    predict, trained_run, rows, tmp_path, monkeypatch
):
    import ray

    monkeypatch.setattr(ray, "init", _with_cpus(ray.init))
    options = {"score": "nndr_features"}
    predict(options=options)
    totals = predict(
        out=tmp_path / "pieces", engine="ray", workers=1, gallery_workers=2, options=options
    )
    assert totals == (40, 0, 6, 0)
    assert not ray.is_initialized()
    for one, other in zip(rows(tmp_path / "out"), rows(tmp_path / "pieces"), strict=True):
        assert one["label"] == other["label"] and one["path"] == other["path"]
        assert other["score"] == pytest.approx(one["score"], rel=1e-5)


def test_damaged_inputs_cost_a_row_each(predict, damaged_chips, rows, tmp_path, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "init", _with_cpus(ray.init))
    path = tmp_path / "chips.tar"
    with tarfile.open(path, "w") as packed:
        for number in range(3):
            packed.add(damaged_chips / "a.png", f"{number}.png")
    with tarfile.open(path) as packed:
        end = packed.getmember("2.png").offset_data + 9
    path.write_bytes(path.read_bytes()[:end])
    (tmp_path / "chips.csv").write_text(f"path\n{damaged_chips}/c.png\nnone.png\n")
    inputs = [path, tmp_path / "chips.csv", damaged_chips]
    totals = predict(*inputs, engine="ray", workers=2, size=2)
    assert totals == (5, 4, 5, 0)
    found = rows(tmp_path / "out")
    cut = "not a readable archive (unexpected end of data)"
    assert [(row["path"].removeprefix(f"{tmp_path}/"), row["error"]) for row in found[:6]] == [
        ("chips.tar/0.png", None),
        ("chips.tar/1.png", None),
        ("chips.tar/2.png", cut),
        ("chips.tar", cut),
        ("damaged/c.png", None),
        ("none.png", "No such file or directory"),
    ]
    (tmp_path / "out" / "part-00001.parquet").unlink()
    assert predict(*inputs, engine="ray", workers=2, size=2) == (5, 4, 5, 4)
    assert rows(tmp_path / "out") == found


def test_workers_share_a_scene(detector, rows, tmp_path, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "init", _with_cpus(ray.init))
    options = {"size": 300, "targets": (30, 30), "sides": (6, 7), "contrast": 15.0}
    scene = simulated_clutter.scene("test", 0, **options)["image"]
    np.save(tmp_path / "scene.npy", scene)
    asked = [str(detector)], [str(tmp_path / "scene.npy")]
    for engine, more in (("local", {}), ("ray", {"workers": 2})):
        found = batch.predict_parts(
            tmp_path / engine,
            *asked,
            engine=engine,
            size=1,
            search=batch.Search([], {}, strips=3),
            say=lambda line: None,
            **more,
        )
        assert found == (3, 0, 3, 0)
    of_both = [
        [{name: cell for name, cell in row.items() if name != "time"} for row in rows(tmp_path / n)]
        for n in ("local", "ray")
    ]
    assert of_both[0] == of_both[1] and len(of_both[0]) > 15


def test_an_error_of_a_worker_is_the_users(predict, test_chips, tmp_path, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "init", _with_cpus(ray.init))
    with pytest.raises(ValueError, match="cbc has no gallery to split"):
        predict(engine="ray", gallery_workers=1, options={"score": "cbc"})
    with pytest.raises(ValueError, match="--workers: got 9, but the cluster has 4 CPU"):
        predict(engine="ray", workers=9)


def _with_cpus(init):
    return lambda **options: init(num_cpus=4, **options)
