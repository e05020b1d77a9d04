"""A process keeps freed memory unless configured otherwise; each case in a separate process."""

import os
import platform
import subprocess
import sys

import pytest

# An array that is freed and asked for again: how many pages did the second one fault in?
PROGRAM = """
import resource, sys
from jaxatr import memory

kept = sys.argv[1] != "leave" and memory.keep()
array = b"1" * (256 << 20)
del array
if sys.argv[1] == "give back":
    memory.give_back()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
array = b"1" * (256 << 20)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


def output(program, *arguments, **environment):
    """Runs a program in an environment without settings of malloc; returns its output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    clean.pop("GLIBC_TUNABLES", None)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def run(argument, **environment):
    kept, faults = output(PROGRAM, argument, **environment).split()
    return kept == "True", int(faults)


@glibc
def test_freed_memory_is_used_by_the_next_array():
    kept, faults = run("keep")
    assert kept and faults < 64
    assert run("leave")[1] >= 128  # pages, if they are as large as 2 MiB


@glibc
def test_free_memory_can_be_given_back():
    assert run("give back")[1] >= 128


# Aligned arrays, one after the other; during each, smaller ones that stay are allocated.
REPEATED = """
import ctypes, sys
from jaxatr import memory

memory.keep()
size, libc = 96 << 20, ctypes.CDLL(None)
libc.free.argtypes = (ctypes.c_void_p,)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
# What imports left free could take the smaller arrays, and nothing would lie beyond a large one.
filling = [bytearray(1 << 20) for _ in range(64)]
if sys.argv[1] == "reserve":
    memory.reserve(size)
# A thread keeps seven small pieces of each size, as in a process that has run for a while, so that
# what is cut off an array joins the free memory.
for piece in [libc.malloc(count) for count in range(16, 160, 16) for _ in range(16)]:
    libc.free(piece)
libc.malloc((1 << 20) + int(sys.argv[2]))  # where a piece begins decides what is cut off
places, others = [], []
for _ in range(8):
    place = ctypes.c_void_p()
    libc.posix_memalign(ctypes.byref(place), ctypes.c_size_t(64), ctypes.c_size_t(size))
    others.append(bytearray(1 << 20))
    places.append(place.value)
    libc.free(place)
print(max(places) - min(places))
"""


@glibc
def test_an_array_that_is_allocated_again_has_the_memory_of_the_one_before():
    reserved, kept = (
        [int(output(REPEATED, how, str(offset))) for offset in (0, 16, 32, 48)]
        for how in ("reserve", "keep")
    )
    assert max(reserved) < 1 << 16
    assert max(kept) > 96 << 20


HEAPS = """
import ctypes, os, sys, threading
from jaxatr import memory

memory.keep(one_heap=sys.argv[1] == "one")
libc, count = ctypes.CDLL(None), os.cpu_count() + 2
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
all_have, over = threading.Barrier(count + 1), threading.Event()


def allocate():
    libc.malloc(4096)
    all_have.wait()
    over.wait()


threads = [threading.Thread(target=allocate) for _ in range(count)]
for thread in threads:
    thread.start()
all_have.wait()
libc.malloc_stats()  # to the standard error
over.set()
"""


@glibc
@pytest.mark.parametrize(("asked", "heaps"), [("one", 1), ("more", 1 + (os.cpu_count() or 1))])
def test_threads_share_one_heap_or_have_one_more_for_each_core(asked, heaps):
    program = "import os\nos.dup2(1, 2)\n" + HEAPS
    assert output(program, asked).count("Arena ") == heaps


ENDING = """
import atexit, gc

atexit.register(lambda: print(gc.get_freeze_count() > 1000))
from jaxatr import memory

memory.collect_rarely()
objects = [[] for _ in range(5000)]
print(gc.get_count()[0] > 5000, gc.get_freeze_count())
"""


def test_the_end_of_a_process_looks_for_no_garbage():
    assert output(ENDING).split() == ["True", "0", "True"]


@glibc
@pytest.mark.parametrize(
    "environment",
    [
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=65536"},
        {"MALLOC_MMAP_MAX_": "65536"},
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
    ],
)
def test_the_environments_settings_are_left_alone(environment):
    assert not run("keep", **environment)[0]


@glibc
def test_a_limit_on_addresses_is_not_a_failure():
    limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))\n"
    program = limited + "from jaxatr import memory; print(memory.keep())"
    assert output(program) == "True\n"


def test_another_c_library_is_left_alone(monkeypatch):
    from jaxatr import memory

    def unknown(name):
        raise ValueError(name)

    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(os, "confstr", unknown)
    assert not memory.keep()
    memory.give_back()
