"""Runs a console: binds the port, compiles, serves, and shuts down gracefully."""

import contextlib
import dataclasses
import gc
import ipaddress
import math
import os
import resource
import secrets
import signal
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import uvicorn

from jaxatr.serving.app import build_app
from jaxatr.serving.connections import bounded
from jaxatr.serving.console import Console
from jaxatr.serving.engine import Engine
from jaxatr.serving.options import Limits, Options
from jaxatr.serving.served_run import Wanted, load_detector, load_engine

VARIABLE = "JAXATR_TOKEN"
"""Environment variable of the token."""

_SHORTEST = 16

_FILES = 128  # descriptors of a console other than those of connections

_SWITCH_SECONDS = 3e-4  # Python's default lets a batch wait 5 ms for the interpreter lock


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_for(host: str, file: str | None) -> tuple[str, bool]:
    """Finds the token that requests need.

    Args:
      host: address to listen on. If other machines can reach it, there is always a token.
      file: file with the token; None for the environment variable ``JAXATR_TOKEN`` or, if it is not
        set, a random token.

    Returns:
      The token, empty for none, and whether it was randomly generated.

    Raises:
      ValueError: the token is too short, not ASCII or contains a space.
      OSError: the file cannot be read.
    """
    origin = f"--token_file={file}" if file else VARIABLE
    text = os.environ.get(VARIABLE, "")
    if file:  # without a byte order mark; bytes that are not UTF-8 are refused as not ASCII
        text = Path(file).read_text(encoding="utf-8-sig", errors="replace")
    token = text.strip()
    if not token and not file:
        drawn = not is_loopback(host)
        return (secrets.token_urlsafe(24) if drawn else ""), drawn
    if len(token) < _SHORTEST or not (token.isascii() and token.isprintable()) or " " in token:
        raise ValueError(
            f"{origin}: got {len(token)} characters, wanted at least {_SHORTEST} of ASCII, without "
            "a space"
        )
    return token, False


def serve(wanted: Wanted, options: Options, *, tell_token: bool = False) -> None:
    """Serves a run until the process receives SIGTERM or SIGINT.

    It then stops accepting connections, answers the requests in progress, and returns. Requests
    that are not done within ``limits.drain_seconds`` are refused, and an enrolment that is not done
    by then has no effect; the process then ends here.

    Args:
      wanted: the run to serve; it is loaded after the port is bound.
      options: options of the console.
      tell_token: print the token as part of the address.

    Raises:
      ValueError: the run cannot be served with these options, or the certificate cannot be used.
      OSError: the address cannot be bound.
    """
    _check_certificate(options)
    options = dataclasses.replace(options, limits=within_descriptors(options.limits))
    with _bound(options) as listening:
        engine, detector, start = load_engine(wanted), load_detector(wanted), time.monotonic()
        console = Console(engine, options, wanted, detector)
        print(f"compiling for batches of {', '.join(map(str, options.batches))}", flush=True)
        engine.warm(options.batches)
        console.scenes.warm()
        print(f"ready after {time.monotonic() - start:.1f} s: {engine.kind}, ", end="")
        print(f"{len(engine.classes)} classes, step {engine.step}")
        for line in filter(None, (engine.note, _missing(engine))):
            print(line, file=sys.stderr)
        listening.listen(options.limits.connections)  # clients can connect once the line is printed
        print(f"console: {_address(listening, options, tell_token)}", flush=True)
        with tuned_interpreter():
            dropped = _run(console, options, listening)
    left = f"requests without an answer: {dropped}" if dropped else "all requests are answered"
    print(f"stopped: {left}", flush=True)
    if not console.idle:
        # Python would wait for a thread that decodes, or end in the middle of one that compiles.
        os._exit(0)


def within_descriptors(limits: Limits) -> Limits:
    """Makes the connections fit into the descriptors of the process.

    Without one left, clients would be reset instead of answered, and no file could be read. The
    process may raise its soft limit, often 1024, up to the hard one; if that is too low, fewer
    connections are accepted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + _FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return dataclasses.replace(limits, connections=max(1, min(wanted, soft) - _FILES))


@contextlib.contextmanager
def tuned_interpreter() -> Iterator[None]:
    """Makes Python serve requests faster.

    The compute thread and the event loop exchange the interpreter lock more often. The garbage
    collector skips the objects of the libraries and the run: they live as long as the process, and
    visiting them takes as long as answering many requests.
    """
    interval = sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.unfreeze()


def _run(console: Console, options: Options, listening: socket.socket) -> int:
    """Serves until a signal; returns the number of requests that were cancelled then."""
    limits, app = options.limits, build_app(console)

    class Server(uvicorn.Server):
        """A server whose signals also start the time for the enrolment in progress."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            console.stop()
            super().handle_exit(sig, frame)

    server = Server(
        uvicorn.Config(
            app,
            http=bounded(limits),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=math.ceil(limits.drain_seconds),
            backlog=limits.connections,
            ssl_certfile=options.certificate or None,
            ssl_keyfile=options.key or None,
        )
    )
    # uvicorn raises the signal again after its shutdown, which must not end the process.
    ended = {number: signal.signal(number, _ignore) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.run(sockets=[listening])
    finally:
        for number, before in ended.items():
            signal.signal(number, before)
    return app.dropped


def _check_certificate(options: Options) -> None:
    """Checks the certificate and its key before the slow parts of the start.

    Raises:
      ValueError: they cannot be used; the message names them.
    """
    if not options.certificate:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            options.certificate, options.key or None
        )
    except OSError as error:  # those of ssl are subclasses
        key = f" with the key {options.key}" if options.key else ", which must contain the key"
        reason = error.strerror or error
        raise ValueError(f"--certificate={options.certificate}{key}: {reason}") from error


def _ignore(number: int, frame: object) -> None:
    del number, frame


def _bound(options: Options) -> socket.socket:
    """Binds the port, before the slow parts of the start."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((options.host, options.port))
    except OSError as error:
        taken.close()
        reason = error.strerror or error
        raise OSError(f"cannot listen on {options.host}:{options.port}: {reason}") from error
    return taken


def _address(listening: socket.socket, options: Options, tell_token: bool) -> str:
    host, port = listening.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = socket.gethostname()
    scheme = "https" if options.certificate else "http"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}/" + (f"#token={options.token}" if tell_token else "")


def _missing(engine: Engine) -> str:
    return f"no nearest training chips: {engine.missing}" if engine.examples is None else ""
