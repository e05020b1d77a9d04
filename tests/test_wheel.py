"""A built wheel, installed, in an empty folder."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def call(*arguments, **options):
    done = subprocess.run(
        list(map(str, arguments)), capture_output=True, text=True, timeout=900, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_trains_in_an_empty_folder(tmp_path):
    source, empty = tmp_path / "source", tmp_path / "empty"
    source.mkdir(), empty.mkdir()
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("jaxatr", "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    call(*pip, "wheel", source, "--no-deps", f"--wheel-dir={tmp_path}")
    (wheel,) = tmp_path.glob("jaxatr-*.whl")

    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    call(*pip, f"--python={python}", "install", "--no-deps", "--no-index", wheel)
    # The packages of this environment, without its own jaxatr.
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"JAX_PLATFORMS": "cpu", "JAXATR_DATA_DIR": str(tmp_path / "data")}
    command = tmp_path / "venv" / "bin" / "jaxatr"
    done = call(command, "train", "--config=cbc:smoke", "--workdir=run", cwd=empty, env=environment)
    assert "use it: jaxatr predict --workdir=run" in done
    assert (empty / "run" / "evaluation.json").is_file()
