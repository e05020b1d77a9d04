# Written by `jaxatr convert export`.
"""HTTP server for one exported ONNX model, for use in a container without jaxatr.

    python server.py model.onnx     # serve on port $PORT, 8000 by default
    python server.py --check        # check the health of the server on this machine

POST /api/predict with an image file as the body returns the prediction as JSON. Requests need the
header "Authorization: Bearer TOKEN", except for GET /api/health. The token is $JAXATR_TOKEN; if it
is not set, a random one is generated and printed. SIGTERM stops the server, which answers the
requests in progress.
"""

import contextlib
import http.client
import json
import math
import os
import secrets
import signal
import socket
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else sent from onnxruntime 1.29 on

import numpy as np
import onnxruntime

from jaxatr.data.decoder import decode
from jaxatr.data.decoder.luma import gray

MOST_BYTES = 32 * 2**20
"""Largest size of an image file."""

MOST_PIXELS = 64 * 2**20
"""Largest number of pixels of an image."""

BEYOND = 1e38
"""Thresholds beyond this stand for infinity: exported files hold a large finite value instead."""

MOST_HELD = 256 * 2**20
"""Largest size of all image files that are being received or predicted."""

MOST_CONNECTIONS = 64
"""Largest number of connections, each of which has a thread; further ones get status 503.

Of those whose head is still to arrive, the oldest gives its place to a new one.
"""

MOST_AT_ONCE = 2
"""Largest number of images that are decoded and predicted at once."""

LONGEST_HEAD = 64 * 2**10
"""Largest size of a request's head."""

HEAD_SECONDS, BODY_SECONDS, TURN_SECONDS, WRITE_SECONDS = 10.0, 30.0, 10.0, 10.0
"""Time for a head and a body to arrive, to wait for a turn, and for the answer to be read."""

METHODS = {
    **dict.fromkeys(("/", "/api/health", "/api/model"), "GET, HEAD"),
    "/api/predict": "POST",
}
"""Methods that are answered at each path."""
_TYPES = {"tensor(uint8)": "uint8", "tensor(uint16)": "uint16", "tensor(float)": "float32"}


class Model:
    """An exported run.

    Attributes:
      metadata: the metadata stored in the file.
      classes: names of the known classes.
    """

    def __init__(self, path: str):
        """Loads the ONNX file at a path.

        Raises:
          ValueError: the model does not take single images with the channels last.
        """
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        texts = self._session.get_modelmeta().custom_metadata_map
        self.metadata = {name: _parsed(text) for name, text in texts.items()}
        self.classes = self.metadata.get("classes", [])
        (given, *more) = self._session.get_inputs()
        takes, layout = self.metadata.get("takes"), self.metadata.get("layout")
        single = not isinstance(given.shape[0], int) or given.shape[0] == 1
        if more or takes != "images" or layout != "NHWC" or not single:
            raise ValueError(
                f"{path}: wanted a jaxatr export with takes='images', layout='NHWC', batch=None"
            )
        self._input, self._type = given.name, _TYPES[given.type]
        self._shape = given.shape[1:]
        self._outputs = [output.name for output in self._session.get_outputs()]

    def __call__(self, content: bytes) -> dict[str, Any]:
        """Predicts an image.

        Returns:
          The decision as JSON values; the outputs by name if the model has no decision.

        Raises:
          ValueError: ``content`` is not an image that the model accepts.
        """
        bands = self.metadata.get("bands", {})
        options = {"phase": bands.get("phase", False), "names": bands.get("names", [])}
        image = self._fitting(decode(content, "the image", most=MOST_PIXELS, **options))
        values: Any = self._session.run(None, {self._input: image[None]})
        outputs = dict(zip(self._outputs, (value[0] for value in values), strict=True))
        if "threshold" not in outputs:  # no decision, or that of a detector, about many targets
            return {"outputs": {name: _finite(value) for name, value in outputs.items()}}
        decision, threshold = int(outputs["decision"]), float(outputs["threshold"])
        answer = {
            "label": "unknown" if decision < 0 else self.classes[decision],
            "nearest": self.classes[int(outputs["nearest"])],
            "score": _finite(outputs["score"]),
            "threshold": threshold if abs(threshold) < BEYOND else None,
            "decides": self.metadata.get("decides"),
            "probabilities": self._by_class(outputs["class_probabilities"]),
        }
        for name in ("known_probability", "p_value"):
            if name in outputs:
                answer[name] = _finite(outputs[name])
        if "guarantees" in self.metadata:
            answer["guarantee"] = self.metadata["guarantees"][int(outputs["nearest"])]
        if "class_distances" in outputs:
            answer["distances"] = self._by_class(outputs["class_distances"])
        return answer

    def _by_class(self, values: np.ndarray) -> dict[str, float | None]:
        return dict(zip(self.classes, _finite(values), strict=True))

    def _fitting(self, image: np.ndarray) -> np.ndarray:
        """Converts gray and colour to each other; raises ``ValueError`` on another mismatch."""
        if image.dtype != self._type:
            raise ValueError(f"got an image of {image.dtype}, wanted {self._type}")
        height, width, channels = self._shape
        chosen = "bands" in self.metadata.get("geometry", {})
        if (image.shape[2], channels) == (1, 3) and not chosen:
            image = np.repeat(image, 3, axis=2)
        elif (image.shape[2], channels) == (3, 1) and not chosen:
            image = gray(image)
        if image.shape[2] != channels:
            names = ", ".join(self.metadata.get("bands", {}).get("names", []))
            wanted = f"{channels} ({names})" if names else channels
            bands = "1 band" if image.shape[2] == 1 else f"{image.shape[2]} bands"
            raise ValueError(f"got an image of {bands}, wanted {wanted}")
        least = self.metadata.get("geometry", {}).get("center_crop", 0)
        if min(image.shape[:2]) < least:
            raise ValueError(f"got {image.shape[:2]} pixels, wanted at least {least} on each side")
        for got, wanted in zip(image.shape, (height, width), strict=False):
            if isinstance(wanted, int) and got != wanted:
                raise ValueError(f"got {image.shape[:2]} pixels, wanted {height} by {width}")
        return image


def _finite(values: Any) -> Any:
    """Converts numbers for JSON, which has no infinity."""
    found: Any = np.where(np.isfinite(values), values, None)
    return found.tolist()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class Server(ThreadingHTTPServer):
    """A server with bounds on the time, threads and memory that clients can use.

    A connection that does not get on by the time it is given is cut off.
    """

    request_queue_size = MOST_CONNECTIONS
    daemon_threads = False  # whose requests would end without an answer when the server stops

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]):
        """Listens on an address."""
        super().__init__(address, handler)
        self.turns = threading.Semaphore(MOST_AT_ONCE)
        self.working: dict[int, float] = {}  # when a thread began to predict
        self._places = threading.Semaphore(MOST_CONNECTIONS)
        self._due: dict[socket.socket, float] = {}
        self._without_head: dict[socket.socket, None] = {}  # the oldest first
        self._held, self._lock = 0, threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._cut_off_late, daemon=True).start()

    def give(self, connection: socket.socket, seconds: float) -> None:
        """Gives a connection some time from now on, or infinite time."""
        self._due[connection] = time.monotonic() + seconds

    def hold(self, size: int) -> bool:
        """Reserves memory for an image file, or releases it by a negative size."""
        with self._lock:
            if self._held + size > MOST_HELD:
                return False
            self._held += size
            return True

    @property
    def stuck(self) -> bool:
        """Whether no image has had a turn for too long."""
        starts = list(self.working.values())
        return len(starts) == MOST_AT_ONCE and time.monotonic() - max(starts) > TURN_SECONDS

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread for a connection if there is a place for it."""
        if self._places.acquire(blocking=False) or self._has_made_room():
            self._without_head[request] = None
            self.give(request, HEAD_SECONDS)
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.setblocking(False)
            request.sendall(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handles a connection in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.head_has_arrived(request)
            self._due.pop(request, None)
            self._places.release()

    def head_has_arrived(self, connection: socket.socket) -> None:
        """Lets a connection keep its place until it is answered."""
        self._without_head.pop(connection, None)

    def _has_made_room(self) -> bool:
        """Cuts off the oldest connection without a head, and takes its place.

        Else clients that send their heads slowly would keep out all others, and health checks.
        """
        waiting = list(self._without_head)  # a copy, as threads take connections out
        if not waiting:
            return False
        self.head_has_arrived(waiting[0])  # so that it is cut off once only
        _cut_off(waiting[0])
        return self._places.acquire(timeout=1)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says in one line why a connection has failed; most often it was cut off."""
        print(f"{client_address[0]}: {sys.exc_info()[1]!r}", file=sys.stderr, flush=True)

    def server_close(self) -> None:
        """Stops to listen, and waits for the requests in progress."""
        super().server_close()
        self._closed.set()

    def _cut_off_late(self) -> None:
        while not self._closed.wait(0.2):
            now = time.monotonic()
            for connection, due in list(self._due.items()):
                if now > due:
                    _cut_off(connection)


def _cut_off(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # closed meanwhile
        connection.shutdown(socket.SHUT_RDWR)


class _Head:
    """The lines of a request's head, up to a size."""

    def __init__(self, file: Any):
        self._file, self._left = file, LONGEST_HEAD

    def readline(self, size: int) -> bytes:
        line = self._file.readline(min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise http.client.LineTooLong("head")
        return line


class Handler(BaseHTTPRequestHandler):
    """Handles the request of one connection."""

    server_version, sys_version = "jaxatr", ""
    server: Server
    model: Model
    token: str

    def parse_request(self) -> bool:
        """Reads the head, within its limits."""
        file = self.rfile
        self.rfile: Any = _Head(file)
        try:
            return super().parse_request()
        finally:
            self.rfile = file
            self.server.head_has_arrived(self.connection)

    def do_HEAD(self) -> None:
        """Answers as to GET, without the body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answers health checks, and, with the token, requests for the model's metadata."""
        if self._place == "/api/health":
            stuck = self.server.stuck
            self._send(503 if stuck else 200, {"status": "stuck" if stuck else "ok"})
        elif self._may():
            if self._place in ("/", "/api/model"):
                self._send(200, self.model.metadata)
            else:
                self._refuse()

    def do_OPTIONS(self) -> None:
        """Answers methods that no path has."""
        if self._may():
            self._refuse()

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS

    @property
    def _place(self) -> str:
        """The path without a query, which means nothing here."""
        return self.path.partition("?")[0]

    def _refuse(self) -> None:
        if allowed := METHODS.get(self._place):
            self._send(405, {"error": f"got {self.command}, wanted {allowed}"}, Allow=allowed)
        else:
            self._send(404, {"error": f"there is nothing at {self.path}"})

    def do_POST(self) -> None:
        """Predicts the image in the body."""
        if not self._may():
            return
        if self._place != "/api/predict":
            self._refuse()
            return
        if (coding := self.headers.get("Content-Encoding", "identity")).lower() != "identity":
            self._send(415, {"error": f"got a body in the coding {coding}, wanted it as it is"})
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._send(411, {"error": "the header Content-Length is missing"})
            return
        if int(length) > MOST_BYTES:
            self._send(413, {"error": f"got {length} bytes, wanted at most {MOST_BYTES}"})
            return
        if not self.server.hold(int(length)):
            self._send(503, {"error": "too many images at once"})
            return
        try:
            self.server.give(self.connection, BODY_SECONDS)
            content = self.rfile.read(int(length))
            self.server.give(self.connection, math.inf)
            self._send(*self._predicted(content))
        finally:
            self.server.hold(-int(length))

    def _predicted(self, content: bytes) -> tuple[int, Any]:
        """Returns the status and the answer to an image file, when it is its turn."""
        if not self.server.turns.acquire(timeout=TURN_SECONDS):
            return 503, {"error": "too many images at once"}
        thread = threading.get_ident()
        self.server.working[thread] = time.monotonic()
        try:
            return 200, self.model(content)
        except ValueError as error:
            return 400, {"error": str(error)}
        except Exception as error:  # onnxruntime's have no common class of their own
            self.log_error("%r", error)
            return 500, {"error": "the model failed on this image"}
        finally:
            del self.server.working[thread]
            self.server.turns.release()

    def _may(self) -> bool:
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        right = secrets.compare_digest(given.strip().encode("latin-1"), self.token.encode())
        if scheme.lower() == "bearer" and right:
            return True
        self._send(401, {"error": "a token is required: Authorization: Bearer TOKEN"})
        return False

    def _send(self, status: int, value: Any, **headers: str) -> None:
        body = (json.dumps(value, ensure_ascii=False) + "\n").encode()
        self.server.give(self.connection, WRITE_SECONDS)
        self.send_response(status)
        if status == 503:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers.items():
            self.send_header(name, text)
        if status >= 400:  # the rest of the request is not read
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def make_server(model: Model, host: str, port: int, token: str) -> Server:
    """Makes a server for requests with a token; port 0 is any free one."""
    handler = type("BoundHandler", (Handler,), {"model": model, "token": token})
    return Server((host, port), handler)


def main(arguments: list[str]) -> int:
    """Serves until SIGTERM, or checks a running server; returns the exit code."""
    port = int(os.environ.get("PORT", "8000"))
    if arguments == ["--check"]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=3) as answer:
            return int(answer.status != 200)
    if len(arguments) != 1 or not Path(arguments[0]).is_file():
        print("error: wanted an ONNX file: python server.py model.onnx", file=sys.stderr)
        return 2
    token = os.environ.get("JAXATR_TOKEN", "").strip()  # of a file that ends in a line break
    if not token:
        token = secrets.token_urlsafe(24)
        print(f"JAXATR_TOKEN is not set; generated the token {token}", flush=True)
    server = make_server(Model(arguments[0]), "0.0.0.0", port, token)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"serving {arguments[0]} on port {server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    server.server_close()  # waits for the requests in progress
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
