# Written by `jaxatr convert export`.
"""Answers images over HTTP from one ONNX file: the server of a container, without jaxatr.

    python server.py model.onnx     # serve; the port is PORT, 8000 by default
    python server.py --check        # ask the server on this machine whether it is well

POST /api/predict with an image file as the body gives JSON; GET /api/health needs no token. Every
other request bears one, "Authorization: Bearer TOKEN": that of the variable JAXATR_TOKEN, or one
that is drawn and printed. SIGTERM ends it.
"""

import io
import json
import os
import secrets
import signal
import sys
import threading
import urllib.request
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image

MOST_BYTES = 32 * 2**20
"""Of an image file."""

MOST_PIXELS = 64 * 2**20
"""Of an image."""

BEYOND = 1e38
"""What the file has in the place of an infinite threshold is larger."""

_SECONDS = 30  # that a request may keep its connection waiting
_EIGHT_BIT = {"1": "L", "L": "L", "LA": "L", "La": "L"}
_COLOUR = ("P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N")
_TYPES = {"tensor(uint8)": "uint8", "tensor(uint16)": "uint16", "tensor(float)": "float32"}


class Model:
    """An exported run.

    Attributes:
      told: what the file's metadata says.
      classes: names of the known classes.
    """

    def __init__(self, path: str):
        """Loads the file.

        Args:
          path: of it.

        Raises:
          ValueError: it is not one that takes images.
        """
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        metadata = self._session.get_modelmeta().custom_metadata_map
        self.told = {name: _parsed(text) for name, text in metadata.items()}
        self.classes = self.told.get("classes", [])
        (given, *more) = self._session.get_inputs()
        if more or self.told.get("takes") != "images" or self.told.get("layout") != "NHWC":
            raise ValueError(f"{path}: wanted a file that jaxatr wrote for images, channels last")
        self._input, self._type = given.name, _TYPES[given.type]
        self._shape = given.shape[1:]
        self._outputs = [output.name for output in self._session.get_outputs()]

    def __call__(self, content: bytes) -> dict[str, Any]:
        """Answers an image file.

        Args:
          content: of the file.

        Returns:
          The decision as JSON values; of a file without one, the outputs by name.

        Raises:
          ValueError: it is not an image that the network takes.
        """
        image = self._fitting(read(content))
        values: Any = self._session.run(None, {self._input: image[None]})
        found = dict(zip(self._outputs, (value[0] for value in values), strict=True))
        if "decision" not in found:
            return {"outputs": {name: value.tolist() for name, value in found.items()}}
        decision, threshold = int(found["decision"]), float(found["threshold"])
        answer = {
            "label": "unknown" if decision < 0 else self.classes[decision],
            "nearest": self.classes[int(found["nearest"])],
            "score": float(found["score"]),
            "threshold": threshold if abs(threshold) < BEYOND else None,
            "decides": self.told.get("decides"),
            "probabilities": self._by_class(found["class_probabilities"]),
        }
        for name in ("known_probability", "p_value"):
            if name in found:
                answer[name] = float(found[name])
        if "class_distances" in found:
            answer["distances"] = self._by_class(found["class_distances"])
        return answer

    def _by_class(self, values: np.ndarray) -> dict[str, float]:
        return dict(zip(self.classes, map(float, values), strict=True))

    def _fitting(self, image: np.ndarray) -> np.ndarray:
        """Brings an image to the channels that the file takes, and refuses others."""
        if image.dtype != self._type:
            raise ValueError(f"got an image of {image.dtype}, wanted {self._type}")
        height, width, channels = self._shape
        if channels == 3 and image.shape[2] == 1:
            image = np.repeat(image, 3, axis=2)
        if image.shape[2] != channels:
            raise ValueError(f"got {image.shape[2]} channels, wanted {channels}")
        least = self.told.get("geometry", {}).get("center_crop", 0)
        if min(image.shape[:2]) < least:
            raise ValueError(f"got {image.shape[:2]} pixels, wanted {least} on every side or more")
        for got, wanted in zip(image.shape, (height, width), strict=False):
            if isinstance(wanted, int) and got != wanted:
                raise ValueError(f"got {image.shape[:2]} pixels, wanted {height} by {width}")
        return image


def read(content: bytes) -> np.ndarray:
    """Reads an image file as ``[h, w, c]``, as jaxatr reads it.

    Args:
      content: of the file.

    Raises:
      ValueError: it is not a readable image, or one that would lose range.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content)) as image:
                if image.format == "PNG" and content[24] == 16 and content[25] in (2, 4, 6):
                    raise ValueError("several channels of 16 bits, of which Pillow keeps 8")
                if image.format == "TIFF" and getattr(image, "n_frames", 1) > 1:
                    raise ValueError("several pages")
                array = _array(image)
    except Exception as error:  # a damaged file makes Pillow's decoders fail in every way there is
        raise ValueError(f"not a readable image: {error}") from error
    if not np.isfinite(array).all():
        raise ValueError("not a readable image: it has pixels that are not finite")
    return array[:, :, None] if array.ndim == 2 else array


def _array(image: Image.Image) -> np.ndarray:
    if image.mode in _EIGHT_BIT:
        return np.asarray(image.convert(_EIGHT_BIT[image.mode]))
    if image.mode in _COLOUR:
        return np.asarray(image.convert("RGB"))
    if image.mode in _SIXTEEN_BIT:
        return np.asarray(image).astype(np.uint16)
    if image.mode in ("I", "F"):
        return np.asarray(image).astype(np.float32)
    raise ValueError(f"Pillow's mode {image.mode} is not supported")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    timeout = _SECONDS
    server_version, sys_version = "jaxatr", ""
    model: Model
    token: str

    def do_GET(self) -> None:
        """Says whether the server is well, or, with the token, what it serves."""
        if self.path == "/api/health":
            self._send(200, {"status": "ok"})
        elif self._may():
            if self.path in ("/", "/api/model"):
                self._send(200, self.model.told)
            else:
                self._send(404, {"error": f"there is nothing at {self.path}"})

    def do_POST(self) -> None:
        """Answers the image in the body."""
        if not self._may():
            return
        if self.path != "/api/predict":
            self._send(404, {"error": f"there is nothing at {self.path}"})
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self._send(411, {"error": "wanted the header Content-Length"})
            return
        if int(length) > MOST_BYTES:
            self._send(413, {"error": f"got {length} bytes, wanted at most {MOST_BYTES}"})
            return
        content = self.rfile.read(int(length))
        try:
            self._send(200, self.model(content))
        except ValueError as error:
            self._send(400, {"error": str(error)})

    def _may(self) -> bool:
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        right = secrets.compare_digest(given.strip().encode(), self.token.encode())
        if scheme.lower() == "bearer" and right:
            return True
        self._send(401, {"error": "a token is wanted: Authorization: Bearer TOKEN"})
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
    """Makes a server that listens.

    Args:
      model: that answers.
      host: address to listen on.
      port: 0 for any that is free.
      token: that requests bear.
    """
    handler = type("BoundHandler", (Handler,), {"model": model, "token": token})
    return ThreadingHTTPServer((host, port), handler)


def main(arguments: list[str]) -> int:
    """Serves until it is told to end, or asks a server; returns the exit code."""
    port = int(os.environ.get("PORT", "8000"))
    if arguments == ["--check"]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=3) as answer:
            return int(answer.status != 200)
    if len(arguments) != 1 or not Path(arguments[0]).is_file():
        print("error: wanted the ONNX file: python server.py model.onnx", file=sys.stderr)
        return 2
    Image.MAX_IMAGE_PIXELS = MOST_PIXELS
    token = os.environ.get("JAXATR_TOKEN", "")
    if not token:
        token = secrets.token_urlsafe(24)
        print(f"JAXATR_TOKEN is not set; the token is {token}", flush=True)
    server = make_server(Model(arguments[0]), "0.0.0.0", port, token)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"serves {arguments[0]} on port {server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    server.server_close()  # waits for what is being answered
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
