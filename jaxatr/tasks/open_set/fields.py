"""The configuration fields of open-set recognition."""

from jaxatr.config import Field, Fields

FIELDS: Fields = {
    "loss.open": Field(
        "cbc",
        "loss of the binary classifiers: `cbc`, `bce` (the ablation), `none` (a plain "
        "classifier), or [your own](extending.md#a-loss), `my.module:function`",
    ),
    "loss.open_weight": Field(
        1.0, "weight of the binary classifiers' loss, equation 3; 0.5 in the paper's code"
    ),
    "loss.entropy_weight": Field(0.1, "weight of the entropy, λ of equation 4"),
    "loss.label_smoothing": Field(
        0.0, "label smoothing of the closed-set loss (Szegedy et al. 2016); 0: off"
    ),
    "loss.logit_norm": Field(
        0.0,
        "temperature of logit normalisation (Wei et al. 2022: 0.04) in closed-set loss and "
        "entropy; 0: off",
    ),
    "loss.class_weights": Field(
        "none",
        "weight of [unequal classes](training.md#unequal-classes) in equation 4: `none`, "
        "`sqrt` or `effective`",
    ),
    "train.balance": Field(
        "none",
        "repeat examples of rare classes in each [epoch](training.md#unequal-classes): `none`, "
        "`sqrt` or `effective`",
    ),
    "open_set.negatives": Field(
        "",
        "an `.npz` file whose `images` (`[m, h, w, c]`, like the data's chips) train one more "
        'class of no known target; needs `loss.open="none"`',
    ),
    "open_set.score": Field(
        "consensus",
        "the [score that decides](open_set.md#the-score-that-decides): `consensus`, `auto`, or a "
        "score's name, such as `cbc`, the paper's rule",
        earlier="cbc",
    ),
    "open_set.gamma": Field(
        0.9,
        "γ, the binary classifier's probability from which `cbc` accepts",
    ),
    "open_set.tpr": Field(
        0.95,
        "true-positive rate of known examples that fitted thresholds aim for, and of FPR@TPR",
    ),
    "open_set.per_class": Field(False, "fit a threshold for each predicted class"),
}

RECIPES: Fields = {
    "mix.mixup": Field(
        0.0,
        "α of mixup (Zhang et al. 2018: 0.1 to 0.4, or 1), which blends each image with the "
        "batch's next",
    ),
    "mix.cutmix": Field(
        0.0,
        "α of CutMix (Yun et al. 2019: 1), which pastes a rectangle of the next image. With "
        "mixup, each applies to half of the images",
    ),
    "mix.probability": Field(1.0, "probability that an image is mixed"),
    "open_set.trials": Field(
        0,
        "short additional trainings, each without a third of the known classes, [to weight or "
        "compare scores](open_set.md#the-score-that-decides)",
    ),
    "open_set.trial_share": Field(0.5, "steps of each trial, as a fraction of the run's"),
    "open_set.continues": Field(
        "",
        "folder of a run from whose network and heads this one starts. Set by [`jaxatr enrol "
        "--train`](enrolment.md#training-on)",
    ),
    "open_set.enrolled": Field(
        "",
        "an `.npz` file with chips of additional classes: `images` (`[m, h, w, c]`, like the "
        "data's chips) and `names`. Written by `jaxatr enrol --train`",
    ),
}
"""Fields of optional training techniques for single images."""

TESTS: Fields = {
    "open_set.outside": Field(
        "",
        "[groups of further unknown images](open_set.md#images-of-other-data): "
        "`near=SOURCE,far=SOURCE`, each a folder, an archive or a data set; empty: none",
    ),
    "open_set.outside_most": Field(
        2000,
        "most images of each group, drawn by `open_set.split_seed`; 0: all",
    ),
    "open_set.test_flip_horizontal": Field(
        False,
        "[average](open_set.md#averaging-over-views) outputs over each chip and its mirror image, "
        "left to right",
    ),
    "open_set.test_flip_vertical": Field(False, "the same, top to bottom"),
    "open_set.test_shift": Field(
        0,
        "average outputs over each chip and copies shifted by this many pixels up, down, left "
        "and right",
    ),
    "open_set.box_error": Field(
        0.0,
        "boxes may be off by up to this fraction of their side: each chip is [cut anew at an "
        "estimated box](open_set.md#boxes-that-are-off)",
    ),
}
"""Fields of the evaluation of single images."""
