"""The decision as part of an exported network: from chips to the class, or to "unknown"."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr import openset
from jaxatr.tasks.open_set.deciding import RULE
from jaxatr.tasks.open_set.loading import load_decision
from jaxatr.tasks.open_set.needs import refusal
from jaxatr.training import Exportable, TrainedRun
from jaxatr.typing import PyTree

NONE = "none"
"""In place of a score: the network alone."""

Network = Callable[[PyTree, tuple[jax.Array, ...], Collection[str]], Mapping[str, jax.Array]]
"""``(variables, inputs, needs) -> outputs by name``: of chips in their raw units."""


class _Decides(NamedTuple):
    """A decision for a graph, its needs, and what the file's metadata says of it."""

    traced: openset.TracedDecision
    needs: frozenset[str]
    properties: dict[str, Any]


def exportable(
    run: TrainedRun,
    network: Network,
    score: str | None,
    given: Collection[str],
    source: str | None = None,
) -> Exportable:
    """Prepares a network with the two heads, and the decision by it, for ONNX.

    Args:
      run: the run.
      network: its network.
      score: a name, ``my.module:SCORE``, ``"auto"`` or ``"none"``; None for the score that decides.
      given: names of the needs of scores that the network gives in a graph.
      source: where the training data is now, for a score that is not fitted yet.

    Raises:
      ValueError: nothing decides, or the score has no form in ONNX; what can be done is said.
    """
    plain = ("logits", "open_logits", "features")
    if run.config.loss.open == "none":
        plain = ("logits", "features")  # nothing has trained the binary classifiers
    decides = None if score == NONE else _decides(run, score, given, source)
    variables, properties = run.variables, thresholds(run)
    if decides is not None:
        variables = {**variables, "decision": decides.traced.arrays}
        properties |= decides.properties

    def apply(variables: PyTree, *inputs: jax.Array) -> dict[str, jax.Array]:
        own = {name: value for name, value in variables.items() if name != "decision"}
        needs = frozenset() if decides is None else decides.needs
        out = network(own, inputs, needs)
        found = {name: out[name] for name in plain}
        if decides is None:
            return found
        more = {name: out[name] for name in needs if name in out}
        labels: Any = None
        outputs: Any = (out["logits"], out["open_logits"], labels, more)
        return decides.traced.apply(variables["decision"], openset.Outputs(*outputs)) | found

    return Exportable(apply, variables, (), run.classes, properties=properties, raw=True)


def _decides(
    run: TrainedRun, score: str | None, given: Collection[str], source: str | None
) -> _Decides:
    where = {} if source is None else {"source": source}
    loaded = load_decision(run, score, None, where, run.step)
    decision = loaded.decision
    name = decision.score.name
    if decision.further is not None:
        raise ValueError(
            f"score: {run.workdir} knows enrolled classes, which an exported network does not "
            "name: --score=none exports the network alone, enrol --train makes a run of them all"
        )
    if without := openset.without_form(decision.score):
        obstacle = "has no form in ONNX" if without == name else f"is made of {without}, without"
    else:
        obstacle = refusal(decision.score, given)
    if obstacle:
        can = ", ".join(
            one.name
            for one in openset.SCORES.values()
            if not openset.without_form(one) and not refusal(one, given)
        )
        raise ValueError(
            f"score: {name} decides in {run.workdir}, and {obstacle}: take one of {can}, or "
            "'none' for the network alone"
        )
    traced = openset.traced_decision(decision, len(run.classes))
    own = decision.calibration
    limits = decision.thresholds(len(run.classes))
    properties = {
        "decides": name,
        "thresholds": [float(limit) if np.isfinite(limit) else None for limit in limits],
        "class_from": "gallery" if decision.gallery else "head",
        "probability_is": decision.probability_is,
        "unknown": openset.UNKNOWN,
    }
    if own is not None:
        properties |= {
            "validation_examples": len(own.scores),
            "tpr": own.tpr,
            "per_class": own.per_class,
            "temperature": own.temperature,
        }
    if loaded.note:
        properties["note"] = loaded.note
    return _Decides(traced, decision.score.all_needs, properties)


def thresholds(run: TrainedRun) -> dict[str, Any]:
    """Lists γ, and the one that an evaluation of this very checkpoint has fitted."""
    if run.config.loss.open == "none":
        return {}
    found = {"gamma": run.config.open_set.gamma}
    fitted = run.record.get("fitted_gamma")
    plain = run.record.get("fitted_gamma_of", RULE) == RULE  # and not of averaged outputs
    if fitted is not None and plain and run.record["fitted_gamma_step"] == run.step:
        found["fitted_gamma"] = fitted
    return found
