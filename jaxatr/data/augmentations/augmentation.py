"""An augmentation as one object that holds everything the package knows about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jaxatr.config import Field
from jaxatr.typing import Array

Units = Literal["raw", "normalised"]
"""Units of the pixels that it takes: as the sensor gave them, or of mean 0 and deviation 1."""


class Option(NamedTuple):
    """One field of an augmentation.

    Attributes:
      default: its value where nothing sets it.
      meaning: in a few words, for the tables; Markdown.
      fits: whether a value will do.
      wanted: what does, for the error message.
    """

    default: Any
    meaning: str
    fits: Callable[[Any], bool]
    wanted: str


@dataclass(frozen=True)
class Augmentation:
    """One way to vary images, off by default.

    Attributes:
      apply: ``(keys [b], images [b, h, w, c], *values of the options) -> images``. Each image is
        varied by its own key alone.
      options: names, in the group ``augment``, to fields; the first one switches it on, and is
        falsy where it is off.
      place: augmentations are applied in ascending order; those below 0 come before the flips,
        shifts and turns of :func:`jaxatr.data.augment`.
      units: of the pixels.
    """

    apply: Callable[..., Array]
    options: Mapping[str, Option]
    place: int
    units: Units = "normalised"

    @property
    def name(self) -> str:
        """The field that switches it on."""
        return next(iter(self.options))

    @property
    def fields(self) -> dict[str, Field]:
        """Its configuration fields."""
        return {
            f"augment.{name}": Field(option.default, option.meaning)
            for name, option in self.options.items()
        }
