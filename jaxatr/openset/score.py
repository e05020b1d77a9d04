"""The declaration of a score: its fit, computation, calibration and display."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxatr.openset.head import Head
from jaxatr.openset.outputs import Outputs
from jaxatr.resolve import imported, nearest
from jaxatr.typing import ArrayLike, Float, Int, Shaped

Scale = Literal["plain", "logit", "log", "distance"]
"""The unit of a score: a plain number, the logit or the logarithm of a probability, or minus a
distance."""


class Answer(NamedTuple):
    """A score's values and classes for n examples.

    Attributes:
      score: ``[n]``, higher is more known.
      label: ``[n]``, the nearest known class of each, whether it is accepted or not. A score that
        does not name classes, but to which classes were added, has -1 for an example of none of
        these.
      distances: ``[n, k]``, the distance to the nearest training example of each class, if the
        score searches for it; otherwise None.
    """

    score: Shaped[Any, " n"]
    label: Int[Any, " n"]
    distances: Float[Any, "n k"] | None = None


class Comparing(NamedTuple):
    """The functions that add examples to a score which compares with stored examples.

    Attributes:
      rows: ``(model, outputs) -> [n, d]``, the vectors by which examples are compared; in
        :meth:`Score.of_arrays`, a function of arrays.
      add: ``(model, rows, labels, classes) -> model``, adds examples to the model. Labels may be of
        new classes; ``classes`` is the number of all classes.
      extends: whether further examples of a class of the fit change the model.
    """

    rows: Callable[..., ArrayLike]
    add: Callable[[Any, Shaped[np.ndarray, "n d"], Int[np.ndarray, " n"], int], Any]
    extends: bool = True


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
class ByName:
    """Calls a function of arrays with those of the outputs that its parameters name.

    Attributes:
      function: the function. Its parameters without a default are ``model``, ``head``, ``classes``
        (the number of known classes) and names of arrays.
      names: name of the array for each of these parameters.
    """

    function: Callable[..., Any]
    names: Mapping[str, str]

    @classmethod
    def of(cls, function: Callable[..., Any], arrays: Mapping[str, str]) -> "ByName":
        """Reads the names from a function's signature; ``arrays`` replaces some of them."""
        parameters = inspect.signature(function).parameters.values()
        names = [one.name for one in parameters if one.default is one.empty]
        return cls(function, {name: arrays.get(name, name) for name in names})

    @property
    def options(self) -> frozenset[str]:
        """Names of the parameters that have a default."""
        return frozenset(inspect.signature(self.function).parameters) - frozenset(self.names)

    def __call__(self, model: Any, outputs: Outputs) -> Any:
        """Calls the function on some examples."""
        return self._on(outputs, model=model)

    def _on(self, outputs: Outputs, **others: Any) -> Any:
        others["classes"] = outputs.logits.shape[1]
        return self.function(
            *(others[n] if n in others else outputs.array(array) for n, array in self.names.items())
        )


class FitByName(ByName):
    """Calls a function of training examples' arrays, as :class:`ByName` does."""

    def __call__(self, outputs: Outputs, head: Head | None) -> Any:
        """Calls the function on training examples."""
        return self._on(outputs, head=head)


_OPTIONS = "_options"  # attribute of a score with options: the score without them, and the options
NOT_NEEDS = frozenset({"model", "head", "classes", "labels", "logits"})
"""Parameters of a score's functions that are not among its needs."""


@dataclass(frozen=True)
class Score:
    """A score of how known an example is; higher is more known.

    :meth:`of_arrays` makes one from functions of arrays.

    Attributes:
      name: name in records and on the command line; an identifier.
      title: title in tables and reports.
      score: ``(model, outputs) -> [n]``, or an :class:`Answer` if the score names the class. The
        model is None without ``fit`` and ``calibrate``.
      fit: ``(outputs on training examples, head) -> model``, a named tuple of arrays. It raises
        ``ValueError`` if the outputs are unsuitable.
      calibrate: ``(model, outputs on validation examples) -> model``, called after ``fit``, for
        parameters that need examples that took no part in training. It raises ``ValueError`` if the
        outputs are unsuitable.
      weigh: ``(model, outputs on training examples, outputs on validation examples, last layer or
        None) -> model``, called between ``fit`` and ``calibrate``: sets the model's field
        ``weights``, by what the members tell apart. Fits without some of the examples keep the
        weights of the whole fit.
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
      former: forms of the score in earlier versions, with other members. A model that was stored by
        one of them is read as that form.
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
    fit: Callable[[Outputs, Any], Any] | None = None
    needs: tuple[str, ...] = ()
    scale: Scale = "plain"
    fixed_threshold: Callable[[float], float] | None = None
    calibrate: Callable[[Any, Outputs], Any] | None = None
    weigh: Callable[[Any, Outputs, Outputs, Head | None], Any] | None = None
    training: OwnTraining | None = None
    names_class: bool = False
    members: tuple["Score", ...] = ()
    former: tuple["Score", ...] = ()
    recorded: bool = True
    model: type | None = None
    traced: Callable[[Any, Outputs], Any] | None = None
    comparing: Comparing | None = None
    shapes: tuple[str, ...] = ()

    def __post_init__(self):
        """Checks the name, which is used in array names."""
        if not self.name.isidentifier():
            raise ValueError(f"name of a score: got {self.name!r}, wanted an identifier")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles a score of the package as its name, because its functions may have none."""
        if made := vars(self).get(_OPTIONS):
            return Score.with_options, made
        if _of_package(self.name) is self:
            return _of_package, (self.name,)
        return Score, tuple(getattr(self, field.name) for field in fields(self))

    @classmethod
    def of_arrays(
        cls,
        name: str,
        title: str,
        score: Callable[..., Any],
        fit: Callable[..., Any] | None = None,
        *,
        calibrate: Callable[..., Any] | None = None,
        traced: Callable[..., Any] | None = None,
        arrays: Mapping[str, str] | None = None,
        members: tuple["Score", ...] = (),
        comparing: Comparing | None = None,
        **fields: Any,
    ) -> "Score":
        """Makes a score from functions whose parameters name the arrays that they take.

        A parameter without a default is ``model`` (what ``fit`` or ``calibrate`` returned),
        ``labels``, ``logits``, ``head`` (in ``fit``), ``classes``, the number of known classes, or
        the name of a need, such as ``features``. Parameters with a default are options of
        :func:`jaxatr.openset.create`.

        Args:
          name: name of the score.
          title: title of the score.
          score: computes ``[n]``, or an :class:`Answer`.
          fit: computes the model of training examples.
          calibrate: computes the model of validation examples.
          traced: ``score`` in operations that ONNX can express; it may be the same function.
          arrays: names of arrays by parameter, for parameters of another name.
          members: scores that it combines; arrays such as ``"score_NAME"`` are their answers.
          comparing: adds examples; its ``rows`` takes arrays by name.
          **fields: further fields of :class:`Score`.
        """
        others = arrays or {}
        functions = [
            None if function is None else kind.of(function, others)
            for kind, function in (
                (ByName, score),
                (FitByName, fit),
                (ByName, calibrate),
                (ByName, traced),
            )
        ]
        if comparing is not None:
            comparing = comparing._replace(rows=ByName.of(comparing.rows, others))
        named = {array: None for one in functions[:3] if one for array in one.names.values()}
        needs = tuple(array for array in named if array not in NOT_NEEDS | _answers_of(members))
        made: Any = dict(zip(("score", "fit", "calibrate", "traced"), functions, strict=True))
        return cls(name, title, needs=needs, members=members, comparing=comparing, **made, **fields)

    def with_options(self, options: Mapping[str, Any]) -> "Score":
        """Returns the score with other values of its functions' options.

        Raises:
          ValueError: none of its functions has such an option.
        """
        if not options:
            return self
        kinds = ("score", "fit", "calibrate", "traced")
        functions = {k: f for k in kinds if isinstance(f := getattr(self, k), ByName)}
        choice = sorted(frozenset().union(*(one.options for one in functions.values())))
        for name in options:
            if name not in choice:
                raise ValueError(
                    f"{self.name}: got the option {name!r}, wanted "
                    f"{', '.join(choice) or 'none'}{nearest(name, choice)}"
                )
        changed: Any = {}
        for kind, one in functions.items():
            own = {name: options[name] for name in options if name in one.options}
            changed[kind] = replace(one, function=partial(one.function, **own)) if own else one
        own = functions["score"].options & {*options} if "score" in functions else frozenset()
        if own and not (isinstance(self.traced, ByName) and own <= self.traced.options):
            changed["traced"] = None  # it would compute the score without the options
        made = replace(self, **changed)
        vars(made)[_OPTIONS] = self, {**options}
        return made

    def asks(self, kind: Literal["score", "fit", "calibrate"]) -> tuple[str, ...]:
        """Returns the names of the arrays that one of its functions takes, members' included.

        A function of whole :class:`Outputs` is taken to ask for everything that it can have.
        """
        names: dict[str, None] = {}
        for member in self.members:
            names |= dict.fromkeys(member.asks(kind))
            if kind == "calibrate" and self.calibrate is not None:
                names |= dict.fromkeys(member.asks("score"))
        if kind == "calibrate" and self.weigh is not None:
            names["labels"] = None
        function = getattr(self, kind)
        if isinstance(function, ByName):
            own = ["labels" if name == "classes" else name for name in function.names.values()]
            others = _answers_of(self.members) | {"model"}
            names |= dict.fromkeys(name for name in own if name not in others)
        elif function is not None and not self.members:
            further = {"score": (), "fit": ("labels", "head"), "calibrate": ("labels",)}
            names |= dict.fromkeys(("logits", *self.needs, *further[kind]))
        return tuple(names)

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
    def weighed(self) -> bool:
        """Whether it or one of its members is weighed by training and validation examples."""
        return self.weigh is not None or any(member.weighed for member in self.members)

    @property
    def takes_classes(self) -> bool:
        """Whether classes can be added to its fitted model without training.

        A score with members takes them if those that name the class do. The others then judge an
        example of such a class as they judge an unknown one, in the fit of its threshold, too.
        """
        if self.comparing is not None:
            return True
        naming = [member for member in self.members if member.names_class]
        return self.names_class and bool(naming) and all(one.takes_classes for one in naming)

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
        if not self.names_class:
            label = np.where(label < 0, outputs.predicted, label)
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


def _of_package(name: str) -> Score | None:
    """Returns the package's score of a name; None if it has none."""
    return imported("jaxatr.openset.registry:SCORES").get(name)


def _answers_of(members: tuple[Score, ...]) -> set[str]:
    """Returns the names of the arrays that are members' answers."""
    return {f"{field}_{one.name}" for one in members for field in Answer._fields}
