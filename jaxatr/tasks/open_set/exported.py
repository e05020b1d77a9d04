"""The decision as part of an exported network: the score, and whether it reaches its threshold."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import models, openset
from jaxatr.tasks.open_set.deciding import RULE
from jaxatr.tasks.open_set.loading import load_decision
from jaxatr.tasks.open_set.views import views_of
from jaxatr.training import Exportable, TrainedRun
from jaxatr.typing import Array, PyTree

NONE = "none"
"""In place of a score: the network alone."""

GIVEN = frozenset({"open_logits", "features"})
"""Outputs of an exported network that a score may take beside the logits."""


class InGraph(NamedTuple):
    """A decision for a graph.

    Attributes:
      apply: ``(model, output of the network) -> (score [b], known [b])``, of which the second is
        whether the score reaches the threshold of the class with the largest logit.
      model: the arrays that it takes.
      properties: JSON values for the file's metadata.
    """

    apply: Callable[[PyTree, models.OpenSetOutput], tuple[Array, Array]]
    model: PyTree
    properties: dict[str, Any]


def in_graph(run: TrainedRun, score: str | None) -> InGraph | None:
    """Prepares the decision of a run for ONNX; None for the network alone.

    Args:
      run: the run.
      score: a name, ``my.module:SCORE``, ``"auto"`` or ``"none"``; None for the score that decides,
        or, with a warning, for the network alone where that score has no form in ONNX.

    Raises:
      ValueError: the named score has no form in ONNX, nothing decides, or the run averages over
        views; what can be done is said.
    """
    if score == NONE:
        return None
    if (views := len(views_of(run.config))) > 1:
        raise ValueError(
            f"{run.workdir} decides by outputs averaged over {views} views of a chip "
            "(open_set.test_…), which an exported network does not compute: --score=none exports "
            "the network alone, or switch the averaging off"
        )
    decision = load_decision(run, score, None, {}, run.step).decision
    compute, name = decision.score.traced, decision.score.name
    obstacle = _obstacle(decision)
    if compute is None or obstacle:
        reason = f"{name} decides in {run.workdir}, and {obstacle}"
        choice = ", ".join(found.name for found in openset.SCORES.values() if found.traced)
        if score is None:
            warnings.warn(
                f"{reason}: the file has the network alone, without a decision; --score=NAME puts "
                f"one of {choice} into it",
                stacklevel=2,
            )
            return None
        raise ValueError(f"score: {reason}: take one of {choice}, or 'none' for the network alone")
    thresholds = decision.thresholds(len(run.classes))
    # float32 as the graph: a score that equals the threshold is accepted there too.
    limits = np.float32(np.clip(thresholds, -3e38, 3e38))

    def apply(model: PyTree, out: models.OpenSetOutput) -> tuple[Array, Array]:
        labels = jnp.argmax(out.logits, axis=-1)
        more: Any = {"features": out.features}
        outputs: Any = (out.logits, out.open_logits, labels, more)
        value = compute(model["score"], openset.Outputs(*outputs))
        return value, value >= model["thresholds"][labels]

    fitted = decision.models.get(name)
    single = jax.tree.map(np.float32, fitted)
    properties = {
        "decides": name,
        "thresholds": [float(t) if np.isfinite(t) else None for t in thresholds],
    }
    return InGraph(apply, {"score": single, "thresholds": limits}, properties)


def _obstacle(decision: openset.Decision) -> str:
    """Says why a decision cannot be in a graph; empty where it can."""
    score = decision.score
    if decision.further is not None:
        return "knows enrolled classes, which an exported network does not name"
    if score.traced is None or score.members or decision.gallery:
        return "has no form in ONNX"
    missing = ", ".join(sorted(score.all_needs - GIVEN))
    return f"needs {missing}, which an exported network does not give" if missing else ""


def exportable(
    run: TrainedRun, network: Callable[..., models.OpenSetOutput], score: str | None
) -> Exportable:
    """Builds what goes out of a network with the two heads, and of the decision by it."""
    outputs = ("logits", "open_logits", "features")
    if run.config.loss.open == "none":
        outputs = ("logits", "features")  # nothing has trained the binary classifiers
    decision = in_graph(run, score)
    variables, properties, named = run.variables, thresholds(run), outputs
    if decision is not None:
        variables = {**run.variables, "decision": decision.model}
        properties, named = properties | decision.properties, (*outputs, "score", "known")

    def apply(variables: PyTree, *inputs: jax.Array) -> list[jax.Array]:
        own = {name: value for name, value in variables.items() if name != "decision"}
        out = network(own, *inputs)
        found = [getattr(out, name) for name in outputs]
        return found if decision is None else [*found, *decision.apply(variables["decision"], out)]

    return Exportable(apply, variables, named, run.classes, properties=properties)


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
