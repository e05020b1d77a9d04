"""Exportable networks that include the decision: from chips to a class or "unknown"."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr import openset
from jaxatr.onnx.sessions import divided
from jaxatr.recognition.decision import load_decision, open_task
from jaxatr.recognition.session import Session
from jaxatr.tasks.open_set.deciders import NONE, RULE
from jaxatr.tasks.open_set.needs import refusal
from jaxatr.training import Exportable, TrainedRun
from jaxatr.typing import PyTree

Network = Callable[[PyTree, tuple[jax.Array, ...], Collection[str]], Mapping[str, jax.Array]]
"""``(variables, inputs, needs) -> outputs by name``, for chips in raw units."""


class _Decides(NamedTuple):
    """A traceable decision, its inputs other than logits, and its metadata for the file."""

    traced: openset.TracedDecision
    needs: frozenset[str]
    properties: dict[str, Any]


def exportable(
    run: TrainedRun,
    network: Network,
    score: str | None,
    given: Collection[str],
    source: str | None = None,
    precision: str = "",
) -> Exportable:
    """Returns a network with two heads and its decision in a form that can be exported to ONNX.

    Args:
      run: the run.
      network: the run's network.
      score: name of a score, ``my.module:SCORE``, ``"auto"`` or ``"none"``; None for the score that
        decides.
      given: names of the inputs of scores that the network provides in a graph.
      source: present location of the training data, for a score that is not fitted yet.
      precision: ``"int8"`` or ``"float16"``, to which the thresholds are then fitted; empty for
        float32.

    Raises:
      ValueError: there is no decision, or the score cannot be exported to ONNX; the message
        suggests alternatives.
    """
    plain = ("logits", "open_logits", "features")
    if run.config.loss.open == "none":
        plain = ("logits", "features")  # the binary classifiers are not trained
    where = {} if source is None else {"source": source}
    session = None
    if precision:
        runtime = f"onnxruntime:{precision}"
        session = Session(run, runtime=runtime, task=lambda: open_task(run, where))
    decides = None if score == NONE else _decides(run, score, given, where, session)
    variables, properties = run.variables, thresholds(run)
    if session is not None:
        properties["precision"] = {"precision": precision}
        session = session if decides is None else session.wider(decides.needs)
    if decides is not None:
        variables = {**variables, "decision": decides.traced.arrays}
        properties |= decides.properties

    def apply(variables: PyTree, *inputs: jax.Array) -> dict[str, jax.Array]:
        of_network = {name: value for name, value in variables.items() if name != "decision"}
        needs = frozenset() if decides is None else decides.needs
        out = network(of_network, inputs, needs)
        named = {name: out[name] for name in plain}
        if decides is None:
            return named
        more = {name: out[name] for name in needs if name in out}
        labels: Any = None
        outputs: Any = (out["logits"], out["open_logits"], labels, more)
        return decides.traced.apply(variables["decision"], openset.Outputs(*outputs)) | named

    return Exportable(
        apply,
        variables,
        (),
        run.classes,
        properties=properties,
        raw=True,
        convert=None if session is None else session.reduce,
    )


def _decides(
    run: TrainedRun,
    score: str | None,
    given: Collection[str],
    where: Mapping[str, str],
    session: Session | None,
) -> _Decides:
    runtime = "jax" if session is None else session.runtime
    loaded = load_decision(run, score, None, where, run.step, session=session, runtime=runtime)
    decision = loaded.rule
    name = decision.score.name
    if loaded.further:
        raise ValueError(
            f"score: {run.workdir} has enrolled classes, which cannot be exported: export before "
            "enrol or after enrol --remove=NAME, export the network alone with --score=none, or "
            "train a run with all classes with enrol --train"
        )
    if without := openset.without_form(decision.score):
        obstacle = (
            "cannot be exported to ONNX"
            if without == name
            else f"includes {without}, which cannot be exported to ONNX"
        )
    else:
        obstacle = refusal(decision.score, given)
    if obstacle:
        can = ", ".join(
            one.name
            for one in openset.SCORES.values()
            if not openset.without_form(one) and not refusal(one, given)
        )
        raise ValueError(
            f"score: {name} decides in {run.workdir}, but {obstacle}: use one of {can}, or "
            "'none' for the network alone"
        )
    stored: Any = divided(runtime)[1] or "float32"
    traced = openset.traced_decision(decision, len(run.classes), precision=stored)
    calibration = decision.calibration
    limits, guarantees = (of(len(run.classes)) for of in (decision.thresholds, decision.guarantees))
    properties = {
        "decides": name,
        "thresholds": [float(limit) if np.isfinite(limit) else None for limit in limits],
        "class_from": "gallery" if decision.gallery else "head",
        "guarantees": [None if np.isnan(one) else float(one) for one in guarantees],
        "probability_is": decision.probability_is,
        "unknown": openset.UNKNOWN,
    }
    if calibration is not None:
        properties |= {
            "validation_examples": calibration.held_out,
            "fitted_to": calibration.basis,
            "tpr": calibration.tpr,
            "per_class": calibration.per_class,
            "temperature": calibration.temperature,
        }
    if session is not None:
        properties["precision"] = loaded.record["precision"]
    if loaded.note:
        properties["note"] = loaded.note
    return _Decides(traced, decision.score.all_needs, properties)


def thresholds(run: TrainedRun) -> dict[str, Any]:
    """Returns the configured γ, and the one that an evaluation of this checkpoint has fitted."""
    if run.config.loss.open == "none":
        return {}
    gammas = {"gamma": run.config.open_set.gamma}
    fitted = run.record.get("fitted_gamma")
    plain = run.record.get("fitted_gamma_of", RULE) == RULE  # not fitted to averaged outputs
    if fitted is not None and plain and run.record["fitted_gamma_step"] == run.step:
        gammas["fitted_gamma"] = fitted
    return gammas
