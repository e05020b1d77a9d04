"""Fixtures: folders of small images, and a separate data directory for every test."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def save():
    """Returns a function that writes an array as an image file, creating its folders."""

    def write(path: Path, array: np.ndarray) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(path)
        return path

    return write


@pytest.fixture
def folder(tmp_path, save):
    """A folder of two splits and three classes; image number i has the constant value i."""
    root = tmp_path / "source"
    value = 0
    for split, count in (("test", 2), ("train", 4)):
        for name in ("car", "tank", "van"):
            for number in range(count):
                save(root / split / name / f"{number}.png", np.full((6, 8), value, np.uint8))
                value += 1
    return root


@pytest.fixture(scope="session")
def real_data():
    """The folder of real images given by JAXATR_DATA."""
    default = Path(__file__).parents[3] / "shared" / "data"
    found = Path(os.environ.get("JAXATR_DATA", default))
    if not found.is_dir():
        pytest.skip(f"no real images: there is no folder {found} (set JAXATR_DATA)")
    return found


@pytest.fixture(scope="session")
def dsiac_files():
    """The module ``dsiac_files``, loaded by its path because the tests' folder is not a package."""
    path = Path(__file__).parent / "dsiac_files.py"
    spec = importlib.util.spec_from_file_location("jaxatr_test_dsiac_files", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
