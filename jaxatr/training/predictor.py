"""The protocol of what predicts with a finished run: files in, predictions out."""

import abc
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, cast, overload

import jax
import numpy as np
from PIL import Image

from jaxatr import data
from jaxatr.data import Cell
from jaxatr.training.networks import digest
from jaxatr.typing import ArrayLike

Item = TypeVar("Item")
Answer = TypeVar("Answer")
One: TypeAlias = str | os.PathLike | Image.Image | ArrayLike
"""An image as a program has it."""


_NUMBERS = (np.ndarray, np.generic, jax.Array, bool, int, float)


class Predictor(abc.ABC, Generic[Item, Answer]):
    """A trained network that takes files and gives predictions; ``jaxatr predict`` runs it.

    Its type arguments are those of an input (an image, a track) and of a prediction.
    """

    #: What a path on the command line is: ``"IMAGE"``, or ``"FOLDER"`` where one input is several.
    takes: ClassVar[str] = "IMAGE"
    #: What a user should know before the predictions; empty for nothing.
    note: str = ""
    #: What runs its network: ``"jax"``, or another engine of :mod:`jaxatr.onnx.sessions`.
    runtime: str = "jax"

    @classmethod
    @abc.abstractmethod
    def load(cls, workdir: str | os.PathLike, **options: Any) -> "Predictor[Item, Answer]":
        """Loads what a finished run trained.

        Args:
          workdir: the run's folder.
          **options: the kind's own keyword arguments, which ``jaxatr predict`` has as flags.

        Raises:
          ValueError: no run, a run of another kind, or one that is not ready.
        """

    @abc.abstractmethod
    def read(self, path: str) -> Item:
        """Reads one input.

        Raises:
          ValueError: the file or folder holds nothing that this network takes.
        """

    @abc.abstractmethod
    def check(self, item: Item) -> object:
        """Checks an input before it is predicted.

        Raises:
          ValueError: the network cannot take it.
        """

    @abc.abstractmethod
    def __call__(self, items: Iterable[Item]) -> Iterator[Answer]:
        """Yields a prediction for each input, in order."""

    def digest(self) -> str:
        """Hashes all that the answers depend on, by SHA-256: predictions of two digests don't mix.

        Here these are the arrays and numbers among the attributes, and the engine where that is
        not jax; a kind that keeps something else adds that.
        """
        leaves = [one for one in jax.tree.leaves(vars(self)) if isinstance(one, _NUMBERS)]
        return digest(leaves if self.runtime == "jax" else [*leaves, self.runtime])

    def columns(self) -> dict[str, type]:
        """Lists the columns of :meth:`to_row`, name to ``str``, ``float``, ``int`` or ``bool``.

        Empty, as here, where only rows can tell.
        """
        return {}

    def verdict(self, prediction: Answer) -> str:
        """Writes the decision in few words, as a picture's title has it; empty without one."""
        return ""

    @overload
    def predict(self, inputs: One) -> Answer: ...

    @overload
    def predict(self, inputs: Iterable[Any]) -> list[Answer]: ...

    def predict(self, inputs: One | Iterable[Any]) -> Answer | list[Answer]:
        """Predicts one input, or many.

        Args:
          inputs: a path, an image of Pillow, or an array ``[h, w]`` or ``[h, w, c]``, with ``c`` 1
            or 3; or any number of these, an array ``[n, h, w, c]`` among them. A predictor of
            tracks takes a folder's path or a sequence of images, or any number of these.

        Returns:
          A prediction for one input, a list of them for many.

        Raises:
          ValueError: an input cannot be used; the message says which.
        """
        answers = list(self(self._items(inputs)))
        return answers[0] if self._is_one(inputs) else answers

    def _items(self, inputs: One | Iterable[Any]) -> Iterator[Item]:
        """Makes usable inputs of one value, or of many."""
        if self._is_one(inputs):
            yield self._usable(inputs, "input")
        elif isinstance(inputs, Iterable):
            for number, one in enumerate(inputs):
                yield self._usable(one, f"inputs[{number}]")
        else:
            raise ValueError(f"got a {type(inputs).__name__}, wanted an input or many of them")

    def _usable(self, value: object, name: str) -> Item:
        """Makes an input of what a program gives, and checks it."""
        try:
            item = self._item(value, name)
            self.check(item)
        except ValueError as error:
            message = str(error)
            named = message.startswith(name)
            raise ValueError(message if named else f"{name}: {message}") from error
        return item

    def _is_one(self, value: object) -> bool:
        """Whether a value is one input, and not many."""
        return isinstance(value, str | os.PathLike | Image.Image) or data.is_array_image(value)

    def _item(self, value: object, name: str) -> Item:
        """Makes an input of a path or another value; here of an image."""
        if isinstance(value, str | os.PathLike):
            return self.read(os.fspath(value))
        return cast(Item, data.as_image(value, name))

    @abc.abstractmethod
    def describe(self, prediction: Answer) -> str:
        """Writes a prediction as one line of text."""

    @abc.abstractmethod
    def to_json(self, prediction: Answer) -> dict[str, Any]:
        """Turns a prediction into JSON values."""

    def to_row(self, prediction: Answer) -> dict[str, Cell]:
        """Turns a prediction into a row of a table, column to cell.

        These are the fields of :meth:`to_json`; what is within one has a column of its own,
        ``FIELD_NAME`` or, of a list, ``FIELD_1``, ``FIELD_2`` and so on.
        """
        return flattened(self.to_json(prediction))


def types_of(row: Mapping[str, Cell]) -> dict[str, type]:
    """Returns the types of the cells of a row that has them all."""
    return {name: type(cell) for name, cell in row.items()}


def flattened(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Cell]:
    """Turns JSON values within each other into one row.

    Args:
      fields: name to value.
      prefix: of the columns' names.

    Raises:
      ValueError: two values would have one column.

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
            raise ValueError(f"two fields of a prediction are in the column {min(double)!r}")
        row |= found
    return row
