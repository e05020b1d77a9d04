"""The report of a surrogate's results."""

from jaxatr.reporting.kind import Report
from jaxatr.tasks.distillation.recorded_surrogate import RecordedSurrogate, read_surrogate
from jaxatr.tasks.distillation.saliency_sections import (
    explanation_table,
    methods,
    saliency_sheet,
)


def introduce(run: RecordedSurrogate) -> str:
    """Returns an introduction that names the target network, for the top of the page."""
    target = run.evaluation["target"].get("workdir", "a run")
    return f"a surrogate that explains the network of {target}."


def settings(run: RecordedSurrogate) -> dict[str, str]:
    """Returns the target and the settings of the loss."""
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
