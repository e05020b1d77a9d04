"""The proof on a real device: its record, and, slow, a rehearsal of all stages on a CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "experiments" / "device"


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import prove
    import rows

    yield rows, prove
    for name in ("prove", "rows"):
        del sys.modules[name]


def test_known_results_are_not_measured_again(modules, tmp_path):
    rows, _ = modules
    calls = []

    def units():
        for name in ("a", "b"):
            yield name, lambda name=name: calls.append(name) or {"ms": 1.0}

    assert rows.Rows(tmp_path).work("kernels", units()) == 0
    with open(tmp_path / "rows.jsonl", "a") as file:
        file.write('{"stage": "kernels", "unit": "c", "m')  # the machine went away
    again = rows.Rows(tmp_path)
    assert again.work("kernels", units()) == 0 and calls == ["a", "b"]
    assert again.of("kernels")["a"]["ms"] == 1.0 and "c" not in again.of("kernels")
    again.add("kernels", "c", ms=2.0)
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["unit"] for line in lines] == ["a", "a", "b", "b", "c"]


def test_an_error_costs_one_unit_and_its_process(modules, tmp_path):
    rows, prove = modules

    def broken():
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")

    units = [("bad", broken), ("good", lambda: {"passed": True})]
    record = rows.Rows(tmp_path)
    assert record.work("right", units) == 3 and "good" not in record.of("right")
    assert record.work("right", units) == 0 and record.of("right")["good"]["passed"]
    assert "ILLEGAL_ADDRESS" in record.of("right")["bad"]["failed"]
    assert [row["unit"] for row in prove.finished(record) if prove.bad(row)] == ["bad"]
    assert "Failed: right bad." in "\n".join(prove.page(record))
    record.forget({("right", "bad")})
    assert list(rows.Rows(tmp_path).of("right")) == ["good"]


def test_a_unit_that_ends_its_process_is_given_up(modules, tmp_path):
    rows, _ = modules
    for _ in range(rows.ATTEMPTS):
        rows.Rows(tmp_path).add("right", "aborts", begun=True)
    record = rows.Rows(tmp_path)
    assert record.work("right", [("aborts", lambda: pytest.fail("begun once more"))]) == 0
    assert record.of("right")["aborts"]["failed"] == "killed its process or timed out 3 times"


def test_a_unit_that_continues_in_the_next_call_has_no_row_yet(modules, tmp_path):
    rows, _ = modules
    record = rows.Rows(tmp_path)
    assert record.work("long", [("cifar10", lambda: {"unfinished": True})]) == 0
    assert not record.of("long")


def test_a_record_of_another_device_is_refused(modules, tmp_path):
    rows, _ = modules
    rows.Rows(tmp_path).add("about", "device", kind="NVIDIA H200", platform="gpu", jax="0.10.2")
    done = run(tmp_path, "--stages", "ceilings")
    assert done.returncode == 2 and "--out: recorded on" in done.stdout
    assert "give another folder" in done.stdout


def test_arguments_are_checked(modules, capsys):
    _, prove = modules
    for arguments, message in (
        (["--minutes", "0"], "--minutes: got 0.0, wanted more than 0"),
        (["--cifar10", "/nowhere"], "--cifar10: there is no /nowhere"),
        (["--stages", "speed"], "invalid choice: 'speed'"),
    ):
        with pytest.raises(SystemExit, match="2"):
            prove.main(arguments)
        assert message in capsys.readouterr().err


def run(out, *arguments):
    command = [sys.executable, FOLDER / "prove.py", "--rehearse", "--out", out, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_all_of_it_rehearsed(modules, tmp_path):
    rows, module = modules
    done = run(tmp_path, "--minutes", "25")
    assert done.returncode == 0, done.stdout
    record = rows.Rows(tmp_path)
    assert "Failed: nothing. Not reached: nothing." in done.stdout
    assert all(record.of(name) for name in module.STAGES)
    for stage in ("smoke", "right", "resume"):
        assert all(row["passed"] for row in record.of(stage).values())
    assert (tmp_path / "README.md").is_file() and list(tmp_path.glob("cpu-*.json"))
    before = len(record.rows)
    assert run(tmp_path, "--minutes", "5").returncode == 0
    assert len(rows.Rows(tmp_path).rows) == before
