"""Operations of MIOpen that no configuration of jaxatr uses.

Local response norm, softmax, CTC and tensor operations as problems of the find step, and fusion
plans. The rest of the package does not import this folder. Every module here is imported
automatically, which registers its operation with the find step, the database and ``tune``.

An operation is a file here; ``softmax.py`` is the shortest. It has

- ``NAMEProblem``: a frozen dataclass with a ``direction``, a ``dtype`` and a unique ``key``;
- functions that compute it, each a named ``Form``; a public one calls ``run`` of
  ``jaxatr/kernels/ops/differentiable.py``, as in ``response_norm.py``;
- ``arguments(problem, generator)``: random arguments in NumPy;
- ``reference(problem, arguments)``: the result or the gradients in float64;
- ``COMMAND``: a ``Command`` with the options of ``tune``;
- ``OPERATION = operation(name, forms, arguments, reference, COMMAND)``, and
  ``register(NAMEProblem, OPERATION)``.

Its test is an entry of ``PROBLEMS`` in ``tests/kernels/test_operations.py``. Operations that
networks use have a folder under ``jaxatr/kernels/ops``, such as ``pooling``.
"""

from jaxatr import parts
from jaxatr.kernels.contrib.response_norm import local_response_norm

__all__ = ["import_operations", "local_response_norm"]


def import_operations() -> None:
    """Imports every module of this folder, which registers its operation."""
    parts.modules(__name__)


import_operations()
