"""Array annotations shared by the whole package.

Dimension names: ``b`` batch, ``h w c`` image rows, columns and channels, ``d`` features,
``k`` known classes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray, Shaped, UInt8
from ml_collections import ConfigDict

Array: TypeAlias = jax.Array
ArrayLike: TypeAlias = jax.Array | np.ndarray
PyTree: TypeAlias = Any
Batch: TypeAlias = Mapping[str, Any]
Key: TypeAlias = PRNGKeyArray

# To a type checker, a field of a ConfigDict is a union of all field types, which is useless.
if TYPE_CHECKING:
    Config: TypeAlias = Any
else:
    Config = ConfigDict


@runtime_checkable  # the tests check annotations as they run
class Network(Protocol):
    """A network whose variables are passed to ``apply``, such as a flax module."""

    def apply(self, variables: PyTree, *inputs: Any, **options: Any) -> Any:
        """Computes the network's outputs, an array or a named tuple."""
        ...


__all__ = [
    "Array",
    "ArrayLike",
    "Batch",
    "Bool",
    "Config",
    "Float",
    "Int",
    "Key",
    "Network",
    "PyTree",
    "Shaped",
    "UInt8",
]
