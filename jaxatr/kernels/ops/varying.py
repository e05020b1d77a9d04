"""What the primitives say inside of ``jax.shard_map``."""

from typing import Any


def refuse_varying(name: str, *avals: Any) -> None:
    """Raises a ``NotImplementedError`` where ``jax.shard_map`` follows which values vary.

    The primitives do not tell it, and the gradient of what all devices share would then be one
    device's in silence.

    Args:
      name: of the operation.
      *avals: the abstract arguments.
    """
    axes = sorted({str(axis) for aval in avals for axis in aval.mat.varying})
    if axes:
        raise NotImplementedError(
            f"{name}: got arrays that vary along {', '.join(axes)}: call jax.shard_map with "
            "check_vma=False, and sum gradients over the axis yourself"
        )
