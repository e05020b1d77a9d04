"""Quadruplet selection: docs/results/quadruplets.md."""

from itertools import product

from charts import PUBLISHED, Mark, Row, Section

from experiments.quadruplet_selection import tables as quadruplets
from experiments.quadruplet_selection.run import SETS
from experiments.records import table
from result_pages.marks import BOTH, Figures, Tables, benchmark, ours


def recall() -> list[Section]:
    """Recall@1 of each loss: published on Cars-196, ours on each set that was run."""
    published = [
        Row(title, [Mark(PUBLISHED, quadruplets.PAPER[row][0])], f"{quadruplets.PAPER[row][0]:.1f}")
        for row, title in quadruplets.NAMES.items()
    ]
    sections = [Section("Published: Cars-196, ResNet-101 of ImageNet", published, "Recall@1, %")]
    for data in _compared():
        rows = [
            Row(title, *ours(quadruplets.figures(data, row, "recall_at_1")))
            for row, title in quadruplets.NAMES.items()
        ]
        sections.append(Section(f"Ours: {data}", rows, "Recall@1, %"))
    return sections


def _compared() -> list[str]:
    """Lists the sets on which the rows were compared, not only method 2 and the frozen network."""
    return [data for data in SETS if quadruplets.figures(data, "random", "recall_at_1")]


def recall_claim() -> str:
    """The paper's order, on each set."""
    return "\n".join(f"- {quadruplets.claim(data)}" for data in SETS)


def recall_table() -> str:
    """Recall@1, MAP@R and NMI of each loss, on each set with a comparison."""
    done = _compared()
    columns = {"recall_at_1": "R@1", "map_at_r": "MAP@R", "nmi": "NMI"}
    header = ["method", "R@1, Cars-196 (published)"]
    header += [f"{title}, {data}" for data, title in product(done, columns.values())]
    rows = []
    for row, title in quadruplets.NAMES.items():
        cells = [
            quadruplets.cell(quadruplets.figures(data, row, column))
            for data, column in product(done, columns)
        ]
        rows.append([title, f"{quadruplets.PAPER[row][0]:.2f}", *cells])
    return "\n".join(table(header, rows))


def selection() -> str:
    """The time of selecting quadruplets, beside other ways to search."""
    found = benchmark("retrieval_cpu")["selection"]
    rows = [[name, f"{seconds:.1f} s"] for name, seconds in found["seconds"].items()]
    size = f"{found['examples']:,} embeddings of {found['dimensions']}"
    return "\n".join(table([size, "time"], rows))


def retrieval_notes() -> str:
    """The extrapolation to a million examples, and the time of the measures."""
    record = benchmark("retrieval_cpu")
    sizes, measures = record["selection by size"], record["measures"]
    million = sizes["a million, by the square of the size"]
    largest = sizes["rows"][-1]
    factor = (1_000_000 / largest["examples"]) ** 2
    minutes = factor * max(largest["seconds"].values()) / 60
    seconds = measures["seconds"]
    return (
        f"- Extrapolated from {len(sizes['rows'])} sizes, a million embeddings of "
        f"{sizes['dimensions']} numbers take {million['megabytes, by the size'] / 1000:.1f} GB and "
        f"{minutes:.0f} minutes.\n"
        f"- Of {measures['examples']:,} embeddings of {measures['dimensions']} numbers, Recall@K "
        f"takes {seconds['recall_at_k']:.0f} s, MAP@R {seconds['map_at_r']:.0f} s and NMI "
        f"{seconds['nmi']:.0f} s."
    )


FIGURES: Figures = {"quadruplets_recall": (recall, BOTH)}
TABLES: Tables = {
    "recall": recall_table,
    "recall_claim": recall_claim,
    "selection": selection,
    "retrieval_notes": retrieval_notes,
}
