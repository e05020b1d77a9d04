"""Training on one device, several devices and several processes agrees up to rounding."""

import signal
import socket
import time

import numpy as np
import pytest

from jaxatr import training

pytestmark = pytest.mark.slow

EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}


def losses(workdir):
    return [record["loss"] for record in training.read_metrics(workdir) if "loss" in record]


@pytest.mark.parametrize("devices", [pytest.param(2, marks=pytest.mark.slow), 8])
def test_devices_agree(start, finish, unbroken_program, tmp_path, devices):
    # Sixteen examples, a third of them masked out: the devices' counts differ.
    output = finish(start(tmp_path, EIGHT, devices=devices))
    assert "Warning" not in output
    assert len(losses(tmp_path)) == 20
    np.testing.assert_allclose(losses(tmp_path), losses(unbroken_program.workdir), atol=1e-4)
    check_parameters(tmp_path, unbroken_program.final)


def check_parameters(workdir, expected):
    final = np.load(workdir / "final.npz")
    for name in expected:
        np.testing.assert_allclose(final[name], expected[name], atol=1e-4, err_msg=name)


def start_two(start, workdir, environments=({}, {}), **options):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    common = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2"}
    return [
        start(workdir, common | {"JAX_PROCESS_ID": str(index)} | own, **options)
        for index, own in enumerate(environments)
    ]


def test_two_processes_agree_with_one(start, finish, unbroken_program, tmp_path):
    for process in start_two(start, tmp_path):
        finish(process)
    np.testing.assert_allclose(losses(tmp_path), losses(unbroken_program.workdir), atol=1e-4)
    check_parameters(tmp_path, unbroken_program.final)
    assert training.read_record(tmp_path)["device"]["processes"] == 2


@pytest.mark.slow
def test_two_processes_use_the_kernels_that_the_first_has_found(
    start, finish, unbroken_program, tmp_path
):
    caches = [tmp_path / "first", tmp_path / "second"]
    environments = [{"JAXATR_CACHE": str(cache)} for cache in caches]
    for process in start_two(start, tmp_path / "run", environments, find=1):
        finish(process)
    np.testing.assert_allclose(
        losses(tmp_path / "run"), losses(unbroken_program.workdir), atol=1e-4
    )
    assert training.read_record(tmp_path / "run")["kernels"]["train"]
    assert list(caches[0].glob("tuned/*.json")) and not caches[1].exists()


@pytest.mark.slow
def test_two_processes_stop_together_and_go_on(start, finish, unbroken_program, tmp_path):
    processes = start_two(start, tmp_path, pause=0.2)
    while len(training.read_metrics(tmp_path)) < 7:
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    processes[1].send_signal(signal.SIGTERM)  # one is told, both stop at the same step
    outputs = [finish(process, code=75) for process in processes]
    assert outputs[0].splitlines()[-1] == outputs[1].splitlines()[-1]
    for process in start_two(start, tmp_path):
        finish(process)
    assert len(losses(tmp_path)) == 20
    check_parameters(tmp_path, unbroken_program.final)
