"""Memory on Linux: what a step frees is kept for the next one, and lies in huge pages."""

import ctypes
import mmap
import os
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # of glibc's malloc.h
_MADV_COLLAPSE = 25  # of Linux 6.1; an earlier one declines
_SAID_OTHERWISE = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
_kept = False  # by this process


def keep() -> bool:
    """Tells glibc to keep what is freed, in huge pages, for the arrays to come.

    Otherwise every temporary array beyond some megabytes comes from the system and goes back in
    each step, in pages of 4 KiB that the system first fills with zeros. In exchange the process
    keeps the memory of its largest step. The commands call this at their start, before NumPy and
    jax are imported: threads that are there already keep heaps of their own.

    Returns:
      Whether it did. Nothing is changed where the C library is not glibc, and where the environment
      says itself how memory is kept (``GLIBC_TUNABLES``, ``MALLOC_MMAP_MAX_`` and its like).
    """
    if "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    if any(name in os.environ for name in _SAID_OTHERWISE):
        return False
    libc = _glibc()
    if libc is None:
        return False
    if not (libc.mallopt(_M_MMAP_MAX, 0) and libc.mallopt(_M_TRIM_THRESHOLD, -1)):  # -1: never
        return False
    # The heaps of single threads are of 4 KiB pages: all take theirs from the one below.
    if "MALLOC_ARENA_MAX" not in os.environ:
        libc.mallopt(_M_ARENA_MAX, 1)
    _take_huge_pages(libc)
    global _kept
    _kept = True
    return True


def give_back() -> None:
    """Gives what is free back to the system, where the C library is glibc.

    For a process that has done something large once: what it needs again, it fetches anew, and
    keeps if it kept memory before.
    """
    libc = _glibc()
    if libc is None:
        return
    libc.malloc_trim(0)
    if _kept:  # the heap has become short, and what was used in part is in small pages
        _take_huge_pages(libc)
        _collapse(libc)


def _glibc() -> ctypes.CDLL | None:
    """Returns the C library of this process, if it is glibc."""
    try:
        os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError):  # Windows; another Unix
        return None
    return ctypes.CDLL(None)


def _take_huge_pages(libc: ctypes.CDLL) -> None:
    """Asks for huge pages in the part of the heap that arrays will lie in.

    Memory that is allocated and freed untouched is addresses alone: the heap has grown over them,
    and as nothing is handed back, what is allocated next comes from there.
    """
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.argtypes = (ctypes.c_void_p,)
    size = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE // 2
    start = libc.malloc(size)
    if start is None:  # the addresses are limited (ulimit -v)
        return
    _advise(libc, start, start + size, mmap.MADV_HUGEPAGE)
    libc.free(start)


def _collapse(libc: ctypes.CDLL) -> None:
    """Joins the pages of the heap to huge ones where any of them is in use, at once."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:  # there is no /proc
        return
    for line in lines:
        if line.endswith("[heap]"):
            start, _, stop = line.split()[0].partition("-")
            _advise(libc, int(start, 16), int(stop, 16), _MADV_COLLAPSE)


def _advise(libc: ctypes.CDLL, start: int, stop: int, advice: int) -> None:
    """Gives the system advice on whole pages, which it may decline."""
    libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    if stop > first:
        libc.madvise(first, stop - first, advice)
