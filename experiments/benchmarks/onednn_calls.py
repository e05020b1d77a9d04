"""oneDNN's convolutions and LSTM as calls of XLA's FFI: the prototype that ffi_onednn.py measures.

``ffi_onednn.cc`` is compiled by g++, which needs the headers and the library of
``onednn-devel-cpu-gomp`` in the environment.
"""

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.jax_internals import JaxprEqn, Literal, Var
from jaxatr.kernels.folding import Specialised, _aval, _Chain, _read, _run
from jaxatr.kernels.ops.convolution.primitive import convolution_p
from jaxatr.kernels.ops.convolution.problem import ConvProblem

HERE = Path(__file__).parent


class Library:
    """The compiled prototype, registered with XLA."""

    def __init__(self, folder: Path):
        """Compiles and registers it.

        Raises:
          subprocess.CalledProcessError: g++ is missing or fails, for want of oneDNN's headers.
        """
        path, prefix = folder / "libffi_onednn.so", Path(sys.prefix)
        command = ["g++", "-O2", "-w", "-std=c++17", "-fPIC", "-shared", HERE / "ffi_onednn.cc"]
        command += [f"-I{jax.ffi.include_dir()}", f"-I{prefix / 'include'}"]
        command += [f"-L{prefix / 'lib'}", f"-Wl,-rpath,{prefix / 'lib'}", "-ldnnl", "-o", path]
        subprocess.run(command, check=True)
        self._library = ctypes.CDLL(str(path))
        jax.devices()  # types can be registered only when the backend exists
        names = ("type_id", "type_info")
        kind: Any = {name: self._capsule(f"convolution_{name}") for name in names}
        jax.ffi.register_ffi_type("prototype_convolution", kind, platform="cpu")
        stages = {
            stage: jax.ffi.pycapsule(getattr(self._library, f"convolution_{stage}"))
            for stage in ("instantiate", "execute")
        }
        jax.ffi.register_ffi_target("prototype_convolution", stages, platform="cpu")
        handler = jax.ffi.pycapsule(self._library.lstm_execute)
        jax.ffi.register_ffi_target("prototype_lstm", handler, platform="cpu")

    def _capsule(self, name: str) -> Any:
        """Returns the pointer that a function without arguments returns, in a ``PyCapsule``."""
        function = getattr(self._library, name)
        function.restype = ctypes.c_void_p
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
        return new(function(), None, None)

    def pack(
        self, problem: ConvProblem, kernel: np.ndarray, residual: bool, relu: bool
    ) -> np.ndarray:
        """Returns a kernel in the layout in which the inference call wants it, as bytes."""
        arrays = (problem.x_shape, problem.y_shape, geometry(problem))
        pointers = [np.asarray(array, np.int64) for array in arrays]
        plain = np.ascontiguousarray(kernel, np.float32)
        function = self._library.pack
        function.restype = ctypes.c_int64

        def run(to: np.ndarray | None) -> int:
            return function(
                *(ctypes.c_void_p(array.ctypes.data) for array in pointers),
                int(residual),
                int(relu),
                ctypes.c_void_p(plain.ctypes.data),
                None if to is None else ctypes.c_void_p(to.ctypes.data),
            )

        packed = np.empty(run(None), np.uint8)
        run(packed)
        return packed


def geometry(problem: ConvProblem) -> np.ndarray:
    """Returns the thirteen numbers that the prototype reads."""
    (top, bottom), (left, right) = problem.padding
    dilation = [taps - 1 for taps in problem.dilation]
    numbers = [*problem.w_shape, *problem.stride, top, left, bottom, right, *dilation]
    return np.array([*numbers, problem.groups], np.int64)


def convolution(
    problem: ConvProblem,
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    residual: Any = None,
    relu: bool = False,
) -> jax.Array:
    """Calls the prototype's convolution; with a bias, for inference and with a packed kernel."""
    direction, shape, more = problem.direction, problem.result_shape, ()
    if bias is not None:
        direction, more = "inference", (bias,) if residual is None else (bias, residual)
    return jax.ffi.ffi_call(
        "prototype_convolution",
        jax.ShapeDtypeStruct(shape, jnp.float32),
        input_output_aliases={} if residual is None else {3: 0},
    )(
        a,
        b,
        *more,
        direction=direction,
        geometry=geometry(problem),
        residual=residual is not None,
        relu=relu,
    )


class Fused(NamedTuple):
    """A convolution of a traced model with the steps after it that become part of its call.

    Attributes:
      chain: the convolution and the steps that are folded into its kernel and bias.
      end: the equation after which the call is made.
      result: the variable that the call computes.
      order: axes of the convolution's result that are the axes of ``result``.
      residual: the variable that is added, and the order of its axes; or None.
      relu: whether a ReLU is part of the call.
    """

    chain: _Chain
    end: int
    result: Var
    order: tuple[int, ...]
    residual: tuple[Var, tuple[int, ...]] | None
    relu: bool


def fuse(plan: Specialised) -> tuple[list[Fused], set[int]]:
    """Finds the steps after each convolution: transposes, one residual sum, one ReLU.

    Returns:
      The convolutions, and the indices of the equations that are part of one.
    """
    eqns = plan._late
    place = {id(eqn): i for i, eqn in enumerate(eqns)}
    readers: dict[Var, list[JaxprEqn]] = {}
    for eqn in eqns:
        for atom in eqn.invars:
            if not isinstance(atom, Literal):
                readers.setdefault(atom, []).append(eqn)
    chains = {chain.convolution.outvars[0]: chain for chain in plan._chains}
    found, taken = list[Fused](), set[int]()
    for eqn in eqns:
        if eqn.primitive is not convolution_p or eqn.invars[1] not in plan._known:
            continue
        chain = chains.get(eqn.outvars[0], _Chain(eqn, (), (0, 1, 2, 3)))
        inside = [eqn, *chain.after]
        result, order, residual, relu = inside[-1].outvars[0], chain.order, None, False
        while result not in plan._jaxpr.outvars and len(readers[result]) == 1:
            (step,) = readers[result]
            if place[id(step)] in taken:
                break
            kind, shapes = step.primitive.name, {_aval(atom).shape for atom in step.invars}
            variables = all(isinstance(atom, Var) for atom in step.invars)
            if kind == "transpose":
                order = tuple(order[axis] for axis in step.params["permutation"])
            elif kind == "custom_jvp_call" and "relu" in str(step.params) and not relu:
                relu = True
            elif kind == "add" and not (residual or relu) and len(shapes) == 1 and variables:
                (other,) = (v for v in step.invars if isinstance(v, Var) and v is not result)
                residual = other, order
            else:
                break
            inside.append(step)
            result = step.outvars[0]
        places = {place[id(one)] for one in inside}
        found.append(Fused(chain, max(places), result, order, residual, relu))
        taken |= places
    return found, taken


def fused(plan: Specialised, library: Library) -> Callable[..., Any]:
    """Returns the model's function with the prototype's calls in place of its convolutions."""
    calls, taken = fuse(plan)
    rest = [eqn for i, eqn in enumerate(plan._late) if i not in taken]
    asked = [atom for eqn in rest for atom in eqn.invars]
    known = (atom for atom in asked if not isinstance(atom, Literal) and atom in plan._known)
    reads = list(dict.fromkeys(known))

    held, arrays = plan._prepared(reads, [call.chain for call in calls])
    ready = {}
    for call, pair in zip(calls, arrays, strict=True):
        kernel, bias = map(np.asarray, pair)
        problem = call.chain.convolution.params["problem"]
        packed = library.pack(problem, kernel, call.residual is not None, call.relu)
        ready[call.end] = call, problem, packed, bias.ravel()

    def infer(*inputs: jax.Array) -> Any:
        values: dict[Var, Any] = dict(zip(reads, held, strict=True))
        values |= zip(plan._jaxpr.invars[len(plan._weights) :], inputs, strict=True)
        for i, eqn in enumerate(plan._late):
            if i in ready:
                call, problem, packed, bias = ready[i]
                added = None
                if call.residual:
                    var, order = call.residual
                    added = jnp.transpose(values[var], tuple(np.argsort(order)))
                x = _read(call.chain.convolution.invars[0], values)
                y = convolution(problem, x, packed, bias=bias, residual=added, relu=call.relu)
                values[call.result] = jnp.transpose(y, call.order)
            elif i not in taken:
                _run(eqn, values)
        return plan._tree.unflatten(_read(atom, values) for atom in plan._jaxpr.outvars)

    return jax.jit(infer)
