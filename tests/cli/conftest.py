"""Commands run as a user types them, each in a separate process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Imports all that the commands do, which takes most of their time, and forks for each that it is
# told to run. It starts no backend of jax, whose threads a fork would lose.
SERVER = """
import gc, json, os, sys
from jaxatr import config, reporting
from jaxatr.cli import command, evaluate, main, predict, predictions, report, train
from jaxatr.training import events

gc.freeze()  # or each child copies, as it ends, the pages of all objects to see which are garbage
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        for stream, name in enumerate(("stdout", "stderr"), start=1):
            os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        os.environ.update(asked["environment"])
        sys.path[:0] = asked["path"]
        sys.argv = asked["argv"]
        main.main()
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="session")
def server():
    """The process that forks for every command."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    pipe = subprocess.PIPE
    line = [sys.executable, "-c", SERVER]
    with subprocess.Popen(
        line, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def command(server, tmp_path):
    """Runs ``jaxatr``; ``environment`` adds variables, ``path`` is added to the import path."""

    def command(*arguments, path=(), **environment):
        files = {name: tmp_path / f"command.{name}" for name in ("stdout", "stderr")}
        asked = {
            "argv": ["jaxatr", *map(str, arguments)],
            "path": [str(folder) for folder in path],
            "environment": {name: str(value) for name, value in environment.items()},
            **{name: str(file) for name, file in files.items()},
        }
        print(json.dumps(asked), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        texts = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
        return subprocess.CompletedProcess(asked["argv"], code, **texts)

    return command
