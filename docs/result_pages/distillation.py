"""Attentive distillation: docs/results/distillation.md."""

import json
from itertools import product
from statistics import geometric_mean

from charts import OURS, PUBLISHED, Mark, Row, Section

from experiments.attentive_distillation import tables as distillation
from experiments.attentive_distillation.run import RESULTS, TARGETS, chosen_way, targets
from experiments.records import NOT_RUN, other_settings, table
from result_pages.marks import BOTH, Figures, Tables, ours


def _curves(measure: str, place: int) -> list[Section]:
    rows = []
    for method, values in distillation.PAPER_TABLE4.items():
        value = values[place][0]
        rows.append(Row(method, [Mark(PUBLISHED, value)], f"{value:.3f}"))
    better = "higher is better" if measure == "insertion" else "lower is better"
    axis = f"{measure} ({better})"
    sections = [Section("Published: ImageNet, ResNet-50", rows, axis)]
    for data in TARGETS:
        ways = {"paper": "surrogate, λ 1e-5", "paper-1e-4": "surrogate, λ 1e-4"}
        if (chosen := chosen_way(data)) is not None:
            ways[chosen] = "surrogate, chosen"
        rows = [
            Row(title, *ours(distillation.surrogate(data, way, measure), ".3f"))
            for way, title in ways.items()
        ]
        for method in ("rise", "lime", "grad_cam"):
            value = distillation.rival(data, method, measure)
            title = distillation.method_title(method)
            rows.append(Row(title, *ours([] if value is None else [value], ".3f")))
        sections.append(Section(f"Ours: {data}", rows, axis))
    return sections


def insertion() -> list[Section]:
    """Table 4, insertion."""
    return _curves("insertion", 0)


def deletion() -> list[Section]:
    """Table 4, deletion."""
    return _curves("deletion", 1)


def passes() -> list[Section]:
    """Table 3: the cost of a map, in forward passes of the network that it explains."""
    speed = distillation.PAPER_TABLE3
    normal = speed["normal inference"][0]
    sizes = json.loads(distillation.SPEED.read_text(encoding="utf-8"))["sizes"]
    rows = []
    for key, title in (("surrogate", "surrogate"), ("grad_cam", "Grad-CAM"), ("rise", "RISE")):
        own = [methods[key]["passes"] for methods in sizes.values() if key in methods]
        mean = geometric_mean(own)
        marks = [Mark(PUBLISHED, normal / speed[title][0]), Mark(OURS, mean, None, own)]
        rows.append(Row(title, marks, f"{mean:,.0f}" if mean > 100 else f"{mean:.2f}"))
    return [Section("Table 3, cost of a map", rows, "forward passes", log=True, reference=1.0)]


def aims() -> str:
    """Whether the chosen surrogate keeps up with Grad-CAM and RISE."""
    return "\n".join([*(line for data in TARGETS for line in distillation.aims(data))])


def distillation_table() -> str:
    """Insertion and deletion of every method on every set."""
    header = ["method"]
    for data in TARGETS:
        header += [f"{data}: insertion", "deletion"]
    rows = []
    for title in ("surrogate, λ 1e-5", "surrogate, λ 1e-4", "surrogate, chosen"):
        cells = []
        for data in TARGETS:
            known = {"surrogate, λ 1e-5": "paper", "surrogate, λ 1e-4": "paper-1e-4"}
            way = known.get(title) or chosen_way(data) or ""
            for measure in ("insertion", "deletion"):
                cells.append(distillation.cell(distillation.surrogate(data, way, measure), ".3f"))
        rows.append([title, *cells])
    for method in ("grad_cam", "rise", "lime"):
        values = [
            distillation.rival(data, method, measure)
            for data, measure in product(TARGETS, ("insertion", "deletion"))
        ]
        cells = [NOT_RUN if value is None else f"{value:.3f}" for value in values]
        rows.append([distillation.asked(next(iter(TARGETS)), method), *cells])
    return "\n".join([*table(header, rows), "", *other_settings(targets(), RESULTS)])


def distillation_inside() -> str:
    """How much of a map lies on the target's own pixels; only the simulated vehicles have masks."""
    data, measures = "simulated", ("share_inside", "pointing_game")
    rows = []
    for title, way in (("surrogate, λ 1e-5", "paper"), ("surrogate, chosen", chosen_way(data))):
        found = [distillation.surrogate(data, way or "", measure) for measure in measures]
        rows.append([title, *(distillation.cell(values, ".3f") for values in found)])
    for method in ("grad_cam", "rise", "lime"):
        values = [distillation.rival(data, method, measure) for measure in measures]
        cells = [NOT_RUN if value is None else f"{value:.3f}" for value in values]
        rows.append([distillation.asked(data, method), *cells])
    return "\n".join(table(["method", "share inside", "pointing game"], rows))


FIGURES: Figures = {
    "distillation_insertion": (insertion, BOTH),
    "distillation_deletion": (deletion, BOTH),
    "distillation_passes": (passes, {PUBLISHED: "published", OURS: "jaxatr, five networks"}),
}
TABLES: Tables = {
    "distillation": distillation_table,
    "distillation_aims": aims,
    "distillation_speed": lambda: "\n".join(distillation.speed_aims()),
    "distillation_inside": distillation_inside,
}
