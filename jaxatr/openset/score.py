"""The description of a score: its fit, computation, calibration and display."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxatr.openset.outputs import Outputs
from jaxatr.typing import Float, Int, Shaped

Scale = Literal["plain", "logit", "log", "distance"]
"""The unit of a score: a plain number, the logit or the logarithm of a probability, or minus a
distance."""


class Head(NamedTuple):
    """The closed-set classifier's last layer: ``logits = features @ kernel + bias``.

    Attributes:
      kernel: ``[d, k]``.
      bias: ``[k]``, or None.
    """

    kernel: Float[Any, "d k"]
    bias: Float[Any, " k"] | None

    def select(self, classes: Sequence[int] | slice) -> "Head":
        """Returns the layer of some of the classes."""
        bias = None if self.bias is None else np.asarray(self.bias)[classes]
        return Head(np.asarray(self.kernel)[:, classes], bias)


class Answer(NamedTuple):
    """A score's values and classes for n examples.

    Attributes:
      score: ``[n]``, higher is more known.
      label: ``[n]``, the nearest known class of each, whether it is accepted or not.
      distances: ``[n, k]``, the distance to the nearest training example of each class, if the
        score searches for it; otherwise None.
    """

    score: Shaped[Any, " n"]
    label: Int[Any, " n"]
    distances: Float[Any, "n k"] | None = None


class Comparing(NamedTuple):
    """The functions that add examples to a score which compares with stored examples.

    Attributes:
      rows: ``(model, outputs) -> [n, d]``, the vectors by which examples are compared.
      add: ``(model, rows, labels, classes) -> model``, adds examples to the model. Labels may be of
        new classes; ``classes`` is the number of all classes.
    """

    rows: Callable[[Any, Outputs], Shaped[np.ndarray, "n d"]]
    add: Callable[[Any, Shaped[np.ndarray, "n d"], Int[np.ndarray, " n"], int], Any]


class OwnTraining(NamedTuple):
    """An additional training that a score depends on.

    Attributes:
      baseline: its name in ``train --baselines``, and the name of its subfolder of the run.
      train: import path of the training function, which takes a
        :class:`jaxatr.runs.baselines.Beside` and resumes an interrupted training. It returns a
        ``model``; if ``model`` is None, it trains a run of its own and returns None.
      leaves: name, within the subfolder, of the file that holds the model, or of the folder of the
        run whose evaluation has the score.
      model: type of the named tuple of arrays that ``train`` returns; None if it trains a run.
      adapt: ``(model, outputs on validation examples) -> model``, adapts the model to the run's
        network.
    """

    baseline: str
    train: str
    leaves: str
    model: type | None = None
    adapt: Callable[[Any, Outputs], Any] | None = None


@dataclass(frozen=True)
class Score:
    """A score of how known an example is; higher is more known.

    Attributes:
      name: name in records and on the command line; an identifier.
      title: name in tables and reports.
      score: ``(model, outputs) -> [n]``, or an :class:`Answer` if the score names the class. The
        model is None without ``fit`` and ``calibrate``.
      fit: ``(outputs on training examples, head) -> model``, a named tuple of arrays. It raises
        ``ValueError`` if the outputs are unsuitable.
      calibrate: ``(model, outputs on validation examples) -> model``, called after ``fit``, for
        parameters that need examples that took no part in training. It raises ``ValueError`` if the
        outputs are unsuitable.
      needs: names of the arrays that it needs in addition to the logits. ``"open_logits"`` is a
        field of :class:`Outputs`; the others are keys of :attr:`Outputs.more`. The run's task
        computes them (:data:`jaxatr.tasks.open_set.needs.NEEDS`).
      scale: unit of the score, which determines how reports draw it.
      fixed_threshold: maps γ to the threshold in the score's unit, possibly infinite; None if the
        score has fitted thresholds only.
      training: the additional training that it depends on, or None.
      names_class: whether it predicts the class itself, as a search in a gallery of training
        examples does. Its open-set measures are then computed with this class.
      members: scores that it combines. They are fitted with it, and the outputs that its ``score``
        and ``calibrate`` receive include their answers, as ``more["score_NAME"]``,
        ``more["label_NAME"]`` and, if available, ``more["distances_NAME"]``.
      recorded: whether the fitted model is stored in the run's record; False for models that
        contain the training set.
      model: type of the named tuple that ``fit`` returns. Optional for scores outside the package:
        models read from a file are then named tuples with the same fields.
      traced: ``score`` in jax.numpy operations that ONNX can express, for exported networks; None
        if the score cannot be exported.
      shapes: fields of the model that determine shapes; ``traced`` receives them as NumPy arrays.
      comparing: adds examples, also of new classes, to its model. A score without ``names_class``
        then returns an :class:`Answer` that names the new classes. None if the score takes no
        examples.
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
        """Checks the name, which is used in array names."""
        if not self.name.isidentifier():
            raise ValueError(f"name of a score: got {self.name!r}, wanted an identifier")

    @property
    def all_needs(self) -> frozenset[str]:
        """Names of the arrays that it and its members need in addition to the logits."""
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
        """Whether classes can be added to its fitted model without training."""
        if self.comparing is not None:
            return True
        by_members = self.names_class and bool(self.members)
        return by_members and all(member.takes_classes for member in self.members)

    def __call__(self, model: Any, outputs: Outputs) -> np.ndarray:
        """Computes the score of n examples, ``[n]``.

        Raises:
          ValueError: the score function does not return one value per example, or returns a class
            that is not known.
        """
        return self.answer(model, outputs).score

    def answer(self, model: Any, outputs: Outputs) -> Answer:
        """Computes the score and the class of n examples.

        The class is the score's own if it names one, and the closed-set classifier's otherwise.

        Raises:
          ValueError: the score function does not return one value per example, or returns a class
            that is not known.
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
