"""The protocol of a data source: an object that says where examples come from and what they hold.

A source is a folder or a file of :mod:`jaxatr.data.sources` with an object ``SOURCE``, which is
found by itself and opened by its name; or a class anywhere, which is opened as
``"my.module:Source"``. Writing, caching and indexing are the package's.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from jaxatr.data.reasons import Reasons
from jaxatr.resolve import nearest

Example = dict[str, Any]


class Option(NamedTuple):
    """An option of a source.

    Attributes:
      default: its value where none is given; JSON can hold it.
      meaning: for the reader of a list of options.
    """

    default: Any
    meaning: str


class Flag(NamedTuple):
    """A flag of ``jaxatr prepare`` that sets an option of a source.

    Attributes:
      name: without the dashes.
      option: that it sets.
      meaning: for ``--help``.
      kind: how absl parses it; a list is split at its commas.
      choices: of an enum.
      convert: turns the parsed value into the option's; raises ValueError for one that it refuses.
    """

    name: str
    option: str
    meaning: str
    kind: Literal["string", "integer", "float", "bool", "list", "enum"] = "string"
    choices: tuple[str, ...] = ()
    convert: Callable[[Any], Any] = lambda value: value


class Feature(NamedTuple):
    """A value of each example.

    Attributes:
      dtype: of an array or a number; ``str`` for a text.
      shape: of an array, None for a length that varies; ``()`` for a number or a text, which
        becomes a column of the split.
    """

    dtype: Any
    shape: tuple[int | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class Contents:
    """A data set that is about to be written.

    Attributes:
      classes: names of the fine classes; ``label`` counts them.
      features: name to feature: ``image`` ``[h, w, c]``, uint8, uint16 or float32; ``label``; and
        whatever else is known, such as ``id`` (counted where there is none), ``coarse``, ``box``,
        ``mask``, ``range_m``, ``track`` and ``frame``.
      splits: name to a function that yields the split's examples, each with all features. Each
        is called once, one after the other.
      total: how many examples there are at most, for the progress bar.
      coarse_classes: names of the coarse classes, or None.
      fine_to_coarse: the coarse class of each fine one, or None.
      skipped: (file, why) of what is damaged and left out; may grow while examples are yielded.
      left_out: what else is left out and why; may grow likewise.
      noted: what there is to know of what is not left out; may grow likewise.
      report: called when all is written, for further entries of ``report.json`` beside the records,
        which holds the three above. None for no such file.
    """

    classes: Sequence[str]
    features: Mapping[str, Feature]
    splits: Mapping[str, Callable[[], Iterator[Example]]]
    total: int
    coarse_classes: Sequence[str] | None = None
    fine_to_coarse: Sequence[int] | None = None
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    left_out: Reasons = dataclasses.field(default_factory=Reasons)
    noted: Reasons = dataclasses.field(default_factory=Reasons)
    report: Callable[[], Mapping[str, Any]] | None = None


class Request(NamedTuple):
    """A user's request to a source.

    Attributes:
      path: the ``source`` that was given, absolute; of no meaning for a source that takes none.
      options: those that were given, unchecked.
      skip_corrupt: leave damaged files out and list them.
    """

    path: Path
    options: Mapping[str, Any]
    skip_corrupt: bool


class Scan(NamedTuple):
    """The outcome of a scan, for which no image was opened.

    Attributes:
      source: of which the records are; another one where the source hands the request on.
      settings: all options, checked.
      state: changes when other records would be written, such as the settings and the sizes and
        dates of all files; JSON can hold it. It goes into the signature of the prepared set.
      contents: called with an empty folder for temporary files, when the set has to be written.
    """

    source: "Source"
    settings: Mapping[str, Any]
    state: Any
    contents: Callable[[Path], Contents]


@runtime_checkable
class Source(Protocol):
    """A data source; a class that inherits from this has the defaults.

    Attributes:
      name: letters, digits, ``_``, ``.`` and ``-``: its sets lie in the folder of that name.
      version: raised when other records would be written for the same state.
      options: name to option; none by default.
      takes: what the path names that it needs, such as ``"the folder of the database"``; empty for
        a source that takes no path, the default.
      any_data: whether it reads whatever lies at the path, so that its name alone names no set
        (False by default: a set that was prepared is opened again without its path).
      flags: of ``jaxatr prepare``; none by default. Of a source outside of the package options are
        set by ``--option`` alone.
    """

    name: str
    version: int | str
    options: Mapping[str, Option] = {}
    takes: str = ""
    any_data: bool = False
    flags: Sequence[Flag] = ()

    def scan(self, request: Request) -> Scan:
        """Checks a request and finds what it would give.

        Raises:
          ValueError: an option has no such value (:func:`all_options` checks their names), or there
            is nothing of use at the path.
        """
        ...


def all_options(source: Source, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all options of a source, with the defaults of those not given.

    Raises:
      ValueError: the source has no such option.
    """
    for option in given:
        if option not in source.options:
            raise ValueError(
                f"{source.name} has no option {option!r}{nearest(option, source.options)}"
            )
    return {name: option.default for name, option in source.options.items()} | dict(given)


def check_whole_number(name: str, value: Any, *, least: int) -> None:
    """Refuses the value of an option that is no whole number, or less than the least."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}: got {value!r}, wanted a whole number from {least}")
