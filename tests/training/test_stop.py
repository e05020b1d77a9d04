"""Stopping on signals."""

import signal
import threading

import pytest

from jaxatr.training.stop import EXIT_PREEMPTED, Stopped, StopRequest, stopping_at_once


@pytest.fixture
def interruptible():
    """Installs Python's SIGINT handler, which processes started in the background lack."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_is_heard_and_the_second_acts(interruptible):
    with StopRequest() as request:
        assert not request.heard
        signal.raise_signal(signal.SIGINT)
        assert request.heard
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_second_signal_of_another_kind_acts_too(interruptible):
    with StopRequest() as request:
        signal.raise_signal(signal.SIGTERM)
        assert request.heard
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_training_without_anything_to_save_ends_at_once(interruptible, number):
    before = signal.getsignal(number)
    with pytest.raises(Stopped, match="the training is saved") as caught, stopping_at_once():
        signal.raise_signal(number)
        raise AssertionError("it went on")
    assert caught.value.exit_code == EXIT_PREEMPTED
    assert signal.getsignal(number) is before
    with stopping_at_once(), StopRequest() as request:  # a training inside still saves
        signal.raise_signal(number)
        assert request.heard


def test_another_thread_hears_nothing():
    before = signal.getsignal(signal.SIGTERM)

    def listen():
        with StopRequest() as request:
            heard.append(signal.getsignal(signal.SIGTERM) is before and not request.heard)

    heard = []
    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert heard == [True]


@pytest.mark.parametrize("context", [StopRequest, stopping_at_once])
def test_a_handler_that_is_not_pythons_stays(interruptible, monkeypatch, context):
    ours, getsignal = signal.getsignal(signal.SIGINT), signal.getsignal
    foreign = signal.SIGINT  # as in a program that embeds Python
    monkeypatch.setattr(signal, "getsignal", lambda n: None if n == foreign else getsignal(n))
    terminate = getsignal(signal.SIGTERM)
    with context():
        assert getsignal(signal.SIGINT) is ours
        assert getsignal(signal.SIGTERM) is not terminate
    assert getsignal(signal.SIGINT) is ours and getsignal(signal.SIGTERM) is terminate
