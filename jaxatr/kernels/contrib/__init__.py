"""Operations of MIOpen that no configuration of jaxatr reaches.

Local response norm, softmax, CTC and tensor operations as problems of the find step, and fusion
plans. The rest of the package does not import this room. Its modules are found by themselves: with
it they are imported, and their operations known to the find step, the database and ``tune``.
"""

import importlib
import pkgutil

from jaxatr.kernels.contrib.response_norm import local_response_norm

__all__ = ["local_response_norm"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
