"""Losses that are added to equation 4, a file each, found by their place (:mod:`jaxatr.parts`).

All are off by default. The fields of each join the configuration, its limits are checked, and
:class:`~jaxatr.tasks.open_set.objective.Objective` adds it where its weight is not 0.
"""

from jaxatr.config import Fields
from jaxatr.parts import Parts
from jaxatr.tasks.open_set.terms.term import Copies, Labels, Option, Seen, Share, Term
from jaxatr.typing import Config

__all__ = ["TERMS", "Copies", "Labels", "Option", "Seen", "Share", "Term", "check", "fields", "of"]


#: The terms by the names of their files.
TERMS = Parts(__name__, Term)


def fields() -> Fields:
    """Returns the configuration fields of all terms."""
    return {name: field for one in TERMS.values() for name, field in one.fields.items()}


def of(config: Config) -> tuple[Term, ...]:
    """Returns the terms that a run uses."""
    return tuple(term for term in TERMS.values() if term.weight(config))


def check(config: Config, image_shape: tuple[int, int, int]) -> None:
    """Checks the fields of all terms.

    Raises:
      ValueError: a value is not allowed; the message names its field.
    """
    for term in TERMS.values():
        for name, option in term.options.items():
            group, field = name.split(".")
            if field in config[group] and not option.fits(config[group][field]):
                raise ValueError(f"{name}: got {config[group][field]!r}, wanted {option.wanted}")
    for term in of(config):
        if term.check is not None:
            term.check(config, image_shape)
