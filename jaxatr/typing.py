"""Array annotations shared by the whole package.

Dimension names: ``b`` batch, ``h w c`` image rows, columns and channels, ``d`` features,
``k`` known classes.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray, Shaped, UInt8

Array: TypeAlias = jax.Array
ArrayLike: TypeAlias = jax.Array | np.ndarray
PyTree: TypeAlias = Any
Batch: TypeAlias = Mapping[str, Any]
Key: TypeAlias = PRNGKeyArray

__all__ = [
    "Array",
    "ArrayLike",
    "Batch",
    "Bool",
    "Float",
    "Int",
    "Key",
    "PyTree",
    "Shaped",
    "UInt8",
]
