"""The forms of JSON objects: what the fields of a file must be, so that an edited one is named."""

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias


class Leaf(NamedTuple):
    """The form of a value without fields of its own.

    Attributes:
      holds: whether a value has it.
      wanted: it in words, for messages.
    """

    holds: Callable[[Any], bool]
    wanted: str


ObjectForm: TypeAlias = Mapping[str, Any]  # of forms; beartype takes no recursive names
"""The forms of an object's fields."""

Form: TypeAlias = Leaf | list[Any] | ObjectForm
"""A leaf; ``[FORM]``, a list of values of a form; or an object's forms by the names of its fields.

A field may be missing. That of the name ``"*"`` is the form of all fields without one of their own,
which otherwise may be anything.
"""


def is_number(value: Any) -> bool:
    """Whether a value is a number of finite size, and not true or false."""
    return type(value) in (int, float) and abs(value) < math.inf


TEXT = Leaf(lambda value: isinstance(value, str), "a string")
TEXTS = Leaf(
    lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "a list of strings",
)
BOOLEAN = Leaf(lambda value: isinstance(value, bool), "true or false")
LIST = Leaf(lambda value: isinstance(value, list), "a list")
_OBJECT = Leaf(lambda value: isinstance(value, dict), "an object")
NUMBER = Leaf(is_number, "a finite number")
NUMBERS = Leaf(
    lambda value: isinstance(value, list) and bool(value) and all(map(is_number, value)),
    "a list of finite numbers",
)
COUNT = Leaf(lambda value: type(value) is int and value >= 0, "an integer of at least 0")
SHARE = Leaf(lambda value: is_number(value) and 0 <= value <= 1, "a number in [0, 1]")


def optional(leaf: Leaf) -> Leaf:
    """Returns the leaf that may also be null."""
    return Leaf(lambda value: value is None or leaf.holds(value), f"{leaf.wanted} or null")


FIGURE = optional(NUMBER)


def check(value: Any, form: Form, path: str | os.PathLike, name: str = "") -> None:
    """Checks the values of a file.

    Args:
      value: content of the file, or of its field ``name``.
      form: what it must be.
      path: the file, and the place in it, for the message.
      name: dotted name of the field.

    Raises:
      ValueError: a value has another form; the first one is named.

    >>> form = {"counts": {"*": COUNT}, "rows": [{"name": TEXT}]}
    >>> check({"counts": {"cars": 3}, "rows": [{"name": "a"}], "more": None}, form, "a.json")
    >>> check({"counts": {"cars": -3}}, form, "a.json")
    Traceback (most recent call last):
    ValueError: a.json: counts.cars: got -3, wanted an integer of at least 0
    """
    if isinstance(form, Leaf):
        if not form.holds(value):
            raise ValueError(f"{path}: {name}: got {json.dumps(value)[:40]}, wanted {form.wanted}")
    elif isinstance(form, list):
        check(value, LIST, path, name)
        for number, one in enumerate(value):
            check(one, form[0], path, f"{name}[{number}]")
    else:
        check(value, _OBJECT, path, name)
        for key, one in value.items():
            if (of_field := form.get(key, form.get("*"))) is not None:
                check(one, of_field, path, f"{name}.{key}" if name else key)
