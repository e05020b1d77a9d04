"""The console script, and modules run as commands."""

import os
import re
import runpy
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import jaxatr
from jaxatr import batch, bundled, parts, runs
from jaxatr import config as configuration
from jaxatr.cli import inputs, main, train
from jaxatr.explain import METHODS
from jaxatr.onnx import sessions

ROOT = Path(__file__).parents[2]


def script(program, *arguments):
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "COLUMNS": "100"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_the_console_script_is_this():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"] == {"jaxatr": "jaxatr.cli.main:main"}


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_commands_are_listed(monkeypatch, capsys, arguments):
    monkeypatch.setattr(sys, "argv", ["jaxatr", *arguments])
    main.main()
    listed = re.findall(r"^  (\w+) +[A-Z]", capsys.readouterr().out, re.MULTILINE)
    assert tuple(listed) == main.COMMANDS


def test_the_version(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["jaxatr", "--version"])
    main.main()
    assert capsys.readouterr().out == f"jaxatr {jaxatr.__version__}\n"


def test_a_misspelt_command_names_the_nearest(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["jaxatr", "evalute"])
    with pytest.raises(SystemExit) as exit:
        main.main()
    assert exit.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "got 'evalute'" in line and "did you mean 'evaluate'?" in line


def test_train_is_a_module_too(monkeypatch):
    ran = []
    monkeypatch.setattr(main, "run", lambda *given: ran.append(given))
    monkeypatch.setattr(sys, "argv", ["train.py", "--config=cbc"])
    runpy.run_path(str(Path(jaxatr.__file__).parent / "train.py"), run_name="__main__")
    assert ran == [("train", ["--config=cbc"])]


def test_a_command_sees_its_own_command_line(monkeypatch):
    seen = []
    monkeypatch.setattr(main, "run", lambda *given: seen.append(given))
    monkeypatch.setattr(sys, "argv", ["jaxatr", "tune", "conv", "-n", "1"])
    main.main()
    assert seen == [("tune", ["conv", "-n", "1"])]


def test_ctrl_c_is_a_line_and_ends_by_the_signal():
    program = """
from jaxatr.cli import command, main
def interrupted(*_):
    raise KeyboardInterrupt
command.run = interrupted
print("before", end="")
main.run("predict", [])
print("after")
"""
    done = script(program)
    assert done.returncode == -signal.SIGINT
    assert (done.stdout, done.stderr) == ("before", "error: stopped by Ctrl-C\n")


def test_memory_is_kept_before_anything_starts_threads():
    program = """
import sys
from jaxatr import memory
from jaxatr.cli import main

# absl, because a training answers signals from here on.
memory.keep = lambda **_: print([name for name in ("numpy", "jax", "absl") if name in sys.modules])
sys.argv = ["jaxatr", "report", "--help"]
main.main()
"""
    done = script(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[]\nusage: jaxatr report --workdir=DIR")


def test_help_loads_nothing_heavy():
    light = [name for name in main.COMMANDS if name not in ("check", "prepare")]
    program = (
        "import sys; from absl import flags\n"
        "from jaxatr.cli import help_page\n"
        f"import {', '.join(f'jaxatr.cli.{name}' for name in light)}\n"
        f"for name in {light}:\n"
        "    for flag in list(flags.FLAGS): delattr(flags.FLAGS, flag)\n"
        "    command = sys.modules[f'jaxatr.cli.{name}']\n"
        "    command.define_flags()\n"
        "    help_page.page(command, [flags.FLAGS[flag] for flag in flags.FLAGS])\n"
        "print([name for name in ('jax', 'numpy', 'jaxatr.data') if name in sys.modules])\n"
        "import jaxatr.cli.check, jaxatr.cli.prepare\n"
        "print([name for name in ('sklearn', 'scipy', 'orbax') if name in sys.modules])\n"
    )
    done = script(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "[]"]


def test_names_in_the_flags_are_those_of_the_package():
    """They are repeated, or listed from a folder, for --help not to import them."""
    assert inputs.RUNTIMES == sessions.RUNTIMES
    assert {*inputs.PRECISIONS} == {"float32", *sessions.PRECISIONS}
    assert inputs.ENGINES == tuple(sorted(batch.ENGINES))
    assert parts.files("jaxatr.runs.baselines", "beside") == sorted(runs.BASELINES)
    assert parts.files("jaxatr.explain.methods") == list(METHODS)


def test_help_of_training_has_the_configurations_and_no_librarys_flags(command):
    done = command("train", "--help", COLUMNS=100)
    assert done.returncode == 0, done.stderr
    page = done.stdout
    assert page.startswith("usage: jaxatr train --config=NAME[:VARIANT]")
    flags = re.findall(r"^  --(?:\[no\])?(\w+)", page, re.MULTILINE)
    of_run = ["workdir", "repeats", "more_epochs", "data_source", "data_dir"]
    assert flags == ["config", *of_run, "baselines", "progress", "trust", "device", "debug"]
    variants = (
        "default, smoke, paper, dsiac, mstar, mstar_strong, cifar10, cifar10_strong, folder, "
        "pretrained"
    )
    assert f"Variants: {variants}." in " ".join(page.split())
    assert "`jaxatr train --config=cbc --help` lists the fields of cbc" in page
    assert max(map(len, page.splitlines())) <= 100


def test_help_of_training_a_configuration_has_its_fields(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    page = train.description(["--config", "cbc:smoke", "--help"])
    config = bundled.load("cbc:smoke")
    fields = configuration.fields_of(config.task)
    assert re.findall(r"^  (\w[\w.]*)", page.split("fields of cbc:smoke")[1], re.MULTILINE) == [
        *fields
    ]
    assert "](" not in page and "`" not in page.split("fields of")[1]  # it is not Markdown
    assert re.search(
        r"^  loss.open_weight +weight of the binary classifiers'",
        page,
        re.MULTILINE,
    )
    assert re.search(r"^  train.epochs .*Value: 2\.$", page, re.MULTILINE)


@pytest.mark.parametrize("importing", [False, True])
def test_a_training_that_is_stopped_before_its_loop_ends_with_75(importing, tmp_path):
    (tmp_path / "slow.py").write_text("import signal; signal.raise_signal(signal.SIGTERM)")
    code = (
        "import signal, sys; from jaxatr.cli import main; signal.signal(signal.SIGTERM, main._stop)"
    )
    code += "\nimport slow" if importing else "\nsignal.raise_signal(signal.SIGTERM)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    told = "error: stopped on request; the same command continues\n"
    assert (done.returncode, done.stderr) == (75, told)


def test_the_package_is_a_command_too():
    done = subprocess.run(
        [sys.executable, "-m", "jaxatr", "--version"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == (f"jaxatr {jaxatr.__version__}\n", "")


def test_helpfull_has_the_libraries_flags_too(command):
    done = command("report", "--helpfull", COLUMNS=100)
    assert done.returncode == 0, done.stderr
    own, libraries = done.stdout.split("flags of libraries:")
    assert "--out " in own and "verbosity" not in own and "--verbosity" in libraries


def test_help_of_a_sub_command_has_its_flags():
    done = script("from jaxatr.cli.main import main; main()", "tune", "pool", "--help")
    assert done.returncode == 0, done.stderr
    usage, summary = done.stdout.split("\n\n")[:2]
    assert usage.splitlines() == [usage] and usage.startswith("usage: jaxatr tune pool ")
    assert summary == "Measures a max or average pooling."
    flags = re.findall(r"^  --?(?:\[no\])?(\w+)", done.stdout, re.MULTILINE)
    assert {"n", "v", "mode", "budget"} <= set(flags) and "out" not in flags


def test_help_has_no_flags_of_libraries_that_a_sub_command_imports():
    done = script("from jaxatr.cli.main import main; main()", "tune", "fusions", "--help")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^  --?(?:\[no\])?(\w+)", done.stdout, re.MULTILINE) == ["device", "debug"]
