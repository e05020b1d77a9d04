"""The content of a checkpoint, and its writing and verified reading through orbax.

Orbax is imported by the functions that use it: a new run reaches its first step without it.
"""

import json
import math
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxatr.training.state import flatten

if TYPE_CHECKING:
    import orbax.checkpoint as ocp


class Snapshot(NamedTuple):
    """The state of a run after a step, on the host.

    Attributes:
      step: number of steps.
      state: nested dictionaries of arrays from ``jaxatr.training.state.to_arrays``: ``params``,
        ``model_state``, ``opt_state``, ``key``.
      hook: state of the task's hook, a dictionary of arrays; empty without a hook.
      progress: JSON values: positions in the data and accumulated metrics.
      metrics: metrics of the last evaluation; empty before the first.
      score: the metric that selects the best checkpoint; ``None`` if not evaluated at this step.
    """

    step: int
    state: dict[str, Any]
    hook: dict[str, Any]
    progress: dict[str, Any]
    metrics: dict[str, float]
    score: float | None = None


def save_arguments(snapshot: Snapshot, fingerprint: str) -> "ocp.args.Composite":
    """Returns the items for orbax to write: arrays, and a record with checksums of both.

    Args:
      snapshot: content of the checkpoint. Its arrays must not change afterwards; everything else is
        copied, because orbax writes it while the run continues.
      fingerprint: the run's fingerprint.
    """
    import orbax.checkpoint as ocp

    arrays = {"state": snapshot.state} | ({"hook": snapshot.hook} if snapshot.hook else {})
    content = {
        "step": snapshot.step,
        "fingerprint": fingerprint,
        "progress": snapshot.progress,
        "metrics": snapshot.metrics,
        "score": snapshot.score,
        "checksums": {item: _checksums(tree) for item, tree in arrays.items()},
    }
    text = json.dumps(content, sort_keys=True)
    record = {"content": json.loads(text), "crc32": zlib.crc32(text.encode())}
    return ocp.args.Composite(
        record=ocp.args.JsonSave(record),
        **{item: ocp.args.StandardSave(tree) for item, tree in arrays.items()},
    )


def read_snapshot(manager: "ocp.CheckpointManager", step: int, fingerprint: str) -> Snapshot:
    """Reads and verifies the checkpoint of ``step``.

    Raises:
      ValueError: the checkpoint was altered, or belongs to another run or step. Orbax may raise
        any other exception for corrupt files.
    """
    import orbax.checkpoint as ocp

    content = _read_record(manager, step)
    if (content["step"], content["fingerprint"]) != (step, fingerprint):
        raise ValueError(
            f"it is from step {content['step']} of run {content['fingerprint']}, "
            f"wanted step {step} of run {fingerprint}"
        )
    checksums = content["checksums"]
    arguments = ocp.args.Composite(**{item: ocp.args.StandardRestore() for item in checksums})
    arrays = manager.restore(step, args=arguments)
    for item, recorded in checksums.items():
        _verify(arrays[item], recorded)
    hook = arrays["hook"] if "hook" in checksums else {}
    return Snapshot(
        step, arrays["state"], hook, content["progress"], content["metrics"], content["score"]
    )


def read_score(manager: "ocp.CheckpointManager", step: int) -> float:
    """Returns the rank of a checkpoint's score, the lowest possible if the checkpoint is corrupt.

    Errors are ignored here; :func:`read_snapshot` raises them.
    """
    try:
        return rank(_read_record(manager, step)["score"])
    except Exception:  # a corrupt file may raise any exception
        return rank(None)


def rank(score: float | None) -> float:
    """Returns ``score``, or minus infinity if it is ``None`` or NaN."""
    return -math.inf if score is None or math.isnan(score) else score


def _read_record(manager: "ocp.CheckpointManager", step: int) -> dict[str, Any]:
    import orbax.checkpoint as ocp

    arguments = ocp.args.Composite(record=ocp.args.JsonRestore())
    record = manager.restore(step, args=arguments)["record"]
    content = record["content"]
    if zlib.crc32(json.dumps(content, sort_keys=True).encode()) != record["crc32"]:
        raise ValueError("its record was altered: the checksum does not match")
    return content


def _checksums(arrays: dict[str, Any]) -> dict[str, str]:
    return {name: _describe(np.asarray(leaf)) for name, leaf in flatten(arrays).items()}


def _describe(leaf: np.ndarray) -> str:
    checksum = zlib.crc32(leaf.tobytes())
    return f"{leaf.dtype.name}{list(leaf.shape)} with crc32 {checksum:08x}"


def _verify(arrays: dict[str, Any], recorded: dict[str, str]) -> None:
    found = _checksums(arrays)
    for name in sorted(recorded | found):
        if found.get(name) != recorded.get(name):
            raise ValueError(
                f"{name} is {found.get(name, 'missing')}, but was recorded as {recorded.get(name)}"
            )
