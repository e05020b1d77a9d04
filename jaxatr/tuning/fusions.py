"""Which sequences of operations are computed as one: the constraint graph of each solver.

python -m jaxatr.tune fusions
"""

from collections.abc import Sequence

from jaxatr.kernels.fusion.solvers import SOLVERS


def define_flags() -> None:
    """There are none."""


def main(arguments: Sequence[str]) -> None:
    """Prints the edges of each graph, with what each operation must be."""
    if arguments:
        raise ValueError(f"got {arguments[0]!r}: there is nothing to be given")
    for name, solver in SOLVERS.items():
        print(f"{name} (on {', '.join(solver.platforms) or 'every platform'})")
        for edge in solver.edges:
            source = edge.source.__name__ if edge.source else "start"
            texts = "; ".join(constraint.text for constraint in edge.constraints)
            print(f"  {source:<11} -> {edge.target.__name__:<11} {texts}".rstrip())
