"""Measures a prototype: oneDNN called through XLA's FFI, against what jaxatr chooses.

The question is whether an optional extension in C++ would be worth its wheels: it would have to be
1.3 times as fast, in the geometric mean over three groups of equal weight.

- convolutions: layers of ResNet-18 at 64 and 224 pixels, each direction alone;
- LSTM: sizes of DeepBench, the forward pass, and the gradients of inputs and weights;
- ONNX's three models (``onnx_inference.py``): the loaded model as it is called, against the same
  program with each convolution, its bias, ReLU and residual sum as one call with packed kernels.

The prototype, ``ffi_onednn.cc``, is compiled by g++ into a temporary folder. Its results must equal
ours within 1e-4 of the largest number. Run again, an interrupted run continues.

Run: pip install onednn-devel-cpu-gomp==2023.2.0  # oneDNN 3.2, with its library
     python experiments/benchmarks/ffi_onednn.py [--rounds 15] [--only convolution lstm onnx]
"""

from jaxatr import memory

if __name__ == "__main__":  # like the commands, before the imports below start threads
    memory.keep()

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx_inference
from alternating import in_turn, timed
from jax.extend.core import JaxprEqn, Literal, Var
from onnx_inference import LIGHT, light
from recording import Recording, table
from training_step import machine

import jaxatr.onnx
from jaxatr.kernels import choosing, lstm
from jaxatr.kernels.folding import Specialised, _aval, _Chain, _joined, _read, _run
from jaxatr.kernels.ops.convolution.primitive import bind, convolution_p
from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.onnx.ops.precision import wide

HERE = Path(__file__).parent
OUTPUT = HERE / "results" / "ffi_onednn_cpu"
TOLERANCE = 1e-4  # of the largest number
WANTED = 1.3  # the gain from which an extension is worth its wheels

# Pixels, channels, features, taps and stride.
LAYERS = (
    (64, 3, 64, 7, 2),
    (16, 64, 64, 3, 1),
    (16, 64, 128, 3, 2),
    (8, 128, 128, 3, 1),
    (4, 256, 256, 3, 1),
    (56, 64, 64, 3, 1),
    (56, 64, 128, 3, 2),
    (28, 128, 128, 3, 1),
    (14, 256, 256, 3, 1),
    (7, 512, 512, 3, 1),
    (56, 64, 128, 1, 2),
)
# Steps, batch, and both inputs and hidden units.
LSTMS = ((150, 16, 256), (25, 32, 512), (25, 16, 1024), (50, 16, 1536), (25, 32, 2048))

Contenders = dict[str, Callable[[], Any]]


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

    def pack(self, problem: Problem, kernel: np.ndarray, residual: bool, relu: bool) -> np.ndarray:
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


def geometry(problem: Problem) -> np.ndarray:
    """Returns the thirteen numbers that the prototype reads."""
    (top, bottom), (left, right) = problem.padding
    dilation = [taps - 1 for taps in problem.dilation]
    numbers = [*problem.w_shape, *problem.stride, top, left, bottom, right, *dilation]
    return np.array([*numbers, problem.groups], np.int64)


def convolution(
    problem: Problem,
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


def convolutions(library: Library) -> Iterator[tuple[str, Callable[[], Contenders]]]:
    """Yields each problem's name and a function that makes its contenders."""
    del library
    for pixels, channels, features, taps, stride in LAYERS:
        pad = (taps // 2, taps // 2)
        for direction in ("forward", "data", "weight"):
            if direction == "data" and channels == 3:
                continue  # the gradient of an image is not part of a training
            problem = Problem(
                direction,
                (32, pixels, pixels, channels),
                (taps, taps, channels, features),
                (stride, stride),
                (pad, pad),
                (1, 1),
                1,
                "float32",
            )
            yield problem.key.removeprefix("convolution "), lambda p=problem: directions(p)


def directions(problem: Problem) -> Contenders:
    """Makes the contenders of one direction of one convolution."""
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in problem.argument_shapes)
    ours = jax.jit(lambda a, b: bind(a, b, problem, "auto"))
    theirs = jax.jit(lambda a, b: convolution(problem, a, b))
    return {"jaxatr": lambda: ours(a, b), "onednn": lambda: theirs(a, b)}


def lstms(library: Library) -> Iterator[tuple[str, Callable[[], Contenders]]]:
    """Yields each layer's name and a function that makes its contenders."""
    del library
    for steps, batch, hidden in LSTMS:
        for gradient in (False, True):
            direction = "backward" if gradient else "forward"
            name = f"{direction} lstm t{steps} b{batch} d{hidden} h{hidden} float32"
            yield name, lambda s=(steps, batch, hidden), g=gradient: layer(*s, g)


def layer(steps: int, batch: int, hidden: int, gradient: bool) -> Contenders:
    """Makes the contenders of one LSTM layer, time-major as the prototype."""
    rng = np.random.default_rng(0)
    shapes = [(steps, batch, hidden), (hidden, 4 * hidden), (hidden, 4 * hidden), (4 * hidden,)]
    scales = [1.0, hidden**-0.5, hidden**-0.5, 0.1]
    x, w, r, b = (
        jnp.asarray(scale * rng.normal(size=shape), jnp.float32)
        for shape, scale in zip(shapes, scales, strict=True)
    )
    dy = jnp.asarray(rng.normal(size=shapes[0]), jnp.float32)

    def run(x, w, r, b):
        return jnp.swapaxes(lstm([[Weights(w, r, b)]], jnp.swapaxes(x, 0, 1))[0], 0, 1)

    def ours(x, w, r, b, dy):
        if not gradient:
            return (run(x, w, r, b),)
        y, transpose = jax.vjp(run, x, w, r, b)
        return (y, *transpose(dy))

    def turned(array: jax.Array) -> jax.Array:
        """Exchanges the last two blocks: our gates are i, f, o, c~, and oneDNN's i, f, c~, o."""
        i, f, one, other = jnp.split(array, 4, axis=-1)
        return jnp.concatenate([i, f, other, one], axis=-1)

    def theirs(x, w, r, b, dy):
        results = [x, x, w, r, b] if gradient else [x]
        shapes = [jax.ShapeDtypeStruct(one.shape, jnp.float32) for one in results]
        call = jax.ffi.ffi_call("prototype_lstm", shapes)
        y, *rest = call(x, turned(w), turned(r), turned(b), dy, gradient=gradient)
        return (y, *rest[:1], *map(turned, rest[1:]))

    first, second = jax.jit(ours), jax.jit(theirs)
    return {
        "jaxatr": lambda: first(x, w, r, b, dy),
        "onednn": lambda: second(x, w, r, b, dy),
    }


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
        chain = chains.get(eqn.outvars[0], _Chain(eqn, ()))
        inside = [eqn, *chain.steps]
        result, order, residual, relu = inside[-1].outvars[0], (0, 1, 2, 3), None, False
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

    @jax.jit
    def prepare(weights: Sequence[jax.Array]) -> Any:
        values = dict(zip(plan._jaxpr.constvars, plan._consts, strict=True))
        values |= zip(plan._jaxpr.invars, weights, strict=False)
        for eqn in plan._early:
            _run(eqn, values)
        return [_arrays(call.chain, values) for call in calls], [values[atom] for atom in reads]

    arrays, held = prepare(plan._weights)
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


def _arrays(chain: _Chain, values: dict[Var, Any]) -> tuple[jax.Array, jax.Array]:
    """Returns the kernel and the bias of a convolution with its steps folded in."""
    if chain.steps:
        return _joined(chain, values)
    kernel = _read(chain.convolution.invars[1], values)
    return kernel, jnp.zeros(kernel.shape[-1], kernel.dtype)


def models(library: Library) -> Iterator[tuple[str, Callable[[], Contenders]]]:
    """Yields each model's name and batch, and a function that makes its contenders."""
    for name in LIGHT:
        for batch in onnx_inference.BATCHES:
            title = f"{name.removeprefix('light_')} × {batch}"
            yield title, lambda n=name, b=batch: model(n, b, library)


def model(name: str, batch: int, library: Library) -> Contenders:
    """Makes the contenders of one of ONNX's models."""
    case = light(name, batch)
    x = jnp.asarray(np.random.default_rng(0).normal(size=case.shape), jnp.float32)
    loaded = jaxatr.onnx.load(case.data)
    _, compiled = loaded._inference
    with wide():
        plan = Specialised(compiled._infer.trace(compiled._given, x), compiled._given)
        theirs = fused(plan, library)
        theirs(x)  # compiled while 64-bit numbers are kept
    return {"jaxatr": lambda: loaded(x), "onednn": lambda: theirs(x)}


GROUPS = {"convolution": convolutions, "lstm": lstms, "onnx": models}


def difference(contenders: Contenders) -> float:
    """Returns the largest difference of the results, relative to their largest number."""
    one, other = (jax.tree.leaves(run()) for run in contenders.values())
    pairs = zip(map(np.asarray, one), map(np.asarray, other), strict=True)
    return max(float(np.max(np.abs(a - b)) / (np.max(np.abs(a)) or 1.0)) for a, b in pairs)


def page(recording: Recording) -> Iterator[str]:
    """Yields the lines of the record as Markdown."""
    about = recording.about
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    yield (
        f"Made by `ffi_onednn.py`. {about['device']}, {about['cores']} cores; float32; oneDNN "
        f"{about['onednn']}; {versions}. Kernels by the heuristic. Gains are our time over that of "
        "the prototype."
    )
    yield ""
    means = []
    for group in GROUPS:
        gains = [row["gain"] for row in recording.rows if row["group"] == group]
        if gains:
            means.append(statistics.geometric_mean(gains))
            yield f"- {group}: gain {means[-1]:.2f}, least {min(gains):.2f}, of {len(gains)}"
    if len(means) == len(GROUPS):
        yield f"- all three groups: gain {statistics.geometric_mean(means):.2f}, wanted {WANTED}"
    yield ""
    header = ("problem", "jaxatr, ms", "oneDNN by FFI, ms", "gain", "difference")
    yield from table(
        header,
        *(
            [
                row["problem"],
                f"{row['jaxatr']:.2f}",
                f"{row['onednn']:.2f}",
                f"{row['gain']:.2f}",
                f"{row['difference']:.0e}",
            ]
            for row in recording.rows
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--output", type=Path, default=OUTPUT, help="without suffix")
    options = parser.parse_args()
    about = machine() | {"onednn": "3.2, OpenMP of GNU", "rounds": options.rounds}
    recording = Recording(options.output, about)
    with tempfile.TemporaryDirectory() as folder, choosing.choices({}):  # the heuristic's
        library = Library(Path(folder))
        for group in options.only:
            for name, make in GROUPS[group](library):
                key = {"group": group, "problem": name}
                if recording.has(key):
                    continue
                contenders = make()
                apart = difference(contenders)
                if not apart <= TOLERANCE:
                    raise SystemExit(f"{name}: the prototype's results differ by {apart:.1e}")
                clocks = {label: timed(run) for label, run in contenders.items()}
                seconds = in_turn(clocks, options.rounds, budget=20.0)
                times = {label: round(1e3 * value, 4) for label, value in seconds.items()}
                gain = round(times["jaxatr"] / times["onednn"], 3)
                recording.add(key, times | {"gain": gain, "difference": apart})
                print(f"{name}: {times}, gain {gain}", flush=True)
    print(recording.write_page(page(recording)))


if __name__ == "__main__":
    main()
