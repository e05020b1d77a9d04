"""Operations of MIOpen that no configuration of jaxatr uses.

Local response norm, softmax, CTC and tensor operations as problems of the find step, and fusion
plans. The rest of the package does not import this folder. Every module here is imported
automatically, which registers its operation with the find step, the database and ``tune``.
"""

from jaxatr import parts
from jaxatr.kernels.contrib.response_norm import local_response_norm

__all__ = ["import_operations", "local_response_norm"]


def import_operations() -> None:
    """Imports every module of this folder, which registers its operation."""
    parts.modules(__name__)


import_operations()
