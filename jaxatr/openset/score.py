"""A score as one object that holds everything the package knows about it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxatr.openset.outputs import Outputs
from jaxatr.typing import Float, Int, Shaped

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


class Answer(NamedTuple):
    """A score's answer to n examples.

    Attributes:
      score: ``[n]``, higher is more known.
      label: ``[n]``, the known class of each, be it accepted or not.
      distances: ``[n, k]``, to the nearest training example of each class, of a score that searches
        for it; else None.
    """

    score: Shaped[Any, " n"]
    label: Int[Any, " n"]
    distances: Float[Any, "n k"] | None = None


class Comparing(NamedTuple):
    """How a score that compares with known examples takes further ones, without a training.

    Attributes:
      rows: ``(model, outputs) -> [n, d]``, the vectors of n examples that it compares.
      add: ``(model, rows, labels, classes) -> model`` that compares with these examples too. A
        label may be of a class that the model has not: ``classes`` counts all of them.
    """

    rows: Callable[[Any, Outputs], Shaped[np.ndarray, "n d"]]
    add: Callable[[Any, Shaped[np.ndarray, "n d"], Int[np.ndarray, " n"], int], Any]


class OwnTraining(NamedTuple):
    """A training beside the run's own, without which a score cannot be computed.

    Attributes:
      baseline: its name for ``train --baselines``, and its folder in the run's.
      train: dotted path of the function that does it, which takes a
        :class:`jaxatr.runs.baselines.Beside` and goes on where it was cut. It returns ``model``;
        without ``model`` it returns None, and leaves a run of a network of its own.
      leaves: name in that folder of the file that keeps ``model``, or of the folder of the run,
        whose evaluation has the score.
      model: the named tuple of arrays that ``train`` returns; None where it leaves a run.
      adapt: ``(model, outputs on validation examples) -> model`` for the run's network.
    """

    baseline: str
    train: str
    leaves: str
    model: type | None = None
    adapt: Callable[[Any, Outputs], Any] | None = None


@dataclass(frozen=True)
class Score:
    """A score of how known an example is: higher is more known.

    Attributes:
      name: in records and on the command line; an identifier.
      title: in tables and reports.
      score: ``(model, outputs) -> [n]``, or with ``names_class`` an :class:`Answer`; the model is
        None without ``fit`` and ``calibrate``.
      fit: ``(outputs on training examples, head) -> model``, a named tuple of arrays; raises
        ``ValueError`` for outputs that it cannot be fitted to.
      calibrate: ``(model, outputs on validation examples) -> model``, after ``fit``, for what only
        examples that took no part in training can tell; raises as ``fit``.
      needs: names of what it needs beside the logits. ``"open_logits"`` is a field of
        :class:`Outputs`; the others are keys of :attr:`Outputs.more`. The task of the run computes
        them (:data:`jaxatr.tasks.open_set.needs.NEEDS`).
      scale: its unit, which decides how a report draws it.
      fixed_threshold: γ to the threshold in the score's unit, perhaps infinite; None for a score
        that has fitted thresholds only.
      training: a training of its own, if it needs one.
      names_class: whether it says which class an example is of, as a search in a gallery of
        training examples does. Its open-set figures are those of this class.
      members: scores that it is made of. They are fitted with it, and for its ``score`` and
        ``calibrate`` the outputs have their answers, as ``more["score_NAME"]``,
        ``more["label_NAME"]`` and, where there are some, ``more["distances_NAME"]``.
      recorded: whether the fitted model goes into the run's record; not where it holds the training
        set.
      model: the named tuple that ``fit`` returns. A score outside of the package may leave it out:
        a model that is read from a file is then a named tuple with the same fields.
      traced: as ``score``, the same values in operations of jax.numpy that ONNX can express, for an
        exported network; None for a score that is not exported.
      shapes: fields of the model that decide shapes: for ``traced`` they stay arrays of NumPy.
      comparing: how its model takes examples of further classes. Without ``names_class``, its
        ``score`` then gives an :class:`Answer` that names them. None for a score that cannot.
    """

    name: str
    title: str
    score: Callable[[Any, Outputs], Any]
    fit: Callable[[Outputs, Head], Any] | None = None
    needs: tuple[str, ...] = ()
    scale: Scale = "plain"
    fixed_threshold: Callable[[float], float] | None = None
    calibrate: Callable[[Any, Outputs], Any] | None = None
    training: OwnTraining | None = None
    names_class: bool = False
    members: tuple["Score", ...] = ()
    recorded: bool = True
    model: type | None = None
    traced: Callable[[Any, Outputs], Any] | None = None
    comparing: Comparing | None = None
    shapes: tuple[str, ...] = ()

    def __post_init__(self):
        """Checks the name, which becomes part of the names of arrays."""
        if not self.name.isidentifier():
            raise ValueError(f"name of a score: got {self.name!r}, wanted an identifier")

    @property
    def all_needs(self) -> frozenset[str]:
        """Names of what it and its members need beside the logits."""
        return frozenset(self.needs).union(*(member.all_needs for member in self.members))

    @property
    def fitted(self) -> bool:
        """Whether it or one of its members is fitted to training examples."""
        return self.fit is not None or any(member.fitted for member in self.members)

    @property
    def calibrated(self) -> bool:
        """Whether it or one of its members is calibrated on validation examples."""
        return self.calibrate is not None or any(member.calibrated for member in self.members)

    @property
    def takes_classes(self) -> bool:
        """Whether classes can be added to its fitted model without a training."""
        if self.comparing is not None:
            return True
        by_members = self.names_class and bool(self.members)
        return by_members and all(member.takes_classes for member in self.members)

    def __call__(self, model: Any, outputs: Outputs) -> np.ndarray:
        """Computes the score of n examples, ``[n]``.

        Raises:
          ValueError: as :meth:`answer`.
        """
        return self.answer(model, outputs).score

    def classify(self, model: Any, outputs: Outputs) -> np.ndarray:
        """Names the class of n examples, ``[n]``; see :meth:`answer`.

        Raises:
          ValueError: as :meth:`answer`.
        """
        return self.answer(model, outputs).label if self.names_class else outputs.predicted

    def answer(self, model: Any, outputs: Outputs) -> Answer:
        """Computes score and class of n examples at once.

        The class is the one that the score names, or else the closed-set classifier's.

        Raises:
          ValueError: the function gives another shape than one value for each example, or a class
            that is not among the known ones.
        """
        found = self.score(model, outputs)
        if not isinstance(found, Answer):
            if self.names_class:
                raise ValueError(f"{self.name}: got a {type(found).__name__}, wanted an Answer")
            return Answer(self._checked("values", found, outputs), outputs.predicted)
        label, classes = self._checked("classes", found.label, outputs), outputs.logits.shape[1]
        if label.size and not 0 <= label.min() <= label.max() < classes:
            raise ValueError(
                f"{self.name}: got classes from {label.min()} to {label.max()}, wanted known ones, "
                f"0 to {classes - 1}"
            )
        values, distances = self._checked("values", found.score, outputs), found.distances
        return Answer(values, label, None if distances is None else np.asarray(distances))

    def _checked(self, what: str, values: Any, outputs: Outputs) -> np.ndarray:
        values = np.asarray(values)
        if values.shape != outputs.labels.shape:
            raise ValueError(
                f"{self.name}: got {what} of shape {values.shape}, wanted one for each example, "
                f"{outputs.labels.shape}"
            )
        return values
