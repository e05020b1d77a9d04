"""Networks compiled for inference: their arrays placed once, their batches of few sizes."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax

CONSTANTS = 1 << 28
"""Bytes of variables up to which they can be constants of a program, which holds them twice."""

_GROWTH = 4
T = TypeVar("T")


class Compiled:
    """A function of variables and inputs, compiled once for each shape and type of its inputs.

    The variables are placed on the device once. A call is that of :func:`jax.jit` and nothing
    else: 10 µs of Python with constants, 40 µs with a hundred arrays of variables. A program that
    is compiled ahead of time is no faster to call.

    As constants, everything that depends on the variables alone is computed by the compiler:
    kernels are turned round, transformed and packed there. The program then belongs to these very
    variables, and it holds them, as does its entry in the persistent cache: for a ResNet-18 of 44
    MB that is 89 MB instead of 0.2, and half a second more at each start. It saves 3 ms of CPU
    time a call at 64 pixels, of 11 with one image and of 60 with 32. So the networks of runs,
    which are started often and are many, take their variables as arguments, and share a program
    with every run of the same shape. A model that was read from ONNX takes constants: its kernels
    lie in another order there, and ResNet-50 is five times as fast with them.
    """

    def __init__(self, function: Callable[..., Any], variables: Any, *, constants: bool = False):
        """Places the variables; nothing is compiled yet.

        Args:
          function: ``(variables, *inputs) -> outputs``, pure.
          variables: a tree of arrays.
          constants: make the variables constants of the program, if they have no more than
            :data:`CONSTANTS` bytes.
        """
        leaves, tree = jax.tree.flatten(jax.device_put(variables))
        held = constants and sum(leaf.nbytes for leaf in leaves) <= CONSTANTS

        def infer(given: tuple[jax.Array, ...], *inputs: Any) -> Any:
            return function(tree.unflatten(leaves if held else given), *inputs)

        infer.__name__ = getattr(function, "__name__", "infer")  # of the program, when profiled
        # A tuple of arrays is taken apart faster than a tree of dictionaries.
        self._given = () if held else tuple(leaves)
        self._infer = jax.jit(infer)

    def __call__(self, *inputs: Any) -> Any:
        """Computes the outputs."""
        return self._infer(self._given, *inputs)

    def lower(self, *inputs: Any) -> jax.stages.Lowered:
        """Lowers the program for inputs like these, to look at it."""
        return self._infer.lower(self._given, *inputs)


def filled_size(count: int, most: int) -> int:
    """Returns the size to which a batch is filled up: of few sizes, so that few are compiled.

    Args:
      count: examples that there are.
      most: size of a full batch.

    >>> [filled_size(count, 32) for count in (1, 2, 4, 5, 17, 32)]
    [1, 4, 4, 16, 32, 32]
    """
    size = 1
    while size < count:
        size *= _GROWTH
    return min(size, most)


def filled_batches(examples: Iterable[T], size: int) -> Iterator[tuple[list[T], int]]:
    """Yields batches of examples, each with the number of its examples before it was filled.

    The last batch is filled with copies of its last example: to the size of the batches before it,
    or to :func:`filled_size` if it is the only one. So few programs are compiled, and one example
    is computed as one.

    Args:
      examples: the examples, read one batch at a time.
      size: size of a full batch.

    >>> list(filled_batches("abcde", 3))
    [(['a', 'b', 'c'], 3), (['d', 'e', 'e'], 2)]
    """
    remaining, full = iter(examples), False
    while batch := list(itertools.islice(remaining, size)):
        target = size if full else filled_size(len(batch), size)
        yield batch + [batch[-1]] * (target - len(batch)), len(batch)
        full = True
