"""The configuration fields of open-set recognition."""

from jaxatr.config import Field, Fields

FIELDS: Fields = {
    "loss.open": Field(
        "cbc",
        "loss of the binary classifiers: `cbc`, `bce` (the ablation), `none` (a plain "
        "classifier), or [your own](extending.md#a-loss), `my.module:function`",
    ),
    "loss.open_weight": Field(
        1.0, "weight of the binary classifiers' loss, equation 3; the paper's code uses 0.5"
    ),
    "loss.entropy_weight": Field(0.1, "weight of the entropy, λ of equation 4"),
    "loss.label_smoothing": Field(
        0.0, "label smoothing of the closed-set loss (Szegedy et al. 2016); 0: off"
    ),
    "loss.logit_norm": Field(
        0.0,
        "temperature of logit normalisation (Wei et al. 2022: 0.04) in the closed-set loss and "
        "the entropy; 0: off",
    ),
    "open_set.negatives": Field(
        "",
        "an `.npz` file whose `images` (`[m, h, w, c]`, with the shape and dtype of the data's "
        "chips) are the training examples of one additional class of no known target; needs "
        '`loss.open="none"`',
    ),
    "open_set.score": Field(
        "consensus",
        "the [score that decides](open_set.md#the-score-that-decides): `consensus`, a sum of "
        "unlike scores; another score's name, of which `cbc` is the paper's rule, with threshold "
        "γ; or `auto`, which chooses one on held-out known classes",
        earlier="cbc",
    ),
    "open_set.gamma": Field(
        0.9,
        "γ, the binary classifier's probability from which an image is accepted, if `cbc` decides",
    ),
    "open_set.tpr": Field(
        0.95,
        "true-positive rate of known examples that fitted thresholds aim for, and at which FPR@TPR "
        "is measured",
    ),
    "open_set.per_class": Field(False, "fit a separate threshold for each predicted class"),
}

RECIPES: Fields = {
    "mix.mixup": Field(
        0.0,
        "α of mixup (Zhang et al. 2018: 0.1 to 0.4, or 1), which blends each image with the next "
        "one of the batch; 0: off",
    ),
    "mix.cutmix": Field(
        0.0,
        "α of CutMix (Yun et al. 2019: 1), which pastes a rectangle of the next image; 0: off. "
        "With both mixup and CutMix, each applies to half of the images",
    ),
    "mix.probability": Field(1.0, "probability that an image is mixed by mixup or CutMix"),
    "open_set.trials": Field(
        0,
        "number of short additional trainings, each without a third of the known classes, on which "
        "`consensus` weights its members and its AUROC is estimated, or `auto` [compares the "
        "scores](open_set.md#the-score-that-decides); 0: none, and no estimate",
    ),
    "open_set.trial_share": Field(0.5, "steps of each trial, as a fraction of the run's steps"),
    "open_set.continues": Field(
        "",
        "folder of a run whose network, including its heads, this run starts from; the classes of "
        "that run come first. Set by [`jaxatr enrol --train`](enrolment.md#training-on)",
    ),
    "open_set.enrolled": Field(
        "",
        "an `.npz` file with chips of additional classes: `images` (`[m, h, w, c]`, with the shape "
        "and dtype of the data's chips) and `names`, the class of each. They are sampled as often "
        "as the chips of the data set's classes. Written by `jaxatr enrol --train`",
    ),
}
"""Fields of optional training techniques for single images."""

TESTS: Fields = {
    "open_set.outside": Field(
        "",
        "groups of further unknown images to [evaluate](open_set.md#images-of-other-data) on: "
        "`near=SOURCE,far=SOURCE`, each a folder, an archive or the name of a data set; empty: "
        "none",
    ),
    "open_set.outside_most": Field(
        2000,
        "maximum number of images of each group, drawn with the seed `open_set.split_seed`; 0: all",
    ),
    "open_set.test_flip_horizontal": Field(
        False,
        "[average](open_set.md#averaging-over-views) the network's outputs over each chip and its "
        "mirror image, left to right",
    ),
    "open_set.test_flip_vertical": Field(
        False, "average the network's outputs over each chip and its mirror image, top to bottom"
    ),
    "open_set.test_shift": Field(
        0,
        "average the network's outputs over each chip and copies shifted by this many pixels up, "
        "down, left and right; 0: off",
    ),
}
"""Fields of the evaluation of single images."""
