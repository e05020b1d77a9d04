import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jaxatr.data import cache

A, B = "a" * 16, "b" * 16


def making(text, calls=None, pause=0.0):
    def make(directory: Path) -> Path:
        if calls is not None:
            calls.append(text)
        (directory / "set").mkdir()
        time.sleep(pause)
        (directory / "set" / "x").write_text(text)
        return directory / "set"

    return make


def test_made_once_and_found_again(tmp_path):
    calls = []
    for _ in range(3):
        found = cache.prepared(tmp_path / "name", A, making("one", calls))
    assert (found / "x").read_text() == "one" and calls == ["one"]
    assert cache.current(tmp_path / "name") == found
    assert cache.names(tmp_path) == ["name"]


def test_another_signature_is_made_anew_and_becomes_current(tmp_path):
    first = cache.prepared(tmp_path / "n", A, making("one"))
    second = cache.prepared(tmp_path / "n", B, making("two"))
    assert (first / "x").read_text() == "one" and (second / "x").read_text() == "two"
    assert cache.current(tmp_path / "n") == second
    cache.prepared(tmp_path / "n", A, making("never"))
    assert cache.current(tmp_path / "n") == first


def test_a_set_in_a_folder_that_cannot_be_written_is_used(tmp_path, monkeypatch):
    first, second = (cache.prepared(tmp_path / "set", one, making(one)) for one in (A, B))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.warns(UserWarning, match="no files can be written.* 'set' without a source"):
        assert cache.prepared(tmp_path / "set", A, making("never")) == first
    assert cache.current(tmp_path / "set") == second


def test_a_failure_leaves_nothing(tmp_path):
    def make(directory: Path) -> Path:
        (directory / "half").write_text("")
        raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        cache.prepared(tmp_path / "n", A, make)
    assert {path.name for path in (tmp_path / "n").iterdir()} == {".lock"}
    assert cache.current(tmp_path / "n") is None
    assert (cache.prepared(tmp_path / "n", A, making("one")) / "x").exists()


def test_two_at_once_make_it_once(tmp_path):
    calls, found = [], []
    threads = [
        threading.Thread(
            target=lambda: found.append(
                (cache.prepared(tmp_path / "n", A, making("one", calls, 0.2)) / "x").read_text()
            )
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == ["one"] and found == ["one"] * 3


KILLED = """
import sys, time
from pathlib import Path
from jaxatr.data import cache

def make(directory):
    (directory / "half").write_text("x")
    print("writing", flush=True)
    time.sleep(60)

cache.prepared(Path(sys.argv[1]), "a" * 16, make)
"""


@pytest.mark.slow
def test_a_killed_preparation_is_not_served_and_is_cleaned_up(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "n")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert list((tmp_path / "n").glob(".preparing-*/half"))
    found = cache.prepared(tmp_path / "n", A, making("whole"))
    assert (found / "x").read_text() == "whole"
    assert not list((tmp_path / "n").glob(".preparing-*"))


def test_current_never_leads_out(tmp_path):
    (tmp_path / "n").mkdir()
    (tmp_path / "secret").mkdir()
    for text in (b"../secret", b"", A.encode(), b"\xff"):
        (tmp_path / "n" / "current").write_bytes(text)
        assert cache.current(tmp_path / "n") is None
    assert cache.current(tmp_path / "none") is None


def test_where_sets_lie_by_default(monkeypatch):
    monkeypatch.delenv("JAXATR_DATA_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.default_data_dir() == Path.home() / ".cache" / "jaxatr" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache.default_data_dir() == Path("/x/jaxatr/data")
    monkeypatch.setenv("JAXATR_DATA_DIR", "~/y")
    assert cache.default_data_dir() == Path.home() / "y"
