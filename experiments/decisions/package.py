"""The benchmark's uses of the package: training, recording outputs, single scores.

Everything else in this folder works with arrays alone.
"""

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxatr import bundled, openset, runs, training
from jaxatr.openset import calibration
from jaxatr.recognition.session import head, of_single_images

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


def evaluated(workdir: Path, error: float, score: str) -> tuple[Arrays, float]:
    """Evaluates a score of a trained network, for boxes that may be off.

    Args:
      workdir: folder of the run, in which nothing is changed.
      error: ``open_set.box_error``.
      score: name of the score.

    Returns:
      The arrays of ``scores.npz``, and the operations for a chip up to the inputs of the score.
    """
    config = training.load_config(workdir)
    config.open_set.box_error = error
    task: Any = runs.make_task(config, workdir)
    before = training.load_run(workdir)
    variables = task.with_boxes(before.variables)
    _, arrays = task.test(variables, scores=score)
    run = before._replace(config=config, variables=variables)
    infer = of_single_images(run, openset.SCORES[score].all_needs)
    chip = np.zeros((1, *run.intake.shape), run.intake.dtype)
    lowered = jax.jit(infer).lower(variables, chip)
    return arrays, float((lowered.compile().cost_analysis() or {})["flops"])


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


def few_threshold(
    validation: np.ndarray, seen: np.ndarray, tpr: float, *, move: bool
) -> tuple[float, float]:
    """Computes the threshold of few validation chips and of training chips as if not seen.

    Args:
      validation: ``[v]``, scores of known chips that took no part in training.
      seen: ``[n]``, scores of training chips by fits without them.
      tpr: share to accept.
      move: whether the network has seen the training chips.

    Returns:
      ``(threshold, promise)``: the promise is a lower bound on the share of known chips accepted.
    """
    moved = openset.as_unseen(seen, validation) if move else seen
    scores = np.concatenate([validation, moved])
    made = openset.Calibration(scores, np.zeros(len(scores), int), tpr=tpr, unseen=len(validation))
    return made.threshold, float(made.guarantees(1)[0])


def sigmoid_of(scores: np.ndarray, known: np.ndarray) -> tuple[float, float] | None:
    """Fits the slope and the offset of the probability of being known, at even odds."""
    found = openset.fit_sigmoid(scores, known)
    return None if found is None else (found.slope, found.offset)


def unit_of(known: np.ndarray) -> tuple[float, float]:
    """Computes the median and the spread of known chips' scores."""
    return calibration.unit_of(known)
