"""A loaded model: its variables and its pure function."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxatr.jax_internals import Tracer
from jaxatr.kernels.compiled import Compiled
from jaxatr.kernels.onednn import Form
from jaxatr.onnx.ops.precision import wide
from jaxatr.onnx.ops.values import EAGER, is_strings
from jaxatr.onnx.reader.folding import fold_batch_norms
from jaxatr.onnx.reader.inputs import as_declared, on_device, own
from jaxatr.onnx.reader.lowering import lower
from jaxatr.onnx.reader.program import (
    Call,
    Program,
    Run,
    ValueInfo,
    execute,
    in_two_parts,
)
from jaxatr.onnx.reader.proto import read, value_info
from jaxatr.onnx.reader.variables import divide, own_statistics


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A network loaded from ONNX.

    Attributes:
      inputs: name, shape and type of each input, in order.
      outputs: name, shape and type of each output, in order.
      variables: ``params`` (trainable), ``batch_stats`` (running statistics) and ``constants``
        (large arrays that are not trained), each a dictionary of arrays by their names in the
        model.
      program: the calls that :meth:`apply` makes.
      known: small arrays that are not trained, part of the program.
      proto: the ``ModelProto`` that was read, with long lists of numbers as tensors
        (:mod:`jaxatr.onnx.reader.lists`); None for part of a model.
      folder: folder of the file, which also holds external data; None if the model was not read
        from a file.
    """

    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    variables: dict[str, dict[str, Any]] = field(repr=False)
    program: Program = field(repr=False)
    known: dict[str, np.ndarray] = field(repr=False)
    proto: Any = field(repr=False)
    folder: Path | None = field(default=None, repr=False)

    def __call__(self, *inputs: Any, eager: bool = False) -> Any:
        """Computes the output, or a tuple of several, with the model's own :attr:`variables`.

        The first call with new input shapes compiles the model for them: the variables become
        constants of the program (:class:`jaxatr.kernels.compiled.Compiled`), and batch norms are
        folded into the convolutions before them. If jaxlib has oneDNN, the faster of two forms is
        kept (:attr:`forms`). Inside a function that jax traces, the model becomes part of that
        function.

        Args:
          *inputs: one value for each of :attr:`inputs`: an array, or a list for a sequence. NumPy's
            are copied, so that they may be filled anew.
          eager: whether to compute node by node without compiling: to find an error, or for
            strings and shapes that depend on values, which cannot be compiled.

        Raises:
          ValueError: an input does not fit, a node fails, or the model cannot be compiled.
        """
        self._check_count(inputs)
        if eager:
            return self.apply(self.variables, *inputs)
        traced = any(isinstance(value, Tracer) for value in inputs)
        strings = [value.name for value in self.inputs if value.dtype == "str"]
        if strings and not traced:
            raise ValueError(f"input {strings[0]!r}: strings cannot be compiled; {EAGER}")
        model, run, rest = self._inference
        if traced:
            return model.apply(model.variables, *inputs)
        with wide():  # keeps 64-bit numbers
            computed = run(*map(own, inputs, self.inputs))
            if rest is None:
                return computed
            given = computed if isinstance(computed, tuple) else (computed,)
            outputs = execute(rest, given, _by_name(model.variables) | self.known, Run())
            return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def __getstate__(self) -> dict[str, Any]:
        """Excludes the compiled function, which each copy and each process makes for itself."""
        return {name: value for name, value in vars(self).items() if name != "_inference"}

    @property
    def forms(self) -> Mapping[str, Form]:
        """Form that runs, XLA's or oneDNN's, for each combination of input shapes called so far.

        Empty if there is no choice (:mod:`jaxatr.kernels.onednn`).
        """
        return self._inference[1].forms

    @cached_property
    def _inference(self) -> tuple["OnnxModel", Compiled, Program | None]:
        """The model with folded batch norms, its compiled function, and what follows that."""
        program, made = fold_batch_norms(self.program, _by_name(self.variables) | self.known)
        used = program.used
        variables = {
            group: {name: value for name, value in values.items() if name in used}
            for group, values in self.variables.items()
        }
        with wide(), jax.ensure_compile_time_eval():
            variables["constants"] |= jax.device_put(made)
            model = replace(self, program=program, variables=variables)
            first, rest = in_two_parts(program)
            infos = tuple(ValueInfo(name, None, None) for name in first.outputs)
            part = model if rest is None else replace(model, program=first, outputs=infos)
            return model, Compiled(part.apply, variables, constants=True, compete=True), rest

    def _check_traced(self, results: Sequence[Any], *given: Any) -> None:
        strings = [
            wanted.name
            for wanted, result in zip(self.outputs, results, strict=True)
            if any(map(is_strings, jax.tree.leaves(result)))
        ]
        if strings and any(isinstance(value, Tracer) for value in jax.tree.leaves(given)):
            raise ValueError(f"output {strings[0]!r}: strings cannot be compiled; {EAGER}")

    def _check_count(self, inputs: tuple[Any, ...]) -> None:
        if len(inputs) != len(self.inputs):
            names = [wanted.name for wanted in self.inputs]
            raise ValueError(f"inputs: got {len(inputs)}, wanted {len(names)}: {names}")

    def apply(
        self,
        variables: Mapping[str, Mapping[str, Any]],
        *inputs: Any,
        training: bool = False,
        rngs: Any = None,
        keep_64_bit: bool = True,
        each: Callable[[Call, tuple], tuple] | None = None,
    ) -> Any:
        """Computes the outputs as a pure function, which can be jitted and differentiated.

        64-bit types are kept even if jax's setting would narrow them.

        Args:
          variables: dictionary like :attr:`variables`; ``batch_stats`` and ``constants`` default to
            the model's.
          *inputs: one value for each of :attr:`inputs`: an array, or a list for a sequence.
          training: whether batch normalisation uses batch statistics, and dropout drops elements.
            Running statistics are updated if exactly one node reads them, outside subgraphs.
          rngs: a key, or a mapping with one key under any name. If it is None, random operators
            draw from their ``seed`` (default 0), and dropout does nothing.
          keep_64_bit: False follows jax's setting for 64-bit types. A function that the caller jits
            needs it, since jax lowers it after the scope that keeps 64 bits has ended.
          each: function called with every call outside subgraphs and its results; it returns the
            results to continue with.

        Returns:
          The output, or a tuple of several. With ``training``, a pair of that and the new state
          ``{"batch_stats": …}``.

        Raises:
          ValueError: an input does not fit, a node fails, or, under jit, the shape of a result
            depends on the values of an input.
        """
        self._check_count(inputs)
        rng = next(iter(rngs.values())) if isinstance(rngs, Mapping) else rngs
        run = Run(training, rng, self._tracked if training else frozenset())
        with wide() if keep_64_bit else contextlib.nullcontext():
            arrays = _by_name({**self.variables, **variables})
            # jax recognises a constant by its identity and keeps the precision of its first trace.
            known = {name: np.asarray(array)[...] for name, array in self.known.items()}
            values = {name: on_device(value) for name, value in arrays.items()} | known
            given = [as_declared(v, wanted) for v, wanted in zip(inputs, self.inputs, strict=True)]
            results = [on_device(r) for r in execute(self.program, given, values, run, each)]
        self._check_traced(results, variables, inputs)
        outputs = results[0] if len(results) == 1 else tuple(results)
        if not training:
            return outputs
        before = variables.get("batch_stats", self.variables["batch_stats"])
        return outputs, {"batch_stats": {**before, **run.statistics}}

    @cached_property
    def _tracked(self) -> frozenset[str]:
        return own_statistics(self.program).intersection(self.variables["batch_stats"])


def _by_name(variables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the arrays of all collections by their names."""
    return {name: array for group in variables.values() for name, array in group.items()}


def load(model: Any, *, trainable: Sequence[str] = (), constant: Sequence[str] = ()) -> OnnxModel:
    """Loads a model.

    Float initializers are trainable parameters, except constants of formulas:
    :func:`jaxatr.onnx.reader.formulas.constants` tells them by their use.

    Args:
      model: path of a file, its bytes, or a ``ModelProto``.
      trainable: names, or patterns with ``*`` and ``?``, of float initializers to train in any
        case, such as a learned temperature.
      constant: names or patterns of float initializers not to train in any case, such as a table
        of positions.

    Raises:
      ValueError: the model cannot be read, is malformed, or has operators without an
        implementation; the message lists all of them. A pattern fits no float initializer, or a
        shape depends on an array to train.
    """
    proto, folder = read(model)
    lowered = lower(proto, folder)
    divided = divide(lowered, trainable, constant)
    infos = {value.name: value_info(value) for value in proto.graph.input}
    with wide(), jax.ensure_compile_time_eval():  # concrete arrays, even if the caller is traced
        variables = {
            group: jax.device_put(getattr(divided, group)) for group in ("params", "batch_stats")
        }
        # An array that several calls of a function share is copied to the device once.
        placed = {id(value): jax.device_put(value) for value in divided.constants.values()}
        variables["constants"] = {k: placed[id(v)] for k, v in divided.constants.items()}
    return OnnxModel(
        tuple(infos[name] for name in lowered.program.inputs),
        tuple(value_info(value) for value in proto.graph.output),
        variables,
        divided.program,
        divided.known,
        proto,
        folder,
    )
