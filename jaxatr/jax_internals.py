"""Names that the package takes from parts of jax without a promise of stability.

These are ``jax.core``, ``jax.extend``, ``jax.interpreters`` and ``jax.experimental``, other than
Pallas, which the kernels in :mod:`jaxatr.kernels.pallas` are written in. Everything else imports
these names from here, so that a new version of jax is adapted to in one place.
``tests/test_jax_internals.py`` names what is missing.
"""

from jax.core import ShapedArray, Tracer
from jax.experimental import multihost_utils
from jax.experimental.compilation_cache import compilation_cache
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend import source_info_util
from jax.extend.core import (
    ClosedJaxpr,
    InconclusiveDimensionOperation,
    Jaxpr,
    JaxprEqn,
    Literal,
    Primitive,
    Var,
    jaxpr_as_fun,
    jaxprs_in_params,
)
from jax.interpreters import ad, batching, mlir

__all__ = [
    "ClosedJaxpr",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Tracer",
    "Var",
    "ad",
    "batching",
    "compilation_cache",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "mlir",
    "multihost_utils",
    "set_xla_metadata",
    "source_info_util",
]
