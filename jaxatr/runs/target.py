"""The network of a run as the target of an explanation."""

import os
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxatr import models, training
from jaxatr.runs.folder import load_config, variables_of
from jaxatr.tasks.open_set import infer
from jaxatr.tasks.target import Target
from jaxatr.typing import ArrayLike, PyTree


def load_target(workdir: str | os.PathLike) -> Target:
    """Returns the closed-set classifier of an open-set run, at its newest checkpoint.

    Args:
      workdir: the run's folder.

    Raises:
      ValueError: no run, or one whose network is no classifier of known classes.
    """
    config, record = load_config(workdir), training.read_record(workdir)
    if "split" not in record or "coarse" in record or "target" in record:
        raise ValueError(f"{workdir}: wanted the run of a classifier (configs/cbc.py)")
    snapshot = training.load_snapshot(workdir, "latest")
    classes = tuple(record["split"]["known"])
    module = models.build_open_set(config.model, len(classes))
    source = {
        "workdir": str(workdir),
        "fingerprint": record.get("fingerprint"),
        "step": snapshot.step,
        "backbone": config.model.backbone,
        "width": config.model.width,
    }
    logits = partial(
        _logits,
        module,
        mean=np.asarray(record["normalization"]["mean"]),
        std=np.asarray(record["normalization"]["std"]),
    )
    return Target(logits, variables_of(snapshot), classes, source)


def _logits(module: Any, variables: PyTree, images: ArrayLike, *, mean, std) -> jax.Array:
    return infer(module, variables, images, mean, std).logits
