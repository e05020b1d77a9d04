"""Validation of the configuration fields of a distillation."""

from jaxatr.tasks.limits import are_numbers, check_choices, check_limits
from jaxatr.typing import Config


def check_fields(config: Config) -> None:
    """Checks values that would otherwise fail during training or silently spoil it.

    Raises:
      ValueError: a value is invalid; the message names its field.
    """
    fields, second = config.distillation, config.explanation
    if not fields.target:
        raise ValueError(
            "distillation.target: got nothing, wanted the folder of a run to explain: "
            "--config.distillation.target=DIR"
        )
    check_choices(
        config,
        distillation__objective=("mask", "curves"),
        distillation__scorer=("target", "student"),
        distillation__l1=("sum", "mean"),
        explanation__schedule=("constant", "cosine", "steps"),
        surrogate__deltas=("last", "sum", "features"),
    )
    if fields.objective == "mask":
        for name, off in (("masks", 0), ("insertion_weight", 1.0)):
            if fields[name] != off:
                raise ValueError(
                    f"distillation.{name}: got {fields[name]}, which needs "
                    "distillation.objective=curves"
                )
    check_limits(
        config,
        distillation__temperature=(fields.temperature > 0, "more than 0"),
        distillation__alpha=(0 <= fields.alpha <= 1, "0 to 1"),
        distillation__insertion_weight=(fields.insertion_weight >= 0, "0 or more"),
        distillation__masks=(fields.masks == 0 or fields.masks >= 2, "0 (off), or at least 2"),
        distillation__masks_weight=(fields.masks_weight >= 0, "0 or more"),
        distillation__masks_contrast=(fields.masks_contrast > 0, "more than 0"),
        distillation__l1_weight=(fields.l1_weight >= 0, "0 or more"),
        distillation__area=(0 <= fields.area <= 1, "a share in [0, 1]"),
        distillation__area_weight=(fields.area_weight >= 0, "0 (off) or more"),
        distillation__judged=(fields.judged >= 1, "at least 1"),
        distillation__rise_samples=(fields.rise_samples >= 1, "at least 1"),
        distillation__lime_samples=(fields.lime_samples >= 1, "at least 1"),
        distillation__pixels_per_step=(fields.pixels_per_step >= 0, "0 (a row) or more"),
        explanation__epochs=(second.epochs > 0 or second.steps > 0, "more than 0"),
        explanation__steps=(second.steps >= 0, "0 (by epochs) or more"),
        explanation__boundaries=(are_numbers(second.boundaries), "epochs, 0 or more"),
        explanation__learning_rate=(second.learning_rate > 0, "more than 0"),
        surrogate__width=(config.surrogate.width >= 1, "at least 1"),
    )
