"""The benchmark of decisions: docs/results/decisions.md."""

from experiments.decisions import tables
from result_pages.marks import Figures, Tables

FIGURES: Figures = {}
TABLES: Tables = {
    "decisions_tasks": tables.tasks,
    "decisions_rules": tables.rules,
    "decisions_by_task": tables.by_task,
    "decisions_acceptance": tables.acceptance,
    "decisions_few": tables.few,
    "decisions_few_by_rule": tables.few_by_rule,
    "decisions_probabilities": tables.probabilities,
    "decisions_estimates": tables.estimates,
    "decisions_names": tables.names,
    "decisions_unlabelled": tables.unlabelled,
    "decisions_recipes": tables.recipes,
    "decisions_temperatures": tables.temperatures,
    "decisions_few_labelled": tables.few_labelled,
    "decisions_boxes": tables.boxes,
    "decisions_trained": tables.trained,
    "decisions_printed": tables.printed,
}
