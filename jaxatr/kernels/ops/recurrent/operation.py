"""A recurrent layer as an operation of the find step."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.recurrent.algorithms import ALGORITHMS
from jaxatr.kernels.ops.recurrent.cells import State
from jaxatr.kernels.ops.recurrent.problem import CELLS, RecurrentProblem
from jaxatr.kernels.ops.recurrent.reference import arguments, reference
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.kernels.ops.tolerance import of_products
from jaxatr.kernels.options import Command, Option
from jaxatr.kernels.pallas import runs_on
from jaxatr.kernels.solver import Choice, Config, Operation, Solver, register
from jaxatr.typing import Array

# The tolerances of MIOpen's driver for recurrent networks.
_TOLERANCE = {"float32": 1e-6, "float16": 5e-2, "bfloat16": 5e-2, "float64": 1e-13}


class Recurrent(Solver):
    """A solver that runs one algorithm, tuned by the steps per iteration of its loops."""

    def __init__(self, name: str):
        self.name, self._algorithm = name, ALGORITHMS[name]
        self.version = self._algorithm.version

    def applies(self, problem: RecurrentProblem, device: Device) -> bool:
        """Returns whether the algorithm applies, to this direction and on this device."""
        own = self._algorithm
        if own.device and not runs_on(own.device, device):
            return False
        return (own.backward or problem.direction == "forward") and own.applies(problem)

    def workspace_bytes(self, problem: RecurrentProblem) -> int:
        """Returns the size of the gates, and of the states that a derivative keeps."""
        values = 0 if problem.direction == "forward" else problem.gates + 2 * problem.states
        size = problem.steps * problem.batch * problem.hidden * problem.wide.itemsize
        return values * size + problem.gates * size  # the input's part of the gates

    def configs(self, problem: RecurrentProblem) -> Sequence[Config]:
        """Returns the numbers of steps per iteration, starting with one."""
        most = problem.steps if self._algorithm.unrolls else 1
        return [(("unroll", n),) for n in (1, 2, 4, 8) if n == 1 or n <= most]

    def build(self, problem: RecurrentProblem, config: Config) -> Callable[..., Any]:
        """Returns a function ``(weights, x, state, mask)``; backward also takes the cotangents."""
        unroll = int(dict(config)["unroll"])

        def forward(weights: Weights, x: Array, state: State, mask: Array | None) -> Any:
            return self._algorithm.run(problem, weights, x, state, mask, False, unroll=unroll)

        def backward(weights, x, state, mask, cotangent) -> Any:
            return jax.vjp(partial(forward, mask=mask), weights, x, state)[1](cotangent)

        return forward if problem.direction == "forward" else backward


SOLVERS = {name: Recurrent(name) for name in ALGORITHMS}


def _heuristic(problem: RecurrentProblem, device: Device) -> Choice:
    name = "gemm" if ALGORITHMS["gemm"].applies(problem) else "scan"
    # On an H200, Hopper's kernel was 1.07 to 1.19 times as fast as gemm for these sizes.
    sizes = problem.batch >= 64 and 512 <= problem.hidden <= 2048
    if sizes and problem.dtype == "bfloat16" and SOLVERS["hopper"].applies(problem, device):
        name = "hopper"
    return Choice(name, (("unroll", 1),))


def _from_options(direction, dtype, *, n, k, W, H, mode, skip, masked, before) -> RecurrentProblem:
    if skip and W != H:
        raise ValueError(f"-W: got {W}, wanted the same as -H {H} with --skip")
    if before and mode != "gru":
        raise ValueError(f"--before: needs --mode=gru, got --mode={mode}")
    return RecurrentProblem(mode, k, n, W, H, skip, masked, dtype, not before, direction)


COMMAND = Command(
    "rnn",
    "Measures an LSTM, a GRU or a simple recurrent network.",
    _from_options,
    {
        "n": Option(32, "sequences", 1),
        "k": Option(25, "steps", 1),
        "W": Option(256, "features of the input", 1),
        "H": Option(256, "features of the state", 1),
        "mode": Option("lstm", "The cell.", choices=CELLS),
        "skip": Option(False, "Add the input to each gate without a matrix."),
        "masked": Option(False, "Sequences of different lengths."),
        "before": Option(False, "A GRU's reset gate acts before the product, as in ONNX."),
    },
)
OPERATION = Operation(
    name="recurrent",
    solvers=SOLVERS,
    heuristic=_heuristic,
    function=lambda problem, choice, device: SOLVERS[choice.algorithm].build(
        problem, choice.config
    ),
    arguments=arguments,
    reference=reference,
    tolerance=lambda problem, device: of_products(problem.dtype, device, _TOLERANCE),
    command=COMMAND,
)
register(RecurrentProblem, OPERATION)
