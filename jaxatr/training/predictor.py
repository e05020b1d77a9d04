"""The protocol of what predicts with a finished run: files in, predictions out."""

import abc
import os
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Predictor(abc.ABC, Generic[Item, Answer]):
    """A trained network that takes files and gives predictions; ``jaxatr predict`` runs it.

    Its type arguments are those of an input (an image, a track) and of a prediction.
    """

    #: What a path on the command line is: ``"IMAGE"``, or ``"FOLDER"`` where one input is several.
    takes: ClassVar[str] = "IMAGE"
    #: What a user should know before the predictions; empty for nothing.
    note: str = ""

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

    @abc.abstractmethod
    def describe(self, prediction: Answer) -> str:
        """Writes a prediction as one line of text."""

    @abc.abstractmethod
    def to_json(self, prediction: Answer) -> dict[str, Any]:
        """Turns a prediction into JSON values."""
