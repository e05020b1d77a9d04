"""The worth of chosen labels: docs/results/labelling.md."""

from experiments.labelling import tables
from result_pages.marks import Figures, Tables

FIGURES: Figures = {}
TABLES: Tables = {
    "labelling_shares": tables.shares,
    "labelling_accuracies": tables.accuracies,
}
