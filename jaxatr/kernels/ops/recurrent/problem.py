"""The description of a recurrent layer's problem, usable as a dictionary key."""

import dataclasses
from typing import Any, Literal, TypeAlias

import jax.numpy as jnp

from jaxatr.kernels.ops.differentiable import Direction

Cell: TypeAlias = Literal["lstm", "gru", "relu", "tanh"]
GATES: dict[Cell, int] = {"lstm": 4, "gru": 3, "relu": 1, "tanh": 1}
"""Number of gates of each cell, the candidate among them."""
CELLS = tuple(GATES)


def check_cell(cell: str) -> None:
    """Raises a ``ValueError`` if the cell is unknown."""
    if cell not in CELLS:
        raise ValueError(f"cell: got {cell!r}, wanted one of {list(CELLS)}")


@dataclasses.dataclass(frozen=True)
class RecurrentProblem:
    """One direction of one recurrent layer: everything that a choice of algorithm may depend on.

    Attributes:
      cell: ``"lstm"``, ``"gru"``, or the activation of a vanilla cell, ``"relu"`` or ``"tanh"``.
      steps: length of the sequences.
      batch: number of sequences.
      inputs: features of the input at each step.
      hidden: features of the state.
      skip: whether the input is added to each gate without a matrix.
      masked: whether some sequences may be shorter than ``steps``.
      dtype: name of the element type of the input and of the outputs.
      reset_after: whether a GRU's reset gate acts after the recurrent product (as in cuDNN,
        PyTorch and flax) or before it (the default of ONNX).
      direction: ``"forward"``, or ``"backward"``: the gradients of weights, inputs and initial
        state, including the forward pass.
    """

    cell: Cell
    steps: int
    batch: Any  # a number, or a symbolic dimension of jax.export
    inputs: int
    hidden: int
    skip: bool
    masked: bool
    dtype: str
    reset_after: bool = True
    direction: Direction = "forward"

    @property
    def key(self) -> str:
        """One line of text that identifies the problem in databases and records."""
        sizes = f"t{self.steps} b{self.batch} d{self.inputs} h{self.hidden}"
        words = [f"recurrent {self.direction} {self.cell} {sizes} {self.dtype}"]
        words += ["skip"] * self.skip + ["masked"] * self.masked
        words += ["reset-before"] * (self.cell == "gru" and not self.reset_after)
        return " ".join(words)

    @property
    def gates(self) -> int:
        """Number of blocks of ``hidden`` columns in the matrices."""
        return GATES[self.cell]

    @property
    def states(self) -> int:
        """Number of arrays in the state: ``h`` and, for an LSTM, ``c``."""
        return 2 if self.cell == "lstm" else 1

    @property
    def wide(self) -> jnp.dtype:
        """Type of sums, gates and states: float32, or the input's type if that is wider."""
        return jnp.promote_types(self.dtype, jnp.float32)
