"""Fixtures of the batch tests: inputs of every kind, and the rows of the parts."""

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from jaxatr import batch, bundled, runs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def test_chips(chips):
    """The folder of the test chips, 40 of them."""
    return chips / "test"


def names_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))


@pytest.fixture(scope="session")
def every_kind(test_chips, tmp_path_factory):
    """For each kind of source an argument whose 40 inputs are the test chips, in order."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    root, names = tmp_path_factory.mktemp("kinds"), names_below(test_chips)
    with zipfile.ZipFile(root / "chips.zip", "w") as packed:
        for name in names:
            packed.write(test_chips / name, name)
    for suffix, mode in (("tar", "w"), ("tar.gz", "w:gz")):
        with tarfile.open(root / f"chips.{suffix}", mode) as packed:
            note = tarfile.TarInfo("notes.txt")
            packed.addfile(note, io.BytesIO())
            for name in names:
                packed.add(test_chips / name, name)
    contents = [(test_chips / name).read_bytes() for name in names]
    (root / "set").mkdir()
    for number, half in enumerate((slice(0, 20), slice(20, 40))):
        cells = [{"bytes": one, "path": None} for one in contents[half]]
        table = pyarrow.table({"label": [0] * 20, "image": cells})
        parquet.write_table(table, root / "set" / f"{number}.parquet", row_group_size=7)
    paths = [os.path.relpath(test_chips / name, root) for name in names]
    parquet.write_table(pyarrow.table({"path": paths}), root / "paths.parquet")
    cells = "\n".join(f"disc;{path}" for path in paths)
    (root / "paths.csv").write_text(f"label; Filename\n{cells}\n")
    (root / "paths.tsv").write_text(f"label\tpath\n{cells}\n".replace(";", "\t"))
    return {
        "folder": str(test_chips),
        "zip": str(root / "chips.zip"),
        "tar": str(root / "chips.tar"),
        "tar.gz": str(root / "chips.tar.gz"),
        "parquet": str(root / "set"),
        "paths": str(root / "paths.parquet"),
        "csv": str(root / "paths.csv"),
        "tsv": str(root / "paths.tsv"),
    }


@pytest.fixture
def predict(trained_run, test_chips, tmp_path):
    """Predicts into ``tmp_path / "out"``; returns the totals. ``said`` has the lines."""

    def predict(*arguments, out=tmp_path / "out", workdir=trained_run, **options):
        options = {"engine": "local", "size": 7, "say": predict.said.append} | options
        inputs = [str(name) for name in arguments] or [str(test_chips)]
        return batch.predict_parts(Path(out), [str(workdir)], inputs, **options)

    predict.said = []
    return predict


@pytest.fixture
def rows():
    """Reads the rows of all parts in a folder, in order."""
    parquet = pytest.importorskip("pyarrow.parquet")

    def rows(out):
        parts = sorted(Path(out).glob("part-*.parquet"))
        return [row for part in parts for row in parquet.read_table(part).to_pylist()]

    return rows


@pytest.fixture
def damaged_chips(test_chips, tmp_path):
    """A folder with three chips; the second cannot be read."""
    root = tmp_path / "damaged"
    root.mkdir()
    for name in ("a.png", "c.png"):
        Image.open(test_chips / "disc" / "000.png").save(root / name)
    (root / "b.png").write_bytes(b"no image")
    return root


@pytest.fixture
def start(networks_of_the_tests, tmp_path):
    """Starts ``jaxatr predict`` in a separate process."""
    started = []

    def start(*arguments, **environment):
        path = os.pathsep.join([str(ROOT), str(networks_of_the_tests)])
        kept = {"JAXATR_COMPILATION_CACHE": str(tmp_path / "compiled"), "JAX_PLATFORMS": "cpu"}
        own = os.environ | kept | {"PYTHONPATH": path} | environment
        process = subprocess.Popen(
            [sys.executable, "-m", "jaxatr", "predict", "--trust", *map(str, arguments)],
            cwd=ROOT,
            env=own,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def detector(tmp_path_factory):
    """The folder of a detector that needs no training."""
    root = tmp_path_factory.mktemp("cfar")
    config = bundled.load("detect:cfar")
    config.data.data_dir = str(root / "data")
    config.data.options = {"train": 1, "test": 1, "size": 64, "targets": (1, 1)}
    config.cfar.guard, config.cfar.train = 8, 3
    config.detection.tile, config.detection.tile_overlap = 64, 16
    runs.train_run(config, root / "run", progress=False)
    return root / "run"
