"""The ways to compute a convolution: every module of this folder gives its own as ``SOLVERS``."""

import importlib
import pkgutil

from jaxatr.kernels.solver import Solver


def _solvers() -> dict[str, Solver]:
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    )
    return {solver.name: solver for module in modules for solver in module.SOLVERS}


#: By name.
SOLVERS: dict[str, Solver] = _solvers()
