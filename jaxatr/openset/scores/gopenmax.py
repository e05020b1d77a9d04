"""OpenMax of a network that was shown generated images as one class more (Ge et al. 2017).

The generated images are the classes after the known ones; their probability counts as that of
"unknown".
"""

import numpy as np
import scipy.special

from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import OwnTraining, Score
from jaxatr.openset.scores import openmax
from jaxatr.typing import Float


def _all_logits(outputs: Outputs) -> Float[np.ndarray, "n k"]:
    return np.concatenate([outputs.logits, outputs.more["extra_logits"]], axis=1)


SCORE = Score(
    name="gopenmax",
    title="G-OpenMax",
    score=lambda model, out: openmax.score(
        model, _all_logits(out), extra=out.more["extra_logits"].shape[1]
    ),
    fit=lambda out, _: openmax.fit(_all_logits(out), out.labels),
    needs=("extra_logits",),
    fixed_threshold=lambda gamma: float(scipy.special.logit(gamma)),
    training=OwnTraining(
        baseline="gopenmax", train="jaxatr.runs.baselines.gopenmax:train", leaves="classifier"
    ),
    model=openmax.OpenMax,
)
