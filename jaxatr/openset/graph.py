"""A decision in jax.numpy operations, for export as a graph.

It computes a :class:`~jaxatr.openset.decision.Decision` in float32 and without control flow that
depends on values, so that it can be traced and written as ONNX.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.calibration import unit_of
from jaxatr.openset.decision import Decision
from jaxatr.openset.fit import answer_members_first
from jaxatr.openset.outputs import UNKNOWN, Outputs
from jaxatr.openset.score import Answer, Score
from jaxatr.typing import Array, PyTree

FARTHEST = 3e38
"""Replaces infinity in float32 graphs."""

Precision = Literal["float32", "int8", "float16"]


class TracedDecision(NamedTuple):
    """A decision that can be traced.

    Attributes:
      apply: ``(arrays, outputs of the network) -> answer``. For n examples, the answer maps names
        to arrays: ``decision``, the number of the class, or -1 for unknown; ``nearest``, the class
        that each most resembles; ``score``; ``threshold``, the threshold that the score was
        compared with; ``class_probabilities`` ``[n, k]``; and, if the decision provides them,
        ``known_probability``, ``p_value``, and ``class_distances`` ``[n, k]``, the distances to
        the nearest training example of each class.
      arrays: the arrays for ``apply``, by name: float32, or float16 for those of a gallery, or
        :class:`~jaxatr.openset.gallery.Rounded`.
    """

    apply: Callable[[PyTree, Outputs], dict[str, Array]]
    arrays: dict[str, Any]


def traced_decision(
    decision: Decision, classes: int, *, precision: Precision = "float32"
) -> TracedDecision:
    """Converts a decision to a form that can be traced.

    Args:
      decision: the decision of a single network, with a threshold and without enrolled classes.
      classes: k, number of known classes.
      precision: type of the examples that are searched, which take most of a decision's memory.
        Galleries are in float16 even in ``"float32"``, and those of shifted templates even in
        ``"int8"``; products with the others are of integers then
        (:mod:`jaxatr.openset.gallery.rounding`). All else is in float32.

    Raises:
      ValueError: a score cannot be exported to ONNX, or its values are not distinct in float32.
    """
    if type(decision) is not Decision:
        raise ValueError(f"{decision.score.name}: a decision of several networks is not one graph")
    if missing := without_form(decision.score):
        raise ValueError(f"{missing}: this score cannot be exported to ONNX")
    fixed, arrays = parts(decision.score, decision.models, precision)
    thresholds = np.clip(decision.thresholds(classes), -FARTHEST, FARTHEST)
    arrays["thresholds"] = thresholds.astype(np.float32)
    own = decision.calibration
    if own is not None:
        reference = own.reference
        _check_digits(decision.score.name, reference)
        order = np.argsort(reference, kind="stable")
        arrays["known_scores"] = reference[order].astype(np.float32)
        if own.per_class:
            rows = [own.compared(label)[order] for label in range(classes)]
            arrays["known_classes"] = np.stack(rows).astype(np.float32)

    def apply(arrays: PyTree, outputs: Outputs) -> dict[str, Array]:
        found = answer(decision.score, fixed, arrays, outputs)
        # In float32 like the threshold, so that a score equal to it is accepted.
        score = found.score.astype(jnp.float32)
        nearest = found.label if decision.gallery else jnp.argmax(outputs.logits, axis=-1)
        threshold = arrays["thresholds"][nearest]
        temperature = 1.0 if own is None else own.temperature
        # Thresholds are finite here; NaN counts as the lowest score, but is never accepted.
        ranked = jnp.where(score >= -FARTHEST, score, -FARTHEST)
        accepted = (ranked >= threshold) & ~jnp.isnan(score)
        results = {
            "decision": jnp.where(accepted, nearest, UNKNOWN),
            "nearest": nearest,
            "score": score,
            "threshold": threshold,
        }
        p_value = None if own is None else _p_values(arrays, ranked, nearest)
        known = _known_probability(decision, ranked, p_value)
        if known is not None:
            results["known_probability"] = known
        if p_value is not None:
            results["p_value"] = p_value
        results["class_probabilities"] = jax.nn.softmax(outputs.logits / temperature, axis=-1)
        if found.distances is not None:
            results["class_distances"] = found.distances
        return results

    return TracedDecision(apply, arrays)


def without_form(score: Score) -> str:
    """Returns the name of the first score or member that cannot be traced; empty if all can."""
    if score.traced is None:
        return score.name
    return next(filter(None, map(without_form, score.members)), "")


def _check_digits(name: str, scores: np.ndarray) -> None:
    """Rejects scores whose order is lost in float32, such as probabilities close to 1.

    Single neighbours that become equal, as they do where scores that were computed in float32 have
    been shifted, change a p-value by no more than one example or a hundredth.
    """
    ranks, kept = (
        np.searchsorted(np.sort(one), one) for one in (scores, scores.astype(np.float32))
    )
    moved = int(np.max(ranks - kept, initial=0))
    if moved > max(1, len(scores) // 100):
        raise ValueError(
            f"{name}: {moved + 1} of the {len(scores)} scores of known examples are equal in "
            "float32, which an exported graph computes in; choose another score"
        )


def parts(
    score: Score, models: Mapping[str, Any], precision: Precision = "float32"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits the fitted models into fields that determine shapes and arrays of the graph."""
    fixed: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for one in _all(score):
        model = models.get(one.name)
        if model is None:
            continue
        own = {name: jax.tree.map(np.asarray, value) for name, value in model._asdict().items()}
        if "index" in own:  # the two-stage search that predict uses as well
            own["index"] = jax.tree.map(np.asarray, gallery.ready(model).index)
        own = _stored(model, own, precision)
        fixed[one.name] = model._replace(**{name: own[name] for name in one.shapes})
        rest = jax.tree.map(_single, {n: own[n] for n in own if n not in one.shapes})
        if rest:
            arrays[one.name] = rest
    return fixed, arrays


def _stored(model: Any, own: dict[str, Any], precision: Precision) -> dict[str, Any]:
    """Returns a model's arrays with the examples that are searched in a precision."""
    searched = "examples" if gallery.is_gallery(model) else getattr(model, "searched", "")
    if not searched or precision == "float32":
        return own
    if precision == "float16":
        return own | {searched: own[searched].astype(np.float16)}
    if getattr(model, "forms", 1) > 1:
        return own  # distances of shifted templates are small: they would change by a hundredth
    if (index := own.get("index")) is not None:
        own = own | {"index": index._replace(codes=gallery.rounded(index.codes))}
    return own | {searched: gallery.rounded(own[searched])}


def _all(score: Score) -> list[Score]:
    return [score, *(one for member in score.members for one in _all(member))]


def _single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def answer(score: Score, fixed: Mapping[str, Any], arrays: PyTree, outputs: Outputs) -> Answer:
    """Computes a score, of the two parts of its models, in a traced graph."""

    def compute(one: Score, full: Outputs) -> Answer:
        model = fixed.get(one.name)
        if model is not None:
            model = model._replace(**arrays.get(one.name, {}))
        assert one.traced is not None
        value = one.traced(model, full)
        return value if isinstance(value, Answer) else Answer(value, full.logits.argmax(axis=-1))

    return answer_members_first(score, outputs, compute, {})


def _p_values(arrays: PyTree, score: Array, nearest: Array) -> Array:
    """Computes conformal p-values."""
    below = (arrays["known_scores"] <= score[:, None]).astype(jnp.float32)
    if "known_classes" not in arrays:
        return (1 + jnp.sum(below, axis=1)) / (arrays["known_scores"].shape[0] + 1)
    group = arrays["known_classes"][nearest]
    return (1 + jnp.sum(below * group, axis=1)) / (1 + jnp.sum(group, axis=1))


def _known_probability(decision: Decision, score: Array, p_value: Array | None) -> Array | None:
    own = decision.calibration
    if own is not None and own.sigmoid is not None:
        middle, spread = unit_of(own.scores)
        return jax.nn.sigmoid(own.sigmoid.slope * (score - middle) / spread + own.sigmoid.offset)
    if decision.probability_is == "score":
        return jnp.exp(score) if decision.score.scale == "log" else jax.nn.sigmoid(score)
    return p_value
