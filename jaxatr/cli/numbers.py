"""Numbers on the command line, with messages that say what is wanted."""

from absl import flags


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


def explained(parser: flags.ArgumentParser) -> flags.ArgumentParser:
    """Returns a parser of numbers with these messages and the same bounds; others unchanged."""
    if isinstance(parser, flags.IntegerParser):
        return WholeNumber(parser.lower_bound, parser.upper_bound)
    if isinstance(parser, flags.FloatParser):
        return Number(parser.lower_bound, parser.upper_bound)
    return parser
