"""The record of a run: its configuration, versions and devices."""

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxatr
from jaxatr import config as configuration
from jaxatr import files, forms
from jaxatr.data.class_names import class_name
from jaxatr.forms import (
    COUNT,
    FIGURE,
    LIST,
    NUMBER,
    NUMBERS,
    SHARE,
    TEXT,
    TEXTS,
    Form,
    Leaf,
    ObjectForm,
    optional,
)
from jaxatr.typing import Config

CONFIG = "config.json"
RECORD = "record.json"

#: Fields that do not affect the trained network and may therefore change when a run is resumed.
FREE_FIELDS = frozenset(
    {
        *("data.source", "data.added", "data.corrections"),  # a fingerprint tells them
        "data.data_dir",
        "model.weights_dir",
        "train.log_every",
        "train.trackers",
        "train.evaluate_every",
        "train.checkpoint_every",
        "train.keep",
        "kernels.find",
    }
)


def _is_code(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("commit"), str)


_SHAPE = Leaf(
    lambda value: (
        isinstance(value, list)
        and len(value) == 3
        and all(type(side) is int and side > 0 for side in value)
    ),
    "a list of height, width and channels",
)


def _is_dtype(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(value) and np.dtype(value).kind in "biufc"
    except TypeError:
        return False


_PROBABILITY = Leaf(SHARE.holds, "a probability in [0, 1]")

DECISION: ObjectForm = {
    **dict.fromkeys(("decides", "fitted_to"), optional(TEXT)),
    **dict.fromkeys(("by", "class_from", "probability"), TEXT),
    **dict.fromkeys(("gamma", "temperature", "estimate"), NUMBER),
    **dict.fromkeys(("step", "validation_examples"), COUNT),
    **dict.fromkeys(("thresholds", "guarantees"), [FIGURE]),
    **dict.fromkeys(("weights", "validation_accuracy"), {"*": NUMBER}),
    "candidates": {"*": {"auroc": NUMBER, "by_class": {"*": NUMBER}, "refused": TEXT}},
    "enrolled": {"*": COUNT},
}
"""The form of what is recorded about the decision of an open-set run."""

#: The form of ``record.json``, as far as programs take it apart.
_FORM: Form = {
    **dict.fromkeys(("task", "fingerprint", "started", "last_started", "fitted_gamma_of"), TEXT),
    "image_dtype": Leaf(_is_dtype, "the name of a data type, such as uint8"),
    "image_shape": _SHAPE,
    "split": {"known": TEXTS, "unknown": TEXTS},
    "coarse": TEXTS,
    "normalization": {"mean": NUMBERS, "std": NUMBERS},
    "dataset": {
        **dict.fromkeys(("name", "version", "fingerprint"), TEXT),
        **dict.fromkeys(("outliers", "negatives", "enrolled"), {}),
    },
    "examples": {"*": COUNT},
    **dict.fromkeys(("steps", "fitted_gamma_step"), COUNT),
    "fitted_gamma": FIGURE,
    "decision": DECISION,
    "target": {},
    "device": {},
    "kernels": {},
    "versions": {"*": TEXT},
    "code": optional(Leaf(_is_code, "an object with a commit")),
    "skipped": LIST,
    "channels": Leaf(lambda value: type(value) is int and value > 0, "a positive integer"),
    "detection": {"threshold": _PROBABILITY, "gamma": _PROBABILITY},
}

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy")


jax.tree_util.register_pytree_with_keys(  # as a dictionary is: a predictor's digest covers a record
    files.Fields,
    lambda fields: (
        [(jax.tree_util.DictKey(name), fields[name]) for name in sorted(fields)],
        (fields.origin, tuple(sorted(fields))),
    ),
    lambda kept, values: files.Fields(dict(zip(kept[1], values, strict=True)), kept[0]),
)


class ConfigMismatch(ValueError):
    """The folder contains a run of another configuration."""


def record_config(workdir: str | os.PathLike, config: Config, *, free: Collection[str] = ()) -> str:
    """Writes ``config.json``, or checks that the existing one belongs to the same run.

    Args:
      workdir: the run's folder, created if missing.
      config: the run's configuration.
      free: dotted names of additional fields that may change; :data:`FREE_FIELDS` always may. The
        length of the training may not, because schedules depend on it.

    Returns:
      The run's fingerprint: a hash of the fields that may not change.

    Raises:
      ConfigMismatch: fields differ from the recorded ones; all of them are listed.
    """
    fingerprint = check_config(workdir, config, free=free)
    if jax.process_index() == 0:
        path = Path(workdir) / CONFIG
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_fields(path, json.loads(config.to_json(sort_keys=True)))
    return fingerprint


def check_config(workdir: str | os.PathLike, config: Config, *, free: Collection[str] = ()) -> str:
    """Checks a configuration like :func:`record_config`, without writing anything.

    Args:
      workdir: the run's folder.
      config: the run's configuration.
      free: dotted names of additional fields that may change.

    Returns:
      The run's fingerprint.

    Raises:
      ConfigMismatch: fields differ from the recorded ones; all of them are listed.
      ValueError: the configuration lacks a field of its task, ``workdir`` is a file, or the
        recorded configuration is damaged.
    """
    if Path(workdir).is_file():
        raise ValueError(f"workdir: {workdir} is a file, wanted a folder for the run")
    if "task" in config:
        configuration.check_complete(config)
    path = Path(workdir) / CONFIG
    now = _fixed_fields(json.loads(config.to_json()), free)
    fingerprint = hashlib.sha256(json.dumps(now, sort_keys=True).encode()).hexdigest()[:16]
    if path.exists():
        check_same(workdir, files.read_fields(path), config, free=free)
        fingerprint = read_record(workdir).get("fingerprint", fingerprint)
    return fingerprint


def check_same(
    workdir: str | os.PathLike,
    written: Mapping[str, Any],
    config: Config,
    *,
    free: Collection[str] = (),
) -> None:
    """Checks that a configuration has the values of a recorded one.

    Args:
      workdir: the folder of the record, for the message.
      written: the recorded configuration.
      config: the configuration.
      free: dotted names of additional fields that may differ.

    Raises:
      ConfigMismatch: fields differ; all of them are listed.
      ValueError: the recorded configuration is damaged.
    """
    now = _fixed_fields(json.loads(config.to_json()), free)
    recorded = _fixed_fields(json.loads(configuration.completed(written).to_json()), free)
    if "task" not in written:  # no task's fields: written by a caller of the loop
        there = _fixed_fields(written, free)
        recorded = {name: recorded[name] for name in recorded if name in there | now}
    differing = [
        f"  {name}: recorded {_show(recorded, name)}, now {_show(now, name)}"
        for name in sorted(recorded | now)
        if _show(recorded, name) != _show(now, name)
    ]
    if differing:
        raise ConfigMismatch(
            f"{workdir} contains a run of another configuration; use another "
            "workdir, or set these fields back:\n" + "\n".join(differing)
        )


def start_record(workdir: str | os.PathLike, fingerprint: str) -> None:
    """Writes ``record.json``: versions, devices, the commit of the code, and the start time.

    A resumed run updates these fields, except for its first start time, and keeps all others. A
    warning tells if its devices are others than before.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    known = read_record(workdir)
    devices = jax.devices()
    device = {
        "kind": devices[0].device_kind,
        "platform": devices[0].platform,
        "count": len(devices),
        "processes": jax.process_count(),
    }
    before = known.get("device", device)
    if before != device and jax.process_index() == 0:
        warnings.warn(
            f"{workdir} continues on {_devices(device)}, and was trained on {_devices(before)} so "
            "far: its results equal those of an unchanged run up to rounding, not to the bit",
            stacklevel=2,
        )
    update_record(
        workdir,
        fingerprint=fingerprint,
        started=known.get("started", now),
        last_started=now,
        versions={
            "python": platform.python_version(),
            "jaxatr": jaxatr.__version__,
            **{name: importlib.metadata.version(name) for name in _PACKAGES},
        },
        device=device,
        code=_code(Path(jaxatr.__file__).parent),
    )


def _devices(device: Mapping[str, Any]) -> str:
    return f"{device.get('count')} × {device.get('kind')} ({device.get('processes')} processes)"


def update_record(workdir: str | os.PathLike, **fields: Any) -> None:
    """Sets fields of ``record.json`` (class names, split, γ …) atomically, from process 0 only.

    What another process writes meanwhile, such as an evaluation beside a training, is kept.

    Raises:
      TimeoutError: another process holds the lock of the file.
    """
    if jax.process_index() == 0:
        path = Path(workdir) / RECORD
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.locked(path.with_name(f".{RECORD}.lock")):
            files.write_fields(path, dict(sorted((read_record(workdir) | fields).items())))


def read_record(workdir: str | os.PathLike) -> files.Fields:
    """Reads the fields of ``record.json``; empty if there is no such file.

    Raises:
      ValueError: the file is damaged or was changed, or a field is of the wrong type.
    """
    path = Path(workdir) / RECORD
    if not path.exists():
        return files.Fields({}, str(path))
    record = files.read_fields(path)
    forms.check(record, _FORM, path)
    split = record.get("split", {})
    for name in {"known", "unknown"} & {*split}:  # of runs from before names had one form
        split[name] = [class_name(one) for one in split[name]]
    return record


def _fixed_fields(
    tree: Mapping[str, Any], free: Collection[str], prefix: str = ""
) -> dict[str, Any]:
    fields = {}
    for name, value in tree.items():
        full = prefix + name
        if full in FREE_FIELDS or full in free:
            continue
        if isinstance(value, dict):
            fields |= _fixed_fields(value, free, full + ".")
        else:
            fields[full] = value
    return fields


def _show(fields: dict[str, Any], name: str) -> str:
    return json.dumps(fields[name]) if name in fields else "nothing"


def _code(folder: Path) -> dict[str, Any] | None:
    """Returns the git commit of the package's folder, ``None`` if git does not track it.

    This is the case, for example, for an installed package inside another checkout.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=10
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        changed = git("status", "--porcelain", "--", ".")  # only the package, not runs' output
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(changed)}
    except (OSError, subprocess.SubprocessError):
        return None
