"""OpenMax of a network trained with generated images as an additional class (Ge et al. 2017).

The logits of the generated images follow those of the known classes; their probability counts as
"unknown".
"""

import numpy as np

from jaxatr.openset.logistic import logit
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
    fixed_threshold=logit,
    training=OwnTraining(
        baseline="gopenmax", train="jaxatr.runs.baselines.gopenmax:train", leaves="classifier"
    ),
    model=openmax.OpenMax,
)
