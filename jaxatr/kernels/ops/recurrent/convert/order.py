"""The order of the gates' blocks of columns in different libraries."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxatr.kernels.ops.recurrent.problem import Cell

OURS: dict[Cell, str] = {"lstm": "ifoc", "gru": "rzn", "relu": "h", "tanh": "h"}
TORCH: dict[Cell, str] = {"lstm": "ifco", "gru": "rzn", "relu": "h", "tanh": "h"}
ONNX: dict[Cell, str] = {"lstm": "iofc", "gru": "zrn", "relu": "h", "tanh": "h"}


def module_of(array: Any) -> Any:
    """Returns ``numpy`` for NumPy arrays and ``jax.numpy`` for all others, which may be traced."""
    return np if isinstance(array, np.ndarray) else jnp


def reordered(array: Any, source: str, target: str) -> Any:
    """Reorders the blocks of an array's last axis, which are named by letters.

    >>> reordered(np.array([1, 2, 3, 4]), "ifoc", "ifco")
    array([1, 2, 4, 3])
    """
    if source == target:
        return array
    module = module_of(array)
    blocks = dict(zip(source, module.split(array, len(source), axis=-1), strict=True))
    return module.concatenate([blocks[letter] for letter in target], axis=-1)
