"""Which parts of a backbone stay as they are while the rest trains."""

from collections.abc import Callable
from typing import Any

from jaxatr.resolve import nearest
from jaxatr.typing import PyTree

STATISTICS, BACKBONE = "statistics", "backbone"

FROM_FILE = "weight:"
"""Before the names of the weights of a network that was read from an ONNX file."""


def frozen_parts(freeze: str) -> tuple[str, ...]:
    """Returns the names of the frozen parts of a backbone; none where it is frozen as a whole.

    Args:
      freeze: ``config.model.freeze``.
    """
    names = tuple(name.strip() for name in freeze.split(",") if name.strip())
    return () if names in ((STATISTICS,), (BACKBONE,)) else names


def is_of(part: str, name: str) -> bool:
    """Whether a part of a backbone, ``stage1_block2``, is meant by a name, ``stage1``.

    A weight of a network from a file is meant by the beginning of its name there: ``features.0``.
    """
    part, name = part.removeprefix(FROM_FILE), name.replace("/", "|")
    return part.startswith(name) and not part[len(name) :][:1].isalnum()


def trainable(freeze: str) -> Callable[[tuple[str, ...]], bool] | None:
    """Returns which parameters train, by their path; ``None`` where all do.

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
    """Refuses names that no part of the backbone has.

    Args:
      freeze: ``config.model.freeze``.
      params: of the network.

    Raises:
      ValueError: there is no such part.
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
