"""Draws the figures and fills the tables of the results pages from the recorded runs.

    python docs/make_results.py

Run it again when new results are recorded; it only reads files. Figures go to ``images/results``.
A table stands between ``<!-- recorded: NAME -->`` and ``<!-- end of the record -->``. Runs that are
not recorded are left out of a figure or named "not run". The package ``result_pages`` has a module
for each page, with its figures and tables. Requires the extra ``dev``.
"""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

from charts import svg  # noqa: E402
from result_pages import (  # noqa: E402
    decisions,
    device,
    distillation,
    kernels,
    labelling,
    onnx,
    open_set,
    quadruplets,
)

PICTURES = FOLDER / "images" / "results"
TOPICS = (open_set, decisions, quadruplets, distillation, kernels, device, onnx, labelling)
FIGURES = {name: figure for topic in TOPICS for name, figure in topic.FIGURES.items()}
TABLES = {name: make for topic in TOPICS for name, make in topic.TABLES.items()}

_TABLE = re.compile(
    r"^( *)<!-- recorded: (\w+) -->\n.*?^ *<!-- end of the record -->", re.DOTALL | re.MULTILINE
)


def filled(text: str) -> str:
    """Returns a page with its recorded tables updated, each indented like its mark."""

    def table_of(found: re.Match[str]) -> str:
        indent, name = found.groups()
        lines = [f"<!-- recorded: {name} -->", "", *TABLES[name]().strip().splitlines(), ""]
        lines.append("<!-- end of the record -->")
        return "\n".join(indent + line if line else "" for line in lines)

    return _TABLE.sub(table_of, text)


def main() -> None:
    """Draws all figures and fills all pages."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, (make, legend) in FIGURES.items():
        title = (make.__doc__ or name).partition("\n")[0]
        shown = {kind: words for kind, words in legend.items() if words}
        (PICTURES / f"{name}.svg").write_text(svg(title, make(), shown), encoding="utf-8")
    for page in sorted(FOLDER.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (made := filled(text)) != text:
            page.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
