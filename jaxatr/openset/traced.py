"""A decision in operations of jax.numpy, for a graph: from a network's outputs to the answer.

It is :class:`~jaxatr.openset.decision.Decision` in float32 and without anything that depends on
values, so that it can be traced and written as ONNX.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset.decision import Decision
from jaxatr.openset.gallery import ready
from jaxatr.openset.outputs import UNKNOWN, Outputs
from jaxatr.openset.probability import unit_of
from jaxatr.openset.score import Answer, Score
from jaxatr.typing import Array, PyTree

FARTHEST = 3e38
"""In place of infinity in float32."""


class TracedDecision(NamedTuple):
    """A decision for a graph.

    Attributes:
      apply: ``(arrays, outputs of the network) -> answer``. The answer has by name, for each of n
        examples: ``decision``, the class's number, or -1 for an unknown one; ``nearest``, the class
        that it is most like; ``score``; ``threshold``, which the score was compared with;
        ``class_probabilities`` ``[n, k]``; and, of a decision that has them, ``known_probability``,
        ``p_value``, and ``class_distances`` ``[n, k]``, to the nearest training example of each
        class.
      arrays: that it takes, by name: float32, and float16 of a gallery.
    """

    apply: Callable[[PyTree, Outputs], dict[str, Array]]
    arrays: dict[str, Any]


def traced_decision(decision: Decision, classes: int) -> TracedDecision:
    """Prepares a decision for a graph.

    Args:
      decision: it has a threshold, and is that of one network.
      classes: k.

    Raises:
      ValueError: a score has no form in ONNX, or values that float32 does not tell apart.
    """
    if type(decision) is not Decision:
        raise ValueError(f"{decision.score.name}: a decision of several networks is not one graph")
    if missing := without_form(decision.score):
        raise ValueError(f"{missing}: it has no form in ONNX")
    fixed, arrays = _parts(decision)
    thresholds = np.clip(decision.thresholds(classes), -FARTHEST, FARTHEST)
    arrays["thresholds"] = thresholds.astype(np.float32)
    own = decision.calibration
    if own is not None:
        _check_digits(decision.score.name, own.scores)
        arrays["known_scores"] = np.sort(own.scores).astype(np.float32)
        if own.per_class:
            order = np.argsort(own.scores, kind="stable")
            arrays["known_classes"] = np.eye(classes, dtype=np.float32)[own.nearest[order]].T

    def apply(arrays: PyTree, outputs: Outputs) -> dict[str, Array]:
        found: dict[str, Answer] = {}
        answer = _answer(decision.score, fixed, arrays, outputs, found)
        # float32 as the graph: a score that equals the threshold is accepted there too.
        score = answer.score.astype(jnp.float32)
        nearest = answer.label if decision.gallery else jnp.argmax(outputs.logits, axis=-1)
        threshold = arrays["thresholds"][nearest]
        temperature = 1.0 if own is None else own.temperature
        told = {
            "decision": jnp.where(score >= threshold, nearest, UNKNOWN),
            "nearest": nearest,
            "score": score,
            "threshold": threshold,
        }
        p_value = None if own is None else _p_values(arrays, score, nearest)
        known = _known_probability(decision, score, p_value)
        if known is not None:
            told["known_probability"] = known
        if p_value is not None:
            told["p_value"] = p_value
        told["class_probabilities"] = jax.nn.softmax(outputs.logits / temperature, axis=-1)
        if answer.distances is not None:
            told["class_distances"] = answer.distances
        return told

    return TracedDecision(apply, arrays)


def without_form(score: Score) -> str:
    """Names the score itself, or one that it is made of, that cannot be traced; empty for none."""
    if score.traced is None:
        return score.name
    return next(filter(None, map(without_form, score.members)), "")


def _check_digits(name: str, scores: np.ndarray) -> None:
    """Refuses scores, such as probabilities of nearly 1, whose order float32 does not keep."""
    different, kept = (len(np.unique(one)) for one in (scores, scores.astype(np.float32)))
    if kept < 0.99 * different:
        raise ValueError(
            f"{name}: its {different} different values of known examples are {kept} in float32, "
            "which a graph computes in: take another score"
        )


def _parts(decision: Decision) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divides the fitted models into the fields that decide shapes and those of the graph."""
    fixed: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for score in _all(decision.score):
        model = decision.models.get(score.name)
        if model is None:
            continue
        own = {name: jax.tree.map(np.asarray, value) for name, value in model._asdict().items()}
        if "index" in own:  # of what is searched in two stages, as predict does
            own["index"] = jax.tree.map(np.asarray, ready(model).index)
        fixed[score.name] = model._replace(**{name: own[name] for name in score.shapes})
        rest = jax.tree.map(_single, {n: own[n] for n in own if n not in score.shapes})
        if rest:
            arrays[score.name] = rest
    return fixed, arrays


def _all(score: Score) -> list[Score]:
    return [score, *(one for member in score.members for one in _all(member))]


def _single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _answer(
    score: Score,
    fixed: Mapping[str, Any],
    arrays: PyTree,
    outputs: Outputs,
    found: dict[str, Answer],
) -> Answer:
    """Computes a score after its members, as :class:`~jaxatr.openset.Fitted` does."""
    if score.name not in found:
        more = dict(outputs.more)
        for member in score.members:
            one = _answer(member, fixed, arrays, outputs, found)
            fields = {name: value for name, value in one._asdict().items() if value is not None}
            more |= {f"{name}_{member.name}": value for name, value in fields.items()}
        model = fixed.get(score.name)
        if model is not None:
            model = model._replace(**arrays.get(score.name, {}))
        assert score.traced is not None
        value = score.traced(model, outputs._replace(more=more))
        if not isinstance(value, Answer):
            value = Answer(value, jnp.argmax(outputs.logits, axis=-1))
        found[score.name] = value
    return found[score.name]


def _p_values(arrays: PyTree, score: Array, nearest: Array) -> Array:
    """Counts the known examples that are no more usual, as a conformal p-value does."""
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
