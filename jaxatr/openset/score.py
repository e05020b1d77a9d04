"""A score as one object that holds everything the package knows about it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxatr.openset.outputs import Outputs
from jaxatr.typing import Float

Scale = Literal["plain", "logit", "log", "distance"]
"""The unit of a score: a plain number, the logit of a probability, the logarithm of one, or minus a
distance."""


class Head(NamedTuple):
    """The closed-set classifier's last layer: ``logits = features @ kernel + bias``.

    Attributes:
      kernel: ``[d, k]``.
      bias: ``[k]``, or None.
    """

    kernel: Float[Any, "d k"]
    bias: Float[Any, " k"] | None


class OwnTraining(NamedTuple):
    """A training beside the run's own, without which a score cannot be computed.

    Attributes:
      baseline: its name for ``train --baselines``, and its folder in the run's.
      model: the named tuple of arrays that it leaves; None where it leaves a network of its own,
        whose evaluation has the score.
      adapt: ``(model, outputs on validation examples) -> model`` for the run's network.
    """

    baseline: str
    model: type | None = None
    adapt: Callable[[Any, Outputs], Any] | None = None


@dataclass(frozen=True)
class Score:
    """A score of how known an example is: higher is more known.

    Attributes:
      name: in records and on the command line; an identifier.
      title: in tables and reports.
      score: ``(model, outputs) -> [n]``; the model is None without ``fit``.
      fit: ``(outputs on training examples, head) -> model``, a named tuple of arrays; raises
        ``ValueError`` for outputs that it cannot be fitted to.
      needs: names of what it needs beside the logits. ``"open_logits"`` is a field of
        :class:`Outputs`; the others are keys of :attr:`Outputs.more`. The task of the run computes
        them (:data:`jaxatr.tasks.open_set.needs.NEEDS`).
      scale: its unit, which decides how a report draws it.
      fixed_threshold: γ to the threshold in the score's unit, perhaps infinite; None for a score
        that has fitted thresholds only.
      training: a training of its own, if it needs one.
      recorded: whether the fitted model goes into the run's record; not where it holds the training
        set.
      model: the named tuple that ``fit`` returns. A score outside of the package may leave it out:
        a model that is read from a file is then a named tuple with the same fields.
    """

    name: str
    title: str
    score: Callable[[Any, Outputs], Any]
    fit: Callable[[Outputs, Head], Any] | None = None
    needs: tuple[str, ...] = ()
    scale: Scale = "plain"
    fixed_threshold: Callable[[float], float] | None = None
    training: OwnTraining | None = None
    recorded: bool = True
    model: type | None = None

    def __post_init__(self):
        """Checks the name, which becomes part of the names of arrays."""
        if not self.name.isidentifier():
            raise ValueError(f"name of a score: got {self.name!r}, wanted an identifier")

    def __call__(self, model: Any, outputs: Outputs) -> np.ndarray:
        """Computes the score of n examples, ``[n]``.

        Raises:
          ValueError: the function gives another shape than one value for each example.
        """
        values = np.asarray(self.score(model, outputs))
        if values.shape != outputs.labels.shape:
            raise ValueError(
                f"{self.name}: got values of shape {values.shape}, wanted one for each example, "
                f"{outputs.labels.shape}"
            )
        return values
