"""A scope that keeps 64-bit types."""

import contextlib

import jax


def wide() -> contextlib.AbstractContextManager:
    """Returns a scope in which jax keeps 64-bit types, also under jit.

    >>> with wide():
    ...     jax.numpy.arange(2).dtype
    dtype('int64')
    """
    return jax.enable_x64(True)
