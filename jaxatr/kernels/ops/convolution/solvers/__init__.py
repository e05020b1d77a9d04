"""The solvers of convolutions. Every module of this folder lists its own in ``SOLVERS``."""

import importlib
import pkgutil

from jaxatr.kernels.solver import Solver


def _solvers() -> dict[str, Solver]:
    modules = (
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
    )
    return {solver.name: solver for module in modules for solver in module.SOLVERS}


#: All solvers by name.
SOLVERS: dict[str, Solver] = _solvers()
