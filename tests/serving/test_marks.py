"""The file of marks: unusual text, and several consoles."""

import os

import pytest

from jaxatr import files
from jaxatr.serving.marks import Marks


def test_separators_in_a_name_are_kept(tmp_path):
    marks = [{"id": "a", "name": "x\u2028y\x85z\u2029"}, {"id": "b", "name": "line\nbreak\r"}]
    Marks(tmp_path / "marks.jsonl").put(marks)
    assert Marks(tmp_path / "marks.jsonl").all() == marks


def test_consoles_of_one_run_keep_each_others_marks(tmp_path):
    first, second = (Marks(tmp_path / "marks.jsonl") for _ in range(2))
    first.put([{"id": "a"}])
    assert second.put([{"id": "b"}]) == 2
    assert [mark["id"] for mark in first.all()] == ["a", "b"]
    assert first.remove(["b", "c"]) == 1 and second.all() == [{"id": "a"}]


@pytest.mark.parametrize("line", [b"[]", b'{"id": "\xe9"}', b'{"id": []}', b"null"])
def test_a_line_that_is_no_mark_is_named(tmp_path, line):
    (tmp_path / "marks.jsonl").write_bytes(b'{"id": "a"}\n' + line + b"\n")
    with pytest.raises(ValueError, match="line 2 is not a mark"):
        Marks(tmp_path / "marks.jsonl")


def test_no_mark_is_written_into_another_folder_of_that_name(tmp_path):
    (tmp_path / "run").mkdir()
    marks = Marks(tmp_path / "run" / "marks.jsonl")
    marks.put([{"id": "a"}])
    os.rename(tmp_path / "run", tmp_path / "moved")
    (tmp_path / "run").mkdir()
    for change in (lambda: marks.put([{"id": "b"}]), lambda: marks.remove(["a"]), marks.all):
        with pytest.raises(FileNotFoundError, match="is no longer the folder"):
            change()
    assert not list((tmp_path / "run").iterdir())
    assert Marks(tmp_path / "moved" / "marks.jsonl").all() == [{"id": "a"}]


def test_a_lock_that_another_program_holds_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxatr.serving.kept_rows._LOCK_SECONDS", 0.0)
    marks = Marks(tmp_path / "marks.jsonl")
    with files.locked(tmp_path / ".marks.jsonl.lock"):
        with pytest.raises(TimeoutError, match="is held by another process"):
            marks.put([{"id": "a"}])
    assert marks.put([{"id": "a"}]) == 1


def test_a_mark_with_a_field_of_another_type_is_named(tmp_path):
    for line in ('{"id": 3}', '{"id": "a", "wrong": "yes"}', '{"id": "a", "score": NaN}', "[]"):
        (tmp_path / "marks.jsonl").write_text(f'{{"id": "b", "name": "c.png"}}\n{line}\n')
        with pytest.raises(ValueError, match="line 2 is not a mark"):
            Marks(tmp_path / "marks.jsonl")
