"""The configuration fields of a distillation."""

from jaxatr.config import Field, Fields

FIELDS: Fields = {
    "train.end_with_best": Field(
        False,
        "not supported: the best student's explanation network may be untrained",
    ),
    "surrogate.deltas": Field(
        "last",
        "input of the explanation network from each of the student's last three stages: Δf of "
        "the `last` attention module, their `sum`, or the stage's `features`",
    ),
    "surrogate.width": Field(
        64,
        "channels of the explanation network's last upsample block; each earlier one has twice as "
        "many",
    ),
    "distillation.target": Field(
        "",
        "the network to explain, required: a run's folder, an [ONNX "
        "file](onnx.md#a-network-as-target), or `module:function` that [returns "
        "it](explanations.md#the-surrogate)",
    ),
    "distillation.end_to_end": Field(
        False,
        "train both networks jointly (equation 10) instead of one after the other",
    ),
    "distillation.temperature": Field(1.0, "temperature t of equation 6"),
    "distillation.alpha": Field(
        0.5, "weight of the target's output relative to the label, equation 4"
    ),
    "distillation.objective": Field(
        "mask",
        "objective of the maps: `mask`, equation 9, or `curves`, an estimate of insertion and "
        "deletion (not the paper's)",
    ),
    "distillation.insertion_weight": Field(
        1.0, "weight of insertion relative to deletion; with `curves`"
    ),
    "distillation.masks": Field(
        0,
        "random masks per image and step for a further loss of the map (`losses.influence`), "
        "with `curves`; at least 2; 0: none",
    ),
    "distillation.masks_weight": Field(0.5, "weight of that loss"),
    "distillation.masks_contrast": Field(4.0, "contrast that it demands of the map"),
    "distillation.scorer": Field(
        "target", "network that scores the masked image in equation 9: `target` or `student`"
    ),
    "distillation.l1_weight": Field(1e-5, "λ of equation 8"),
    "distillation.l1": Field(
        "sum",
        "reduction of equation 8 over a map's pixels: `sum`, as printed, or `mean`",
    ),
    "distillation.area": Field(
        0.1,
        "fraction of the pixels that a map should mark, with `distillation.area_weight`",
    ),
    "distillation.area_weight": Field(
        0.0, "weight of the area prior (`losses.saliency_area`), not the paper's; 0: off"
    ),
    "distillation.judged": Field(
        200,
        "examples on which insertion and deletion are measured, evenly spaced over the split",
    ),
    "distillation.pixels_per_step": Field(
        0, "pixels per step of insertion and deletion; 0: the chip's width"
    ),
    "distillation.rise_samples": Field(8000, "masks of RISE in `evaluate --methods`"),
    "distillation.lime_samples": Field(1000, "samples of LIME in `evaluate --methods`"),
    "explanation.epochs": Field(16.0, "epochs of the explanation network, if trained separately"),
    "explanation.steps": Field(0, "its steps, overrides `explanation.epochs`; 0: unset"),
    "explanation.learning_rate": Field(0.1, "its learning rate"),
    "explanation.schedule": Field("steps", "its schedule: `constant`, `cosine` or `steps`"),
    "explanation.boundaries": Field(
        (10.0, 12.0, 14.0), "epochs after which its learning rate falls"
    ),
}
