"""Fills the tables of the pages in this folder that are made from the code.

python docs/make_tables.py

A table stands between ``<!-- table: KIND ARGUMENTS -->`` and ``<!-- end of the table -->``. The
kinds are ``scores``, all open-set scores, ``fields``, the named fields of a task, ``networks``, the
published networks, ``options``, those of the data sources with their defaults, and
``operators``, the implemented ONNX operators.
"""

import importlib
import inspect
import re
from collections.abc import Iterable
from pathlib import Path

from jaxatr import config as configuration
from jaxatr.data import sources
from jaxatr.models.published import NETWORKS
from jaxatr.onnx.ops import registry
from jaxatr.openset import Score
from jaxatr.openset.registry import DEFAULT, SCORES
from jaxatr.tasks.open_set.needs import MAPS, NEEDS

FOLDER = Path(__file__).parent
GAMMA = 0.9

_TABLE = re.compile(r"(<!-- table: (\w+)(.*?) -->\n).*?(?=<!-- end of the table -->)", re.DOTALL)


def filled(text: str) -> str:
    """Returns a page with its tables updated."""
    return _TABLE.sub(
        lambda found: found[1] + "\n" + KINDS[found[2]](*found[3].split()) + "\n", text
    )


def fields(task: str, *names: str) -> str:
    """Returns some fields of a task, as ``--config.FIELD`` sets them."""
    declared = configuration.fields_of(task)
    return configuration.table({name: declared[name] for name in names}) + "\n"


def networks() -> str:
    """Returns a row for each published network."""
    rows = [
        "| `model.pretrained` | where the weights are | trained at | from | licence |",
        "|---|---|---|---|---|",
    ]
    for network in NETWORKS.values():
        files = ", ".join(f"`{file.name}`" for file in network.files)
        rows.append(
            f"| `{network.name}` | `{network.command}`: {files} | "
            f"{network.size} px | {network.source} | {network.licence} |"
        )
    return "\n".join(rows) + "\n"


def options() -> str:
    """Returns a row for each data source: its options with their defaults."""
    rows = ["| source | options |", "|---|---|"]
    for name in sources.names():
        source = sources.find(name)
        if source and source.options:
            listed = (f"`{one}={option.default!r}`" for one, option in source.options.items())
            rows.append(f"| `{name}` | {', '.join(listed)} |")
    return "\n".join(rows) + "\n"


def scores() -> str:
    """Returns a row for each score, or for several of a module that need the same."""
    rows = ["| name | score | needs besides the logits; threshold |", "|---|---|---|"]
    for file in sorted(SCORES.files(), key=lambda file: (_place(SCORES.declared(file)), file)):
        module = importlib.import_module(f"{SCORES.package}.{file}")
        about = (inspect.getdoc(module) or "").partition("\n")[0].removesuffix(".")
        groups: dict[str, list[Score]] = {}
        for score in SCORES.declared(file):
            groups.setdefault(_needs(score), []).append(score)
        for needs, group in groups.items():
            names = ", ".join(f"`{score.name}`" for score in group)
            rows.append(f"| {names} | {about} | {needs} |")
    return "\n".join(rows) + "\n"


def _place(group: Iterable[Score]) -> int:
    """Returns a sort key: default scores first, those with their own training last."""
    (first, *_) = group
    if first.name in DEFAULT:
        return DEFAULT.index(first.name) - len(DEFAULT)
    return 1 if first.training else 0


def _needs(score: Score) -> str:
    """Lists what a score needs besides the logits, and its threshold at γ, if it has one."""
    needs = {"a stage's map" if need in MAPS else NEEDS[need].phrase for need in score.all_needs}
    found = sorted(need.removeprefix("the ") for need in needs)
    if len(score.members) > 1:
        found = [f"`{member.name}`" for member in score.members]
    if score.training:
        found.append("a training beside the run")
    fits = {"training": score.fitted, "validation": score.calibrated}
    fitted = " and ".join(part for part, fit in fits.items() if fit)
    found += [f"{fitted} examples"] if fitted else []
    fixed = score.fixed_threshold
    parts = [", ".join(found), f"{fixed(GAMMA):.3g} at γ = {GAMMA}" if fixed else ""]
    return "; ".join(part for part in parts if part)


def operators() -> str:
    """Returns a row for each domain of ONNX operators."""
    domains: dict[str, dict[str, int]] = {}
    for operator in registry.operators():
        if operator.domain != "jaxatr":  # of no file
            names = domains.setdefault(operator.domain or "ai.onnx", {})
            names.setdefault(operator.name, operator.since)
    rows = ["| domain | operators |", "|---|---|"]
    for domain, names in domains.items():
        listed = (name if since == 1 else f"{name} ({since})" for name, since in names.items())
        rows.append(f"| `{domain}` | {', '.join(listed)} |")
    return "\n".join(rows) + "\n"


KINDS = {
    "fields": fields,
    "networks": networks,
    "scores": scores,
    "options": options,
    "operators": operators,
}


if __name__ == "__main__":
    for page in FOLDER.rglob("*.md"):
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
