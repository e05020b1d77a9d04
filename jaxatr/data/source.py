"""The protocol of data sources, which define where examples come from and what they contain.

A source is the ``PART`` of a module or package of :mod:`jaxatr.data.sources`, opened by its name;
or any class, opened as ``"my.module:Source"``. Writing, caching and indexing are done by the
package.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from jaxatr.data.bands import Bands
from jaxatr.data.reasons import Reasons
from jaxatr.resolve import nearest

Example = dict[str, Any]


class Flag(NamedTuple):
    """How an option of a source is also a flag of ``jaxatr prepare``, of the option's name.

    Attributes:
      kind: how absl parses the flag; a list is split at its commas.
      choices: the allowed values of an enum.
      convert: converts the parsed value to the option's; raises ValueError for invalid values.
    """

    kind: Literal["string", "integer", "float", "bool", "list", "enum"] = "string"
    choices: tuple[str, ...] = ()
    convert: Callable[[Any], Any] = lambda value: value


class Option(NamedTuple):
    """An option of a source.

    Attributes:
      default: the default value, JSON-serialisable.
      meaning: a description for lists of options and for the flag.
      flag: its flag of ``jaxatr prepare``; None for an option that only ``--option`` sets.
    """

    default: Any
    meaning: str
    flag: Flag | None = None


class Feature(NamedTuple):
    """A feature that every example has.

    Attributes:
      dtype: dtype of an array or a number; ``str`` for text.
      shape: shape of an array, with None for a variable length; ``()`` for a number or text, which
        becomes a column of the split.
    """

    dtype: Any
    shape: tuple[int | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class Contents:
    """A data set to be written.

    Attributes:
      classes: names of the fine classes, indexed by ``label``.
      features: feature names to features: ``image`` ``[h, w, c]``, uint8, uint16 or float32;
        ``label``, -1 for no class; and any others, such as ``id`` (a number of its own for each
        example of all splits; numbered consecutively if missing), ``coarse``, ``box``, ``mask``,
        ``range_m``, ``track`` and ``frame``.
      splits: split names to functions that yield the split's examples, each with all features. They
        are called once each, one after the other.
      total: an upper bound on the number of examples, for the progress bar.
      coarse_classes: names of the coarse classes, or None.
      fine_to_coarse: the coarse class of each fine class, or None.
      skipped: (file, reason) of damaged files that are left out; may grow while examples are
        yielded.
      left_out: other data that is left out, with reasons; may grow likewise.
      noted: remarks about data that is not left out; may grow likewise.
      report: returns further entries of ``report.json``, which is stored with the records and holds
        the three above; called at the end. None for no such file.
      bands: the bands of the images, and how they are read from files.
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
    bands: Bands = Bands()


class Request(NamedTuple):
    """A request to a source.

    Attributes:
      path: the absolute path given as ``source``; meaningless for a source that takes none.
      options: the given options, unchecked.
      skip_corrupt: leave damaged files out and list them.
    """

    path: Path
    options: Mapping[str, Any]
    skip_corrupt: bool


class Scan(NamedTuple):
    """The result of a scan, which opens no image.

    Attributes:
      source: the source of the records; differs if a source delegates the request.
      settings: all options, checked.
      state: a JSON-serialisable value that changes whenever the records would, such as the settings
        and all files' sizes and dates. It enters the prepared set's signature.
      contents: called with an empty folder for temporary files when the set has to be written.
      skips: whether what cannot be used is left out, by ``Request.skip_corrupt`` or, where only the
        source knows, by an option.
    """

    source: "Source"
    settings: Mapping[str, Any]
    state: Any
    contents: Callable[[Path], Contents]
    skips: bool = False


@runtime_checkable
class Source(Protocol):
    """A data source; subclasses inherit the defaults.

    Attributes:
      name: letters, digits, ``_``, ``.`` and ``-``; names the folder of the prepared sets.
      version: increase it when the same state would give other records.
      options: option names to options; none by default. Those of a source outside the package are
        set by ``--option`` only.
      takes: a description of the path that the source needs, such as ``"the folder of the
        database"``; empty, the default, for a source that takes no path.
      any_data: whether the source reads arbitrary data, so that its name does not identify a set.
        False by default: a prepared set can be opened again without its path.
    """

    name: str
    version: int | str
    options: Mapping[str, Option] = {}
    takes: str = ""
    any_data: bool = False

    def scan(self, request: Request) -> Scan:
        """Checks a request and scans its data.

        Raises:
          ValueError: an option has an invalid value (:func:`all_options` checks the names), or
            there is no usable data at the path.
        """
        ...

    def box_side(self, options: Mapping[str, Any]) -> int:
        """Returns the side to which the source resizes what it cuts out by boxes; 0 for none."""
        del options
        return 0


def all_options(source: Source, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all options of a source, with defaults for those that are not given.

    Raises:
      ValueError: the source has no such option, or a value is not of the default's type.
    """
    for option, value in given.items():
        if option not in source.options:
            raise ValueError(
                f"{source.name} has no option {option!r}{nearest(option, source.options)}"
            )
        _check_type(option, value, source.options[option].default)
    return {name: option.default for name, option in source.options.items()} | dict(given)


_ALSO = {float: (int, float), list: (list, tuple), tuple: (list, tuple)}


def _check_type(name: str, value: Any, default: Any) -> None:
    """Checks that an option's value is of the default's type, unless that is None."""
    wanted = _ALSO.get(type(default), type(default))
    same = isinstance(value, wanted) and isinstance(value, bool) == isinstance(default, bool)
    if default is not None and not same:
        raise ValueError(f"{name}: got {value!r}, wanted a value like {default!r}")


def check_whole_number(name: str, value: Any, *, least: int) -> None:
    """Checks that an option's value is a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}: got {value!r}, wanted a whole number from {least}")
