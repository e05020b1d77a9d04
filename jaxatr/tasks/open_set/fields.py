"""The configuration fields of open-set recognition."""

from jaxatr.config import Field, Fields

FIELDS: Fields = {
    "loss.open": Field(
        "cbc",
        "of the binary classifiers: `cbc`, `bce` (the ablation), `none` (a plain "
        "classifier), or [your own](extending.md#a-loss), `my.module:function`",
    ),
    "loss.open_weight": Field(1.0, "weight of that loss, equation 3; the paper's code has 0.5"),
    "loss.entropy_weight": Field(0.1, "weight of the entropy, λ of equation 4"),
    "loss.label_smoothing": Field(
        0.0, "share of the closed-set target that is uniform (Szegedy et al. 2016); 0: off"
    ),
    "loss.logit_norm": Field(
        0.0,
        "temperature of logit normalisation (Wei et al. 2022: 0.04) in the closed-set loss and "
        "the entropy; 0: off",
    ),
    "open_set.negatives": Field(
        "",
        "an `.npz` whose `images` (`[m, h, w, c]`, chips as the data's are) train as one class "
        'more, of no known target; needs `loss.open="none"`',
    ),
    "open_set.score": Field(
        "auto",
        "the [score that decides](open_set.md#the-score-that-decides): its name, or `auto`, which "
        "chooses by known classes that are held out; `cbc` is the paper's rule, at γ",
        earlier="cbc",
    ),
    "open_set.gamma": Field(
        0.9,
        "γ, the least probability of the binary classifier that is accepted, where `cbc` decides",
    ),
    "open_set.tpr": Field(
        0.95,
        "share of known examples that fitted thresholds accept, and at which FPR@TPR is measured",
    ),
    "open_set.per_class": Field(
        False, "whether each class that examples are taken for has a threshold of its own"
    ),
}

RECIPES: Fields = {
    "mix.mixup": Field(
        0.0,
        "α of mixup (Zhang et al. 2018: 0.1 to 0.4, or 1): weighted means of an image and the next "
        "one of the batch; 0: off",
    ),
    "mix.cutmix": Field(
        0.0,
        "α of CutMix (Yun et al. 2019: 1): a rectangle of the next image; 0: off. With both, each "
        "for half of the images",
    ),
    "mix.probability": Field(1.0, "that an image is mixed, where one of them is on"),
    "loss.contrastive_weight": Field(
        0.0,
        "weight of the supervised contrastive loss (Khosla et al. 2020) of the features; 0: off",
    ),
    "loss.contrastive_temperature": Field(0.1, "its temperature"),
    "loss.rotation_weight": Field(
        0.0,
        "weight of the prediction of quarter turns by a further head (Hendrycks et al. 2019), on a "
        "second, turned copy of each chip; 0: off",
    ),
    "loss.reciprocal_weight": Field(
        0.0,
        "weight of the open space risk of ARPL (Chen et al. 2021: 0.1), whose reciprocal points "
        "are the closed-set head then; 0: off",
    ),
    "open_set.outliers": Field(
        "",
        "images of no known class, which every class is to refuse (outlier exposure, Hendrycks et "
        "al. 2019): a folder, or a split of the data set; never of the test's unknown classes",
    ),
    "loss.outlier_weight": Field(0.5, "weight of their loss"),
    "open_set.trials": Field(
        0,
        "short trainings beside the run's own, each without a third of the known classes, by which "
        "[`auto`](open_set.md#the-score-that-decides) compares the scores; 0: the classes are left "
        "out of the finished network's outputs only",
    ),
    "open_set.trial_share": Field(0.5, "of the run's steps, which each of them takes"),
    "open_set.continues": Field(
        "",
        "the folder of a run with whose network, heads and all, this one begins; the run's classes "
        "come first. [`jaxatr enrol --train`](enrolment.md#training-on) sets it",
    ),
    "open_set.enrolled": Field(
        "",
        "an `.npz` of chips of further classes: `images` (`[m, h, w, c]`, chips as the data's are) "
        "and `names`, their classes. They train as often as the chips of the data's classes do; "
        "`jaxatr enrol --train` writes it",
    ),
}
"""Those of what a training of single images can add."""

TESTS: Fields = {
    "open_set.outside": Field(
        "",
        "further unknown images to [evaluate](open_set.md#images-of-other-data) on, in groups: "
        "`near=SOURCE,far=SOURCE`, each a folder, an archive or a data set's name; empty: none",
    ),
    "open_set.outside_most": Field(
        2000, "images of each of them, drawn by `open_set.split_seed`; 0: all"
    ),
    "open_set.test_flip_horizontal": Field(
        False,
        "[average](open_set.md#averaging-over-views) the network's outputs over each chip and its "
        "mirror image, left to right",
    ),
    "open_set.test_flip_vertical": Field(False, "the same, top to bottom"),
    "open_set.test_shift": Field(
        0, "the same over the chip moved by so many pixels up, down, to the left and to the right"
    ),
}
"""Those of how a recogniser of single images is tested."""
