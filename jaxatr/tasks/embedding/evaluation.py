"""The evaluation of an embedding: retrieval, and recognition by the nearest training chip."""

from collections.abc import Collection
from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxatr import openset
from jaxatr.tasks.embedding.retrieval import (
    first_of_equal,
    index_arrays,
    nearest_outputs,
    retrieval,
    retrieval_pictures,
)
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.parts import BOX_OFF, EVALUATED, Part, box_off, ids, part_arrays
from jaxatr.typing import Config, Float, PyTree

SCORE = openset.SCORES["nearest"].name
"""The only score of an embedding."""


@runtime_checkable  # the tests check annotations at run time
class Embeds(Protocol):
    """The parts of an embedding's task that the evaluation needs."""

    config: Config
    examples: Examples
    parts: dict[str, Part]

    @property
    def record(self) -> dict[str, Any]:
        """The run's record."""
        ...

    def embed(
        self, variables: PyTree, part: str, *, progress: bool = False
    ) -> Float[np.ndarray, "n d"]:
        """Computes the embeddings of every example of a part."""
        ...


def evaluate(
    task: Embeds, variables: PyTree, scores: str | Collection[str] | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Evaluates an embedding (:meth:`jaxatr.tasks.embedding.Embedding.test`)."""
    if scores not in (None, "all", SCORE, (SCORE,), [SCORE]):
        raise ValueError(f"scores: got {scores!r}, wanted {SCORE!r}, the only one of an embedding")
    train, test = task.parts["train"], task.parts["test"]
    index = task.embed(variables, "train")
    parts = [part for part in EVALUATED if part in task.parts]
    embeddings = {part: task.embed(variables, part) for part in parts}
    outputs = {
        part: nearest_outputs(index, train, embeddings[part], task.parts[part]) for part in parts
    }
    values = {part: {SCORE: out.logits.max(axis=-1)} for part, out in outputs.items()}
    tpr = task.config.open_set.tpr
    groups = {
        title: openset.evaluate(
            outputs[part].labels,
            outputs[part].predicted,
            values[part],
            values.get("validation"),
            tpr=tpr,
        )
        for title, part in (("all", "test"), (box_off(task.config), BOX_OFF))
        if part in parts
    }
    first = first_of_equal(task.examples.fingerprints("test"))
    new = test.labels == openset.UNKNOWN
    kinds = {"new": new, "trained": ~new}
    searched = {kind: rows & first for kind, rows in kinds.items()}
    record = task.record
    measured = {
        "task": "embedding",
        "dataset": record["dataset"],
        "split": record["split"],
        "known": list(record["split"]["known"]),
        "unknown": list(record["split"]["unknown"]),
        "gamma": None,
        "tpr": tpr,
        "groups": groups,
        "retrieval": {
            kind: {
                **retrieval(embeddings["test"][rows], test.classes[rows]),
                "duplicates": int(np.sum(kinds[kind] & ~first)),
            }
            for kind, rows in searched.items()
            if rows.sum() > 1
        },
    }
    arrays = index_arrays(index, train)
    for part in parts:
        arrays |= part_arrays(f"{part}_", outputs[part], values[part])
        arrays[f"{part}_id"] = ids(task.parts[part])
    return measured, arrays | retrieval_pictures(embeddings["test"], test.classes, searched)
