"""Runs the tutorials, and writes their output into their pages and into notebooks.

    python docs/make_tutorials.py [LAST]
    JAXATR_DATA=FOLDER python docs/make_tutorials.py finding

A tutorial is a page of ``docs/tutorials``. Its ``bash`` and ``python`` blocks are run in order, as
the cells of a notebook; the ``text`` block after a cell is the cell's output, and the executed
notebook is saved beside the page. All tutorials up to ``LAST`` work in one folder, which is empty
at first, so that each can use the files of earlier ones. Those that need data of others run alone,
with a link to the data.

The pictures of a page are taken from that folder. ``<!-- screenshot: report.html report.png
1100x900 -->`` in a tutorial takes a screenshot of an HTML page there, and ``<!-- time -->``
precedes the measured run time. Requires the extra ``dev``, and Chromium for the screenshots.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent / "tutorials"
NAMES = (
    "first_run",
    "your_chips",
    "deciding",
    "explaining",
    "enrolling",
    "serving",
    "deploying",
    "searching",
    "many_chips",
    "weeks",
)
"""The tutorials, in the order of their execution."""

ALONE = {"finding": ("hituav", "HITUAV")}
"""Tutorials that need data: its folder in ``JAXATR_DATA``, and its name in the tutorial."""

COMPILER = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")
"""Variables that a tutorial does not inherit: it compiles its programs as users do."""

MOST_LINES = 30
"""Longer output is shortened in its middle."""

_CELL = re.compile(
    r"^```(?P<language>bash|python)\n(?P<code>.*?)^```\n(?:\n```text\n.*?^```\n)?", re.M | re.S
)
_PICTURE = re.compile(r"!\[[^\]]*\]\((?P<path>[^)]+\.png)\)")
_SCREENSHOT = re.compile(r"<!-- screenshot: (\S+) (\S+) (\d+)x(\d+) -->")
_TIME = re.compile(r"<!-- time -->.*")
_PROGRESS = re.compile(r"^.*\r", re.M)


def notebook_of(page: str) -> nbformat.NotebookNode:
    """Makes a notebook of a page, without output.

    Args:
      page: Markdown.
    """
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {
        "name": "python3", "display_name": "Python 3", "language": "python",
    }  # fmt: skip
    start = 0
    for found in _CELL.finditer(page):
        _add(notebook, nbformat.v4.new_markdown_cell(page[start : found.start()].strip()))
        shell = "%%bash\nset -e\n" if found["language"] == "bash" else ""
        _add(notebook, nbformat.v4.new_code_cell(shell + found["code"].rstrip("\n")))
        start = found.end()
    _add(notebook, nbformat.v4.new_markdown_cell(page[start:].strip()))
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # by default random, so that each run would differ
    return notebook


def execute(notebook: nbformat.NotebookNode, folder: Path, *, timeout: int = 900) -> None:
    """Executes a notebook in a folder, with the commands of this interpreter's environment.

    Args:
      notebook: the notebook; outputs are added to it.
      folder: working directory of all cells.
      timeout: time limit of a cell in seconds.

    Raises:
      nbclient.exceptions.CellExecutionError: a command or a statement failed.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {name: value for name, value in os.environ.items() if name not in COMPILER}
    client = NotebookClient(
        notebook, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    client.execute(env=own | {"PATH": path})


def printed(cell: nbformat.NotebookNode) -> str:
    """Returns the text that a cell printed, including standard error and its value."""
    parts = []
    for output in cell.outputs:
        data = output.get("data", {})
        parts.append(output.get("text") or data.get("text/plain", "") + "\n" * ("data" in output))
    lines = _PROGRESS.sub("", "".join(parts)).rstrip().splitlines()
    if len(lines) > MOST_LINES:
        half = MOST_LINES // 2
        lines = [*lines[:half], "…", *lines[-half:]]
    return "\n".join(line.rstrip() for line in lines)


def with_output(page: str, notebook: nbformat.NotebookNode, seconds: float) -> str:
    """Returns a page with the output of its executed notebook and its run time."""
    cells = iter(cell for cell in notebook.cells if cell.cell_type == "code")

    def block(found: re.Match[str]) -> str:
        text = printed(next(cells))
        shown = f"\n```text\n{text}\n```\n" if text else ""
        return f"```{found['language']}\n{found['code']}```\n{shown}"

    time_line = f"<!-- time --> *Run time: {max(round(seconds), 1)} s on {os.cpu_count()} cores.*"
    return _TIME.sub(time_line, _CELL.sub(block, page))


def photograph(page: str, folder: Path) -> None:
    """Takes the screenshots of a page.

    Args:
      page: Markdown.
      folder: folder of the HTML files; the pictures are written beside them.
    """
    for source, picture, width, height in _SCREENSHOT.findall(page):
        command = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars"]
        command += ["--blink-settings=preferredColorScheme=1", f"--window-size={width},{height}"]
        command += [f"--screenshot={folder / picture}", (folder / source).as_uri()]
        subprocess.run(command, check=True, capture_output=True)


def make(path: Path, folder: Path) -> None:
    """Runs a tutorial and writes its page, its notebook and its pictures.

    Args:
      path: path of the page.
      folder: working directory, with the files of earlier tutorials.
    """
    page = path.read_text(encoding="utf-8")
    notebook = notebook_of(page)
    started = time.monotonic()
    execute(notebook, folder)
    seconds = time.monotonic() - started
    photograph(page, folder)
    for picture in _PICTURE.findall(page):
        if (made := folder / Path(picture).name).exists():
            (path.parent / picture).parent.mkdir(exist_ok=True)
            shutil.copyfile(made, path.parent / picture)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which differ from run to run
    written = {path: with_output(page, notebook, seconds)}
    written[path.with_suffix(".ipynb")] = nbformat.writes(notebook) + "\n"
    for file, text in written.items():
        text = text.replace(str(folder), ".").replace(str(Path.home()), "~")
        file.write_text(text, encoding="utf-8")


def _add(notebook: nbformat.NotebookNode, cell: nbformat.NotebookNode) -> None:
    if cell.source:
        notebook.cells.append(cell)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("last", nargs="?", default=NAMES[-1], choices=(*NAMES, *ALONE))
    last = parser.parse_args().last
    with tempfile.TemporaryDirectory() as scratch:
        if last in ALONE:
            data, link = ALONE[last]
            folder = Path(os.environ.get("JAXATR_DATA", "../shared/data"), data).resolve(
                strict=True
            )
            Path(scratch, link).symlink_to(folder)
        for name in [last] if last in ALONE else NAMES[: NAMES.index(last) + 1]:
            print(name, flush=True)
            make(FOLDER / f"{name}.md", Path(scratch))
