"""The content of a checkpoint, how orbax writes it, and the proof, on reading, that it is whole."""

import json
import math
import zlib
from typing import Any, NamedTuple

import numpy as np
import orbax.checkpoint as ocp

from jaxatr.training.state import flatten


class Snapshot(NamedTuple):
    """A run at one step, on the host.

    Attributes:
      step: how many steps were taken.
      state: nested dictionaries of arrays, of ``jaxatr.training.state.to_arrays``: ``params``,
        ``model_state``, ``opt_state``, ``key``.
      hook: dictionary of arrays, the state of the task's hook; empty without one.
      progress: JSON values: data positions and open metric windows.
      metrics: the last evaluation's metrics; empty before the first.
      score: what tells the best checkpoint; ``None`` for one that was not evaluated at its step.
    """

    step: int
    state: dict[str, Any]
    hook: dict[str, Any]
    progress: dict[str, Any]
    metrics: dict[str, float]
    score: float | None = None


def save_arguments(snapshot: Snapshot, fingerprint: str) -> ocp.args.Composite:
    """Lists the items that orbax writes: arrays, and a record with checksums of them and itself.

    Args:
      snapshot: its arrays must not change any more; everything else is copied here, because orbax
        writes it when the run has long gone on.
      fingerprint: of the run.
    """
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


def read_snapshot(manager: ocp.CheckpointManager, step: int, fingerprint: str) -> Snapshot:
    """Returns the checkpoint of ``step``.

    Raises:
      ValueError: it is not what was written, or of another run or step. Whatever orbax makes of a
        broken file comes through as well.
    """
    content = _read_record(manager, step)
    if (content["step"], content["fingerprint"]) != (step, fingerprint):
        raise ValueError(
            f"it is step {content['step']} of run {content['fingerprint']}, "
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


def read_score(manager: ocp.CheckpointManager, step: int) -> float:
    """Returns the rank of a checkpoint's score; a broken one ranks lowest, and is kept quiet about.

    What is broken about it, :func:`read_snapshot` says.
    """
    try:
        return rank(_read_record(manager, step)["score"])
    except Exception:  # a broken file may raise anything
        return rank(None)


def rank(score: float | None) -> float:
    """Returns ``score``, or the lowest of all where there is none or it is no number."""
    return -math.inf if score is None or math.isnan(score) else score


def _read_record(manager: ocp.CheckpointManager, step: int) -> dict[str, Any]:
    arguments = ocp.args.Composite(record=ocp.args.JsonRestore())
    record = manager.restore(step, args=arguments)["record"]
    content = record["content"]
    if zlib.crc32(json.dumps(content, sort_keys=True).encode()) != record["crc32"]:
        raise ValueError("its record is not the one that was written")
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
                f"{name} is {found.get(name, 'missing')}, written was {recorded.get(name)}"
            )
