"""Numbers and lists of values on the command line."""

import ast
from typing import Any

from absl import flags
from ml_collections.config_flags import tuple_parser


class WholeNumber(flags.IntegerParser):
    """A parser of whole numbers."""

    def convert(self, argument: int | str) -> int:
        """Returns the number of a text.

        Raises:
          ValueError: the text is not a whole number.
        """
        try:
            return super().convert(argument)
        except ValueError:
            raise ValueError(f"wanted a whole number, got {argument!r}") from None


class Number(flags.FloatParser):
    """A parser of numbers."""

    def convert(self, argument: int | float | str) -> float:
        """Returns the number of a text.

        Raises:
          ValueError: the text is not a number.
        """
        try:
            return super().convert(argument)
        except ValueError:
            raise ValueError(f"wanted a number, got {argument!r}") from None


class Values(tuple_parser.TupleParser):
    """A parser of values that commas separate: numbers, texts or both; nothing is no value."""

    def parse(self, argument: Any) -> tuple[Any, ...]:
        """Returns the values of a text, which may also be written as in Python: ``("a", 1)``."""
        if isinstance(argument, str):
            items = (item.strip() for item in argument.split(","))
            argument = _read(argument, tuple(_read(item, item) for item in items if item))
        return tuple(argument) if isinstance(argument, list) else super().parse(argument)


def _read(text: str, otherwise: Any) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # without the quotes of Python
        return otherwise


def explained(parser: flags.ArgumentParser) -> flags.ArgumentParser:
    """Returns a parser of numbers with these messages and the same bounds; others unchanged."""
    if isinstance(parser, flags.IntegerParser):
        return WholeNumber(parser.lower_bound, parser.upper_bound)
    if isinstance(parser, flags.FloatParser):
        return Number(parser.lower_bound, parser.upper_bound)
    return parser
