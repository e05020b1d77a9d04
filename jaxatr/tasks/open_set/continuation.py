"""Initialising a network, including its heads, from a finished run with fewer classes."""

import os
from typing import Any

import flax.traverse_util
import jax.numpy as jnp
import numpy as np

from jaxatr import training
from jaxatr.training import read_record
from jaxatr.typing import PyTree


class Continued:
    """A run's latest checkpoint, which replaces the initial variables of another run.

    Attributes:
      record: provenance, for the new run's record.
    """

    def __init__(self, workdir: str | os.PathLike, known: tuple[str, ...]):
        """Reads the run.

        Raises:
          ValueError: there is no such run, or its classes are not the first of ``known``.
        """
        training.load_config(workdir)
        record = read_record(workdir)
        own = tuple(record.get("split", {}).get("known", ()))
        if own != known[: len(own)] or not own:
            raise ValueError(
                f"open_set.continues: the known classes of {workdir} are {', '.join(own)}, wanted "
                f"the first of {', '.join(known)}"
            )
        snapshot = training.load_snapshot(workdir, "latest")
        self._workdir, self._variables = workdir, training.variables_of(snapshot)
        self.record: dict[str, Any] = {
            "workdir": str(workdir),
            "run": record.get("fingerprint"),
            "step": snapshot.step,
        }

    def put_into(self, params: PyTree, model_state: PyTree) -> tuple[PyTree, PyTree]:
        """Replaces variables by those of the run; additional classes keep their initial values.

        Raises:
          ValueError: the run has a different network.
        """
        drawn = flax.traverse_util.flatten_dict({"params": params, **model_state}, sep="/")
        own = flax.traverse_util.flatten_dict(self._variables, sep="/")
        if different := sorted(set(own) ^ set(drawn)):
            raise ValueError(
                f"open_set.continues: {self._workdir} has a different network: only one of the two "
                f"has {different[0]}"
            )
        joined = {name: self._joined(name, leaf, own[name]) for name, leaf in drawn.items()}
        variables = flax.traverse_util.unflatten_dict(joined, sep="/")
        return variables.pop("params"), variables

    def _joined(self, name: str, drawn: Any, own: Any) -> Any:
        """Replaces the leading elements of ``drawn`` by ``own``."""
        smaller = np.ndim(own) == drawn.ndim and all(
            a <= b for a, b in zip(np.shape(own), drawn.shape, strict=True)
        )
        if not smaller or (np.shape(own) != drawn.shape and "_head/" not in name):
            raise ValueError(
                f"open_set.continues: {self._workdir} has a different network: {name} is "
                f"{list(np.shape(own))}, wanted {list(drawn.shape)}"
            )
        places = tuple(slice(length) for length in np.shape(own))
        return jnp.asarray(drawn).at[places].set(jnp.asarray(own))
