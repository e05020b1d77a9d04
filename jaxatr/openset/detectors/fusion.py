"""Sum of several scores, each standardised on known validation examples.

Mean and standard deviation are those of known examples that took no part in training. A member's
standardised value says how unusual it is for a known example, so no weights have to be chosen
(Kittler et al. 1998, "On combining classifiers", the sum rule). The predicted class is the one with
the smallest product of distances, over the members that search a gallery (the product rule).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.detectors import cbc, mahalanobis, nearest, spatial, template
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Answer, Score
from jaxatr.typing import ArrayLike, Float


class Spread(NamedTuple):
    """A fitted model.

    Attributes:
      mean: ``[m]``, mean of each member on known validation examples.
      deviation: ``[m]``, standard deviation of each member on them.
    """

    mean: Float[ArrayLike, " m"]
    deviation: Float[ArrayLike, " m"]


def fit(values: Float[np.ndarray, "n m"], names: Sequence[str]) -> Spread:
    """Computes the mean and the standard deviation of each member.

    Args:
      values: ``[n, m]``, the members' scores of known examples that took no part in training.
      names: names of the members, for error messages.

    Raises:
      ValueError: there are fewer than two examples, or a member is not finite or does not vary.
    """
    if len(values) < 2:
        raise ValueError(f"validation: got {len(values)} examples, wanted two or more")
    mean, deviation = values.mean(axis=0), values.std(axis=0)
    # The computed deviation of equal scores may be a rounding error instead of 0.
    ranges = np.ptp(values, axis=0)
    for name, one, range_ in zip(names, deviation, ranges, strict=True):
        if not (range_ > 0 and one < np.inf):
            raise ValueError(
                f"{name} has the range {range_} on validation examples, wanted > 0 and finite"
            )
    return Spread(mean, deviation)


def score(model: Spread, values: Float[ArrayLike, "b m"]) -> Any:
    """Sums the standardised scores of the members.

    Args:
      values: ``[b, m]``, the members' scores.
    """
    return ((values - model.mean[None]) / model.deviation[None]).sum(axis=1)


def product(distances: Sequence[Float[ArrayLike, "b k"]]) -> Any:
    """Computes the geometric mean of the members' distances to each class.

    Args:
      distances: of each member, ``[b, k]``.
    """
    xp = gallery.numpy_of(distances[0])
    return xp.exp(sum(xp.log(xp.maximum(one, gallery.LEAST)) for one in distances) / len(distances))


def fuse(name: str, title: str, members: Sequence[Score]) -> Score:
    """Creates a score that sums others; it names a class if one of them does.

    Args:
      members: two or more scores; one that names a class must provide distances.

    Raises:
      ValueError: there are fewer than two members.
    """
    if len(members) < 2:
        raise ValueError(f"members: got {len(members)}, wanted two or more")
    names = [member.name for member in members]
    naming = [member.name for member in members if member.names_class]

    def values(outputs: Outputs) -> Any:
        columns = [outputs.more[f"score_{one}"] for one in names]
        return gallery.numpy_of(columns[0]).stack(list(map(gallery.in_double, columns)), axis=1)

    def answer(model: Spread, outputs: Outputs) -> Any:
        found = score(model, values(outputs))
        if not naming:
            return found
        distances = product([outputs.more[f"distances_{one}"] for one in naming])
        return Answer(found, distances.argmin(axis=1), distances)

    return Score(
        name=name,
        title=title,
        score=answer,
        traced=answer,
        calibrate=lambda _, out: fit(values(out), names),
        names_class=bool(naming),
        members=tuple(members),
        model=Spread,
    )


PARTS = (
    fuse(
        "fusion",
        "stage 2 + Mahalanobis + nearest chip",
        (spatial.PARTS[1], mahalanobis.PART, nearest.PART),
    ),
    fuse("fusion_cbc", "CBC + stage 2", (cbc.PART, spatial.PARTS[1])),
    fuse("fusion_template", "stage 2 + template", (spatial.PARTS[1], template.PART)),
)
