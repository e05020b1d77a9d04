"""Makes the tables of enrolment from what is recorded; docs/enrolment.md includes them.

    python -m experiments.enrolment.tables

Reads ``results/*.json`` only. A cell of which nothing is recorded says "not run"; behind mean and
deviation stands, in parentheses, of how many enrolments or runs they are.
"""

from typing import Any

from experiments.enrolment.run import BASES, RESULTS, SHOTS, Base
from experiments.records import cell, commits, recorded, table
from jaxatr.reporting.tables import score_title

TITLES = {"mstar": "MSTAR", "cifar10": "CIFAR-10", "simulated": "simulated vehicles"}
WAYS = {"enrolled": "enrolled", "continual": "trained on", "scratch": "from scratch"}


def rows_of(base: Base, way: str, shots: int) -> list[dict[str, Any]]:
    """Returns the figures of a way to add a class: ``class``, and ``own`` of the other classes."""
    if way == "enrolled":
        found = recorded(RESULTS, f"enrolled-{base.name}") or {"rows": []}
        chosen = (row for row in found["rows"] if row["shots"] == shots)
        return [{"class": r["enrolled"], "own": r["after"]} for r in chosen]
    rows = []
    for name in base.unknown:
        run = recorded(RESULTS, f"{way}-{base.name}-{name}-{shots}")
        if run and "enrolled" in run["evaluation"]:
            enrolled = run["evaluation"]["enrolled"]
            rows.append({"class": enrolled["classes"][name], "own": enrolled["own"]["after"]})
    return rows


def before(base: Base) -> list[dict[str, Any]]:
    """Returns the figures of the known classes before anything is added, once for each class."""
    found = recorded(RESULTS, f"enrolled-{base.name}") or {"rows": []}
    return list({row["class"]: row["before"] for row in found["rows"]}.values())


def percentages(rows: list[dict[str, Any]], measure: str) -> list[float]:
    """Returns a figure of each row that has it, in percent."""
    return [100 * row[measure] for row in rows if measure in row]


def of_base(base: Base) -> list[str]:
    """The table of a data set."""
    header = ["", "chips", "right on the class", "right on the others", "AUROC of the others"]
    own = before(base)
    lines = [["before", "0", "–", *(cell(percentages(own, m)) for m in ("accuracy", "auroc"))]]
    for way, title in WAYS.items():
        for shots in SHOTS:
            rows = rows_of(base, way, shots)
            others = [row["own"] for row in rows]
            lines.append(
                [
                    title,
                    str(shots),
                    cell(percentages([row["class"] for row in rows], "accuracy")),
                    *(cell(percentages(others, m)) for m in ("accuracy", "auroc")),
                ]
            )
    return table(header, lines)


def main() -> None:
    """Writes ``results/tables.md``, which the documentation includes, and a README."""
    lines = []
    for base in BASES:
        if base.name not in TITLES:
            continue
        found = recorded(RESULTS, f"enrolled-{base.name}")
        score = f", by `{found['score']}` ({score_title(found['score'])})" if found else ""
        lines += [f"**{TITLES[base.name]}**{score}", "", *of_base(base), ""]
    text = "\n".join([*lines, commits(RESULTS)]) + "\n"
    (RESULTS / "tables.md").write_text(text)
    introduction = (
        "# Classes that are added by few chips\n\n"
        "Made by `python -m experiments.enrolment.tables`; what the columns mean is in "
        "[docs/enrolment.md](../../../docs/enrolment.md#measured).\n\n"
    )
    (RESULTS / "README.md").write_text(introduction + text)


if __name__ == "__main__":
    main()
