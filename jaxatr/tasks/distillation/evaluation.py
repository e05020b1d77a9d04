"""The evaluation of a surrogate: accuracies, agreement, and quality of the saliency maps."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from jaxatr import openset, parallel
from jaxatr.explain import Method, find_methods
from jaxatr.explain.measures import judge
from jaxatr.tasks.distillation.sheet import arrays_to_record, evenly_spread
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.parts import Part
from jaxatr.training import Target
from jaxatr.typing import Batch, Config, Float, PyTree

_ACCURACIES = ("student_accuracy", "target_accuracy", "agreement")
_OF_TARGET = ("predicted", "probability")


@runtime_checkable  # the tests check annotations at run time
class Explaining(Protocol):
    """The parts of a surrogate's task that the evaluation needs."""

    config: Config
    examples: Examples
    parts: dict[str, Part]
    target: Target

    @property
    def record(self) -> dict[str, Any]:
        """The run's record."""
        ...

    def infer(self, variables: PyTree, batch: Batch) -> dict[str, jax.Array]:
        """Computes both networks' logits and the saliency maps of a batch, in test mode."""
        ...


def validate(task: Explaining, variables: PyTree) -> dict[str, float]:
    """Evaluates a surrogate on the validation part (:meth:`Distillation.evaluate`)."""
    found = _tested(task, variables, "validation")
    values, _ = _judged(task, found, found["saliency"])
    return _means(values | {name: found[name] for name in ("student_accuracy", "agreement")})


def compare(
    task: Explaining,
    variables: PyTree,
    part: str,
    methods: str | Collection[str],
    progress: bool,
) -> dict[str, dict[str, float]]:
    """Evaluates a surrogate and other methods on a part (:meth:`Distillation.compare`)."""
    _, _, values, _ = _explained(task, variables, part, methods, progress)
    return {name: _means(judged) for name, judged in values.items()}


def evaluate(
    task: Explaining, variables: PyTree, methods: str | Collection[str], progress: bool
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Evaluates a surrogate on the test part (:meth:`Distillation.test`)."""
    found, maps, values, convention = _explained(task, variables, "test", methods, progress)
    accuracies, split = {name: found[name] for name in _ACCURACIES}, task.examples.split
    measured = {
        "task": "distillation",
        "dataset": task.record["dataset"],
        "split": split.as_dict(),
        "known": list(split.known),
        "unknown": list(split.unknown),
        "target": dict(task.target.source),
        "explanation": {
            **_means(accuracies),
            "examples": len(found["rows"]),
            "methods": {name: _means(judged) for name, judged in values.items()},
            "convention": convention,
        },
    }
    ids = task.parts["test"].split.columns["id"][task.parts["test"].indices]
    arrays = {f"test_{name}": found[name] for name in (*_ACCURACIES, *_OF_TARGET)}
    arrays |= {"test_row": found["rows"], "test_id": ids[found["rows"]]}
    return measured, arrays | arrays_to_record(values, maps)


def _explained(
    task: Explaining, variables: PyTree, part: str, methods: str | Collection[str], progress: bool
) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any], Any]:
    """Returns outputs for a part, the maps of all methods, their measures and the convention."""
    chosen = find_methods(methods)
    found = _tested(task, variables, part)
    maps, values, convention = {"surrogate": found["saliency"]}, {}, []
    maps |= {method.name: _maps(task, method, found, progress) for method in chosen}
    for name, saliency in maps.items():
        values[name], convention = _judged(task, found, saliency)
    return found, maps, values, convention


def _maps(task: Explaining, method: Method, found: Mapping[str, Any], progress: bool):
    samples = task.config.distillation.get(f"{method.name}_samples")  # only for RISE and LIME
    options: dict[str, Any] = {"samples": samples} if samples else {}
    options |= {"seed": task.config.seed, "progress": progress}
    explain = method.bind(found["predict"], task.examples.mean, **options)
    batch_size = task.config.train.batch_size
    return method.scaled(method.in_batches(explain, found["images"], batch_size))


def _tested(task: Explaining, variables: PyTree, part: str) -> dict[str, Any]:
    """Returns accuracies on a part's known examples, and maps of the examples to judge."""
    fields, chosen = task.config.distillation, task.parts[part]
    ran = parallel.map_batches(task.infer, variables, task.examples.eval_batches(part))
    outputs = [jax.tree.map(lambda leaf, mask=batch["mask"]: leaf[mask], out) for batch, out in ran]
    out = jax.tree.map(lambda *leaves: np.concatenate(leaves), *outputs)
    known = np.flatnonzero(chosen.labels != openset.UNKNOWN)
    student, target = (out[name][known].argmax(-1) for name in ("student", "target"))
    rows = evenly_spread(known, fields.judged)  # examples are ordered by class
    probabilities = np.asarray(jax.nn.softmax(out["target"][rows]))
    return {
        "student_accuracy": (student == chosen.labels[known]).astype(np.float64),
        "target_accuracy": (target == chosen.labels[known]).astype(np.float64),
        "agreement": (student == target).astype(np.float64),
        "rows": rows,
        "predicted": probabilities.argmax(-1),
        "probability": probabilities.max(-1),
        "images": chosen.chips(rows).astype(np.float32),
        "truth": chosen.truth(rows),
        "saliency": out["saliency"][rows],
        "predict": jax.tree_util.Partial(task.target.logits, variables["params"]["target"]),
    }


def _judged(task: Explaining, found: Mapping[str, Any], saliency: Float[np.ndarray, "n h w"]):
    return judge(
        found["predict"],
        found["images"],
        saliency,
        pixels_per_step=task.config.distillation.pixels_per_step,
        batch_size=task.config.train.batch_size,
        truth=found["truth"],
    )


def _means(values: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {name: float(np.mean(each)) for name, each in values.items()}
