"""Operations of MIOpen that no configuration of jaxatr reaches.

Local response norm, softmax, CTC and tensor operations as problems of the find step, and fusion
plans. The rest of the package does not import this room. A file here is found by itself: its
operation is known to the find step, the database and ``tune``.
"""

import importlib
import pkgutil

from jaxatr.kernels.contrib.response_norm import local_response_norm

__all__ = ["import_operations", "local_response_norm"]


def import_operations() -> None:
    """Imports every module of this folder, which registers its operation."""
    for found in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{found.name}")


import_operations()
