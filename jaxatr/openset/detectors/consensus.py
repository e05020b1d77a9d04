r"""The default rule: a sum of unlike members, weighted by what they tell apart without training.

No single score is best on all data. Maps of the network, its features, its binary classifiers and
the image itself fail on different data, and the sum of such members is nearly as good as the best
of them, which nobody knows beforehand. The nine members compare a chip

- with the nearest training chip, and with the nearest one of another class (a ratio), on the maps
  of stages 2 and 3 and on the image (the ratio of shifted templates and that of pixels),
- with the training chips' features (k-NN, and ViM's residual outside of their main directions), and
  with the class (CBC).

Member j is standardised by the median and the spread of known chips that took no part in the fit,
and bent, so that no member can outvote all others:

.. math:: s = \sum_j w_j \operatorname{arsinh}\!\left(\frac{z_j}{3}\right), \qquad
          w_j \propto n_j \, e^{8 (a_j - 1/2) + 8 (\min(b_j, m_j) - 1/2)}

Both AUROCs are of classes that are left out in thirds. :math:`a_j` is that of training chips which
are compared with the others. A network would know them, so that only the two members that compare
images are tested in this way; it is 1/2 for the others. :math:`b_j` is that of validation chips,
with members fitted without the classes. The network has seen these classes: :math:`b_j` is no
estimate, and counts up to :math:`m_j` only, .6 for CBC, which was trained on them, and .75 for the
others. It finds the members that tell nothing at all, which maps and images of photographs often
do. :math:`n_j` is 2 for k-NN and 1 for the others. Members and constants were chosen on the tasks
of docs/results/decisions.md, which also measures the choice on data sets that had no part in it.

The class is the one with the smallest product of distances, over the members that search a gallery.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr import metrics
from jaxatr.openset import gallery
from jaxatr.openset.calibration import unit_of
from jaxatr.openset.detectors import cbc, fusion, knn, mls, nndr, spatial, template, vim
from jaxatr.openset.fit import fit_one
from jaxatr.openset.head import Head
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Answer, Score
from jaxatr.openset.trials import compare, leave_classes_out
from jaxatr.typing import ArrayLike, Float, Int, Shaped

BEND = 3.0
"""Distance from the median, in spreads, from which a member counts by its logarithm."""

SHARPNESS = 8.0
"""Change of the logarithm of a member's weight with its AUROC."""

SEEN_MOST = 0.75
"""Largest AUROC on classes that the network has seen which counts."""

HEAD_SEEN_MOST = 0.6
"""The same for a score of the head, which was trained on these classes."""

COUNTS = {"knn": 2.0}
"""How often a member counts, beside its AUROC, if not once."""

MOST = 240
"""Largest number of training chips on which image members are tested."""

GROUPS = 3
"""Number of groups in which classes are left out."""

MOST_TRAINING, MOST_VALIDATION = 400, 100
"""Largest numbers of examples with which all members are tested."""

_MAPS = spatial.PARTS[1:3]
_FEWEST_CLASSES, _PARTS = 3, 4
_RATIOS = {one.name: one for one in nndr.PARTS}
_IMAGES = {one.name: one for one in (template.PART, _RATIOS["nndr_image"])}


class Consensus(NamedTuple):
    """A fitted model.

    Attributes:
      weights: ``[m]``, positive, in the order of :func:`names_of`; they add up to 1, but not in
        runs of earlier versions.
      middle: ``[m]``, median of each member on known validation examples.
      spread: ``[m]``, their spread.
    """

    weights: Float[ArrayLike, " m"]
    middle: Float[ArrayLike, " m"] = np.zeros(0)
    spread: Float[ArrayLike, " m"] = np.zeros(0)


def image_areas(
    chips: Shaped[np.ndarray, "n h w c"], labels: Int[ArrayLike, " n"], classes: int
) -> dict[str, float]:
    """Measures how well each score of images separates classes that are left out of its gallery.

    Each of four parts of a sample is compared with the other three, in turn without each third of
    the classes. No network is involved, so that training chips can be used.

    Args:
      chips: ``[n, h, w, c]``, of known classes.
      labels: ``[n]``, their classes.
      classes: k, number of classes.

    Returns:
      Mean AUROC by name of the score; empty for fewer than three classes, or too few chips.
    """
    labels = np.asarray(labels)
    order = np.random.default_rng(0).permutation(len(labels))[:MOST]
    order = order[np.argsort(labels[order], kind="stable")]
    order = order[: len(order) // _PARTS * _PARTS]  # equal parts share a compiled search
    groups = np.array_split(np.arange(classes), GROUPS)
    sampled = labels[order]
    if classes < _FEWEST_CLASSES or not all(np.isin(group, sampled).any() for group in groups):
        return {}
    part, found = np.arange(len(order)) % _PARTS, {}
    for name, one in _IMAGES.items():
        distances = np.zeros((len(order), classes))
        for number in range(_PARTS):
            own, rest = order[part == number], order[part != number]
            model = fit_one(one, _outputs(chips[rest], labels[rest], classes), None)
            searched = one.answer(model, _outputs(chips[own], labels[own], classes))
            distances[part == number] = searched.distances
        areas = []
        for group in groups:
            held = np.isin(sampled, group)
            values = nndr.of_distances(np.delete(distances, group, axis=1)).score
            areas.append(metrics.auroc(values[~held], values[held]))
        found[name] = float(np.mean(areas))
    return found


def seen_areas(
    scores: Iterable[Score], training: Outputs, validation: Outputs, last: Head
) -> dict[str, float]:
    """Measures how well scores separate classes that are left out after the network's training.

    They are left out in thirds of a random sample. The network has seen the classes: these are no
    estimates of the AUROC against unknown classes.

    Args:
      scores: the scores, without a calibration.
      training: outputs on training examples of known classes.
      validation: outputs on known examples that took no part in training.
      last: the closed-set classifier's last layer.

    Returns:
      Mean AUROC by name of the score; empty for fewer than three classes, or without validation
      examples of both kinds. A score that cannot be fitted without some of the classes is missing.
    """
    names = tuple(map(str, range(training.logits.shape[1])))
    few, held_out = _sample(training, MOST_TRAINING), _sample(validation, MOST_VALIDATION)
    compared = compare(scores, leave_classes_out(few, held_out, last, names, most=GROUPS))
    return {name: one.mean for name, one in compared.items() if one.areas}


def _sample(outputs: Outputs, most: int) -> Outputs:
    order = np.random.default_rng(0).permutation(len(outputs.labels))
    return outputs.select(order[:most])


def _outputs(chips: np.ndarray, labels: np.ndarray, classes: int) -> Outputs:
    nothing = np.zeros((len(chips), classes), np.float32)
    return Outputs(nothing, nothing, labels, {"image": chips})


def _columns(member: Score, outputs: Outputs) -> list[Any]:
    """Returns the values of a member, ``[n]`` each; of a map also the ratio of its distances."""
    found = [outputs.more[f"score_{member.name}"]]
    if member in _MAPS:
        found.append(nndr.of_distances(outputs.more[f"distances_{member.name}"]).score)
    return found


def weighted(score: Score, model: Consensus, areas: Mapping[str, float]) -> Consensus:
    """Returns the rule's model with further weights, which are multiplied with those that it has.

    Args:
      score: the rule.
      model: its model.
      areas: AUROC by name of the score, on classes left out; 0.5 for a member that is not among
        them.
    """
    exponents = [SHARPNESS * (areas.get(name, 0.5) - 0.5) for name in names_of(score)]
    weights = model.weights * np.exp(exponents)
    return model._replace(weights=weights / weights.sum())


def names_of(score: Score) -> list[str]:
    """Returns the names of the scores that the rule adds, in the order of its model."""
    maps, others = score.members[: len(_MAPS)], score.members[len(_MAPS) :]
    names = [n for one in maps for n in (one.name, one.name.replace("spatial", "nndr"))]
    return names + [one.name for one in others]


def consensus(name: str, title: str, head: Score, *, residual: bool = True) -> Score:
    """Creates the rule, with one of the scores of the network's head.

    Args:
      head: the score of the head.
      residual: whether ViM is a member; it was none up to version 0.3.0.
    """
    searching = (*_MAPS, *_IMAGES.values())
    members = (*searching, knn.PART, head, *([vim.PART] if residual else ()))
    ratios = [_RATIOS[one.name.replace("spatial", "nndr")] for one in _MAPS]

    def values(outputs: Outputs) -> Any:
        found = [one for member in members for one in _columns(member, outputs)]
        return gallery.numpy_of(found[0]).stack(list(map(gallery.in_double, found)), axis=1)

    def fit(outputs: Outputs, last: Any) -> Consensus:
        del outputs, last
        counts = np.array([COUNTS.get(name, 1.0) for name in names_of(made)])
        return Consensus(counts / counts.sum())

    def weigh(
        model: Consensus, training: Outputs, validation: Outputs, last: Head | None
    ) -> Consensus:
        assert last is not None  # ViM's fit has asked for it
        classes = training.logits.shape[1]
        areas = image_areas(training.more["image"], training.labels, classes)
        seen = seen_areas((*members, *ratios), training, validation, last)
        most = {head.name: HEAD_SEEN_MOST}
        seen = {name: min(b, most.get(name, SEEN_MOST)) for name, b in seen.items()}
        model = model._replace(weights=fit(training, None).weights)
        for one in (areas, seen):
            model = weighted(made, model, one)
        return model

    def calibrate(model: Consensus, outputs: Outputs) -> Consensus:
        found = np.asarray(values(outputs), np.float64)
        if len(found) < 2:
            raise ValueError(f"validation: got {len(found)} examples, wanted two or more")
        if not np.isfinite(found).all():
            lost = np.flatnonzero(~np.isfinite(found).all(axis=0)).tolist()
            bad = ", ".join(names_of(made)[place] for place in lost)
            raise ValueError(f"{bad}: not finite on validation examples")
        middle, spread = zip(*map(unit_of, found.T), strict=True)
        return model._replace(middle=np.array(middle), spread=np.array(spread))

    def answer(model: Consensus, outputs: Outputs) -> Answer:
        z = (values(outputs) - model.middle[None]) / model.spread[None]
        bent = gallery.numpy_of(z).arcsinh(z / BEND)
        distances = fusion.product([outputs.more[f"distances_{one.name}"] for one in searching])
        with jax.default_matmul_precision("highest"):  # also where the caller chose less
            total = bent @ model.weights
        return Answer(total, distances.argmin(axis=1), distances)

    made = Score(
        name=name,
        title=title,
        score=answer,
        traced=answer,
        fit=fit,
        weigh=weigh,
        calibrate=calibrate,
        needs=("image",),
        names_class=True,
        members=members,
        former=(consensus(name, title, head, residual=False),) if residual else (),
        model=Consensus,
    )
    return made


PARTS = (
    consensus("consensus", "consensus", cbc.PART),
    consensus("consensus_closed", "consensus, without CBC", mls.PART),
)
"""The rule, and the same for a classifier without binary classifiers."""
