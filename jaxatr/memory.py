"""Memory of a process: on Linux, freed memory is kept for the next step, in huge pages."""

import atexit
import ctypes
import gc
import mmap
import os
from pathlib import Path

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_MADV_COLLAPSE = 25  # since Linux 6.1; earlier kernels return an error
_USER_SETTINGS = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
_RESERVE = 256 << 20  # bytes left free for other arrays than a large one

_kept = False  # whether keep() has succeeded in this process


def keep(*, one_heap: bool = True) -> bool:
    """Configures glibc to keep freed memory for later arrays, in huge pages.

    By default every temporary array beyond some megabytes is requested from the system and returned
    to it in each step, in pages of 4 KiB that the system first fills with zeros. In exchange, the
    process keeps the memory of its largest step. The commands call this at startup, before NumPy
    and jax are imported, because existing threads keep their own heaps.

    Args:
      one_heap: all threads share the main heap, so that the arrays of each are in its huge pages.
        Otherwise there is a heap more for each core, and threads do not wait for one another while
        XLA compiles or a step runs. This is for a process whose main thread alone allocates large
        arrays, as one that trains does after :func:`jaxatr.parallel.compute_inline`.

    Returns:
      Whether glibc was configured. Nothing is changed if the C library is not glibc, or if the
      environment configures it already (``GLIBC_TUNABLES``, ``MALLOC_MMAP_MAX_``,
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
    # Other heaps than the main one have 4 KiB pages, and return what is larger than 64 MiB.
    if "MALLOC_ARENA_MAX" not in os.environ:
        libc.mallopt(_M_ARENA_MAX, 1 if one_heap else 1 + (os.cpu_count() or 1))
    _take_huge_pages(libc)
    global _kept
    _kept = True
    return True


def collect_rarely() -> None:
    """Makes Python look for garbage less often, and no longer when the process ends.

    Imports and traces make many objects and little garbage, so that collecting it as often as
    Python does by default delays the first step. At the end, the system takes the memory back
    at once, and Python would only walk through all objects first, several times.
    """
    gc.set_threshold(50_000, 10, 10)
    atexit.register(gc.freeze)  # registered early, so that it runs after the other functions


def give_back() -> None:
    """Returns free memory to the system, if the C library is glibc.

    Meant for use after a single large computation or a compilation. If :func:`keep` has succeeded,
    memory that the process allocates later is kept again. A compilation leaves objects all over the
    heap, which is merged into huge pages only where at least half of it is used, since they would
    take twice the heap's memory.
    """
    libc = _glibc()
    if libc is None:
        return
    libc.malloc_trim(0)
    if _kept:  # the heap has shrunk, and its partly used pages are small ones
        _take_huge_pages(libc)
        _collapse(libc)


def reserve(size: int) -> None:
    """Gives memory back, and readies the heap for an array that is allocated again and again.

    glibc cuts the ends off the memory of an aligned array. An array of the same size then does not
    fit there any more, unless the memory is the end of the heap, where everything free is one
    piece. So that nothing else lies beyond the array, a block that it does not fit into is left
    free before the end for other arrays. This needs :func:`keep`.

    Args:
      size: bytes of the array, such as a program's temporary memory.
    """
    give_back()
    libc, size = _glibc(), min(size * 3 // 4, _RESERVE)
    if libc is None or not _kept or not size:
        return
    # The second block stays, as a page that keeps the first one apart from the end.
    block, border = libc.malloc(size), libc.malloc(size)
    if border is not None:
        libc.realloc(border, mmap.PAGESIZE)
    if block is not None:
        libc.free(block)


def _glibc() -> ctypes.CDLL | None:
    """Returns the C library of this process with its functions' types, if it is glibc."""
    try:
        os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError):  # Windows; another Unix
        return None
    libc, address, size = ctypes.CDLL(None), ctypes.c_void_p, ctypes.c_size_t
    libc.malloc.restype = libc.realloc.restype = address
    libc.malloc.argtypes, libc.realloc.argtypes = (size,), (address, size)
    libc.free.argtypes = (address,)
    libc.mincore.argtypes = address, size, ctypes.c_char_p
    libc.madvise.argtypes = address, size, ctypes.c_int
    return libc


def _take_huge_pages(libc: ctypes.CDLL) -> None:
    """Requests huge pages for the part of the heap where arrays will be allocated.

    Allocating memory and freeing it untouched only reserves addresses. The heap has then grown over
    them, and since nothing is returned to the system, later allocations use these addresses.
    """
    size = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE // 2
    start = libc.malloc(size)
    if start is None:  # the addresses are limited (ulimit -v)
        return
    _advise(libc, start, start + size, mmap.MADV_HUGEPAGE)
    libc.free(start)


def _collapse(libc: ctypes.CDLL) -> None:
    """Merges the pages of the heap into huge pages at once, where half of them are used."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        huge = int(Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").read_text())
    except OSError:  # there is no /proc, or the system has no huge pages
        return
    used = ctypes.create_string_buffer(huge // mmap.PAGESIZE)
    for line in lines:
        if line.endswith("[heap]"):
            first, stop = (int(address, 16) for address in line.split()[0].split("-"))
            for start in range(-(-first // huge) * huge, stop - huge + 1, huge):
                libc.mincore(start, huge, used)
                if 2 * used.raw.count(1) >= len(used):
                    _advise(libc, start, start + huge, _MADV_COLLAPSE)


def _advise(libc: ctypes.CDLL, start: int, stop: int, advice: int) -> None:
    """Calls ``madvise`` on whole pages, ignoring errors."""
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    if stop > first:
        libc.madvise(first, stop - first, advice)
