"""Parts that are found by their place."""

import sys

import pytest

from jaxatr import explain, openset, parts, resolve
from jaxatr.config import COMMON
from jaxatr.data import augmentations, sources
from jaxatr.kernels.ops.convolution.solvers import SOLVERS
from jaxatr.kernels.ops.recurrent.algorithms import ALGORITHMS
from jaxatr.models import backbones, published
from jaxatr.openset import Score
from jaxatr.tasks.embedding import Embedding, in_batch
from jaxatr.tasks.open_set import terms

FOLDERS = {
    "scores": openset.SCORES,
    "sources": sources.SOURCES,
    "backbones": backbones.BACKBONES,
    "published": published.NETWORKS,
    "augmentations": augmentations.AUGMENTATIONS,
    "methods": explain.METHODS,
    "terms": terms.TERMS,
    "losses": in_batch.IN_BATCH,
    "solvers": SOLVERS,
    "algorithms": ALGORITHMS,
}
TEXTS = {
    "sources": COMMON["data.name"],
    "backbones": COMMON["model.backbone"],
    "losses": Embedding.fields()["embedding.loss"],
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_every_file_declares_a_part_of_its_name(kind):
    folder = FOLDERS[kind]
    assert len(folder) == len(set(folder)) == len(folder.values()) >= 4
    assert all(name in folder and folder.find(name) is folder[name] for name in folder)
    if kind in TEXTS:  # the field that selects one lists them
        assert all(f"`{name}`" in TEXTS[kind].meaning for name in folder)
    assert "nothing" not in folder and folder.get("nothing") is None
    assert all(any(name.startswith(file) for file in folder.files()) for name in folder)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of scores of which each file declares something else."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "jaxatr_test_parts").mkdir()
    begin = "from jaxatr.openset import Score\nread = lambda logits: logits[:, 0]\n"
    for name, code in {
        "__init__": "",
        "one": "PART = Score.of_arrays('one', 'One', read)",
        "one_more": "PARTS = [Score.of_arrays(f'one_more_{i}', str(i), read) for i in (1, 2)]",
        "other": "PART = Score.of_arrays('another', 'Another', read)",
        "wrong": "PART = 3",
        "empty": "",
        "_helper": "raise RuntimeError",
    }.items():
        (tmp_path / "jaxatr_test_parts" / f"{name}.py").write_text(begin + code)
    yield "jaxatr_test_parts"
    for name in [name for name in sys.modules if name.startswith("jaxatr_test_parts")]:
        del sys.modules[name]


def test_a_file_is_imported_when_its_part_is_asked_for(folder):
    found = parts.Parts(folder, Score, field="scores", variants=True)
    loaded = lambda: {n.partition(".")[2] for n in sys.modules if n.startswith(f"{folder}.")}  # noqa: E731
    assert found.files() == ["empty", "one", "one_more", "other", "wrong"] and not loaded()
    assert found["one"].title == "One" and loaded() == {"one"}
    assert found["one_more_2"].title == "2" and loaded() == {"one", "one_more"}


@pytest.mark.parametrize(
    "file, message",
    [
        ("other", "declares 'another', wanted 'other'"),
        ("wrong", "wanted a Score, declared as PART"),
        ("empty", "wanted a Score, declared as PART"),
    ],
)
def test_what_a_file_may_not_declare_is_named(folder, file, message):
    with pytest.raises(ValueError, match=f"{folder}.{file}: {message}"):
        parts.Parts(folder, Score, variants=True)[file]


def test_what_is_not_a_part_is_named(folder):
    with pytest.raises(ValueError, match="scores: got 'klmn', wanted one of .* mean 'klm'"):
        openset.SCORES.find("klmn")
    with pytest.raises(ValueError, match="method: jaxatr.parts:files is a function, wanted"):
        explain.METHODS.find("jaxatr.parts:files")
    with pytest.raises(ValueError, match="MLS has the name of a built-in one, 'mls'"):
        impostor = openset.Score("mls", "x", lambda model, outputs: outputs.logits[:, 0])
        sys.modules[folder] = type(sys)(folder)
        sys.modules[folder].MLS = impostor
        with resolve.trusting(True):
            openset.SCORES.find(f"{folder}:MLS")


def test_listing_a_folder_imports_nothing():
    import subprocess

    program = (
        "import sys; from jaxatr import parts\n"
        "assert 'resnet18' in parts.files('jaxatr.models.backbones')\n"
        "from jaxatr.data.sources import SOURCES\n"
        "assert 'mstar' in SOURCES and 'simulated' in list(SOURCES)\n"
        "assert not [n for n in sys.modules if n.startswith('jaxatr.models')]\n"
        "own = [n for n in sys.modules if n.startswith('jaxatr.data.sources.')]\n"
        "assert own == ['jaxatr.data.sources._tfds'], own"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not done.stderr and done.returncode == 0
