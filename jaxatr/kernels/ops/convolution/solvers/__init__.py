"""The solvers of convolutions, a file each, found by their place (:mod:`jaxatr.parts`)."""

from jaxatr.kernels.solver import Solver
from jaxatr.parts import Parts

#: All solvers by name.
SOLVERS: Parts[Solver] = Parts(__name__, Solver, field="algorithm", variants=True)
