"""Networks compiled for inference: their arrays placed once, each shape in the faster form."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxatr.kernels import onednn
from jaxatr.kernels.onednn import Form

CONSTANTS = 1 << 28
"""Bytes of variables up to which they can be constants of a program, which holds them twice."""


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

    With ``compete``, each shape has two forms, and the faster is kept
    (:func:`jaxatr.kernels.onednn.fastest`). The variables are constants of oneDNN's form, whatever
    ``constants`` is for the other, and that form is not in the persistent cache: it is compiled
    again at each start.

    Attributes:
      about: name and version of what runs the network, if oneDNN competes; else empty.
      forms: the form of each shape that has been called, by the types and shapes of the inputs;
        empty where there is no choice.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        variables: Any,
        *,
        constants: bool = False,
        compete: bool = False,
    ):
        """Places the variables; nothing of the function is compiled yet.

        Args:
          function: ``(variables, *inputs) -> outputs``, pure.
          variables: a tree of arrays.
          constants: make the variables constants of the program, if they have no more than
            :data:`CONSTANTS` bytes.
          compete: let oneDNN compete, where this jaxlib has it and the variables have no more than
            :data:`CONSTANTS` bytes.
        """
        leaves, tree = jax.tree.flatten(jax.device_put(variables))
        small = sum(leaf.nbytes for leaf in leaves) <= CONSTANTS
        held = constants and small

        def infer(given: tuple[jax.Array, ...], *inputs: Any) -> Any:
            return function(tree.unflatten(leaves if held else given), *inputs)

        infer.__name__ = getattr(function, "__name__", "infer")  # of the program, when profiled
        # A tuple of arrays is taken apart faster than a tree of dictionaries.
        self._given = () if held else tuple(leaves)
        self._infer = jax.jit(infer)
        self._compete = compete and small and onednn.usable()
        self._programs: dict[tuple[str, Any], Callable[..., Any]] = {}
        self.forms: dict[str, Form] = {}
        version = f"jax {jax.__version__}, by oneDNN where that is faster"
        self.about = version if self._compete else ""

    def __call__(self, *inputs: Any) -> Any:
        """Computes the outputs."""
        if not self._compete:
            return self._infer(self._given, *inputs)
        leaves, tree = jax.tree.flatten(inputs)
        shapes = ", ".join(map(_described, leaves))
        if (shapes, tree) not in self._programs:
            program, form = onednn.fastest(self._infer, self._given, inputs)
            self._programs[shapes, tree], self.forms[shapes] = program, form
        return self._programs[shapes, tree](*inputs)

    def lower(self, *inputs: Any) -> jax.stages.Lowered:
        """Lowers XLA's form for inputs like these, to look at it."""
        return self._infer.lower(self._given, *inputs)


def _described(value: Any) -> str:
    """Returns the type and shape of an input."""
    kind = getattr(value, "dtype", None) or type(value).__name__
    return f"{kind}[{','.join(map(str, np.shape(value)))}]"
