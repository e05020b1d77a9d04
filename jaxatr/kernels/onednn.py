"""oneDNN's kernels in programs of XLA:CPU, where they are faster.

Since jaxlib 0.11, XLA:CPU on x86-64 can hand convolutions to oneDNN: kernels that are constants are
packed when the program is compiled, and bias, ReLU and a residual sum are part of the call.
Compiler options turn it on for a single program. oneDNN is not always faster, in particular not on
small images, so both forms are compiled and timed, and the choice is remembered on disk like those
of :mod:`jaxatr.kernels.find`. A ReLU that is part of oneDNN's call turns NaN into 0.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import files
from jaxatr.kernels import database
from jaxatr.kernels.device import of_platform
from jaxatr.kernels.folding import Specialised

VARIABLE = "JAXATR_ONEDNN"
Mode: TypeAlias = Literal["auto", "always", "never"]
_OPTIONS = {
    "xla_cpu_experimental_onednn_custom_call": True,
    # Otherwise YNNPACK, XLA's default library, takes the convolutions first.
    "xla_cpu_experimental_ynn_fusion_type": "",
}
_VERSION = 2  # of what is timed and of the rule, in the names of the remembered files
_LEAST = 8_000_000  # multiplications, half a millisecond: less is not worth a second compilation
_TOLERANCE = 1e-4  # largest difference of the results, relative to the largest number
# That in bfloat16, of root mean squares: rounding errors of two forms of a mobile network reach a
# tenth, and the results of a kernel that is wrong have nothing in common.
_NARROW = 0.25
_GAIN = 0.95  # oneDNN is chosen if it takes less than this fraction of XLA's time
_TURNS = (3, 9)  # least and most turns of the timing
_SECONDS = 1.0  # after which the least number of turns is enough

Program = Callable[..., Any]


class Form(NamedTuple):
    """The form in which a program runs, and the reason.

    Attributes:
      name: ``"xla"`` or ``"onednn"``.
      reason: ``"measured"``, ``"remembered"`` (measured in an earlier process), ``"asked for"``, or
        a sentence.
      milliseconds: median time of each form; empty if they were not timed.
    """

    name: str
    reason: str
    milliseconds: Mapping[str, float] = {}

    def __str__(self) -> str:
        """Returns the form, the reason and the times in a few words.

        >>> print(Form("onednn", "measured", {"xla": 13.24, "onednn": 9.1}))
        onednn (measured: xla 13.2 ms, onednn 9.1 ms)
        """
        times = ", ".join(f"{name} {value:.3g} ms" for name, value in self.milliseconds.items())
        return f"{self.name} ({': '.join(filter(None, [self.reason, times]))})"


def mode() -> Mode:
    """Returns the value of the environment variable ``JAXATR_ONEDNN``, by default ``"auto"``.

    Raises:
      ValueError: the value is not one of the three modes.
    """
    chosen = os.environ.get(VARIABLE) or "auto"
    if chosen not in get_args(Mode):
        raise ValueError(f"{VARIABLE}: got {chosen!r}, wanted one of {', '.join(get_args(Mode))}")
    return cast(Mode, chosen)


@functools.cache
def options() -> Mapping[str, Any]:
    """Returns the compiler options with which XLA:CPU uses oneDNN; empty if this jaxlib lacks it.

    The first call compiles a convolution with them and looks for oneDNN in the program.
    """
    if jax.default_backend() != "cpu":
        return {}
    x, w = (jax.ShapeDtypeStruct(s, "float32") for s in ((1, 16, 16, 32), (3, 3, 32, 32)))
    convolve = functools.partial(
        jax.lax.conv_general_dilated,
        window_strides=(1, 1),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    try:
        with _not_stored():
            text = jax.jit(convolve).lower(x, w).compile(compiler_options=_OPTIONS).as_text()
    except Exception:  # versions that do not know the options raise various types
        return {}
    return _OPTIONS if "__onednn$convolution" in (text or "") else {}


def check() -> None:
    """Checks that this jaxlib has oneDNN.

    Raises:
      ValueError: it does not.
    """
    if not options():
        raise ValueError(
            f"runtime=onednn: jaxlib {version('jaxlib')} has no oneDNN for programs on "
            f"{jax.default_backend()}; jaxlib 0.11 and later have it on x86-64 processors"
        )


def usable() -> bool:
    """Returns whether this jaxlib has oneDNN and ``JAXATR_ONEDNN`` allows it."""
    return mode() != "never" and bool(options())


def fastest(
    function: Any, weights: Sequence[jax.Array], inputs: Sequence[Any]
) -> tuple[Program, Form]:
    """Compiles and times a function's two forms, and returns the faster one.

    The two forms are timed in turn, for a second and at least three times each. oneDNN's is kept if
    its median is below 0.95 times XLA's. The times are remembered on disk for the function and its
    shapes, the processor, its number of cores and the version of jaxlib; the next time, only the
    form that they favour is compiled.

    Args:
      function: ``jax.jit`` of ``(weights, *inputs) -> outputs``, which is XLA's form.
      weights: its arrays. They become constants of oneDNN's form, as do the arrays that the
        function closes over.
      inputs: the inputs to time it with.

    Returns:
      The program for inputs of these shapes and types, and a record of the choice. If oneDNN's form
      cannot be compiled, or its results differ from XLA's by more than 1e-4 of the largest number
      and rounding, it is refused with a warning. With convolutions in bfloat16, root mean squares
      are compared instead, which may differ by a quarter.
    """
    asked, xla = mode() == "always", functools.partial(function, weights)
    plan = Specialised(function.trace(weights, *inputs), weights)  # a call does not trace again
    if plan.multiplications < _LEAST and not asked:
        return xla, Form("xla", "few convolutions in float32 or bfloat16")
    path = _kept(plan.text)
    times = _remembered(path)
    if times and not asked and _choice(times) == "xla":
        return xla, Form("xla", "remembered", times)
    try:
        rival = jax.jit(plan.function(), compiler_options=dict(options()))
        with _not_stored():
            found = jax.block_until_ready(rival(*inputs))
    except Exception as error:  # the compiler may raise anything
        return xla, _refused(f"cannot be compiled: {type(error).__name__}: {error}")
    if times:
        return rival, Form("onednn", "asked for" if asked else "remembered", times)
    apart = _difference(found, xla(*inputs), plan.narrow)
    allowed = _NARROW if plan.narrow else _TOLERANCE
    if not apart <= allowed:
        return xla, _refused(f"differs by {apart:.1e}, allowed {allowed:.0e}")
    times = _milliseconds({"xla": xla, "onednn": rival}, inputs)
    _remember(path, times)
    name = "onednn" if asked else _choice(times)
    form = Form(name, "asked for" if asked else "measured", times)
    return (rival if name == "onednn" else xla), form


def _choice(times: Mapping[str, float]) -> str:
    return "onednn" if times["onednn"] < _GAIN * times["xla"] else "xla"


def _refused(why: str) -> Form:
    warnings.warn(f"oneDNN's form of a program {why}; XLA's is used", stacklevel=3)
    return Form("xla", f"oneDNN's form {why}")


def _difference(found: Any, wanted: Any, narrow: bool = False) -> float:
    """Returns the largest difference relative to the largest number, over all arrays.

    In each array, rounding to its type explains a difference of one step, which does not count.

    Args:
      found: the results.
      wanted: arrays of the same shapes.
      narrow: take the root mean square of an array, not its largest number.
    """

    def size(array: np.ndarray) -> float:
        peak = float(np.max(array, initial=0.0))
        return float(np.sqrt(np.mean(array**2))) if narrow and 0 < peak < np.inf else peak

    most = 0.0
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        step = float(jnp.finfo(one.dtype).eps) if jnp.issubdtype(one.dtype, jnp.floating) else 0.0
        one, other = (np.asarray(array).astype(np.float64) for array in (one, other))
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        apart = np.nan_to_num(np.abs(np.where(same, 0, one) - np.where(same, 0, other)), nan=np.inf)
        most = max(most, size(apart) / (size(np.abs(other[np.isfinite(other)])) or 1.0) - step)
    return most


def _milliseconds(programs: Mapping[str, Program], inputs: Sequence[Any]) -> dict[str, float]:
    """Times programs in turn, and returns the median of each."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    end = time.monotonic() + _SECONDS
    for turn in range(_TURNS[1]):
        if turn >= _TURNS[0] and time.monotonic() > end:
            break
        for name in list(programs)[:: 1 if turn % 2 else -1]:
            # In the first of two runs, the arrays are not in the cache and the threads are asleep.
            times[name].append(min(_seconds(programs[name], inputs) for _ in range(2)))
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def _seconds(program: Program, inputs: Sequence[Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(program(*inputs))
    return time.perf_counter() - start


def _kept(text: str) -> Path:
    """Returns the file of a program's times on this processor with this version of jaxlib."""
    text = re.sub(r"0x[0-9a-f]+", "", text)  # addresses of Python's objects
    about = [str(_VERSION), version("jaxlib"), *of_platform("cpu"), text]
    return database.folder() / "onednn" / f"{hashlib.sha256(repr(about).encode()).hexdigest()}.json"


def _remembered(path: Path) -> dict[str, float]:
    """Reads the times of a program's forms; empty if none are stored."""
    try:
        times = json.loads(path.read_bytes())
        return {name: float(times[name]) for name in ("xla", "onednn")}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, LookupError, TypeError) as error:
        warnings.warn(f"{path} cannot be read and is not used: {error!r}", stacklevel=3)
        return {}


def _remember(path: Path, times: Mapping[str, float]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(path, json.dumps(dict(times)))
    except OSError as error:
        warnings.warn(f"the times of a program's forms are not kept: {error}", stacklevel=3)


_lock = threading.Lock()


@contextlib.contextmanager
def _not_stored() -> Iterator[None]:
    """Keeps programs out of the persistent cache, which cannot write those of oneDNN."""
    name = "jax_persistent_cache_min_compile_time_secs"
    with _lock:
        before = jax.config.values[name]
        jax.config.update(name, float("inf"))
        try:
            yield
        finally:
            jax.config.update(name, before)
