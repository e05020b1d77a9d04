"""Memory settings for Linux: glibc keeps freed memory for reuse, in huge pages."""

import ctypes
import mmap
import os
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # from glibc's malloc.h
_MADV_COLLAPSE = 25  # since Linux 6.1; earlier kernels return an error, which is ignored
_USER_SETTINGS = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
_kept = False  # whether keep() has taken effect in this process


def keep() -> bool:
    """Makes glibc keep freed memory, in huge pages, for later arrays.

    By default, glibc requests each temporary array beyond a few megabytes from the kernel and
    returns it in every step, in 4 KiB pages that the kernel first fills with zeros. With this
    setting the process keeps as much memory as its largest step needed. The commands call this
    first, before they import NumPy and jax: threads that already run keep separate heaps.

    Returns:
      Whether the setting was changed. It is not if the C library is not glibc, or if the
      environment already configures malloc (``GLIBC_TUNABLES``, ``MALLOC_MMAP_MAX_``,
      ``MALLOC_MMAP_THRESHOLD_`` or ``MALLOC_TRIM_THRESHOLD_``).
    """
    if "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    if any(name in os.environ for name in _USER_SETTINGS):
        return False
    libc = _glibc()
    if libc is None:
        return False
    if not (libc.mallopt(_M_MMAP_MAX, 0) and libc.mallopt(_M_TRIM_THRESHOLD, -1)):  # -1: never
        return False
    # Per-thread heaps have 4 KiB pages: all threads share the main heap, set up below.
    if "MALLOC_ARENA_MAX" not in os.environ:
        libc.mallopt(_M_ARENA_MAX, 1)
    _take_huge_pages(libc)
    global _kept
    _kept = True
    return True


def give_back() -> None:
    """Returns free memory to the kernel if the C library is glibc; otherwise does nothing.

    For a process that has finished a large one-off computation. If :func:`keep` is in effect, it
    stays so for memory allocated later.
    """
    libc = _glibc()
    if libc is None:
        return
    libc.malloc_trim(0)
    if _kept:  # trimming has shortened the heap and split partly used huge pages
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
    """Requests huge pages for the part of the heap that future arrays will use.

    A large block that is allocated and freed untouched takes address space but no memory. It
    extends the heap, and because nothing is returned to the kernel, later arrays come from it.
    """
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.argtypes = (ctypes.c_void_p,)
    size = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE // 2
    start = libc.malloc(size)
    if start is None:  # the address space is limited (ulimit -v)
        return
    _advise(libc, start, start + size, mmap.MADV_HUGEPAGE)
    libc.free(start)


def _collapse(libc: ctypes.CDLL) -> None:
    """Merges the used pages of the heap into huge pages immediately."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:  # there is no /proc
        return
    for line in lines:
        if line.endswith("[heap]"):
            start, _, stop = line.split()[0].partition("-")
            _advise(libc, int(start, 16), int(stop, 16), _MADV_COLLAPSE)


def _advise(libc: ctypes.CDLL, start: int, stop: int, advice: int) -> None:
    """Calls ``madvise`` on the whole pages of a range; errors are ignored."""
    libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    if stop > first:
        libc.madvise(first, stop - first, advice)
