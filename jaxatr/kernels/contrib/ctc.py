"""Connectionist temporal classification (CTC) loss, as a problem to verify and time.

The only form calls ``optax.ctc_loss``, whose gradient is as good as a hand-written one. Programs
should call optax directly.
"""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import optax

from jaxatr.kernels.ops.differentiable import Direction, Form, operation, wide
from jaxatr.kernels.options import Command, Option
from jaxatr.kernels.solver import register
from jaxatr.typing import Array

BLANK = 0


@dataclasses.dataclass(frozen=True)
class CtcProblem:
    """One direction of the CTC loss of sequences of different lengths.

    Attributes:
      direction: ``"forward"``, the loss of each sequence, or ``"backward"``, the logits' gradient.
      batch: number of sequences.
      steps: steps of the longest sequence.
      labels: labels of the longest sequence, at most half of its steps, so that a path exists.
      classes: number of classes, including the blank, which is class 0.
      dtype: name of the logits' type.
    """

    direction: Direction
    batch: int
    steps: int
    labels: int
    classes: int
    dtype: str

    @property
    def key(self) -> str:
        """One line of text that identifies the problem in databases and records."""
        sizes = f"b{self.batch} t{self.steps} n{self.labels} k{self.classes}"
        return f"ctc {self.direction} {sizes} {self.dtype}"


def xla(problem: CtcProblem, logits: Array, padding: Array, labels: Array, beyond: Array) -> Array:
    """Returns the loss of each sequence by ``optax.ctc_loss``."""
    return optax.ctc_loss(logits, padding, labels, beyond, blank_id=BLANK)


def arguments(problem: CtcProblem, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Returns logits and their padding mask, labels and their padding mask, and the cotangent."""
    batch, steps, longest = problem.batch, problem.steps, problem.labels
    lengths = generator.integers(1, longest + 1, batch)
    given = (
        generator.standard_normal((batch, steps, problem.classes)).astype(problem.dtype),
        _beyond(generator.integers(2 * lengths, steps + 1), steps),
        generator.integers(1, problem.classes, (batch, longest)),
        _beyond(lengths, longest),
    )
    if problem.direction == "forward":
        return given
    return *given, generator.standard_normal(batch).astype(_loss_type(problem))


def _loss_type(problem: CtcProblem) -> jnp.dtype:
    return jnp.promote_types(problem.dtype, jnp.float32)


def _beyond(lengths: np.ndarray, longest: int) -> np.ndarray:
    return (np.arange(longest) >= lengths[:, None]).astype(np.float32)


def reference(problem: CtcProblem, given: tuple[np.ndarray, ...]) -> np.ndarray | tuple:
    """Returns the losses or the gradient of the logits, computed one sequence at a time."""
    logits, padding, labels, beyond, *cotangent = wide(*given)
    losses, gradient = np.zeros(problem.batch), np.zeros_like(logits)
    for index in range(problem.batch):
        steps = int((padding[index] == 0).sum())
        word = labels[index][beyond[index] == 0].astype(int).tolist()
        losses[index], gradient[index, :steps] = _one(logits[index, :steps], word)
    if problem.direction == "forward":
        return losses
    return (gradient * cotangent[0][:, None, None],)


def _one(logits: np.ndarray, word: Sequence[int]) -> tuple[float, np.ndarray]:
    """Returns loss and gradient of one sequence (Graves et al. 2006, equations 5 to 16)."""
    logits = logits - logits.max(1, keepdims=True)
    likely = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    path = [BLANK, *(name for label in word for name in (label, BLANK))]
    ahead = _reached(likely[:, path], path)
    back = _reached(likely[::-1, path[::-1]], path[::-1])[::-1, ::-1]
    total = np.logaddexp(ahead[-1, -1], ahead[-1, -2])
    share = np.exp(ahead + back - likely[:, path] - total)
    gradient = np.exp(likely)
    for place, label in enumerate(path):
        gradient[:, label] -= share[:, place]
    return -total, gradient


def _reached(likely: np.ndarray, path: Sequence[int]) -> np.ndarray:
    """Returns the log probability of being at each place of the path after each step."""
    result = np.full(likely.shape, -np.inf)
    result[0, :2] = likely[0, :2]
    for step in range(1, len(likely)):
        for place, label in enumerate(path):
            total = result[step - 1, place]
            if place > 0:
                total = np.logaddexp(total, result[step - 1, place - 1])
            if place > 1 and label not in (BLANK, path[place - 2]):
                total = np.logaddexp(total, result[step - 1, place - 2])
            result[step, place] = total + likely[step, place]
    return result


def _from_options(direction, dtype, *, n, t, L, k) -> CtcProblem:
    if 2 * L > t:
        raise ValueError(f"-L: got {L}, wanted at most half of -t {t}")
    return CtcProblem(direction, n, t, L, k, dtype)


COMMAND = Command(
    "ctc",
    "Measures the CTC loss.",
    _from_options,
    {
        "n": Option(32, "sequences", 1),
        "t": Option(50, "steps of the longest", 2),
        "L": Option(20, "labels of the longest, at most half of its steps", 1),
        "k": Option(29, "classes, the blank among them", 2),
    },
)
OPERATION = operation("ctc", [Form("xla", xla)], arguments, reference, COMMAND)
register(CtcProblem, OPERATION)
