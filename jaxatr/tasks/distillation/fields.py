"""The configuration fields of a distillation."""

from jaxatr.config import Field, Fields

FIELDS: Fields = {
    "train.end_with_best": Field(
        False,
        "not here: the best student may be one whose explanation network has not been trained",
    ),
    "surrogate.deltas": Field(
        "last",
        "what each of the student's last three stages hands to the explanation network: Δf of its "
        "`last` attention module, or the `sum` over all of them; or, in their place, the stage's "
        "own `features`",
    ),
    "surrogate.width": Field(
        64,
        "channels of the explanation network's last upsample block; each earlier one has twice as "
        "many",
    ),
    "distillation.target": Field(
        "",
        "the network that is explained, must be given: the folder of its run, an [ONNX "
        "file](onnx.md#a-network-as-target), or `module:function` of one that [returns "
        "it](explanations.md#the-surrogate)",
    ),
    "distillation.end_to_end": Field(
        False,
        "train student and explanation network at once (equation 10), not one after the other",
    ),
    "distillation.temperature": Field(1.0, "t of equation 6"),
    "distillation.alpha": Field(
        0.5, "weight of the target's answer against the label's, equation 4"
    ),
    "distillation.objective": Field(
        "mask",
        "what trains the saliency maps: `mask`, equation 9, or `curves`, an estimate of insertion "
        "and deletion themselves (not the paper's)",
    ),
    "distillation.insertion_weight": Field(
        1.0, "of insertion against deletion; with the objective `curves` alone"
    ),
    "distillation.masks": Field(
        0,
        "random masks of each image at every step, with the objective `curves` alone, from which "
        "the map is learnt besides (`losses.influence`); at least 2, or 0 for none",
    ),
    "distillation.masks_weight": Field(0.5, "of that loss"),
    "distillation.masks_contrast": Field(4.0, "how strongly the map is to show what the masks say"),
    "distillation.scorer": Field(
        "target", "which network scores the masked image in equation 9: `target` or `student`"
    ),
    "distillation.l1_weight": Field(1e-5, "λ of equation 8"),
    "distillation.l1": Field(
        "sum",
        "over the pixels of a saliency map, as printed, or `mean`, which does not depend on the "
        "resolution",
    ),
    "distillation.area": Field(
        0.1,
        "share of the pixels that a saliency map is to mark, where `distillation.area_weight` is "
        "not 0",
    ),
    "distillation.area_weight": Field(
        0.0, "of that prior on the map, which is not the paper's (`losses.saliency_area`)"
    ),
    "distillation.judged": Field(
        200, "examples whose insertion and deletion are measured, evenly spread over the part"
    ),
    "distillation.pixels_per_step": Field(
        0, "of insertion and deletion; 0: as many as the chip is wide"
    ),
    "distillation.rise_samples": Field(
        8000, "masks of RISE, where `evaluate --methods` compares with it"
    ),
    "distillation.lime_samples": Field(1000, "samples of LIME, likewise"),
    "explanation.epochs": Field(16.0, "of the explanation network, where it trains alone"),
    "explanation.steps": Field(0, "in place of its epochs; 0: unset"),
    "explanation.learning_rate": Field(0.1, "of it"),
    "explanation.schedule": Field("steps", "of it: `constant`, `cosine` or `steps`"),
    "explanation.boundaries": Field((10.0, 12.0, 14.0), "epochs after which its rate falls"),
}
