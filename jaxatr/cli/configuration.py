"""The flags of a configuration: ``--config``, and ``--config.FIELD`` for each of its fields."""

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any

from absl import flags
from ml_collections import config_dict, config_flags

from jaxatr import bundled, resolve
from jaxatr.cli.help_page import columns
from jaxatr.cli.numbers import Number, Values, WholeNumber

if TYPE_CHECKING:
    from jaxatr.typing import Config

_FIELD = "config."
_OPTION = "data.options."
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")  # a link in Markdown
# Flags of every command that reads data; for a training they set these fields of `data`.
_OF_DATA = {"data_source": "source", "data_dir": "data_dir"}

for _kind, _parser in ((int, WholeNumber()), (float, Number()), (tuple, Values())):
    config_flags.register_flag_parser_for_type(_kind, _parser)


def define() -> None:
    """Defines ``--config``; :func:`parse` knows the fields."""
    flags.DEFINE_string(
        "config",
        None,
        "The configuration: the name of a bundled one or a file, optionally followed by a colon "
        "and a variant. --config.FIELD=VALUE sets a field; repeatable.",
    )


def parse(argv: Sequence[str]) -> list[str]:
    """Parses a command line; the configuration becomes the value of ``--config``.

    Args:
      argv: the command line, with the program's name.

    Returns:
      The name and the positional arguments.

    Raises:
      flags.Error: a flag is wrong.
      ValueError: the configuration or one of its fields does not exist, or a value is wrong.
    """
    program, *rest = flags.FLAGS(argv, known_only=True)
    flag, fields = flags.FLAGS["config"], _names(rest)
    if flag.value is not None:
        flag.value, rest = read(flag.value, rest)
        _set_data(flag.value, fields)
    elif fields:
        raise ValueError(f"--config.{fields[0]}: --config=NAME is missing")
    return flags.FLAGS([program, *rest])


def read(name: str, arguments: Sequence[str]) -> tuple["Config", list[str]]:
    """Loads a configuration and sets the fields that arguments name.

    Args:
      name: a bundled configuration or a file, optionally followed by a colon and a variant.
      arguments: flags of fields among others; their order does not matter.

    Returns:
      The configuration and the remaining arguments.

    Raises:
      flags.Error: a value is wrong.
      ValueError: there is no such configuration, field or option of the data set.
    """
    config = _loaded(name)
    known, given = list(_fields(config.to_dict())), _names(arguments)
    lacking = [field for field in given if field not in known]
    if wrong := next((field for field in lacking if not field.startswith(_OPTION)), None):
        close = resolve.nearest(wrong, known)
        raise ValueError(f"--config.{wrong}: there is no field {wrong!r}{close}")
    rest = _set(config, [field for field in given if field in known], arguments)
    if lacking:  # those of the data set that is named, whose name may just have been set
        _add_options(config, [field.removeprefix(_OPTION) for field in lacking])
        rest = _set(config, lacking, rest)
    return config, rest


def described(arguments: Sequence[str]) -> str:
    """Describes the fields of the configuration that arguments name, or else the bundled files."""
    values = flags.FlagValues()
    flags.DEFINE_string("config", None, "", flag_values=values)
    values(["", *arguments], known_only=True)
    if name := values["config"].value:
        return f"fields of {name}, as --config.FIELD=VALUE:\n" + "\n".join(_rows(_loaded(name)))
    rows = []
    for name, summary, variants in bundled.described():
        rows += columns(name, summary, 14) + columns("", f"Variants: {', '.join(variants)}.", 14)
    return "\n\n".join(
        [
            "configurations:\n" + "\n".join(rows),
            f"The variants are described in the files in {bundled.folder()}.\n"
            "`jaxatr train --config=cbc --help` lists the fields of cbc, and so on.",
        ]
    )


def _rows(config: "Config") -> Iterator[str]:
    from jaxatr.config import fields_of  # late, to keep --help fast

    values = config.to_dict()
    for name, field in fields_of(config.task).items():
        value = reduce(getitem, name.split("."), values)
        meaning = _LINK.sub(r"\1", field.meaning).replace("`", "")
        yield from columns(name, f"{meaning}. Value: {value!r}.", 34)


def _loaded(name: str) -> "Config":
    try:
        return bundled.load(name)
    except ValueError as error:
        raise ValueError(f"--config: {error}") from error
    except Exception as error:  # of any type, because the file is the user's
        raise ValueError(f"--config: {_told(error, name.partition(':')[0])}") from error


def _told(error: Exception, name: str) -> str:
    """Formats an error in a configuration file as one line with the place in the file."""
    path = bundled.locate(name)
    places = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == path]
    cause = error
    while cause.args and isinstance(cause.args[0], Exception):  # ml_collections wraps them
        cause = cause.args[0]
    # The first line of ml_collections ends with all fields, the last one names the closest.
    first, *others = str(cause.args[0] if cause.args else cause).splitlines() or [""]
    said = [first.partition(". ")[0] if others else first, *others[-1:]]
    kind = "" if isinstance(error, AttributeError | SyntaxError) else f"{type(error).__name__}: "
    return f"{path}{f', line {places[-1].lineno}' if places else ''}: {kind}{'. '.join(said)}"


def _names(arguments: Sequence[str]) -> list[str]:
    """Returns the fields that arguments set, each once."""
    names = (re.match(rf"--?(?:no)?{_FIELD}([^=]+)", argument) for argument in arguments)
    return list(dict.fromkeys(name[1] for name in names if name))


def _fields(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yields the dotted names of a configuration's groups and fields."""
    for name, value in values.items():
        yield above + name
        if isinstance(value, Mapping):
            yield from _fields(value, f"{above}{name}.")


def _set(config: "Config", fields: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Sets fields to the values in arguments; returns the arguments that are of other flags."""
    arguments = _unset(config, arguments)
    values = flags.FlagValues()
    config_flags.DEFINE_config_dict(
        "config",
        config,
        flag_values=values,
        lock_config=False,  # its open groups would be locked, too
        sys_argv=[f"--{_FIELD}{field}" for field in fields],
    )
    rest = values(["", *arguments], known_only=True)[1:]
    resolve.trust_names_in(config_flags.get_override_values(values["config"]))  # the user's own
    return rest


def _unset(config: "Config", arguments: Sequence[str]) -> Sequence[str]:
    """Unsets the fields that may be unset and are ``None`` at last; returns the other arguments."""
    given = {name: argument for argument in arguments for name in _names([argument])}
    nothing = [name for name, argument in given.items() if argument.endswith(f"{name}=None")]
    if not nothing:
        return arguments
    from jaxatr.config.construction import fields_of, group_of  # late, to keep --help fast

    declared = fields_of(config.task)
    unset = [name for name in nothing if name in declared and declared[name].default is None]
    for name in unset:
        group, last = group_of(config, name)
        group[last] = None
    return [argument for argument in arguments if not set(_names([argument])) & set(unset)]


def _add_options(config: "Config", names: Sequence[str]) -> None:
    """Adds options that a configuration lacks, with their defaults, which have their types.

    Raises:
      ValueError: the data set has no such option.
    """
    from jaxatr.data import sources  # late, to keep --help fast

    resolve.trust_names_in(config.data.name)  # the user's own
    source = sources.find(config.data.name)
    known = getattr(source, "options", {})
    for name in names:
        if name not in known:
            has = f"{source.name} has {', '.join(known)}" if source and known else ""
            raise ValueError(f"--config.{_OPTION}{name}: there is no field {name!r}. {has}".strip())
        value = known[name].default
        if value is None:
            value = config_dict.placeholder(object)
        # Tuples are the only sequences that ml_collections parses.
        with config.unlocked():
            config.data.options[name] = tuple(value) if isinstance(value, list) else value


def _set_data(config: "Config", fields: Sequence[str]) -> None:
    """Sets the fields of the flags that every command has for its data.

    Raises:
      ValueError: a field is set by both of its flags.
    """
    for name, field in _OF_DATA.items():
        flag = flags.FLAGS[name]
        if not flag.present:
            continue
        if f"data.{field}" in fields:
            raise ValueError(f"--{name} and --config.data.{field} are the same: give only one")
        if field not in config.get("data", {}):
            raise ValueError(f"--{name}: the configuration has no field 'data.{field}'")
        config.data[field] = flag.value
