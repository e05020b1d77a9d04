"""Whole training steps and inference of every configuration, on one device and on several."""

import itertools

import described
import program_reports
import pytest
import steps

PLATFORMS = ("cuda", "tpu")
FAST = ("cbc", "bfloat16", "h200")
EVERY = list(itertools.product(steps.CONFIGS, steps.DTYPES, described.DEVICES))


@pytest.fixture(autouse=True, scope="module")
def cleared_caches():
    """Clears the caches of tasks and batches, which other modules must not share."""
    steps.task_of.cache_clear()
    yield
    steps.task_of.cache_clear()
    steps.batch_of.cache_clear()


# libtpu 0.0.42.1 crashes the process: its compiler recurses until the stack overflows.
OVERFLOWS = ("cbc", "bfloat16", "v6e")


def slow(case):
    if case == FAST:
        return case
    overflows = [pytest.mark.xfail(run=False, reason="libtpu's compiler crashes")]
    return pytest.param(*case, marks=[pytest.mark.slow, *(overflows if case == OVERFLOWS else [])])


@pytest.mark.parametrize(("config", "dtype", "device"), list(map(slow, EVERY)))
def test_a_step_fits_and_talks_to_nobody(config, dtype, device):
    task, (first, *_) = steps.task_of(config, dtype), described.devices(device)
    for phase in task.phases:
        program = steps.training_step(task, phase, [first])
        assert 0 < program_reports.memory(program) <= described.DEVICES[device].memory
        assert not program_reports.collectives(program)
        calls = program_reports.custom_calls(program)
        if device in ("h100", "h200"):
            convolutions = sum(n for name, n in calls.items() if name.startswith("__cudnn$conv"))
            assert convolutions >= 3  # at least one per direction
    program = steps.inference(task, first)
    assert 0 < program_reports.memory(program) <= described.DEVICES[device].memory
    assert not program_reports.collectives(program)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("device", ["h200", "v5e"])
@pytest.mark.parametrize("config", steps.CONFIGS)
def test_devices_sum_and_do_nothing_else(config, device, count):
    """Data parallelism sums gradients, metrics and batch statistics, and needs nothing else."""
    task = steps.task_of(config, "bfloat16")
    for phase in task.phases:
        program = steps.training_step(task, phase, described.devices(device)[:count])
        found = program_reports.collectives(program)
        assert set(found) == {"all-reduce"}, found
