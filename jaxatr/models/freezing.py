"""Freezing parts of a backbone during training."""

from collections.abc import Callable
from typing import Any

from jaxatr.resolve import nearest
from jaxatr.typing import PyTree

STATISTICS, BACKBONE = "statistics", "backbone"

FROM_FILE = "weight:"
"""Prefix of the weight names of networks read from an ONNX file."""


def frozen_parts(freeze: str) -> tuple[str, ...]:
    """Returns the names of the frozen parts of a backbone; empty if all or none of it is frozen.

    Args:
      freeze: ``config.model.freeze``.
    """
    names = tuple(name.strip() for name in freeze.split(",") if name.strip())
    return () if names in ((STATISTICS,), (BACKBONE,)) else names


def is_of(part: str, name: str) -> bool:
    """Returns whether a name, such as ``stage1``, includes a part, such as ``stage1_block2``.

    For networks from a file, the name is a prefix of the weight's name: ``features.0``.
    """
    part, name = part.removeprefix(FROM_FILE), name.replace("/", "|")
    return part.startswith(name) and not part[len(name) :][:1].isalnum()


def trainable(freeze: str) -> Callable[[tuple[str, ...]], bool] | None:
    """Returns a predicate of parameter paths, true if they are trained; ``None`` if all are.

    Args:
      freeze: ``config.model.freeze``.
    """
    if freeze in ("", STATISTICS):
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
      ValueError: the backbone has no such part.
    """
    backbone: dict[str, Any] = params.get(BACKBONE, {})
    for name in frozen_parts(freeze):
        if not any(is_of(part, name) for part in backbone):
            parts = [part.removeprefix(FROM_FILE) for part in backbone]
            known = (STATISTICS, BACKBONE, *parts)
            raise ValueError(
                f"model.freeze: got {name!r}, wanted 'statistics', 'backbone' or parts of it, "
                f"such as {', '.join(parts[:4])}{nearest(name, known)}"
            )
