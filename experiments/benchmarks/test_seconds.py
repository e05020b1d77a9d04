"""A pytest plugin that records the CPU seconds of each test file, including child processes.

Unlike wall-clock time, CPU time hardly depends on the machine's load.

Run: TEST_SECONDS=out.json PYTHONPATH=experiments/benchmarks pytest -p test_seconds
"""

import collections
import json
import os
import resource
from pathlib import Path

import pytest

_seconds: dict[str, float] = collections.defaultdict(float)
_tests: collections.Counter[str] = collections.Counter()


def _used() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Adds the CPU time of a test to its file."""
    before = _used()
    yield
    name = item.nodeid.split("::")[0]
    _seconds[name] += _used() - before
    _tests[name] += 1


def pytest_sessionfinish():
    """Adds this process's files to the record; each worker process has its own files."""
    if not _seconds:
        return
    path = Path(os.environ["TEST_SECONDS"]).with_suffix(
        f".{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.json"
    )
    rows = {name: [round(_seconds[name], 2), _tests[name]] for name in sorted(_seconds)}
    path.write_text(json.dumps(rows, indent=1) + "\n")
