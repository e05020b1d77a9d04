"""The configuration fields of a distillation."""

from jaxatr.config import Field, Fields

FIELDS: Fields = {
    "train.end_with_best": Field(
        False,
        "not supported: the best student may be one whose explanation network is still untrained",
    ),
    "surrogate.deltas": Field(
        "last",
        "input of the explanation network from each of the student's last three stages: Δf of the "
        "`last` attention module, the `sum` of Δf over all of them, or the stage's output "
        "`features`",
    ),
    "surrogate.width": Field(
        64,
        "channels of the explanation network's last upsample block; each earlier one has twice as "
        "many",
    ),
    "distillation.target": Field(
        "",
        "the network to explain, required: the folder of its run, an [ONNX "
        "file](onnx.md#a-network-as-target), or `module:function` of a function that [returns "
        "it](explanations.md#the-surrogate)",
    ),
    "distillation.end_to_end": Field(
        False,
        "train student and explanation network jointly (equation 10) instead of one after the "
        "other",
    ),
    "distillation.temperature": Field(1.0, "temperature t of equation 6"),
    "distillation.alpha": Field(
        0.5, "weight of the target's output relative to the label, equation 4"
    ),
    "distillation.objective": Field(
        "mask",
        "training objective of the saliency maps: `mask`, equation 9, or `curves`, an estimate of "
        "insertion and deletion themselves (not the paper's)",
    ),
    "distillation.insertion_weight": Field(
        1.0, "weight of insertion relative to deletion; only with the objective `curves`"
    ),
    "distillation.masks": Field(
        0,
        "random masks per image and step for an additional loss of the map (`losses.influence`); "
        "only with the objective `curves`; at least 2, or 0 for none",
    ),
    "distillation.masks_weight": Field(0.5, "weight of the loss of the random masks"),
    "distillation.masks_contrast": Field(
        4.0, "contrast that the loss of the random masks demands of the map"
    ),
    "distillation.scorer": Field(
        "target", "which network scores the masked image in equation 9: `target` or `student`"
    ),
    "distillation.l1_weight": Field(1e-5, "λ of equation 8"),
    "distillation.l1": Field(
        "sum",
        "reduction of equation 8 over the pixels of a saliency map: `sum`, as printed, or `mean`, "
        "which does not depend on the resolution",
    ),
    "distillation.area": Field(
        0.1,
        "fraction of the pixels that a saliency map should mark, if `distillation.area_weight` is "
        "not 0",
    ),
    "distillation.area_weight": Field(
        0.0, "weight of the area prior on the map (`losses.saliency_area`), not the paper's; 0: off"
    ),
    "distillation.judged": Field(
        200,
        "number of examples on which insertion and deletion are measured, evenly spaced over the "
        "split",
    ),
    "distillation.pixels_per_step": Field(
        0, "pixels per step of insertion and deletion; 0: the width of the chip"
    ),
    "distillation.rise_samples": Field(
        8000, "number of masks of RISE, if `evaluate --methods` compares with it"
    ),
    "distillation.lime_samples": Field(
        1000, "number of samples of LIME, if `evaluate --methods` compares with it"
    ),
    "explanation.epochs": Field(
        16.0, "epochs of the explanation network, if it is trained separately"
    ),
    "explanation.steps": Field(
        0, "steps of the explanation network, overrides `explanation.epochs`; 0: unset"
    ),
    "explanation.learning_rate": Field(0.1, "learning rate of the explanation network"),
    "explanation.schedule": Field(
        "steps", "schedule of the explanation network: `constant`, `cosine` or `steps`"
    ),
    "explanation.boundaries": Field(
        (10.0, 12.0, 14.0), "epochs after which the explanation network's learning rate falls"
    ),
}
