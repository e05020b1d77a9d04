"""The configuration fields of open-set recognition."""

from jaxatr.config import Field, Fields

FIELDS: Fields = {
    "loss.open": Field(
        "cbc",
        "of the binary classifiers: `cbc`, `bce` (the ablation), `none` (a plain "
        "classifier), or [your own](extending.md#a-loss), `my.module:function`",
    ),
    "loss.open_weight": Field(1.0, "weight of that loss"),
    "loss.entropy_weight": Field(0.1, "weight of the entropy, λ of equation 4"),
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
