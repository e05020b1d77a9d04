"""What the benchmark uses of the package: training, recording outputs, single scores.

Everything else in this folder works with arrays alone.
"""

import copy
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxatr import bundled, openset, runs, training
from jaxatr.tasks.open_set.deciding import candidates
from jaxatr.tasks.open_set.scored import head

Arrays = dict[str, np.ndarray]

_HEAVY = ("odin", "gradient_norms")


def configured(name: str, overrides: Mapping[str, Any]) -> Any:
    """Returns a bundled configuration with other values in some fields."""
    config = copy.deepcopy(bundled.load(name))
    with config.unlocked():  # arguments of a constructor are not fields
        for name, value in overrides.items():
            place = config
            *groups, field = name.split(".")
            for group in groups:
                place = place[group]
            if field not in place and groups != ["model", "args"]:
                raise ValueError(f"{name}: there is no such field")
            place[field] = value
    return config


def train(config: Any, workdir: Path) -> None:
    """Trains a run, or continues it."""
    training.enable_compilation_cache()
    runs.train_run(config, workdir, progress=False)


def record(workdir: Path, parts: Iterable[str]) -> Arrays:
    """Computes a trained network's outputs on parts of its data, in float16 where they are large.

    Args:
      workdir: folder of the run.
      parts: names of the parts; those that the run does not have are left out.

    Returns:
      ``PART_NAME`` for each output, ``PART_labels``, ``head_kernel`` and ``head_bias``.
    """
    training.enable_compilation_cache()
    task: Any = runs.make_task(training.load_config(workdir), workdir)
    variables = training.variables_of(training.load_snapshot(workdir, "latest"))
    needs = [name for name in sorted(task.given) if name not in (*_HEAVY, "open_logits")]
    arrays: Arrays = {}
    for part in parts:
        if part not in task.parts:
            continue
        found = task.outputs(variables, part, needs)
        arrays |= {f"{part}_logits": found.logits, f"{part}_labels": found.labels}
        if "open_logits" in task.given:
            arrays[f"{part}_open_logits"] = found.open_logits
        arrays |= {f"{part}_{name}": values for name, values in found.more.items()}
    last = head(variables)
    arrays["head_kernel"] = np.asarray(last.kernel)
    if last.bias is not None:
        arrays["head_bias"] = np.asarray(last.bias)
    return arrays


def concatenated(parts: list[openset.Outputs]) -> openset.Outputs:
    """Joins the outputs on several sets of examples."""
    return openset.concatenated(parts)


def outputs(arrays: Mapping[str, np.ndarray], part: str) -> openset.Outputs | None:
    """Returns the recorded outputs of a part; None if it was not recorded."""
    if f"{part}_logits" not in arrays:
        return None
    own = {k.removeprefix(f"{part}_"): v for k, v in arrays.items() if k.startswith(f"{part}_")}
    logits, labels = own.pop("logits"), own.pop("labels")
    return openset.Outputs(logits, own.pop("open_logits", np.zeros_like(logits)), labels, own)


def head_of(arrays: Mapping[str, np.ndarray]) -> openset.Head:
    """Returns the recorded last layer."""
    return openset.Head(arrays["head_kernel"], arrays.get("head_bias"))


def member_names(given: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of the single scores that the recorded outputs suffice for.

    Sums of scores are left out, because rules combine scores themselves.
    """
    listed = candidates(frozenset(given) | {"open_logits"})
    return tuple(score.name for score in listed if not score.calibrated)


def scored(
    names: Iterable[str],
    training: openset.Outputs,
    last: openset.Head,
    parts: Mapping[str, openset.Outputs],
) -> dict[str, Arrays]:
    """Fits single scores to training examples, and computes them on other parts.

    Args:
      names: names of the scores.
      training: outputs on the training examples of the known classes.
      last: the closed-set classifier's last layer.
      parts: outputs by name of the part.

    Returns:
      By part: ``score_NAME`` ``[n]`` float64, and ``label_NAME`` ``[n]`` for scores that name a
      class. Scores that cannot be fitted, or are not finite, are left out.
    """
    chosen = openset.choose_scores(list(names))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the names of scores left out are compared by the caller
        fitted = openset.fit_scores(chosen, training, last, leave_out=True)
        answers = {part: fitted.answers(found) for part, found in parts.items()}
    able = [
        score
        for score in fitted.scores
        if all(np.isfinite(np.asarray(one[score.name].score)).all() for one in answers.values())
    ]
    made: dict[str, Arrays] = {}
    for part, found in answers.items():
        made[part] = {f"score_{s.name}": np.asarray(found[s.name].score, float) for s in able}
        named = [score.name for score in able if score.names_class]
        made[part] |= {f"label_{name}": np.asarray(found[name].label) for name in named}
    return made


def record_frozen(config: Any, workdir: Path, parts: Iterable[str]) -> Arrays:
    """Computes the outputs of a published network that is not trained, without heads.

    Args:
      config: the configuration, with ``model.pretrained``.
      workdir: a folder that has no run.
      parts: names of the parts.
    """
    training.enable_compilation_cache()
    task: Any = runs.make_task(config, workdir)
    params, state = task.init(jax.random.key(0))
    needs = [name for name in sorted(task.given) if name not in (*_HEAVY, "open_logits")]
    arrays: Arrays = {"classes": np.array(task.record["split"]["known"])}
    for part in parts:
        found = task.outputs({"params": params, **state}, part, needs)
        arrays[f"{part}_labels"] = found.labels
        arrays |= {f"{part}_{name}": values for name, values in found.more.items()}
    return arrays


def conformal_threshold(known: np.ndarray, tpr: float) -> float:
    """Computes the conformal threshold; minus infinity for too few chips."""
    return openset.conformal_threshold(known, tpr=tpr)


def sigmoid_of(scores: np.ndarray, known: np.ndarray) -> tuple[float, float] | None:
    """Fits the slope and the offset of the probability of being known, at even odds."""
    found = openset.fit_sigmoid(scores, known)
    return None if found is None else (found.slope, found.offset)
