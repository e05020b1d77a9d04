"""The description of a recurrent layer to be computed, which can be a dictionary key."""

import dataclasses
from typing import Any, Literal, TypeAlias

import jax.numpy as jnp

from jaxatr.kernels.ops.differentiable import Direction

Cell: TypeAlias = Literal["lstm", "gru", "relu", "tanh"]
CELLS: tuple[Cell, ...] = ("lstm", "gru", "relu", "tanh")


@dataclasses.dataclass(frozen=True)
class Problem:
    """One direction of one recurrent layer: all that a choice of algorithm may depend on.

    Attributes:
      cell: ``"lstm"``, ``"gru"``, or the activation of a vanilla cell, ``"relu"`` or ``"tanh"``.
      steps: length of the sequences.
      batch: how many sequences there are.
      inputs: features of the input at each step.
      hidden: features of the state.
      skip: the input goes into each gate as it is, not through a matrix.
      masked: some sequences are shorter than ``steps``.
      dtype: name of the element type of the input and of the outputs.
      reset_after: of a GRU: whether its reset gate acts after the recurrent product (as in cuDNN,
        PyTorch and flax) or before it (as ONNX does unless told otherwise).
      direction: ``"forward"``, or ``"backward"``: the gradients of weights, inputs and initial
        state, the forward pass included.
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
        """The problem in one line, by which its choice is recorded."""
        sizes = f"t{self.steps} b{self.batch} d{self.inputs} h{self.hidden}"
        words = [f"recurrent {self.direction} {self.cell} {sizes} {self.dtype}"]
        words += ["skip"] * self.skip + ["masked"] * self.masked
        words += ["reset-before"] * (self.cell == "gru" and not self.reset_after)
        return " ".join(words)

    @property
    def gates(self) -> int:
        """How many blocks of ``hidden`` columns the matrices have."""
        return {"lstm": 4, "gru": 3, "relu": 1, "tanh": 1}[self.cell]

    @property
    def states(self) -> int:
        """How many arrays are handed from step to step: ``h``, and the LSTM's ``c``."""
        return 2 if self.cell == "lstm" else 1

    @property
    def wide(self) -> jnp.dtype:
        """Type of sums, gates and states: that of the input, float32 for shorter ones."""
        return jnp.promote_types(self.dtype, jnp.float32)
