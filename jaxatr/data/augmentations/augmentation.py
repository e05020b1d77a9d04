"""The description of an augmentation: its function, options and place in the order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jaxatr.config import Field
from jaxatr.typing import Array

Units = Literal["raw", "normalised"]
"""Units of the pixels an augmentation takes: raw sensor units, or mean 0 and deviation 1."""


class Option(NamedTuple):
    """One option of an augmentation.

    Attributes:
      default: its default value.
      meaning: a short description in Markdown, for the documentation's tables.
      fits: returns whether a value is allowed.
      wanted: the allowed values, for the error message.
    """

    default: Any
    meaning: str
    fits: Callable[[Any], bool]
    wanted: str


@dataclass(frozen=True)
class Augmentation:
    """An augmentation, off by default.

    Attributes:
      apply: ``(keys [b], images [b, h, w, c], *option values) -> images``. Each image is varied by
        its own key.
      options: option names in the group ``augment`` to options; the augmentation is on where the
        first one is truthy.
      place: augmentations are applied in ascending order; those below 0 precede the flips, shifts
        and rotations of :func:`jaxatr.data.augment`.
      units: units of the pixels.
    """

    apply: Callable[..., Array]
    options: Mapping[str, Option]
    place: int
    units: Units = "normalised"

    @property
    def switch(self) -> str:
        """The name of the option that switches the augmentation on."""
        return next(iter(self.options))

    @property
    def fields(self) -> dict[str, Field]:
        """The augmentation's configuration fields."""
        return {
            f"augment.{name}": Field(option.default, option.meaning)
            for name, option in self.options.items()
        }
