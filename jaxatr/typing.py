"""Array annotations shared by the whole package.

Dimension names: ``b`` batch, ``h w c`` image rows, columns and channels, ``d`` features,
``k`` known classes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray, Shaped, UInt8
from ml_collections import ConfigDict

Array: TypeAlias = jax.Array
ArrayLike: TypeAlias = jax.Array | np.ndarray
PyTree: TypeAlias = Any
Batch: TypeAlias = Mapping[str, Any]
Key: TypeAlias = PRNGKeyArray

# A field of a ConfigDict has the union of all types that fields can have: useless to a checker.
if TYPE_CHECKING:
    Config: TypeAlias = Any
else:
    Config = ConfigDict

__all__ = [
    "Array",
    "ArrayLike",
    "Batch",
    "Bool",
    "Config",
    "Float",
    "Int",
    "Key",
    "PyTree",
    "Shaped",
    "UInt8",
]
