"""The report of an embedding's results."""

from collections.abc import Mapping
from typing import Any

from jaxatr.reporting import explorer, overview, recorded_sets
from jaxatr.reporting.kind import Report
from jaxatr.reporting.tables import open_set_table
from jaxatr.tasks.embedding.evaluation import SCORE
from jaxatr.tasks.embedding.map_section import embedding_map
from jaxatr.tasks.embedding.recorded_embedding import RecordedEmbedding, read_embedding
from jaxatr.tasks.embedding.retrieval_sections import retrieval, retrieval_table, search_sheet
from jaxatr.tasks.open_set.report import SECTIONS, introduce


def text(evaluation: Mapping[str, Any]) -> str:
    """Formats the metrics of retrieval, if measured, and of recognition."""
    tables = [retrieval_table(evaluation["retrieval"])] if evaluation["retrieval"] else []
    return "\n\n".join([*tables, open_set_table(evaluation)])


def figures(evaluation: Mapping[str, Any]) -> dict[str, float | None]:
    """Returns the figures of retrieval and recognition, by title."""
    found = {
        f"{title}, {kind} classes": row.get(name)
        for kind, row in evaluation["retrieval"].items()
        for name, title in (("recall_at_1", "R@1"), ("map_at_r", "MAP@R"))
    }
    return found | recorded_sets.figures(evaluation)


def settings(run: RecordedEmbedding) -> dict[str, str]:
    """Returns the coarse classes, the loss and the fitted distance."""
    record, loss = run.record, run.config["embedding"]["loss"]
    members: dict[str, list[str]] = {}
    for name, coarse in zip(run.evaluation["known"], record["coarse"], strict=True):
        members.setdefault(coarse, []).append(name)
    groups = "; ".join(f"{coarse}: {', '.join(names)}" for coarse, names in members.items())
    row, tpr = run.evaluation["groups"]["all"]["scores"][SCORE], run.evaluation["tpr"]
    fitted = row.get("fitted_threshold")
    return {
        "coarse classes": f"{record['hierarchy']} ({groups})",
        "loss": loss,
        "selection": run.config["mining"]["method"] if loss == "quadruplet" else "within the batch",
        "fitted distance": "–"
        if fitted is None
        else f"{-fitted:.6g}, to accept {100 * tpr:g}% of the known examples",
        **overview.thresholds(run),
    }


REPORT = Report(
    title="fine-grained retrieval",
    read=read_embedding,
    introduce=introduce,
    settings=settings,
    sections=((1500, retrieval), (1600, embedding_map), (1700, search_sheet), *SECTIONS),
    text=text,
    data=explorer.script_data,
    read_set=read_embedding,
    figures=figures,
)
