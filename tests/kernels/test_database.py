"""The database of kernels: precedence, concurrent writers, malformed and outdated entries."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import jax
import pytest

from jaxatr.kernels import database
from jaxatr.kernels.device import Device
from jaxatr.kernels.entries import Entry, to_compact_text
from jaxatr.kernels.ops.convolution import ConvProblem
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.solvers import SOLVERS
from jaxatr.kernels.solver import Choice

DEVICE = Device("cpu", "Test (R) processor, 2 cores")
PROBLEM = ConvProblem(
    "forward", (2, 4, 4, 3), (3, 3, 3, 4), (1, 1), ((1, 1), (1, 1)), (1, 1), 1, "float32"
)


@pytest.fixture(autouse=True)
def folders(monkeypatch, tmp_path):
    """Gives each test its own user's and shipped folders, and turns warnings into errors."""
    monkeypatch.setenv("JAXATR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(database, "SHIPPED", tmp_path / "shipped")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def entry(algorithm="matmul", config=(), **changes):
    version = SOLVERS[algorithm].version if algorithm in SOLVERS else 1
    made = Entry(Choice(algorithm, config), 1.5, version, jax.__version__)
    return made._replace(**changes)


def ship(**entries):
    path = database.shipped_file(DEVICE)
    path.parent.mkdir(exist_ok=True)
    text = {"format": 1, "entries": {key: one.to_json() for key, one in entries.items()}}
    path.write_text(json.dumps(text))


def lookup():
    return database.lookup(OPERATION, PROBLEM, DEVICE)


def test_a_stored_choice_is_found_again():
    assert lookup() is None and not database.known(DEVICE)
    database.store(DEVICE, {PROBLEM.key: entry("blocked", (("images", 1),))})
    assert lookup() == Choice("blocked", (("images", 1),))
    assert database.known(DEVICE)
    assert database.entries(database.user_file(DEVICE))[PROBLEM.key].milliseconds == 1.5


def test_where_the_files_are(monkeypatch, tmp_path):
    assert database.user_file(DEVICE).name == "cpu-test-r-processor-2-cores.json"
    monkeypatch.delenv("JAXATR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert database.user_file(DEVICE).parent == tmp_path / "xdg/jaxatr/tuned"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert database.user_file(DEVICE).parent == tmp_path / ".cache/jaxatr/tuned"


def test_the_users_word_counts_before_the_shipped_one():
    ship(**{PROBLEM.key: entry("xla")})
    assert lookup() == Choice("xla")
    database.store(DEVICE, {PROBLEM.key: entry("taps")})
    assert lookup() == Choice("taps")


@pytest.mark.parametrize(
    ("stale", "message"),
    [
        (entry(solver_version=9), "version 9 of 'matmul', this is version 1"),
        (entry(jax_version="0.0.1"), "jax 0.0.1, this is"),
        (entry("gone"), "the algorithm 'gone' does not exist"),
        (entry("direct"), "'direct' cannot compute it"),
        (entry("blocked", (("images", 7),)), r"no configuration \{'images': 7\}"),
    ],
)
def test_a_stale_entry_is_named_and_the_next_one_used(stale, message):
    ship(**{PROBLEM.key: entry("xla")})
    database.store(DEVICE, {PROBLEM.key: stale})
    with pytest.warns(UserWarning, match=f"convolution forward.* is not used: .*{message}"):
        assert lookup() == Choice("xla")


def test_a_shipped_file_that_has_aged_is_named_once(recwarn):
    other = dataclasses.replace(PROBLEM, direction="weight")
    aged = entry(jax_version="0.0.1")
    ship(**{PROBLEM.key: aged, other.key: aged})
    assert lookup() is None and not recwarn.list  # of another jax: nothing that a user could mend
    aged = entry(solver_version=9)
    ship(**{PROBLEM.key: aged, other.key: aged})
    with pytest.warns(UserWarning, match="general rules, .*shipped.*: .*version 9") as caught:
        assert lookup() is None
        assert database.lookup(OPERATION, other, DEVICE) is None
    assert len(caught) == 1


def test_a_solver_of_another_version_is_not_used(monkeypatch):
    database.store(DEVICE, {PROBLEM.key: entry()})
    monkeypatch.setattr(SOLVERS["matmul"], "version", 2)
    with pytest.warns(UserWarning, match="version 1 of 'matmul', this is version 2"):
        assert lookup() is None


COMPACT = {"format": 2, "jax_version": "0", "choices": [["xla", {}, 2]], "directions": ["a b"]}
BROKEN = [
    *("", "{", "[]", '{"format": 3, "entries": {}}', '{"format": 1}', "[" * 100_000),
    *('{"format": 2, "entries": {}}', json.dumps(COMPACT | {"problems": [["p", 0]]})),
    json.dumps(COMPACT | {"problems": [["p", 1, 2.0]]}),
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_file_is_named_and_kept_beside_when_another_is_written(text):
    path = database.user_file(DEVICE)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.warns(UserWarning, match="cannot be read as a database of kernels"):
        assert lookup() is None
    database.store(DEVICE, {PROBLEM.key: entry()})
    assert lookup() == Choice("matmul")
    assert path.with_suffix(".broken").read_text() == text


@pytest.mark.parametrize(
    "value",
    [
        3,
        {"algorithm": "xla"},
        {"algorithm": 1, "config": {}},
        entry().to_json() | {"config": {"pieces": [1]}},
        entry().to_json() | {"solver_version": "1"},
        {name: value for name, value in entry().to_json().items() if name != "jax_version"},
    ],
)
def test_a_broken_entry_is_named_and_the_others_are_used(value):
    path = database.user_file(DEVICE)
    database.store(DEVICE, {PROBLEM.key: entry()})
    content = json.loads(path.read_text())
    content["entries"]["another"] = value
    path.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="the entry 'another' is malformed and not used"):
        assert lookup() == Choice("matmul")


def test_a_folder_that_cannot_be_written_is_reported(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAXATR_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="the timings cannot be saved: .*file"):
        database.store(DEVICE, {PROBLEM.key: entry()})
    assert lookup() is None


def test_an_unreadable_file_is_neither_reported_as_broken_nor_replaced(monkeypatch):
    """Like another user's file; the refusal is simulated because root can read everything."""
    database.store(DEVICE, {PROBLEM.key: entry()})
    path = database.user_file(DEVICE)
    before, opened = path.read_text(), Path.open

    def refuse(self, mode="r", *arguments, **options):
        if self == path and "r" in mode:
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, mode, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        with pytest.warns(UserWarning, match="cannot be saved: .*Permission denied"):
            database.store(DEVICE, {"another": entry()})
        with pytest.warns(UserWarning, match="cannot be read and is not used: .*Permission denied"):
            assert lookup() is None
    assert path.read_text() == before and not path.with_suffix(".broken").exists()
    assert lookup() == Choice("matmul")  # once it can be read, it counts, and it is kept
    database.store(DEVICE, {"another": entry()})
    assert set(database.entries(path)) == {PROBLEM.key, "another"}


def test_the_umask_decides_who_may_read_the_database():
    before = os.umask(0o022)
    try:
        database.store(DEVICE, {PROBLEM.key: entry()})
    finally:
        os.umask(before)
    assert database.user_file(DEVICE).stat().st_mode & 0o777 == 0o644


def test_the_shipped_database_names_present_solvers():
    """The version of jax is not compared, because the shipped file may be older."""
    paths = sorted((Path(database.__file__).parent / "tuned").glob("*.json"))
    assert paths
    for path in paths:
        for key, one in database.entries(path).items():
            assert key.startswith("convolution ")
            assert database.outdated(OPERATION, one._replace(jax_version=jax.__version__)) == ""


def test_the_shipped_choices_are_those_of_the_file_with_an_object_for_each():
    """All 903 entries; to be updated with the file (ship.py)."""
    path = Path(database.__file__).parent / "tuned" / "cpu-amd-epyc-2-cores.json"
    lines = [
        f"{key}: {one.choice.algorithm} {dict(one.choice.config)} {one.solver_version} "
        f"{one.jax_version}"
        for key, one in sorted(database.entries(path).items())
    ]
    assert len(lines) == 903
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert digest == "698bb357f6b1af10f7eeb7665c2fb5a49f136a9f92a73f256a78ea6ea7c8bd86"


def test_the_compact_form_keeps_the_choice_of_each_problem():
    found = {
        PROBLEM.key: entry("blocked", (("images", 1),), milliseconds=1.23456),
        PROBLEM.in_direction("weight").key: entry("xla"),
        "log_softmax forward channel 2x4x5x3 float32": entry("xla", solver_version=7),
    }
    path = database.shipped_file(DEVICE)
    path.parent.mkdir()
    path.write_text(to_compact_text(DEVICE, found))
    found[PROBLEM.key] = found[PROBLEM.key]._replace(milliseconds=1.235)
    assert database.entries(path) == found
    assert lookup() == Choice("blocked", (("images", 1),))
    with pytest.raises(ValueError, match=r"jax_version: got \['0', .*, wanted one for all entries"):
        to_compact_text(DEVICE, found | {"a b c": entry(jax_version="0")})


def test_a_file_of_a_version_that_kept_the_workspace_is_read():
    path = database.user_file(DEVICE)
    path.parent.mkdir(parents=True)
    listed = {PROBLEM.key: entry().to_json() | {"workspace_bytes": 7}}
    path.write_text(json.dumps({"format": 1, "device": DEVICE._asdict(), "entries": listed}))
    assert lookup() == Choice("matmul")
    database.store(DEVICE, {"another": entry("taps")})
    assert set(database.entries(path)) == {PROBLEM.key, "another"}


WRITER = """
import sys
from jaxatr.kernels import database
from jaxatr.kernels.device import Device
from jaxatr.kernels.entries import Entry
from jaxatr.kernels.solver import Choice

name = sys.argv[1]
for index in range(40):
    entry = Entry(Choice(name), 1.0, 1, "0")
    database.store(Device("cpu", "shared"), {f"{name} {index}": entry})
"""


@pytest.mark.slow
def test_two_processes_that_write_at_once_lose_nothing():
    command = [sys.executable, "-W", "error", "-c", WRITER]
    writers = [subprocess.Popen([*command, name], stderr=subprocess.PIPE) for name in ("a", "b")]
    path = database.user_file(Device("cpu", "shared"))
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            json.loads(path.read_text())  # complete at every moment
        time.sleep(0.005)
    assert [writer.communicate()[1] for writer in writers] == [b"", b""]
    expected = {f"{name} {index}" for name in "ab" for index in range(40)}
    assert set(database.entries(path)) == expected
    assert [one.name for one in path.parent.glob(".*json*")] == []
