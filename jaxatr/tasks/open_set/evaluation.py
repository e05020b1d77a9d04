"""The evaluation of an open-set recogniser: every score once, every figure from these arrays."""

import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxatr import openset
from jaxatr.tasks.examples import Part
from jaxatr.tasks.open_set.compared import add_recorded, trained_scores
from jaxatr.tasks.open_set.needs import refusal
from jaxatr.typing import Config, PyTree

PARTS = ("validation", "test")


@runtime_checkable  # the tests check annotations as they run
class Scored(Protocol):
    """The task of a run whose outputs are scored."""

    config: Config
    parts: dict[str, Part]

    @property
    def given(self) -> frozenset[str]:
        """Names of the needs of scores that the task gives."""
        ...

    @property
    def record(self) -> dict[str, Any]:
        """What a result must state."""
        ...

    def outputs(self, variables: PyTree, part: str, needs: Collection[str] = ()) -> openset.Outputs:
        """Computes the network's outputs on a part of the data."""
        ...


class Chosen(NamedTuple):
    """The scores of an evaluation.

    Attributes:
      scores: computed from the run's own network.
      trained: name of one of them to the model that its own training left.
      networks: name of a further score to the folder of the network that it comes from.
      leave_out: leave out, with a warning, a score that cannot be fitted.
    """

    scores: tuple[openset.Score, ...]
    trained: dict[str, Any]
    networks: dict[str, Path]
    leave_out: bool

    @property
    def needs(self) -> frozenset[str]:
        """What all of them need beside the logits."""
        return frozenset(need for score in self.scores for need in score.needs)

    @property
    def needs_of_fit(self) -> frozenset[str] | None:
        """What those need that are fitted to training examples; None if there are none."""
        fitted = [score for score in self.scores if score.fit]
        return frozenset(need for score in fitted for need in score.needs) if fitted else None


def choose(
    task: Scored,
    scores: str | Collection[str] | None,
    workdir: Path | None = None,
    default: Collection[str] = openset.DEFAULT,
) -> Chosen:
    """Chooses the scores of an evaluation.

    Args:
      task: of the run.
      scores: names of scores. With ``"all"`` and by default, those are left out that the task
        cannot compute (``"all"`` warns of each), and those join for which something was trained
        beside the run.
      workdir: the run's folder; without it there is nothing trained beside the run.
      default: names of the scores if none are given.

    Raises:
      ValueError: a score is named that does not exist, or cannot be computed; it is said why.
    """
    found = {} if workdir is None else trained_scores(workdir)
    listed = openset.choose_scores(default if scores is None else scores)
    if scores in (None, "all"):
        listed += tuple(openset.SCORES[name] for name in found)
    chosen, trained, networks = [], {}, {}
    for score in listed:
        reason = refusal(score, task.given)
        if score.training and workdir is not None and (score.fit is None or reason):
            left = found.get(score.name)
            if left is None:
                raise ValueError(
                    f"scores: nothing was trained for {score.name} in {workdir}: python -m "
                    f"jaxatr train --workdir={workdir} --baselines={score.training.baseline}"
                )
            if score.training.model is None:
                networks[score.name] = left
                continue
            trained[score.name] = left
        if reason:
            if scores not in (None, "all"):
                raise ValueError(f"scores: {score.name} {reason}")
            if scores == "all":
                warnings.warn(f"{score.name} is left out: it {reason}", stacklevel=3)
            continue
        chosen.append(score)
    return Chosen(tuple(chosen), trained, networks, leave_out=scores == "all")


def evaluate(
    task: Scored,
    variables: PyTree,
    scores: str | Collection[str] | None,
    workdir: Path | None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Measures a network of single images; see :meth:`jaxatr.tasks.open_set.OpenSet.test`."""
    default = openset.DEFAULT
    if task.config.open_set.negatives:  # the scores that such a network was trained for
        default = [s.name for s in openset.SCORES.values() if "extra_logits" in s.needs]
    chosen = choose(task, scores, workdir, default)
    outputs = {
        part: task.outputs(variables, part, chosen.needs) for part in PARTS if part in task.parts
    }
    training = None
    if chosen.needs_of_fit is not None:
        training = task.outputs(variables, "train", chosen.needs_of_fit)
    fitted = openset.fit_scores(
        chosen.scores,
        training,
        head(variables),
        trained=_adapted(chosen, outputs.get("validation")),
        leave_out=chosen.leave_out,
    )
    values = {part: fitted.on(out) for part, out in outputs.items()}
    test, ranges = outputs["test"], task.parts["test"].column("range_m")
    everything = np.ones(len(test.labels), bool)
    groups = {"all": measure(task, fitted, test, values, everything)}
    if ranges is not None and len(np.unique(ranges)) > 1:
        for value in np.unique(ranges):
            groups[f"{value} m"] = measure(task, fitted, test, values, ranges == value)
    measured, arrays = summary(task, groups, fitted.scores), fitted.arrays()
    for part, out in outputs.items():
        arrays |= part_arrays(f"{part}_", out, values[part])
        arrays[f"{part}_id"] = ids(task.parts[part])
        if (seen := task.parts[part].column("range_m")) is not None:
            arrays[f"{part}_range_m"] = seen
    for name, folder in chosen.networks.items():
        add_recorded(name, folder, measured, arrays)
    return measured, arrays


def _adapted(chosen: Chosen, validation: openset.Outputs | None) -> dict[str, Any]:
    """Adapts trained models to the run's own network."""
    models = dict(chosen.trained)
    for score in chosen.scores:
        if score.name in models and score.training and score.training.adapt:
            if validation is None:
                raise ValueError(f"{score.name}: there are no validation examples to adapt it to")
            models[score.name] = score.training.adapt(models[score.name], validation)
    return models


def head(variables: PyTree, prefix: str = "") -> openset.Head:
    """Finds the closed-set classifier's last layer among a network's variables.

    Of reciprocal points it is the layer whose logits are theirs but for a number that all classes
    of an example share, the mean square of its features.
    """
    layer = variables["params"][f"{prefix}closed_head"]
    if "points" in layer:
        points = layer["points"]
        kernel = -(1 + 2 / points.shape[-1]) * points.T
        return openset.Head(kernel, (points**2).mean(axis=-1))
    return openset.Head(layer["kernel"], layer.get("bias"))


def measure(
    task: Scored,
    fitted: openset.Fitted,
    test: openset.Outputs,
    values: Mapping[str, Mapping[str, np.ndarray]],
    rows: np.ndarray,
) -> dict[str, Any]:
    """Computes the figures of a group of test examples.

    Args:
      task: of the run.
      fitted: the scores.
      test: outputs on all test examples.
      values: part to score to ``[n]``.
      rows: ``[n]`` bool, the group's examples.
    """
    fields = task.config.open_set
    return openset.evaluate(
        test.labels[rows],
        test.predicted[rows],
        {name: score[rows] for name, score in values["test"].items()},
        values.get("validation"),
        fixed=openset.fixed_thresholds(fitted.scores, fields.gamma),
        tpr=fields.tpr,
    )


def summary(
    task: Scored, groups: dict[str, Any], scores: Iterable[openset.Score]
) -> dict[str, Any]:
    """Builds the content of ``evaluation.json`` from the figures of each group of examples."""
    fields, split = task.config.open_set, task.record["split"]
    further = openset.further_scores(scores)
    return {
        "task": "open_set",
        "dataset": task.record["dataset"],
        "split": split,
        "known": list(split["known"]),
        "unknown": list(split["unknown"]),
        "gamma": fields.gamma,
        "tpr": fields.tpr,
        "fitted_gamma": groups["all"].pop("fitted_gamma", None),
        **({"further_scores": further} if further else {}),
        "groups": groups,
    }


def ids(part: Part) -> np.ndarray:
    """Lists the ids of a part's examples, ``[n]``."""
    return part.split.columns["id"][part.indices]


def part_arrays(
    prefix: str, outputs: openset.Outputs, values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Names the outputs and the scores of a part for ``scores.npz``."""
    fields = {name: getattr(outputs, name) for name in ("logits", "open_logits", "labels")}
    fields |= {f"score_{name}": score for name, score in values.items()}
    return {f"{prefix}{name}": array for name, array in fields.items()}
