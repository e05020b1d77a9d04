"""Losses that are added to equation 4, all off by default; each module of this folder defines one.

A module with an object ``TERM`` is found by itself: its fields join the configuration, its limits
are checked, and :class:`~jaxatr.tasks.open_set.objective.Objective` adds it where its weight is not
0.
"""

import importlib
import pkgutil

from jaxatr.config import Fields
from jaxatr.tasks.open_set.terms.term import Copies, Labels, Option, Seen, Share, Term
from jaxatr.typing import Config

__all__ = ["FIELDS", "TERMS", "Copies", "Option", "Seen", "Share", "Labels", "Term", "check", "of"]


def _terms() -> tuple[Term, ...]:
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    )
    return tuple(module.TERM for module in modules if hasattr(module, "TERM"))


TERMS: tuple[Term, ...] = _terms()
"""All terms, in the order of their modules' names."""

FIELDS: Fields = {name: field for one in TERMS for name, field in one.fields.items()}
"""The configuration fields of all terms."""


def of(config: Config) -> tuple[Term, ...]:
    """Returns the terms that a run uses."""
    return tuple(term for term in TERMS if term.weight(config))


def check(config: Config, image_shape: tuple[int, int, int]) -> None:
    """Checks the fields of all terms.

    Raises:
      ValueError: a value is not allowed; the message names its field.
    """
    for term in TERMS:
        for name, option in term.options.items():
            group, field = name.split(".")
            if field in config[group] and not option.fits(config[group][field]):
                raise ValueError(f"{name}: got {config[group][field]!r}, wanted {option.wanted}")
    for term in of(config):
        if term.check is not None:
            term.check(config, image_shape)
