"""The form of the ``evaluation.json`` of runs that separate known from unknown by a score."""

from jaxatr.forms import (
    BOOLEAN,
    COUNT,
    FIGURE,
    LIST,
    NUMBER,
    SHARE,
    TEXT,
    Form,
    ObjectForm,
    optional,
)
from jaxatr.training.record import DECISION

_RELIABILITY: Form = {"bins": [[NUMBER]], "*": NUMBER}
_OF_CLASSES: Form = {"*": {**dict.fromkeys(("chips", "test"), COUNT), "*": FIGURE}}
_GROUP: Form = {
    **dict.fromkeys(("num_known", "num_unknown"), COUNT),
    "scores": {"*": {**dict.fromkeys(("threshold", "fitted_threshold"), FIGURE), "*": NUMBER}},
    "*": FIGURE,
}

FORM: ObjectForm = {
    "decides": optional(TEXT),
    **dict.fromkeys(("gamma", "fitted_gamma"), FIGURE),
    "tpr": SHARE,
    "groups": {"*": _GROUP},
    "decision": {
        **DECISION,
        "test": {
            **dict.fromkeys(("class_probability", "known_probability"), _RELIABILITY),
            "*": FIGURE,
        },
    },
    "enrolled": {"classes": _OF_CLASSES, "own": {"*": {"*": FIGURE}}},
    "outside": {
        "*": {
            **dict.fromkeys(("images", "left_out"), COUNT),
            "source": TEXT,
            "unknown_accepted": FIGURE,
        }
    },
    "further_scores": {"*": {"*": TEXT}},
    "set": {
        **dict.fromkeys(("name", "source", "fingerprint"), TEXT),
        "images": COUNT,
        "classes": {"*": COUNT},
        "left_out": LIST,
    },
    "drift": {
        "chips": COUNT,
        "sentence": TEXT,
        "statistics": [{"name": TEXT, **dict.fromkeys(("found", "higher"), BOOLEAN), "*": NUMBER}],
    },
}
