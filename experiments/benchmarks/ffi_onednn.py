"""Measures a prototype: oneDNN called through XLA's FFI, against what jaxatr chooses.

The question is whether an optional extension in C++ would be worth its wheels: it would have to be
1.3 times as fast, in the geometric mean over three groups of equal weight.

- convolutions: layers of ResNet-18 at 64 and 224 pixels, each direction alone;
- LSTM: sizes of DeepBench, the forward pass, and the gradients of inputs and weights;
- ONNX's three models (``onnx_inference.py``): the loaded model as it is called, against the same
  program with each convolution, its bias, ReLU and residual sum as one call with packed kernels.

The prototype (``onednn_calls.py``, ``ffi_onednn.cc``) is compiled by g++ into a temporary folder.
Its results must equal ours within 1e-4 of the largest number. Run again, an interrupted run
continues.

Run: pip install onednn-devel-cpu-gomp==2023.2.0  # oneDNN 3.2, with its library
     python experiments/benchmarks/ffi_onednn.py [--rounds 15] [--only convolution lstm onnx]
"""

from jaxatr import memory

if __name__ == "__main__":  # like the commands, before the imports below start threads
    memory.keep()

import argparse
import dataclasses
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from alternating import in_turn, timed
from onednn_calls import Library, convolution, fused
from onnx_inference import BATCHES, LIGHT, light
from recording import Recording, table
from training_step import machine

import jaxatr.onnx
from jaxatr.kernels import choosing, lstm
from jaxatr.kernels.folding import Specialised
from jaxatr.kernels.onednn import _difference
from jaxatr.kernels.ops.convolution.primitive import bind
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem as Layer
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.onnx.ops.precision import wide

OUTPUT = Path(__file__).parent / "results" / "ffi_onednn_cpu"
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


def convolutions(library: Library) -> Iterator[tuple[str, Callable[[], Contenders]]]:
    """Yields each problem's name and a function that makes its contenders."""
    del library
    for pixels, channels, features, taps, stride in LAYERS:
        pad = (taps // 2, taps // 2)
        for direction in ("forward", "data", "weight"):
            if direction == "data" and channels == 3:
                continue  # the gradient of an image is not part of a training
            problem = ConvProblem(
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


def directions(problem: ConvProblem) -> Contenders:
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
        forward = Layer("lstm", steps, batch, hidden, hidden, False, False, "float32")
        for problem in (forward, dataclasses.replace(forward, direction="backward")):
            yield problem.key.removeprefix("recurrent "), lambda p=problem: layer(p)


def layer(problem: Layer) -> Contenders:
    """Makes the contenders of one direction of an LSTM layer, time-major as the prototype."""
    hidden, gradient = problem.hidden, problem.direction == "backward"
    rng = np.random.default_rng(0)
    matrix, sequences = (hidden, 4 * hidden), (problem.steps, problem.batch, hidden)
    shapes = [sequences, matrix, matrix, (4 * hidden,)]
    scales = [1.0, hidden**-0.5, hidden**-0.5, 0.1]
    x, w, r, b = (
        jnp.asarray(scale * rng.normal(size=shape), jnp.float32)
        for shape, scale in zip(shapes, scales, strict=True)
    )
    dy = jnp.asarray(rng.normal(size=sequences), jnp.float32)

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


def models(library: Library) -> Iterator[tuple[str, Callable[[], Contenders]]]:
    """Yields each model's name and batch, and a function that makes its contenders."""
    for name in LIGHT:
        for batch in BATCHES:
            title = f"{name.removeprefix('light_')} × {batch}"
            yield title, lambda n=name, b=batch: model(n, b, library)


def model(name: str, batch: int, library: Library) -> Contenders:
    """Makes the contenders of one of ONNX's models."""
    case = light(name, batch)
    x = jnp.asarray(np.random.default_rng(0).normal(size=case.shape), jnp.float32)
    loaded = jaxatr.onnx.load(case.data)
    _, compiled, _ = loaded._inference
    with wide():
        plan = Specialised(compiled._infer.trace(compiled._given, x), compiled._given)
        theirs = fused(plan, library)
        theirs(x)  # compiled while 64-bit numbers are kept
    return {"jaxatr": lambda: loaded(x), "onednn": lambda: theirs(x)}


GROUPS = {"convolution": convolutions, "lstm": lstms, "onnx": models}


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
                wanted, found = (run() for run in contenders.values())
                apart = _difference(found, wanted)
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
