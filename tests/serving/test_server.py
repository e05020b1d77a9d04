"""The command in a separate process: memory, signals, ports."""

import contextlib
import gc
import http.client
import io
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxatr.cli import serve
from jaxatr.cli.command import is_users
from jaxatr.serving import Options, server
from jaxatr.serving.served_run import Wanted
from jaxatr.serving.server import tuned_interpreter

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def started(run, networks, tmp_path, *arguments):
    """Starts ``jaxatr serve``; returns the process and its address."""
    path = os.pathsep.join([str(ROOT), str(networks), os.environ.get("PYTHONPATH", "")])
    compiled = str(tmp_path.parent / "xla-of-servers")  # by the first one, for all
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "jaxatr", "serve", f"--workdir={run}", "--port=0", "--trust"),
            *("--batches=1,4", "--method=none", "--examples=0"),
            *(f"--marks={tmp_path / 'marks.jsonl'}", *arguments),
        ],
        env=os.environ | {"PYTHONPATH": path, "JAXATR_COMPILATION_CACHE": compiled},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if found := re.match(r"console: \w+://[^:]+:(\d+)/(?:#token=(\S+))?", line):
                yield process, int(found[1]), found[2]
                break
        else:
            pytest.fail("".join(lines) + process.stderr.read())
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def process(trained_run, networks_of_the_tests, tmp_path_factory):
    with started(trained_run, networks_of_the_tests, tmp_path_factory.mktemp("server")) as found:
        yield found


def post(port, body, kind="image/png", host="127.0.0.1", **headers):
    connection = http.client.HTTPConnection(host, port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", "/api/predict", body, {"Content-Type": kind, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()


def bomb():
    """A picture of 10,000 x 10,000 pixels."""
    file = io.BytesIO()
    Image.fromarray(np.zeros((10_000, 10_000), np.uint8)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.slow
def test_harm_costs_bounded_memory(process, contents):
    """Many hostile requests at once: decompression bombs, large images, huge forms, a gigabyte."""
    running, port, _ = process
    assert post(port, contents[0])[0] == 200
    status = Path(f"/proc/{running.pid}/status")
    if not status.is_file():
        pytest.skip("this system does not tell a process's memory")

    def memory():
        return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status.read_text())[1])

    before, peak, done = memory(), 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, memory())

    large = io.BytesIO()
    Image.fromarray(np.zeros((4000, 4000), np.uint8)).save(large, "PNG")
    parts = b"".join(
        b'--cut\r\nContent-Disposition: form-data; name="a"; filename="b"\r\n\r\nx\r\n'
        for _ in range(100_000)
    )
    kind = "multipart/form-data; boundary=cut"
    harm = [
        (bomb(), "image/png", 422),
        (large.getvalue(), "image/png", 422),  # the chips have another size
        (parts + b"--cut--", kind, 400),
        (b"x" * (30 << 20), "application/octet-stream", 422),
    ]
    statuses = []

    def send(body, kind, wanted):
        statuses.append((post(port, body, kind)[0], wanted))

    watcher = threading.Thread(target=watch)
    watcher.start()
    threads = [threading.Thread(target=send, args=one) for one in harm * 3]
    for thread in threads:
        thread.start()
    answered = [post(port, content)[0] for content in contents]  # of other clients, meanwhile
    for thread in threads:
        thread.join()
    with contextlib.suppress(ConnectionError, BrokenPipeError):  # a gigabyte in pieces
        post(port, (b"x" * (1 << 20) for _ in range(1 << 10)))
    done.set()
    watcher.join()
    assert set(answered) == {200}
    # Where too much is held at once, a request is told to come again.
    assert all(status in (wanted, 503) for status, wanted in statuses)
    assert {status for status, _ in statuses} >= {422}
    assert peak - before < 600 << 20, f"{(peak - before) >> 20} MiB"


@pytest.mark.slow
def test_pending_requests_are_answered_after_sigterm(
    trained_run, networks_of_the_tests, tmp_path, contents
):
    content = contents[0]
    with started(trained_run, networks_of_the_tests, tmp_path) as (process, port, token):
        assert token is None
        head = f"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}"
        with socket.create_connection(("127.0.0.1", port), timeout=30) as half:
            half.sendall(f"{head}\r\nContent-Type: image/png\r\n\r\n".encode() + content[:50])
            idle = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            with contextlib.closing(idle):
                idle.request("GET", "/api/health")
                assert idle.getresponse().read()
                process.send_signal(signal.SIGTERM)
                assert idle.sock.recv(4096) == b""  # one that asks for nothing is closed
            with pytest.raises(ConnectionError):
                for _ in range(100):
                    socket.create_connection(("127.0.0.1", port)).close()
            half.sendall(content[50:])
            answer = b"".join(iter(lambda: half.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200") and b'"verdict"' in answer
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        assert "stopped: all requests are answered" in out
        assert "Traceback" not in err


@pytest.mark.slow
def test_requests_that_last_longer_than_the_drain_are_refused_and_counted(
    trained_run, networks_of_the_tests, tmp_path
):
    with started(trained_run, networks_of_the_tests, tmp_path, "--drain=0.5") as found:
        process, port, _ = found
        head = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=30) as half:
            half.sendall(head + b"Content-Type: image/png\r\n\r\nhalf")
            assert post(port, b"x")[0] == 422  # the other request is in progress by now
            process.send_signal(signal.SIGTERM)
            answer = b"".join(iter(lambda: half.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 503") and b"the server is stopping" in answer
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        assert out.strip().endswith("stopped: requests without an answer: 1")
        assert "Traceback" not in err


def test_a_certificate_that_cannot_be_used_is_named_at_once(tmp_path):
    (tmp_path / "cert.pem").write_text("no certificate")
    options = Options(certificate=str(tmp_path / "cert.pem"))
    with pytest.raises(ValueError, match=f"^--certificate={tmp_path}/cert.pem") as raised:
        server.serve(Wanted(tmp_path), options)  # before the run is loaded
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_others_need_a_token(trained_run, networks_of_the_tests, tmp_path, contents):
    with started(trained_run, networks_of_the_tests, tmp_path, "--host=0.0.0.0") as found:
        process, port, token = found
        assert len(token) >= 32
        assert post(port, contents[0])[0] == 401
        status, body = post(port, contents[0], Authorization=f"Bearer {token}")
        assert status == 200 and json.loads(body)["results"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.fixture
def command(networks_of_the_tests):
    """Runs ``jaxatr`` with arguments in a separate process."""

    def run(*arguments):
        path = os.pathsep.join([str(ROOT), str(networks_of_the_tests)])
        return subprocess.run(
            [sys.executable, "-m", "jaxatr", *map(str, arguments), "--trust"],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.mark.slow
def test_a_port_that_is_taken_is_reported(command, trained_run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = command("serve", f"--workdir={trained_run}", f"--port={port}")
    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        f"error: cannot listen on 127.0.0.1:{port}: Address already in use"
    )


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--batches=4,x", "--batches: got 4,x, wanted numbers"),
        ("--batches=0", "wanted ascending sizes"),
        ("--token_file=/nowhere/token", "/nowhere/token"),
        ("--key=key.pem", "--key needs --certificate"),
        ("--workdir=/nowhere", "/nowhere is not a run's folder"),
    ],
)
def test_a_mistake_is_named(flags_of, tmp_path, flag, words):
    with pytest.raises(Exception, match=words) as raised:
        serve.main(flags_of(serve, f"--workdir={tmp_path}", flag))
    assert is_users(raised.value) and "\n" not in str(raised.value)  # one line, exit code 2


def test_the_extra_is_named(monkeypatch, flags_of, tmp_path):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    arguments = flags_of(serve, f"--workdir={tmp_path}")
    with pytest.raises(ImportError, match=r"jaxatr serve needs the package .*jaxatr\[serve\]"):
        serve.main(arguments)


def test_the_command_imports_nothing_of_the_web():
    names = ("fastapi", "uvicorn", "starlette", "pydantic", "prometheus_client")
    script = f"import sys, jaxatr.cli.serve; print([n for n in {names} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.slow
def test_the_interpreter_is_as_before_after_serving():
    before = sys.getswitchinterval()
    with tuned_interpreter():
        assert sys.getswitchinterval() < before
        assert gc.get_freeze_count() > 0
    assert sys.getswitchinterval() == pytest.approx(before)
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (20_000, 20_000, 20_000, 1024),
        (1024, 4096, 1152, 1024),
        (1024, resource.RLIM_INFINITY, 1152, 1024),
        (256, 512, 512, 384),
        (64, 64, 64, 1),
    ],
)
def test_connections_fit_into_the_open_files(monkeypatch, soft, hard, raised, connections):
    held = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: held[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: held.append(both))
    assert server.within_descriptors(Options().limits).connections == connections
    assert held[-1] == (raised, hard)
