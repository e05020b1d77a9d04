"""Prints the supported fusions and the constraint graph of each fusion solver.

jaxatr tune fusions
"""

from collections.abc import Sequence

from jaxatr.kernels.contrib.fusion import supported_fusions
from jaxatr.kernels.contrib.fusion.graph import ORDER
from jaxatr.kernels.contrib.fusion.solvers import SOLVERS


def define_flags() -> None:
    """Defines no flags."""


def main(arguments: Sequence[str]) -> None:
    """Prints each solver's combinations, as in the paper's tables I and II, and its graph.

    Each edge of a graph is printed with the constraints on its operation.
    """
    if arguments:
        raise ValueError(f"got {arguments[0]!r}, but this command takes no arguments")
    print(", ".join(f"{kind.letter} {kind.__name__}" for kind in ORDER))
    combinations = supported_fusions()
    for name, solver in SOLVERS.items():
        print(f"{name} (on {', '.join(solver.platforms) or 'every platform'})")
        own = [one.combination for one in combinations if one.solver == name]
        print(f"  {' '.join(sorted(own, key=len))}")
        for edge in solver.edges:
            source = edge.source.__name__ if edge.source else "start"
            texts = "; ".join(constraint.text for constraint in edge.constraints)
            print(f"  {source:<11} -> {edge.target.__name__:<11} {texts}".rstrip())
