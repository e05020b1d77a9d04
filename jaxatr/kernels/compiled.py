"""Networks compiled for inference: their arrays placed once, each shape in the faster form."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxatr.kernels import onednn
from jaxatr.kernels.onednn import Form

CONSTANTS = 1 << 28
"""Largest size, in bytes, of variables that may become constants: the program holds them twice."""


class Compiled:
    """A function of variables and inputs, compiled once for each shape and type of its inputs.

    The variables are placed on the device once. A call costs as little Python time as one of
    :func:`jax.jit`: 10 µs if the variables are constants, 40 µs if they are a hundred arguments.
    Calling a program that was compiled ahead of time is not faster.

    If the variables are constants, the compiler computes everything that depends only on them: it
    flips, transforms and packs kernels in advance. The program then works for these variables only
    and contains them, and so does its entry in the persistent cache. For a ResNet-18 of 44 MB, the
    entry has 89 MB instead of 0.2 MB, and each start takes half a second longer. In return, each
    call at 64 pixels takes 3 ms less CPU time: 8 instead of 11 ms with one image, 57 instead of
    60 ms with 32. Networks of trained runs take the variables as arguments: there are many runs,
    which start often, and runs of the same shape share a program. Models read from ONNX use
    constants: ONNX stores kernels in another order, and ResNet-50 is five times as fast with them.

    With ``compete``, two forms of the program are timed for each shape, and the faster one is kept
    (:func:`jaxatr.kernels.onednn.fastest`). The variables are always constants of oneDNN's form,
    even without ``constants``. That form is not in the persistent cache, so it is compiled again at
    each start.

    Attributes:
      about: name and version of the software that runs the network, if oneDNN competes; else empty.
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
        """Places the variables; the function is compiled at its first call.

        Args:
          function: ``(variables, *inputs) -> outputs``, pure.
          variables: a tree of arrays.
          constants: whether to make the variables constants of the program, if they have no more
            than :data:`CONSTANTS` bytes.
          compete: whether oneDNN competes, if this jaxlib has it and the variables have no more
            than :data:`CONSTANTS` bytes.
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
        self._programs: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self.forms: dict[str, Form] = {}
        version = f"jax {jax.__version__}, by oneDNN where that is faster"
        self.about = version if self._compete else ""

    def __call__(self, *inputs: Any) -> Any:
        """Computes the outputs."""
        if not self._compete:
            return self._infer(self._given, *inputs)
        leaves, tree = jax.tree.flatten(inputs)
        key = tree, *map(_signature, leaves)
        if (program := self._programs.get(key)) is None:
            program, form = onednn.fastest(self._infer, self._given, inputs)
            self._programs[key] = program
            self.forms[", ".join(map(_described, leaves))] = form
        return program(*inputs)

    def lower(self, *inputs: Any) -> jax.stages.Lowered:
        """Lowers XLA's form for inputs of these shapes and types, for inspection."""
        return self._infer.lower(self._given, *inputs)


def _signature(value: Any) -> tuple[Any, tuple[int, ...]]:
    """Returns the type and shape of an input."""
    return getattr(value, "dtype", None) or type(value), np.shape(value)


def _described(value: Any) -> str:
    """Formats the type and shape of an input."""
    kind, shape = _signature(value)
    name = kind.__name__ if isinstance(kind, type) else kind
    return f"{name}[{','.join(map(str, shape))}]"
