"""Calls that XLA does not inline, to limit fusion on XLA:CPU."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax

from jaxatr.jax_internals import set_xla_metadata


def not_inlined(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``fn`` in a call that XLA does not inline, for code that is lowered for CPU only.

    XLA:CPU fuses cheap operations into every operation that reads them, and so computes them as
    often as they are read; ``optimization_barrier`` does not prevent it. The arguments and results
    of a call are computed once, and equal calls are compiled once.
    """
    compiled = jax.jit(fn)

    def call(*arguments: Any) -> Any:
        with set_xla_metadata(inlineable="false"):
            return compiled(*arguments)

    return call


def outlined(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``fn`` as :func:`not_inlined` does on CPU, and leaves it unchanged elsewhere.

    >>> float(outlined(lambda x: 2 * x)(3.0))
    6.0
    """
    call = not_inlined(fn)

    @wraps(fn)
    def chosen(*arguments: Any) -> Any:
        return jax.lax.platform_dependent(*arguments, cpu=call, default=fn)

    return chosen
