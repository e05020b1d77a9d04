"""Array annotations shared by the whole package.

Dimension names: ``b`` batch; ``h w c`` image rows, columns and channels; ``d`` features;
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

# The declared type of a ConfigDict's field is a union of all field types, useless to type checkers.
if TYPE_CHECKING:
    Config: TypeAlias = Any
else:
    Config = ConfigDict


@runtime_checkable  # the tests check annotations at run time
class Network(Protocol):
    """A network without its variables, such as a flax module."""

    def apply(self, variables: PyTree, *inputs: Any, **options: Any) -> Any:
        """Computes the outputs: an array, or a named tuple specific to the network."""
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
