"""The network of a finished run, heads and all, as the beginning of another with more classes."""

import os
from typing import Any

import flax.traverse_util
import jax.numpy as jnp
import numpy as np

from jaxatr import training
from jaxatr.training import read_record
from jaxatr.typing import PyTree


class Continued:
    """A run's newest checkpoint, in the place of freshly drawn variables.

    Attributes:
      record: what a result must state of it.
    """

    def __init__(self, workdir: str | os.PathLike, known: tuple[str, ...]):
        """Reads the run.

        Args:
          workdir: its folder.
          known: the classes of the network that begins with it.

        Raises:
          ValueError: there is no such run, or its classes are not the first of these.
        """
        training.load_config(workdir)
        record = read_record(workdir)
        own = tuple(record.get("split", {}).get("known", ()))
        if own != known[: len(own)] or not own:
            raise ValueError(
                f"open_set.continues: {workdir} knows {', '.join(own)}, wanted the first of "
                f"{', '.join(known)}"
            )
        snapshot = training.load_snapshot(workdir, "latest")
        self._workdir, self._variables = workdir, training.variables_of(snapshot)
        self.record: dict[str, Any] = {
            "workdir": str(workdir),
            "run": record.get("fingerprint"),
            "step": snapshot.step,
        }

    def put_into(self, params: PyTree, model_state: PyTree) -> tuple[PyTree, PyTree]:
        """Replaces variables by the run's; those of classes that it has not stay as drawn.

        Raises:
          ValueError: the run's network is another one.
        """
        drawn = flax.traverse_util.flatten_dict({"params": params, **model_state}, sep="/")
        own = flax.traverse_util.flatten_dict(self._variables, sep="/")
        if strange := sorted(set(own) ^ set(drawn)):
            raise ValueError(
                f"open_set.continues: the network of {self._workdir} is another one: only one of "
                f"the two has {strange[0]}"
            )
        found = {name: self._joined(name, leaf, own[name]) for name, leaf in drawn.items()}
        variables = flax.traverse_util.unflatten_dict(found, sep="/")
        return variables.pop("params"), variables

    def _joined(self, name: str, drawn: Any, own: Any) -> Any:
        """Puts an array in the first places of another."""
        smaller = np.ndim(own) == drawn.ndim and all(
            a <= b for a, b in zip(np.shape(own), drawn.shape, strict=True)
        )
        if not smaller or (np.shape(own) != drawn.shape and "_head/" not in name):
            raise ValueError(
                f"open_set.continues: the network of {self._workdir} is another one: {name} is "
                f"{list(np.shape(own))}, wanted {list(drawn.shape)}"
            )
        places = tuple(slice(length) for length in np.shape(own))
        return drawn.at[places].set(jnp.asarray(own))
