"""How the results of a surrogate are shown."""

from jaxatr.reporting.kind import Report
from jaxatr.tasks.distillation.recorded import RecordedSurrogate, read_surrogate
from jaxatr.tasks.distillation.saliency_sections import (
    explanation_table,
    methods,
    saliency_sheet,
)


def introduce(run: RecordedSurrogate) -> str:
    """Names the network that is explained, for the top of the page."""
    target = run.evaluation["target"].get("workdir", "a run")
    return f"a surrogate that explains the network of {target}."


def settings(run: RecordedSurrogate) -> dict[str, str]:
    """Lists the target, and how the loss was weighted."""
    target, fields = run.evaluation["target"], run.config["distillation"]
    return {
        "target": f"{target.get('workdir', '–')}, step {target.get('step', '–')}",
        "target's network": f"{target.get('backbone', '–')}, width {target.get('width', '–')}",
        "training": "end to end" if fields["end_to_end"] else "student, then explanation network",
        "scorer of the masked image": fields["scorer"],
        "λ": f"{fields['l1_weight']:g}, of the {fields['l1']} over pixels",
        "RISE's masks": str(fields["rise_samples"]),
        "LIME's samples": str(fields["lime_samples"]),
    }


REPORT = Report(
    title="explanations",
    read=lambda folder, name: read_surrogate(folder, name=name),
    introduce=introduce,
    settings=settings,
    sections=((1000, methods), (1100, saliency_sheet)),
    text=explanation_table,
)
