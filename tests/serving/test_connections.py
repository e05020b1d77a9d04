"""Real sockets: slow clients, huge bodies, overload and shutdown."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import json
import socket
import threading
import time

import pytest
import uvicorn
from uvicorn.server import ServerState

from jaxatr.serving.connections import bounded
from jaxatr.serving.engine import Engine
from jaxatr.serving.options import Limits

LIMITS = Limits(
    head_seconds=0.6,
    body_seconds=1.2,
    write_seconds=0.3,
    answer_seconds=20.0,
    connections=40,
    waiting=4,
    images=4,
)


class Gated(Engine):
    """A run's engine that answers once the test permits it."""

    def __init__(self, engine):
        self.__dict__.update(engine.__dict__)
        self.kind, self.inner = engine.kind, engine
        self.free, self.started = threading.Event(), threading.Event()
        self.free.set()

    def answer(self, chips, *, neighbours=False, scores=()):
        self.started.set()
        assert self.free.wait(30)
        return self.inner.answer(chips, neighbours=neighbours, scores=scores)


@pytest.fixture(scope="module")
def gated(engine):
    return Gated(engine)


@pytest.fixture(scope="module")
def port(gated, listening, tmp_path_factory):
    from jaxatr.serving.console import Console
    from jaxatr.serving.options import Options

    marks = str(tmp_path_factory.mktemp("marks") / "marks.jsonl")
    with listening(Console(gated, Options(batches=(1, 4), marks=marks, limits=LIMITS))) as port:
        yield port
        gated.free.set()


def head(length, path="/api/predict", kind="image/png"):
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Content-Type: {kind}",
        f"Content-Length: {length}",
    )
    return "\r\n".join((*lines, "", "")).encode()


@contextlib.contextmanager
def connected(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        yield connection


def answer_of(connection):
    """Reads one response: status, headers, body."""
    with connection.makefile("rb") as file:
        status = int(file.readline().split()[1])
        headers = {}
        while line := file.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        return status, headers, file.read(int(headers.get("content-length", 0)))


def ask(port, content):
    with connected(port) as connection:
        connection.sendall(head(len(content)) + content)
        return answer_of(connection)


def ends(connection):
    """Waits until the other side closes."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True


def test_a_request_is_answered(port, contents):
    status, headers, body = ask(port, contents[0])
    assert status == 200 and headers["content-type"] == "application/json"
    assert json.loads(body)["results"][0]["verdict"]["label"]


@pytest.mark.parametrize("start", [b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\nA: "])
def test_a_head_that_does_not_end_is_given_up(port, contents, start):
    with connected(port) as slow:
        slow.sendall(start)
        assert ask(port, contents[0])[0] == 200  # the others are answered meanwhile
        assert answer_of(slow)[0] == 408


def test_a_head_that_trickles_is_given_up(port):
    with connected(port) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                slow.sendall(b"a: b\r\n")
                time.sleep(0.02)
        assert ends(slow)


def test_a_second_head_that_does_not_end_is_given_up(port):
    with connected(port) as slow:
        slow.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer_of(slow)[0] == 200
        slow.sendall(b"GET /api/health HT")
        assert answer_of(slow)[0] == 408


def test_a_head_without_end_is_refused(port):
    with connected(port) as greedy:
        greedy.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                greedy.sendall(b"a: " + b"b" * 1000 + b"\r\n")
        with contextlib.suppress(ConnectionError):
            assert answer_of(greedy)[0] == 431


def test_a_long_head_in_one_piece_is_refused(port):
    lines = b"a: " + b"b" * 30_000 + b"\r\n"
    for count, status in ((1, 200), (4, 431)):
        with connected(port) as connection:
            start = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n"
            connection.sendall(start + lines * count + b"\r\n")
            assert answer_of(connection)[0] == status


class Unread(asyncio.Transport):
    """A transport with a client that reads nothing, or some of it."""

    def __init__(self, reads):
        super().__init__({"socket": socket.socket()})
        self.left, self.reads, self.aborted = 100_000, reads, False

    def get_write_buffer_size(self):
        self.left -= self.reads
        return max(self.left, 0)

    def abort(self):
        self.aborted = True

    def is_closing(self):
        return False

    def close(self):
        pass


@pytest.mark.parametrize(("reads", "given_up"), [(0, True), (1, False), (100_000, False)])
def test_a_client_that_reads_nothing_is_given_up(reads, given_up):
    async def main():
        config = uvicorn.Config(None, log_config=None)
        config.load()
        limits = dataclasses.replace(LIMITS, write_seconds=0.02)
        connection = bounded(limits)(config, ServerState(), {})
        transport = Unread(reads)
        connection.connection_made(transport)
        connection.pause_writing()
        await asyncio.sleep(0.2)
        connection.connection_lost(None)
        return transport.aborted

    assert asyncio.run(main()) == given_up


def test_few_requests_wait_for_the_answer_to_an_earlier_one(port, contents):
    line = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(port) as connection:
        connection.sendall(line * 10)
        connection.settimeout(2)
        received = b""
        while received.count(b"HTTP/1.1 200") < 10:
            received += connection.recv(65536)
    with connected(port) as greedy:
        greedy.sendall(line * 1024)
        received = b""
        with contextlib.suppress(ConnectionError):
            while more := greedy.recv(65536):
                received += more
        assert received.count(b"HTTP/1.1 200") <= 20 and b"HTTP/1.1 503" in received
    assert ask(port, contents[0])[0] == 200


def test_a_body_that_does_not_come_is_given_up(port, contents):
    with connected(port) as slow:
        slow.sendall(head(1000) + b"x" * 10)
        assert ask(port, contents[0])[0] == 200
        status, headers, _ = answer_of(slow)
        assert status == 408 and headers["connection"] == "close" and ends(slow)


def test_a_body_that_is_too_large_is_not_read(port, contents):
    with connected(port) as greedy:
        greedy.sendall(head(1 << 30))
        status, headers, _ = answer_of(greedy)
        assert status == 413 and headers["connection"] == "close"
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 1 << 28:
                sent += greedy.send(b"x" * (1 << 20))
        assert sent < 1 << 26  # what the system's buffers hold
    assert ask(port, contents[0])[0] == 200


def test_a_client_that_is_not_heard_of_again_leaves_nothing(port, gated, contents):
    gated.free.clear()
    gated.started.clear()
    with connected(port) as first, connected(port) as gone:
        first.sendall(head(len(contents[0])) + contents[0])
        assert gated.started.wait(10)
        gone.sendall(head(len(contents[1])) + contents[1])
        until(lambda: health(port)["waiting"] == 1)
        gone.close()
        time.sleep(0.2)
        gated.free.set()
        assert answer_of(first)[0] == 200
    until(lambda: health(port)["waiting"] == 0)


def test_an_upload_that_is_broken_off_is_no_internal_error(port, caplog):
    def count(status):
        with connected(port) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            text = answer_of(connection)[2].decode()
        name = f'jaxatr_requests_total{{route="/api/predict",status="{status}"}}'
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    before = count(499)
    with connected(port) as broken:
        broken.sendall(head(1000) + b"x" * 10)
        time.sleep(0.2)
    until(lambda: count(499) + count(500) > before)
    assert count(500) == 0 and not [one for one in caplog.records if one.exc_info]


def health(port):
    with connected(port) as connection:
        connection.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return json.loads(answer_of(connection)[2])


def until(true, seconds=10):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_overload_is_reported_and_passes(port, gated, contents):
    gated.free.clear()
    gated.started.clear()
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        first = pool.submit(ask, port, contents[0])
        assert gated.started.wait(10)
        asked = [pool.submit(ask, port, content) for content in contents[:19]]
        until(lambda: sum(one.done() for one in asked) >= 15)
        refused = [one.result() for one in asked if one.done()]
        assert {status for status, _, _ in refused} == {503}
        for _, headers, body in refused:
            assert int(headers["retry-after"]) >= 1
            assert "chips are waiting" in json.loads(body)["detail"]
        assert health(port)["status"] == "ready"  # and not only for those who wait
        gated.free.set()
        assert first.result()[0] == 200
        assert [one.result()[0] for one in asked].count(200) == 4
    assert ask(port, contents[0])[0] == 200


def test_connections_are_bounded(port, contents):
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected(port)) for _ in range(LIMITS.connections)]
        with connected(port) as more:
            status, headers, _ = answer_of(more)
            assert status == 503 and headers["retry-after"] == "1"
        assert [answer_of(one)[0] for one in idle].count(408) == len(idle)
    until(lambda: ask(port, contents[0])[0] == 200)


def test_nonsense_is_refused(port, contents):
    for nonsense in (
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"\0" * 100,
        b"POST / HTTP/9.9\r\n\r\n",
    ):
        with connected(port) as connection:
            connection.sendall(nonsense)
            assert ends(connection)
    assert ask(port, contents[0])[0] == 200
