"""Damaged inputs cost a row each, with and without an engine; everything else is predicted."""

import csv
import errno
import io
import os
import tarfile
import zipfile
import zlib

import pytest

from jaxatr.batch import manifest
from jaxatr.cli import predict as command

pytest.importorskip("pyarrow")

CUT = "not a readable archive (Compressed file ended before the end-of-stream marker was reached)"


@pytest.fixture
def inputs(test_chips, tmp_path, monkeypatch):
    """A folder of every kind of damage, and a chip."""
    root = tmp_path / "inputs"
    for name in ("a", "closed", "z"):
        (root / "folder" / name).mkdir(parents=True)
        (root / "folder" / name / "0.png").write_bytes(
            (test_chips / "disc" / "000.png").read_bytes()
        )
    names = sorted(str(path.relative_to(test_chips)) for path in test_chips.rglob("*.png"))
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as packed:
        for name in names:
            packed.add(test_chips / name, name)
    with tarfile.open(fileobj=io.BytesIO(plain.getvalue())) as packed:
        end = packed.getmember("disc/004.png").offset_data + 20
    gzip = zlib.compressobj(wbits=31)
    content = gzip.compress(plain.getvalue()[:end]) + gzip.flush(zlib.Z_SYNC_FLUSH)
    (root / "cut.tar.gz").write_bytes(content)
    with zipfile.ZipFile(root / "bit.zip", "w") as packed:
        for name in names[:4]:
            packed.write(test_chips / name, name)
        packed.writestr("notes", "words that say nothing")
        damaged = [packed.getinfo(name) for name in (names[1], "notes")]
        with pytest.warns(UserWarning, match="Duplicate name"):
            packed.write(test_chips / names[9], names[3])
    content = bytearray((root / "bit.zip").read_bytes())
    for one in damaged:
        content[one.header_offset + 30 + len(one.filename) + 15] ^= 255
    (root / "bit.zip").write_bytes(content)
    (root / "cut.zip").write_bytes(content[: len(content) // 2])
    (root / "cells.csv").write_text(f"label;path\ndisc; {test_chips}/{names[0]}\ndisc;\n")
    (root / "empty").mkdir()
    _close(root / "folder" / "closed", monkeypatch)
    named = ["folder", "cut.tar.gz", "bit.zip", "cut.zip", "cells.csv", "empty"]
    return [*(root / name for name in named), test_chips / "disc" / "000.png"]


def _close(folder, monkeypatch):
    """Makes a folder unreadable, for root too."""
    whole = os.scandir

    def scandir(path="."):
        if not isinstance(path, int) and os.fspath(path) == str(folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return whole(path)

    monkeypatch.setattr(os, "scandir", scandir)


def errors_of(rows, root):
    """The rows with an error: path below the folder of the inputs, and error."""
    return {
        os.path.relpath(row["path"], root): row["error"]
        for row in rows
        if row["error"] is not None and row["error"] != ""
    }


@pytest.mark.slow
def test_every_damage_is_a_row_and_a_restart_changes_nothing(
    predict, inputs, test_chips, rows, tmp_path
):
    out, root = tmp_path / "out", inputs[0].parent
    totals = predict(*inputs)
    found = rows(out)
    errors = errors_of(found, root)
    assert errors == {
        "folder/closed": "Permission denied",
        "cut.tar.gz/disc/004.png": CUT,
        "cut.tar.gz": CUT,
        "bit.zip/cross/001.png": "not a readable archive (Bad CRC-32 for file 'cross/001.png')",
        "bit.zip/cross/003.png": "the archive has 'cross/003.png' twice",
        "cut.zip": "not a readable archive (File is not a zip file)",
        "cells.csv/1": "line 3 has no path",
        "empty": "there is no image in it",
    }
    kept = [row["path"] for row in found if row["error"] is None]
    assert totals[:2] == (len(kept), 8)
    assert [os.path.relpath(path, root) for path in kept[:-2]] == [
        *("folder/a/0.png", "folder/z/0.png"),
        *(f"cut.tar.gz/cross/{n:03}.png" for n in range(10)),
        *(f"cut.tar.gz/disc/{n:03}.png" for n in range(4)),
        *(f"bit.zip/cross/{n:03}.png" for n in (0, 2, 3)),
    ]
    chips = ["cross/000.png", "disc/000.png"]  # of the table, and the last argument
    assert kept[-2:] == [f"{test_chips}/{name}" for name in chips]
    said = [line for line in predict.said if line.startswith("warning: ")]
    assert f"warning: {root}/folder/closed: Permission denied" in said
    assert f"warning: {root}/cut.tar.gz: {CUT}" in said and len(said) == 6
    assert f"{root}/bit.zip: skipped: 1 without a suffix" in predict.said
    (out / "part-00001.parquet").unlink()
    (out / manifest.FOLDER / "inputs-00002.json.gz").unlink()
    again = predict(*inputs)
    assert again == totals._replace(kept=totals.parts - 1)
    assert rows(out) == found


def test_the_plain_command_gives_the_same_rows(
    trained_run, predict, inputs, rows, flags_of, tmp_path, capsys
):
    predict(*inputs)
    wanted = rows(tmp_path / "out")
    table = tmp_path / "table.csv"
    given = [f"--workdir={trained_run}", *inputs]
    assert command.main(flags_of(command, *given, f"--out={table}")) == 0
    with open(table, newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["path"], row["error"], row["label"]) for row in found] == [
        (row["path"], row["error"] or "", row["label"] or "") for row in wanted
    ]
    said = capsys.readouterr().err
    assert f"{len(wanted) - 8} predicted" in said and ", 8 failed" in said
    assert command.main(flags_of(command, *given)) == 1
    said = capsys.readouterr().err
    assert said.splitlines()[-1] == f"{len(wanted) - 8} predicted, 8 failed"
    assert f"error: {inputs[0]}/closed: Permission denied" in said and "jaxatr-" not in said


def test_where_all_is_damaged_the_command_says_so(trained_run, inputs, flags_of, tmp_path, capsys):
    given = [f"--workdir={trained_run}", "--engine=local", f"--out={tmp_path / 'out'}"]
    assert command.main(flags_of(command, *given, inputs[3], inputs[0] / "closed")) == 2
    said = capsys.readouterr().err
    assert f"warning: {inputs[3]}: not a readable archive" in said
    assert f"{tmp_path / 'out'}: 0 predicted, 2 failed, in 1 parts" in said


@pytest.mark.parametrize("damage", ["header", "end"])
def test_a_damaged_tar_does_not_end_in_silence(predict, test_chips, rows, tmp_path, damage):
    path = tmp_path / "chips.tar"
    with tarfile.open(path, "w") as packed:
        for number in range(6):
            packed.add(test_chips / "disc" / f"{number:03}.png", f"{number}.png")
    with tarfile.open(path) as packed:
        at = packed.getmember("4.png").offset
    content = bytearray(path.read_bytes())
    content[at] ^= 255
    path.write_bytes(content if damage == "header" else content[: at + 100])
    assert predict(path)[:2] == (4, 1)
    why = "bad checksum" if damage == "header" else "truncated header"
    assert rows(tmp_path / "out")[4]["error"] == f"not a readable archive (byte {at}: {why})"


def test_a_damaged_row_group_costs_its_own_rows(predict, every_kind, rows, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, chip = tmp_path / "chips.parquet", tmp_path / "chip.png"
    with zipfile.ZipFile(every_kind["zip"]) as packed:
        contents = [packed.read(one) for one in packed.infolist()[:9]]
    chip.write_bytes(contents[0])
    table = pyarrow.table({"image": contents})
    parquet.write_table(table, path, row_group_size=3, use_dictionary=False, compression="zstd")
    at = parquet.read_metadata(path).row_group(1).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[at : at + 200] = bytes(200)
    path.write_bytes(content)
    assert predict(path, chip)[:2] == (7, 3)
    found = rows(tmp_path / "out")
    assert [row["path"] for row in found[:9]] == [f"{path}/{number}" for number in range(9)]
    assert [bool(row["error"]) for row in found] == [False] * 3 + [True] * 3 + [False] * 4
