"""The base class of predictors, which load a finished run and predict from files."""

import abc
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, cast, overload

import jax
import numpy as np
from PIL import Image

from jaxatr import data
from jaxatr.data import Cell
from jaxatr.kernels.onednn import Form
from jaxatr.training.networks import digest
from jaxatr.typing import ArrayLike

Item = TypeVar("Item")
Answer = TypeVar("Answer")
One: TypeAlias = str | os.PathLike | Image.Image | ArrayLike
"""A single image, as accepted by :meth:`Predictor.predict`."""


_NUMBERS = (np.ndarray, np.generic, jax.Array, bool, int, float)


class Predictor(abc.ABC, Generic[Item, Answer]):
    """A trained network that predicts from files; used by ``jaxatr predict``.

    Its type parameters are the types of an input (an image, a track) and of a prediction.
    """

    #: Meaning of a path on the command line: ``"IMAGE"``, or ``"FOLDER"`` for inputs of many files.
    takes: ClassVar[str] = "IMAGE"
    #: A notice to show before the predictions; empty for none.
    note: str = ""
    #: The engine of its network, one of :mod:`jaxatr.onnx.sessions`.
    runtime: str = "jax"

    @property
    def forms(self) -> Mapping[str, Form]:
        """The form of the network, of XLA or oneDNN, by the shapes of the inputs so far.

        Empty unless the runtime is ``"onednn"``, the only one with a choice between the two.
        """
        return {}

    @property
    def bands(self) -> data.Bands:
        """How files become images."""
        return data.Bands()

    @classmethod
    @abc.abstractmethod
    def load(cls, workdir: str | os.PathLike, **options: Any) -> "Predictor[Item, Answer]":
        """Loads a finished run.

        Args:
          workdir: the run's folder.
          **options: keyword arguments of the task, which are flags of ``jaxatr predict``.

        Raises:
          ValueError: ``workdir`` is not a run's folder, or the run has another task or is not
            ready.
        """

    @abc.abstractmethod
    def read(self, path: str) -> Item:
        """Reads one input.

        Raises:
          ValueError: the file or folder has no valid input.
        """

    @abc.abstractmethod
    def prepare(self, item: Item) -> np.ndarray:
        """Converts an input to the network's: a chip ``[h, w, c]``, or a track's chips.

        Raises:
          ValueError: the input is not valid for this network.
        """

    @abc.abstractmethod
    def answers(self, chips: Iterable[np.ndarray]) -> Iterator[Answer]:
        """Yields a prediction for each prepared input, in order."""

    def __call__(self, items: Iterable[Item], **options: Any) -> Iterator[Answer]:
        """Yields a prediction for each input, in order.

        Raises:
          ValueError: an input is not valid for this network.
        """
        return self.answers(map(self.prepare, items), **options)

    def digest(self) -> str:
        """Returns the SHA-256 of everything that predictions depend on.

        Predictions with different digests must not be mixed. The default covers the arrays and
        numbers among the attributes, and the engine unless it is jax; subclasses with other state
        must add it.
        """
        leaves = [one for one in jax.tree.leaves(vars(self)) if isinstance(one, _NUMBERS)]
        return digest(leaves if self.runtime == "jax" else [*leaves, self.runtime])

    def columns(self) -> dict[str, type]:
        """Returns the types of the columns of :meth:`to_row`, by name.

        They are ``str``, ``float``, ``int`` or ``bool``; empty, the default, if the columns are not
        known in advance.
        """
        return {}

    def verdict(self, prediction: Answer) -> str:
        """Returns the decision in a few words, for a picture's title; empty if there is none."""
        return ""

    @overload
    def predict(self, inputs: One) -> Answer: ...

    @overload
    def predict(self, inputs: Iterable[Any]) -> list[Answer]: ...

    @overload
    def predict(
        self, inputs: Iterable[Any], *, errors: Literal["return"]
    ) -> list[Answer | ValueError]: ...

    def predict(
        self, inputs: One | Iterable[Any], *, errors: Literal["raise", "return"] = "raise"
    ) -> Answer | list[Answer] | list[Answer | ValueError]:
        """Predicts one or more inputs.

        Args:
          inputs: a path, a Pillow image, or an array ``[h, w]`` or ``[h, w, c]``; or an iterable of
            these, such as an array ``[n, h, w, c]``. For tracks, a folder's path or a sequence of
            images, or an iterable of these.
          errors: ``"return"`` puts the error of an invalid input among many in the place of its
            prediction, so that the others are predicted.

        Returns:
          A prediction for a single input, otherwise a list of predictions.

        Raises:
          FileNotFoundError: there is no file at a path.
          ValueError: an input is invalid; the message names it.
        """
        if errors == "return" and not self._is_one(inputs):
            return self._predict_usable(cast(Iterable[Any], inputs))
        answers = list(self.answers(self._prepared(inputs)))
        return answers[0] if self._is_one(inputs) else answers

    def _predict_usable(self, inputs: Iterable[Any]) -> list[Answer | ValueError]:
        failed: dict[int, ValueError] = {}
        numbers = itertools.count()

        def usable() -> Iterator[np.ndarray]:
            for one in inputs:
                number = next(numbers)
                try:
                    yield self._usable(one, f"inputs[{number}]")
                except ValueError as error:
                    failed[number] = error

        answers = iter(list(self.answers(usable())))
        return [failed[n] if n in failed else next(answers) for n in range(next(numbers))]

    def _prepared(self, inputs: One | Iterable[Any]) -> Iterator[np.ndarray]:
        """Converts one or more values to the network's inputs."""
        if self._is_one(inputs):
            yield self._usable(inputs, "input")
        elif isinstance(inputs, Iterable):
            for number, one in enumerate(inputs):
                yield self._usable(one, f"inputs[{number}]")
        else:
            raise ValueError(f"got a {type(inputs).__name__}, wanted an input or many of them")

    def _usable(self, value: object, name: str) -> np.ndarray:
        """Converts a value to the network's input."""
        try:
            return self.prepare(self._item(value, name))
        except ValueError as error:
            message = str(error)
            named = message.startswith(name)
            kind = data.MissingImageError if isinstance(error, FileNotFoundError) else ValueError
            raise kind(message if named else f"{name}: {message}") from error

    def _is_one(self, value: object) -> bool:
        """Returns whether a value is a single input."""
        return isinstance(value, str | os.PathLike | Image.Image) or data.is_array_image(value)

    def _item(self, value: object, name: str) -> Item:
        """Converts a path or another value to an input; here, an image."""
        if isinstance(value, str | os.PathLike):
            return self.read(os.fspath(value))
        return cast(Item, data.as_image(value, name, phase=self.bands.phase))

    @abc.abstractmethod
    def describe(self, prediction: Answer) -> str:
        """Formats a prediction as one line of text."""

    @abc.abstractmethod
    def to_json(self, prediction: Answer) -> dict[str, Any]:
        """Converts a prediction to JSON values."""

    def to_row(self, prediction: Answer) -> dict[str, Cell]:
        """Converts a prediction to a row of a table, cells by column.

        The columns are the fields of :meth:`to_json`; nested values get columns of their own,
        ``FIELD_NAME`` for dictionaries, and ``FIELD_1``, ``FIELD_2`` and so on for lists.
        """
        return flattened(self.to_json(prediction))


def types_of(row: Mapping[str, Cell]) -> dict[str, type]:
    """Returns the types of a row's cells, all of which must be present."""
    return {name: type(cell) for name, cell in row.items()}


def flattened(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Cell]:
    """Flattens nested JSON values into one row.

    Raises:
      ValueError: two values have the same column name.

    >>> flattened({"a": 1, "b": {"c": 2}, "d": [3, {"e": 4}]})
    {'a': 1, 'b_c': 2, 'd_1': 3, 'd_2_e': 4}
    """
    row: dict[str, Cell] = {}
    for name, value in fields.items():
        column = f"{prefix}{name}"
        if isinstance(value, list | tuple):
            value = {str(place): each for place, each in enumerate(value, 1)}
        found = flattened(value, f"{column}_") if isinstance(value, Mapping) else {column: value}
        if double := row.keys() & found.keys():
            raise ValueError(f"two fields of a prediction have the same column {min(double)!r}")
        row |= found
    return row
