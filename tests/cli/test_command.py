"""Exceptions end commands with one line and code 2, or a traceback and code 70."""

import os
import subprocess
import sys

import pytest

from jaxatr.cli import command

# A command that raises what it is told to.
PROGRAM = """
import sys
from jaxatr.cli import command

class Told(Exception):
    exit_code = 75

class Toy:
    __doc__ = "Raises.\\n\\njaxatr toy"
    def define_flags(self): pass
    def main(self, arguments): raise eval(arguments[0])

command.run(Toy(), sys.argv[1:])
"""


def run(*arguments):
    line = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(line, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        ("ValueError('wrong')", 2),
        ("FileNotFoundError('wrong')", 2),
        ("Told('wrong')", 75),
    ],
)
def test_a_users_error_is_one_line(raised, code):
    done = run(raised)
    assert (done.returncode, done.stderr, done.stdout) == (code, "error: wrong\n", "")


@pytest.mark.parametrize("name", ["serve", "calibrate", "predict"])
def test_a_command_of_one_run_refuses_a_second_one(name):
    line = [sys.executable, "-m", "jaxatr", name, "--workdir=a", "--workdir=b"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 2
    assert ("--workdir: got 2 runs, wanted one" in done.stderr) == (name != "predict")


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        ("FileExistsError(17, 'File exists', 'run')", "run: File exists"),
        ("MemoryError()", "MemoryError"),
    ],
)
def test_an_error_of_the_system_names_the_file_and_no_number(raised, message):
    assert run(raised).stderr == f"error: {message}\n"


def test_debug_shows_where_a_users_error_was_raised():
    done = run("ValueError('wrong')", "--debug")
    assert done.returncode == 2
    assert "Traceback" in done.stderr and done.stderr.endswith("error: wrong\n")


def test_control_characters_are_escaped_and_a_missing_device_is_no_bug(monkeypatch):
    raised = "ValueError('\\x1b[31m\\u202e' + str(print('a\\x9b\\x07')))"
    done = run(raised)
    assert done.stderr == "error: \\u001b[31m\\u202eNone\n" and done.stdout == "a\\u009b\\u0007\n"
    for wanted in ("cuda", "tpu,cpu"):  # of several, jax raises an error of another type
        monkeypatch.setenv("JAX_PLATFORMS", wanted)
        done = run("__import__('jax').devices()")
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: JAX_PLATFORMS={wanted}: jax finds no such device")


@pytest.mark.parametrize("raised", ["KeyError('wrong')", "TypeError('wrong')"])
def test_a_bug_is_a_traceback(raised):
    done = run(raised)
    assert done.returncode == 70
    assert "Traceback" in done.stderr and "wrong" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("This is a bug in jaxatr.")


@pytest.mark.parametrize(
    ("error", "users"),
    [
        (ModuleNotFoundError("No module named 'onnx'", name="onnx"), True),
        (ModuleNotFoundError("No module named 'my_networks'", name="my_networks"), True),
        (ImportError("cannot import name 'x'", name="jaxatr.models"), False),
        (FloatingPointError("the loss is nan"), True),
        (MemoryError(), True),
        (RuntimeError("RESOURCE_EXHAUSTED"), True),
        (NotImplementedError(), False),
        (RecursionError(), False),
        (ZeroDivisionError(), False),
        (AttributeError("x"), False),
        (IndexError("x"), False),
        (AssertionError(), False),
    ],
)
def test_whose_mistake_it_is(error, users):
    assert command.is_users(error) is users


def test_a_flag_that_is_not_there_is_a_users_error():
    done = run("ValueError()", "--debgu")
    line = "error: there is no flag --debgu; did you mean 'debug'?\n"
    assert (done.returncode, done.stderr) == (2, line)


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_a_closed_pipe_ends_a_command_silently(arguments):
    reading, writing = os.pipe()
    os.close(reading)
    many = "print('x' * 100_000)"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("raise eval(arguments[0])", many), *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("closed", "stdout", "stderr"), [(">&-", "", "b\n"), ("2>&-", "a\n", "")])
def test_a_closed_stream_takes_what_is_written(closed, stdout, stderr):
    both = "(print('a'), print('b', file=sys.stderr))"
    program = PROGRAM.replace("raise eval(arguments[0])", both)
    line = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", program]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, stdout, stderr)
