"""The flag --device."""

import os
import sys
from types import SimpleNamespace

import pytest

from jaxatr.cli import devices


@pytest.fixture
def jax(monkeypatch):
    """A jax that records its platforms, and finds two devices of those that it has."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("JAX_NUM_PROCESSES", raising=False)
    set_to = {}

    def found():
        platform = set_to["jax_platforms"].partition(",")[0]
        if platform == "tpu":
            raise RuntimeError("Unable to initialize backend")
        return [SimpleNamespace(platform="gpu" if platform == "cuda" else platform)] * 2

    made = SimpleNamespace(config=SimpleNamespace(update=set_to.__setitem__), devices=found)
    monkeypatch.setitem(sys.modules, "jax", made)
    return set_to


@pytest.mark.parametrize(
    ("device", "platforms", "visible"),
    [("cpu", "cpu", None), ("cuda", "cuda,cpu", None), ("0,1", "cuda,cpu", "0,1")],
)
def test_devices_are_chosen_before_jax_starts(jax, device, platforms, visible):
    devices.use(device)
    assert jax["jax_platforms"] == os.environ["JAX_PLATFORMS"] == platforms
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible


def test_numbers_count_the_devices_that_a_scheduler_has_left(jax, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    devices.use("1")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "6"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    with pytest.raises(ValueError, match="--device=2: there is no GPU 2"):
        devices.use("2")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "--device: got 'gpu', wanted cpu, cuda, tpu, or numbers of GPUs such as 0,1"),
        ("", "--device: got ''"),
        ("0,", "--device: got '0,'"),
        ("0,0", "--device=0,0: a number is given twice"),
        ("0,1,2", "--device=0,1,2: got 3 numbers of GPUs, and jax finds 2"),
        ("tpu", r"--device=tpu: jax finds no such device, .*: pip install 'jaxatr\[tpu\]'"),
    ],
)
def test_a_device_that_is_not_there_is_named(jax, device, message):
    with pytest.raises(ValueError, match=message):
        devices.use(device)


def test_the_cpu_does_not_stand_in_for_a_gpu(jax, monkeypatch):
    only = [SimpleNamespace(platform="cpu")]  # what jax finds for cuda,cpu without the plug-in
    monkeypatch.setattr(sys.modules["jax"], "devices", lambda: only)
    for device in ("cuda", "0"):
        with pytest.raises(
            ValueError, match=f"--device={device}: jax finds no such device, .*cuda"
        ):
            devices.use(device)
    devices.use("cpu")


def test_several_processes_join_before_jax_starts(jax, monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    devices.use("tpu")  # which is checked when jax starts
    assert os.environ["JAX_PLATFORMS"] == "tpu,cpu"
