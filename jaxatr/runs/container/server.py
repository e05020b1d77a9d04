# Written by `jaxatr convert export`.
"""HTTP server for one exported ONNX model, for use in a container without jaxatr.

    python server.py model.onnx     # serve on port $PORT, 8000 by default
    python server.py --check        # check the health of the server on this machine

POST /api/predict with an image file as the body returns the prediction as JSON. Requests need the
header "Authorization: Bearer TOKEN", except for GET /api/health. The token is $JAXATR_TOKEN; if it
is not set, a random one is generated and printed. SIGTERM stops the server.
"""

import json
import os
import secrets
import signal
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else sent from onnxruntime 1.29 on

import numpy as np
import onnxruntime

from jaxatr.data.decoder import decode

MOST_BYTES = 32 * 2**20
"""Largest size of an image file."""

MOST_PIXELS = 64 * 2**20
"""Largest number of pixels of an image."""

BEYOND = 1e38
"""Thresholds beyond this stand for infinity: exported files hold a large finite value instead."""

_SECONDS = 30  # timeout of a connection
_TYPES = {"tensor(uint8)": "uint8", "tensor(uint16)": "uint16", "tensor(float)": "float32"}


class Model:
    """An exported run.

    Attributes:
      metadata: the metadata stored in the file.
      classes: names of the known classes.
    """

    def __init__(self, path: str):
        """Loads a model.

        Args:
          path: the ONNX file.

        Raises:
          ValueError: the model does not take images with the channels last.
        """
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        texts = self._session.get_modelmeta().custom_metadata_map
        self.metadata = {name: _parsed(text) for name, text in texts.items()}
        self.classes = self.metadata.get("classes", [])
        (given, *more) = self._session.get_inputs()
        takes, layout = self.metadata.get("takes"), self.metadata.get("layout")
        if more or takes != "images" or layout != "NHWC":
            raise ValueError(f"{path}: wanted a jaxatr export with takes='images', layout='NHWC'")
        self._input, self._type = given.name, _TYPES[given.type]
        self._shape = given.shape[1:]
        self._outputs = [output.name for output in self._session.get_outputs()]

    def __call__(self, content: bytes) -> dict[str, Any]:
        """Predicts an image.

        Args:
          content: content of the image file.

        Returns:
          The decision as JSON values; the outputs by name if the model has no decision.

        Raises:
          ValueError: ``content`` is not an image that the model accepts.
        """
        image = self._fitting(decode(content, "the image", most=MOST_PIXELS))
        values: Any = self._session.run(None, {self._input: image[None]})
        outputs = dict(zip(self._outputs, (value[0] for value in values), strict=True))
        if "decision" not in outputs:
            return {"outputs": {name: value.tolist() for name, value in outputs.items()}}
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
                answer[name] = float(outputs[name])
        if "class_distances" in outputs:
            answer["distances"] = self._by_class(outputs["class_distances"])
        return answer

    def _by_class(self, values: np.ndarray) -> dict[str, float | None]:
        return dict(zip(self.classes, map(_finite, values), strict=True))

    def _fitting(self, image: np.ndarray) -> np.ndarray:
        """Repeats a gray channel if the model takes three; raises ``ValueError`` on a mismatch."""
        if image.dtype != self._type:
            raise ValueError(f"got an image of {image.dtype}, wanted {self._type}")
        height, width, channels = self._shape
        if channels == 3 and image.shape[2] == 1:
            image = np.repeat(image, 3, axis=2)
        if image.shape[2] != channels:
            raise ValueError(f"got {image.shape[2]} channels, wanted {channels}")
        least = self.metadata.get("geometry", {}).get("center_crop", 0)
        if min(image.shape[:2]) < least:
            raise ValueError(f"got {image.shape[:2]} pixels, wanted at least {least} on each side")
        for got, wanted in zip(image.shape, (height, width), strict=False):
            if isinstance(wanted, int) and got != wanted:
                raise ValueError(f"got {image.shape[:2]} pixels, wanted {height} by {width}")
        return image


def _finite(value: Any) -> float | None:
    """Converts a number for JSON, which has no infinity."""
    return float(value) if np.isfinite(value) else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class Handler(BaseHTTPRequestHandler):
    """Handles the requests of one connection."""

    timeout = _SECONDS
    server_version, sys_version = "jaxatr", ""
    model: Model
    token: str

    def do_GET(self) -> None:
        """Answers health checks, and, with the token, requests for the model's metadata."""
        if self.path == "/api/health":
            self._send(200, {"status": "ok"})
        elif self._may():
            if self.path in ("/", "/api/model"):
                self._send(200, self.model.metadata)
            else:
                self._send(404, {"error": f"there is nothing at {self.path}"})

    def do_POST(self) -> None:
        """Predicts the image in the body."""
        if not self._may():
            return
        if self.path != "/api/predict":
            self._send(404, {"error": f"there is nothing at {self.path}"})
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._send(411, {"error": "the header Content-Length is missing"})
            return
        if int(length) > MOST_BYTES:
            self._send(413, {"error": f"got {length} bytes, wanted at most {MOST_BYTES}"})
            return
        content = self.rfile.read(int(length))
        try:
            self._send(200, self.model(content))
        except ValueError as error:
            self._send(400, {"error": str(error)})
        except Exception as error:  # onnxruntime's have no common class of their own
            self.log_error("%r", error)
            self._send(500, {"error": "the model failed on this image"})

    def _may(self) -> bool:
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        right = secrets.compare_digest(given.strip().encode(), self.token.encode())
        if scheme.lower() == "bearer" and right:
            return True
        self._send(401, {"error": "a token is required: Authorization: Bearer TOKEN"})
        return False

    def _send(self, status: int, value: Any) -> None:
        body = (json.dumps(value, ensure_ascii=False) + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if status >= 400:  # the rest of the request is not read
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)


def make_server(model: Model, host: str, port: int, token: str) -> ThreadingHTTPServer:
    """Makes a server that listens on an address.

    Args:
      model: the model to serve.
      host: address to listen on.
      port: port to listen on; 0 for any free one.
      token: the token that requests need.
    """
    handler = type("BoundHandler", (Handler,), {"model": model, "token": token})
    return ThreadingHTTPServer((host, port), handler)


def main(arguments: list[str]) -> int:
    """Serves until SIGTERM, or checks a running server; returns the exit code."""
    port = int(os.environ.get("PORT", "8000"))
    if arguments == ["--check"]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=3) as answer:
            return int(answer.status != 200)
    if len(arguments) != 1 or not Path(arguments[0]).is_file():
        print("error: wanted an ONNX file: python server.py model.onnx", file=sys.stderr)
        return 2
    token = os.environ.get("JAXATR_TOKEN", "")
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
