"""The tutorials: their pages, their notebooks, and that every command of theirs works."""

import importlib.util
import json
import os
import re
import shutil
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="extra 'dev' is not installed")
pytest.importorskip("nbclient", reason="extra 'dev' is not installed")

DOCS = Path(__file__).parents[1] / "docs"
SPEC = importlib.util.spec_from_file_location("make_tutorials", DOCS / "make_tutorials.py")
tutorials = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tutorials)

PAGE = """# A page

<!-- time -->

```python
print("old")
7
```

```text
stale
```

Between.

```bash
echo from the shell >&2
pwd > here.txt
```

```sh
not run
```
"""


def test_a_page_gets_the_output_of_its_cells(tmp_path):
    path, folder = tmp_path / "page.md", tmp_path / "work"
    folder.mkdir()
    path.write_text(PAGE, encoding="utf-8")
    tutorials.make(path, folder)
    made = path.read_text(encoding="utf-8")
    assert "stale" not in made and "```text\nold\n7\n```" in made
    assert "```text\nfrom the shell\n```" in made
    assert re.search(r"<!-- time --> \*Run time: \d+ s on \d+ cores.\*", made)
    assert (folder / "here.txt").read_text().strip() == str(folder)
    notebook = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    assert [cell.cell_type for cell in notebook.cells] == [
        *("markdown", "code", "markdown", "code", "markdown"),
    ]
    assert "not run" in notebook.cells[-1].source
    tutorials.make(path, folder)
    assert re.sub(r"\d+ s", "", path.read_text(encoding="utf-8")) == re.sub(r"\d+ s", "", made)


def test_a_command_that_fails_is_an_error(tmp_path):
    notebook = tutorials.notebook_of("```bash\nfalse\necho after\n```\n")
    with pytest.raises(Exception, match="returned non-zero exit status 1"):
        tutorials.execute(notebook, tmp_path)


@pytest.mark.parametrize("name", [*tutorials.NAMES, *tutorials.ALONE])
def test_notebooks_have_the_cells_of_their_pages(name):
    page = (DOCS / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
    saved = nbformat.read(DOCS / "tutorials" / f"{name}.ipynb", as_version=4)
    wanted = tutorials.notebook_of(page)
    sources = [
        [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        for notebook in (saved, wanted)
    ]
    assert sources[0] == sources[1] and sources[0]
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page):
        assert (DOCS / "tutorials" / picture).is_file()


def shorter(page, flags="--config.train.epochs=2"):
    """Shortens the page's trainings: its commands must work, whatever they recognise.

    Of a flag that is given twice, the last counts.
    """
    return re.sub(
        r"^jaxatr train (.*?)(?=^```)",
        lambda found: f"{found[0].rstrip()} {flags}\n",
        page,
        flags=re.DOTALL | re.MULTILINE,
    )


@pytest.mark.slow
def test_every_command_works(tmp_path):
    pytest.importorskip("onnxruntime", reason="extra 'peers' is not installed")
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    for name in tutorials.NAMES:
        page = (DOCS / "tutorials" / f"{name}.md").read_text(encoding="utf-8")
        tutorials.execute(tutorials.notebook_of(shorter(page)), tmp_path)


def some_scenes(source, folder):
    """Links three scenes of the day and three of the night of each part of HIT-UAV."""
    for part in ("train", "val", "test"):
        content = json.loads((source / f"{part}.json").read_text())
        names = sorted(one["file_name"] for one in content["images"])
        kept = {*[n for n in names if n[0] == "0"][:3], *[n for n in names if n[0] == "1"][:3]}
        content["images"] = [one for one in content["images"] if one["file_name"] in kept]
        there = {one["id"] for one in content["images"]}
        content["annotations"] = [a for a in content["annotations"] if a["image_id"] in there]
        (folder / part).mkdir(parents=True)
        (folder / f"{part}.json").write_text(json.dumps(content))
        for name in kept:
            (folder / part / name).symlink_to(source / part / name)


@pytest.mark.slow
def test_every_command_of_the_tutorial_on_scenes_works(tmp_path):
    source = Path(os.environ.get("JAXATR_DATA", "../shared/data"), "hituav").resolve()
    if not source.is_dir():
        pytest.skip(f"{source}, HIT-UAV, is missing: JAXATR_DATA names the folder above it")
    some_scenes(source, tmp_path / "HITUAV")
    page = (DOCS / "tutorials" / "finding.md").read_text(encoding="utf-8")
    flags = "--config.train.epochs=1 --config.detection.picture=64 --config.model.pretrained="
    flags += " --config.model.backbone=resnet18 --config.model.width=8 --config.model.freeze="
    page = shorter(page, flags).replace("--threshold=0.4", "--threshold=0")  # it finds little
    tutorials.execute(tutorials.notebook_of(page), tmp_path)
