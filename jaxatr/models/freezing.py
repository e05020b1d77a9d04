"""Freezing parts of a backbone during training."""

from collections.abc import Callable
from typing import Any

from jaxatr.resolve import FROM_FILE, nearest
from jaxatr.typing import PyTree

STATISTICS, BACKBONE = "statistics", "backbone"


def frozen(freeze: str) -> tuple[str, ...]:
    """Returns the names in ``config.model.freeze``: parts, ``statistics`` or ``backbone``."""
    return tuple(name.strip() for name in freeze.split(",") if name.strip())


def frozen_parts(freeze: str) -> tuple[str, ...]:
    """Returns the names of the frozen parts of a backbone.

    Empty if no part is named: nothing, only the statistics, or the whole backbone is frozen.

    Args:
      freeze: ``config.model.freeze``.
    """
    names = frozen(freeze)
    return () if names in ((STATISTICS,), (BACKBONE,)) else names


def is_of(part: str, name: str) -> bool:
    """Returns whether a part, such as ``stage1_block2``, is or belongs to a named one (``stage1``).

    For networks from a file, the name is a prefix of the weight's name: ``features.0``.
    """
    part, name = part.removeprefix(FROM_FILE), name.replace("/", "|")
    return part.startswith(name) and not part[len(name) :][:1].isalnum()


def trainable(freeze: str) -> Callable[[tuple[str, ...]], bool] | None:
    """Returns a predicate of parameter paths, true if they are trained; ``None`` if all are.

    Args:
      freeze: ``config.model.freeze``.
    """
    if frozen(freeze) in ((), (STATISTICS,)):
        return None
    names = frozen_parts(freeze)

    def trains(path: tuple[str, ...]) -> bool:
        if path[0] != BACKBONE:
            return True
        return bool(names) and not any(is_of(path[1], name) for name in names)

    return trains


def check_freeze(freeze: str, params: PyTree) -> None:
    """Checks that the backbone has every part named in ``freeze``.

    Args:
      freeze: ``config.model.freeze``.
      params: parameters of the network.

    Raises:
      ValueError: the backbone has no such part, or only a part of a stage is named.
    """
    backbone: dict[str, Any] = params.get(BACKBONE, {})
    for name in frozen_parts(freeze):
        if name in (STATISTICS, BACKBONE):
            raise ValueError(f"model.freeze: got {freeze!r}, wanted {name!r} alone, or only parts")
        if name in backbone and (stage := name.partition("_")[0]).startswith("stage"):
            raise ValueError(
                f"model.freeze: got {name!r}, wanted whole stages, such as {stage!r}: only their "
                "batch statistics can be frozen too"
            )
        if not any(is_of(part, name) for part in backbone):
            parts = [part.removeprefix(FROM_FILE) for part in backbone]
            known = (STATISTICS, BACKBONE, *parts)
            raise ValueError(
                f"model.freeze: got {name!r}, wanted 'statistics', 'backbone' or parts of it, "
                f"such as {', '.join(parts[:4])}{nearest(name, known)}"
            )
