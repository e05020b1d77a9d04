"""Which sequences of operations are computed as one, and the constraint graph of each solver.

jaxatr tune fusions
"""

from collections.abc import Sequence

from jaxatr.kernels.contrib.fusion import supported_fusions
from jaxatr.kernels.contrib.fusion.graph import ORDER
from jaxatr.kernels.contrib.fusion.solvers import SOLVERS


def define_flags() -> None:
    """There are none."""


def main(arguments: Sequence[str]) -> None:
    """Prints each solver's combinations, as the paper's tables I and II, and its graph.

    An edge of a graph says what its operation must be.
    """
    if arguments:
        raise ValueError(f"got {arguments[0]!r}: there is nothing to be given")
    print(", ".join(f"{kind.letter} {kind.__name__}" for kind in ORDER))
    combinations = supported_fusions()
    for name, solver in SOLVERS.items():
        print(f"{name} (on {', '.join(solver.platforms) or 'every platform'})")
        found = [one.combination for one in combinations if one.solver == name]
        print(f"  {' '.join(sorted(found, key=len))}")
        for edge in solver.edges:
            source = edge.source.__name__ if edge.source else "start"
            texts = "; ".join(constraint.text for constraint in edge.constraints)
            print(f"  {source:<11} -> {edge.target.__name__:<11} {texts}".rstrip())
