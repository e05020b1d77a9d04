"""The configuration fields that a search varies, with their ranges, and its budget."""

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple, TypeAlias

from ml_collections import ConfigDict

from jaxatr import config as configuration
from jaxatr.resolve import nearest
from jaxatr.typing import Config

Value: TypeAlias = bool | int | float | str

LOG, LINEAR, CHOICE = "log", "linear", "choice"
_FIELD = re.compile(rf"([\w.]+)=({LOG}|{LINEAR}|{CHOICE})\((.*)\)")
_FORMS = "FIELD=log(LOW,HIGH), FIELD=linear(LOW,HIGH) or FIELD=choice(A,B,…)"

# Trials are compared on the same validation examples, so that these have to stay.
_FIXED = (
    *("task", "seed", "data.name", "data.source", "data.data_dir", "data.options"),
    *("data.train_split", "data.test_split", "data.validation", "data.validation_seed"),
    *("data.fold", "data.group_by", "data.select", "open_set.split", "open_set.split_seed"),
    *("open_set.hold_out", "open_set.hold_out_turn"),
)

_KINDS = {bool: "bool values", int: "int values", float: "finite float values", str: "str values"}

_BUDGET = re.compile(r"(\d+(?:\.\d+)?)([hms]?)")
_MOST = 1e6  # of each unit
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}


class Searched(NamedTuple):
    """A field that a search varies.

    Attributes:
      name: its dotted name.
      form: :data:`LOG`, :data:`LINEAR` or :data:`CHOICE`.
      values: the lowest and the highest value, or the choices.
    """

    name: str
    form: str
    values: tuple[Value, ...]

    def __str__(self) -> str:
        """Returns the text that :func:`parse_fields` reads."""
        inside = io.StringIO()
        csv.writer(inside, lineterminator="").writerow(self.values)  # quotes what has a comma
        return f"{self.name}={self.form}({inside.getvalue()})"


class Budget(NamedTuple):
    """How long a search may take.

    Attributes:
      trials: number of trials; None if the time is limited instead.
      seconds: time of all trials together; None if their number is limited instead.
    """

    trials: int | None
    seconds: float | None

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Parses ``"2h"``, ``"90m"`` or ``"30s"``, or a number of trials.

        Raises:
          ValueError: it is of another form, or 0.
        """
        found = _BUDGET.fullmatch(text)
        amount = float(found[1]) if found else 0.0
        whole = found is None or bool(found[2]) or amount.is_integer()
        if found is None or not 0 < amount <= _MOST or not whole:
            raise ValueError(
                f"budget: got {text!r}, wanted a time such as 2h, 90m or 30s, or a number of "
                f"trials, at least 1, and at most {_MOST:.0f}"
            )
        if found[2]:
            return cls(None, amount * _SECONDS[found[2]])
        return cls(int(amount), None)


def parse_fields(texts: Iterable[str], config: Config) -> tuple[Searched, ...]:
    """Parses the fields to vary, such as ``optimizer.learning_rate=log(1e-3,1e-1)``.

    Args:
      texts: the fields.
      config: the configuration whose fields they are.

    Raises:
      ValueError: there is none, one is of another form, given twice or not to be varied, or its
        values are not those of the field.
    """
    made = tuple(_parsed(text, config) for text in texts)
    if not made:
        raise ValueError(f"fields: got none, wanted {_FORMS}")
    names = [one.name for one in made]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"fields: {twice} is given twice")
    return made


def _parsed(text: str, config: Config) -> Searched:
    found = _FIELD.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"fields: got {text!r}, wanted {_FORMS}")
    name, form, inside = found.groups()
    kind = _kind(name, config)
    listed = [one.strip() for one in next(csv.reader([inside], skipinitialspace=True), [])]
    values = tuple(_value(name, one, kind) for one in listed)
    if form == CHOICE:
        if len(set(values)) < max(2, len(values)):
            raise ValueError(f"fields: {name}: got choice({inside}), wanted 2 or more values")
    else:
        _check_range(name, form, values, kind)
    return Searched(name, form, values)


def _kind(name: str, config: Config) -> type:
    """Returns the type of a field.

    Raises:
      ValueError: there is no such field, or a search may not vary it.
    """
    fields = configuration.fields_of(config.task)
    if name not in fields:
        raise ValueError(f"fields: there is no field {name!r}{nearest(name, fields)}")
    if any(name == one or name.startswith(f"{one}.") for one in _FIXED):
        raise ValueError(
            f"fields: {name} changes the data, so that the trials would not be measured on the "
            "same validation examples"
        )
    value = reduce(getitem, name.split("."), config)
    kind = fields[name].kind if value is None else type(value)
    if kind not in (bool, int, float, str) or isinstance(value, ConfigDict):
        raise ValueError(f"fields: {name} is {value!r}, wanted a field with a single value")
    return kind


def _value(name: str, text: str, kind: type) -> Value:
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        value = int(text) if kind is int else kind(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("not a finite number")
        return value
    except (KeyError, ValueError) as error:
        raise ValueError(f"fields: {name}: got {text!r}, wanted {_KINDS[kind]}") from error


def _check_range(name: str, form: str, values: Sequence[Any], kind: type) -> None:
    if kind not in (int, float) or len(values) != 2:
        got = ",".join(map(str, values))
        raise ValueError(
            f"fields: {name}: got {form}({got}), wanted {form}(LOW,HIGH) of numbers, or choice(…)"
        )
    low, high = values
    if not low < high:
        raise ValueError(f"fields: {name}: got {form}({low},{high}), wanted the lower end first")
    if form == LOG and low <= 0:
        raise ValueError(f"fields: {name}: got log({low},{high}), wanted a lower end above 0")
