"""Parts are written atomically, and the command resumes: each chip is predicted exactly once."""

import csv
import errno
import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import jaxatr
from jaxatr import data, files
from jaxatr.batch import manifest, parts, worker
from jaxatr.batch.sources import sources_of
from jaxatr.cli import predict as command
from jaxatr.tasks.embedding.predictor import Retriever

pytest.importorskip("pyarrow")


ORIGIN = ["time", "source", "run"]


def contents(out):
    return {path.name: path.read_bytes() for path in out.glob("part-*.parquet")}


def states(out):
    return {path.name: path.stat().st_mtime_ns for path in out.glob("part-*.parquet")}


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "tar.gz", "parquet", "paths", "csv"])
def test_every_chip_has_the_row_that_the_command_gives_it(
    every_kind, trained_run, test_chips, predict, rows, tmp_path, kind
):
    totals = predict(every_kind[kind])
    assert totals == (40, 0, 6 if kind != "parquet" else 6, 0)
    found = rows(tmp_path / "out")
    assert len(found) == len({row["path"] for row in found}) == 40
    paths = sorted(test_chips.rglob("*.png"))
    recogniser = jaxatr.load(trained_run)
    wanted = recogniser([data.read_image(path) for path in paths])
    for row, one in zip(found, wanted, strict=True):
        assert row["label"] == one.label and row["error"] is None
        assert row["score"] == pytest.approx(one.score, rel=1e-4)
        prediction, (_, source, _, *facts) = list(row)[2:-9], list(row.values())[-9:]
        assert prediction == list(recogniser.to_row(one)) and list(row)[-9:-6] == ORIGIN
        assert source == every_kind[kind] and np.isfinite(facts).all()
    if kind == "folder":
        assert [row["path"] for row in found] == [str(path) for path in paths]


def test_counts_and_drift_are_written_by_hour_and_source(predict, test_chips, rows, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    out = tmp_path / "out"
    predict(test_chips, tmp_path / "bad.png")
    found = list(csv.DictReader((out / "_by_hour.csv").open()))
    assert [one["source"] for one in found] == sorted([str(test_chips), str(tmp_path)])
    one = next(one for one in found if one["source"] == str(test_chips))
    unknown = sum(row["label"] == "unknown" for row in rows(out))
    assert (one["inputs"], one["unusable"], one["unknown"]) == ("40", "0", str(unknown))
    assert float(one["unknown_share"]) == unknown / 40 and one["measured"] == "40"
    assert one["drift"] in ("True", "False") and 0 <= float(one["distance_brightness"]) <= 1
    assert one["hour"][:13] == rows(out)[0]["time"][:13]
    (line,) = [line for line in predict.said if line.startswith(f"{test_chips}: ")]
    assert f"{unknown} of 40 unknown; drift: " in line
    predict(test_chips, out=tmp_path / "named", source_name="S\u030ckoda ")
    assert {row["source"] for row in rows(tmp_path / "named")} == {"\u0160koda"}


def test_parts_of_an_earlier_version_are_completed_as_they_were_begun(predict, rows, tmp_path):
    out = tmp_path / "out"
    predict()
    record = out / manifest.FOLDER / "run.json"
    fields = json.loads(record.read_text())
    assert fields.pop("begun") == rows(out)[0]["time"]
    record.write_text(json.dumps(fields))
    (out / "_by_hour.csv").unlink()
    (out / "part-00000.parquet").unlink()
    assert predict().kept == 5
    assert (
        not {*ORIGIN, "image_noise"} & rows(out)[0].keys() and not (out / "_by_hour.csv").exists()
    )


def test_a_second_start_keeps_complete_parts(predict, rows, tmp_path):
    out = tmp_path / "out"
    assert predict().kept == 0
    before, times = contents(out), states(out)
    assert predict() == (40, 0, 6, 6)
    assert states(out) == times
    (out / "part-00002.parquet").unlink()
    assert predict().kept == 5
    assert contents(out) == before  # to the byte
    assert len({row["path"] for row in rows(out)}) == 40


def test_a_job_continues_from_another_folder_with_the_names_that_it_began_with(
    predict, test_chips, tmp_path, monkeypatch
):
    out, inputs = tmp_path / "out", [tmp_path / "chips", tmp_path / "bad.zip"]
    shutil.copytree(test_chips, inputs[0])
    inputs[1].write_bytes(b"no archive")  # the list of inputs names it
    assert predict(*inputs).failed == 1
    before, counted = contents(out), (out / "_by_hour.csv").read_text()
    (out / "part-00002.parquet").unlink()
    monkeypatch.chdir(tmp_path)
    assert predict("chips", "bad.zip").kept == 5
    assert contents(out) == before and (out / "_by_hour.csv").read_text() == counted
    with pytest.raises(ValueError, match="made with --source_name nothing, got gate1"):
        predict(*inputs, source_name="gate1")


@pytest.mark.parametrize("damage", ["cut", "bit", "footer", "empty", "other"])
def test_a_damaged_part_is_named_and_made_anew(predict, tmp_path, damage):
    out = tmp_path / "out"
    predict()
    before, path = contents(out), out / "part-00003.parquet"
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[len(content) // 3] ^= 4
    elif damage == "footer":
        content[-9] ^= 1
    elif damage == "other":
        content = (out / "part-00001.parquet").read_bytes()
    path.write_bytes({"cut": content[:-40], "empty": b""}.get(damage, content))
    assert predict() == (40, 0, 6, 5)
    (line,) = [line for line in predict.said if "made again" in line]
    assert line.startswith(f"warning: {path}: ")
    assert contents(out) == before


def test_a_damaged_list_of_inputs_is_written_anew(predict, tmp_path):
    out = tmp_path / "out"
    predict()
    lists = out / manifest.FOLDER
    before = {path.name: path.read_bytes() for path in lists.glob("inputs-*")}
    (lists / "inputs-00001.json.gz").write_bytes(b"damaged")
    (lists / "inputs-00004.json.gz").unlink()
    assert predict().kept == 6
    assert {path.name: path.read_bytes() for path in lists.glob("inputs-*")} == before


@pytest.mark.parametrize("name", ["manifest.json", "run.json"])
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}'])
def test_a_damaged_record_of_the_batch_is_named(predict, tmp_path, name, text):
    out = tmp_path / "out"
    predict()
    (out / manifest.FOLDER / name).write_text(text)
    with pytest.raises(ValueError, match=f"{name}: damaged; choose another --out"):
        predict()


def test_temporary_files_are_bounded(predict, every_kind, rows, tmp_path, monkeypatch):
    predict(every_kind["folder"], out=tmp_path / "whole")
    sizes, read = [], worker.Worker._read

    def slow(self, found, temporary):
        folder = Path(found.file).parent
        sizes.append(sum(path.stat().st_size for path in folder.iterdir()))
        time.sleep(0.02)
        return read(self, found, temporary)

    most = 3 * max(path.stat().st_size for path in Path(every_kind["folder"]).rglob("*.png"))
    monkeypatch.setattr(worker.Worker, "_read", slow)
    monkeypatch.setattr(worker, "READERS", 1)
    monkeypatch.setattr(worker, "_BYTES_AHEAD", most, raising=False)
    assert predict(every_kind["zip"], size=40).predicted == 40
    assert len(sizes) == 40 and max(sizes) <= 4 / 3 * most  # with the file that is being read
    labels = [[row["label"] for row in rows(tmp_path / name)] for name in ("out", "whole")]
    assert labels[0] == labels[1]


def test_a_small_folder_in_memory_is_not_used(monkeypatch, tmp_path):
    shared = tmp_path / "shm"
    monkeypatch.setattr(worker, "_SHARED", str(shared))
    assert worker._memory() is None
    shared.mkdir()
    usage = shutil.disk_usage(shared)
    for free, wanted in ((64 << 20, None), (1 << 30, str(shared))):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: usage._replace(free=free))
        assert worker._memory() == wanted


def test_an_image_that_cannot_be_used_is_a_row_with_its_error(
    predict, damaged_chips, rows, tmp_path
):
    assert predict(damaged_chips, size=1) == (2, 1, 3, 0)
    first, second, third = rows(tmp_path / "out")
    assert second["path"] == str(damaged_chips / "b.png")
    assert second["error"].startswith("not a readable image") and second["label"] is None
    # Of a part where nothing could be predicted too: readers take the columns of the first file.
    assert list(second) == list(first) == list(third)
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(tmp_path / "out").num_rows == 3


@pytest.mark.slow
def test_a_search_has_the_columns_of_its_neighbours(
    predict, embedding_run, damaged_chips, rows, tmp_path
):
    predict(damaged_chips, workdir=embedding_run, size=1, options={"neighbours": 2})
    row, failed, _ = rows(tmp_path / "out")
    retriever = Retriever.load(embedding_run, neighbours=2)
    (match,) = retriever([data.read_image(damaged_chips / "a.png")])
    assert list(row) == list(failed)
    columns = ["path", "error", *retriever.to_row(match), "time", "source", "run"]
    assert list(row)[: len(columns)] == columns
    assert row["neighbour_2_path"] == match.neighbours[1].path


def test_a_full_disk_ends_in_a_line_and_loses_nothing(predict, rows, tmp_path, monkeypatch):
    out, count = tmp_path / "out", 0
    whole = files.os.fsync

    def full(descriptor):
        nonlocal count
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        count += "part-" in name
        if count > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        message = f"{out}/part-00003.parquet: No space left on device; .* the same command"
        with pytest.raises(OSError, match=message):
            predict()
    assert sorted(contents(out)) == [f"part-0000{n}.parquet" for n in range(3)]
    assert not list(out.glob(".*partial"))
    assert predict() == (40, 0, 6, 3)
    assert len({row["path"] for row in rows(out)}) == 40


@pytest.mark.slow
def test_other_inputs_and_another_run_are_refused(
    predict, trained_run, embedding_run, test_chips, damaged_chips, tmp_path
):
    out = tmp_path / "out"
    predict(damaged_chips)
    for more, message in (
        ({"size": 8}, "made with --shard 7, got 8"),
        ({"workdir": embedding_run}, "its predictions are of another run"),
        ({"options": {"gamma": 0.25}}, "another run or with other options"),
    ):
        with pytest.raises(ValueError, match=f"{out}.*{message}"):
            predict(damaged_chips, **more)
    with pytest.raises(ValueError, match=f"with inputs {damaged_chips}, got {test_chips}"):
        predict(test_chips)
    (damaged_chips / "d.png").write_bytes(b"")
    with pytest.raises(ValueError, match="made with another list of inputs: 3, got 4"):
        predict(damaged_chips)
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "mine.txt").write_text("")
    with pytest.raises(ValueError, match="the folder has other content"):
        predict(out=tmp_path / "else")


def test_two_commands_do_not_work_in_one_folder(predict, tmp_path):
    predict()
    with files.locked(tmp_path / "out" / manifest.FOLDER / "lock"):
        with pytest.raises(ValueError, match="another process is predicting into it"):
            predict()


def test_the_list_is_streamed(tmp_path, monkeypatch):
    root = tmp_path / "many"
    for name in ("a", "b/c"):
        (root / name).mkdir(parents=True)
        for number in range(30):
            (root / name / f"{number:02}.png").write_bytes(b"")
    (source,) = sources_of([str(root)])
    said = []
    monkeypatch.setattr(manifest, "_OFTEN", 30)
    found = manifest.listed(tmp_path, [source], 25, said.append)
    assert said == ["50 inputs listed", "60 inputs listed"]
    assert (found.inputs, found.shards) == (60, 3)
    shard = manifest.read(tmp_path, 1)
    assert len(shard) == 25 and shard.runs[0][1][:6] == [
        *(f"a/{n:02}.png" for n in range(25, 30)),
        "b/c/00.png",
    ]
    assert manifest.listed(tmp_path, [source], 25) == found


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_a_checksum_covers_every_byte(tmp_path, every):
    facts = parts.Facts(0, "inputs", "run", 2, 0)
    rows = [{"path": "a", "n": 1.0}, {"path": "b", "n": np.nan}]
    parts.write(tmp_path, facts, {"path": str, "n": float}, rows, "jax")
    path = parts.path_of(tmp_path, 0)
    assert parts.check(path) == facts
    content = path.read_bytes()
    for place in range(0, len(content), every):
        path.write_bytes(content[:place] + bytes([content[place] ^ 8]) + content[place + 1 :])
        with pytest.raises(ValueError):
            parts.check(path)


@pytest.fixture
def flags(flags_of):
    return lambda *arguments: flags_of(command, *arguments)


def test_the_command(trained_run, damaged_chips, flags, capsys, tmp_path):
    given = [f"--workdir={trained_run}", "--engine=local", f"--out={tmp_path / 'out'}", "--shard=2"]
    (damaged_chips / "notes.txt").write_text("words")
    assert command.main(flags(*given, damaged_chips)) == 0
    printed = capsys.readouterr()
    assert not printed.out
    assert f"{damaged_chips}: skipped: 1 of type .txt" in printed.err
    assert f"{tmp_path / 'out'}: 2 predicted, 1 failed, in 2 parts" in printed.err
    assert command.main(flags(*given, damaged_chips)) == 0
    assert "2 of them already there" in capsys.readouterr().err
    (tmp_path / "bad.png").write_bytes(b"")
    given[2] = f"--out={tmp_path / 'bad'}"
    assert command.main(flags(*given, tmp_path / "bad.png")) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--engine=local"], "--engine needs --out=FOLDER"),
        (["--shard=3"], "--shard needs --engine"),
        (["--workers=3"], "--workers needs --engine"),
        (["--engine=local", "--out=x", "--jsonl"], "--json cannot be combined with --engine"),
        (["--engine=local", "--out=x", "--method=cam"], "--method cannot be combined"),
        (["--engine=local", "--out=x", "--workers=2"], "'local' runs in one process"),
        (["--engine=local", "--out=pyproject.toml"], "wanted a folder, got a file"),
    ],
)
def test_flags_that_do_not_go_together(trained_run, test_chips, flags, given, message):
    with pytest.raises(ValueError, match=message):
        command.main(flags(f"--workdir={trained_run}", *given, test_chips))


def test_ray_without_its_extra_is_refused(predict, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ImportError, match=r"--engine=ray needs .* 'jaxatr\[ray\]'"):
        predict(engine="ray")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_killed_process_continues(start, trained_run, test_chips, rows, tmp_path):
    out = tmp_path / "out"
    given = [f"--workdir={trained_run}", "--engine=local", f"--out={out}", "--shard=1", test_chips]
    process = start(*given)
    deadline = time.monotonic() + 120
    while not list(out.glob("part-*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = len(contents(out))
    assert 0 < there < 40
    (out / ".part-00039.parquet.1.abc.partial").write_bytes(b"left by a killed process")
    again = start(*given)
    _, said = again.communicate(timeout=120)
    assert again.returncode == 0, said
    assert f"40 predicted, 0 failed, in 40 parts, {there} of them already there" in said
    found = [row["path"] for row in rows(out)]
    assert found == sorted(map(str, test_chips.rglob("*.png")))
    assert not list(out.glob(".*partial"))
    assert json.loads((out / manifest.FOLDER / "manifest.json").read_text())["inputs"] == 40


def test_equal_names_in_another_folder_are_other_inputs(predict, test_chips, tmp_path, monkeypatch):
    for name in ("first", "second"):
        shutil.copytree(test_chips / "disc", tmp_path / name / "chips")
    monkeypatch.chdir(tmp_path / "first")
    predict("chips")
    monkeypatch.chdir(tmp_path / "second")
    with pytest.raises(ValueError, match="made with inputs .*first/chips, got .*second/chips"):
        predict("chips")


def test_names_that_are_not_utf8(predict, rows, test_chips, tmp_path):
    name = os.fsdecode(b"chip-\xff.png")
    (tmp_path / "odd").mkdir()
    shutil.copyfile(next(test_chips.glob("disc/*.png")), tmp_path / "odd" / name)
    predict(tmp_path / "odd")
    assert [Path(row["path"]).name for row in rows(tmp_path / "out")] == ["chip-\\udcff.png"]
    for suffix in ("csv", "jsonl"):
        data.write_table(tmp_path / f"a.{suffix}", [{"path": name}])
        assert "chip-\\udcff.png" in (tmp_path / f"a.{suffix}").read_text()
