"""Tries what has brought `jaxatr serve` down: enrolments, hostile clients, a lock that is held.

The command serves a run of cbc:smoke in a separate process, while one client asks for a prediction
every 50 ms; its times are recorded beside each fault.

- enrolments: classes are enrolled one after the other; memory and memory maps of the process.
- slow images: requests of many large progressive JPEGs, whose client leaves.
- unread answers: connections that pipeline requests and read none of the answers.
- long heads: heads of 100 kB, and heads that do not end.
- a held lock: SIGTERM during an enrolment that waits for a lock which another process holds.
- large strips: TIFFs of 64 x 64 pixels with a strip that unpacks to a gigabyte; the memory taken.
- two trainings: a second training in the folder of one that runs, and SIGTERM to the first.
- slow heads: 200 clients send a byte a second to the server of an exported container, and begin
  anew when they are cut off.

Run: python experiments/benchmarks/service_faults.py [--enrolments=100]
"""

import argparse
import contextlib
import http.client
import io
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from recording import Recording, device_and_version, table
from small_run import trained

from jaxatr import files
from jaxatr.runs import container
from jaxatr.runs.export import export_run

HERE = Path(__file__).parent
OUTPUT = HERE / "results" / "service_faults_cpu"
SCORE = "nearest"
TOKEN = "right"  # of the container; the console on this machine needs none


class Service:
    """A service in a separate process."""

    def __init__(self, line: list[str], says: str, **environment: str):
        """Starts it, and waits until it says its port."""
        env = os.environ | environment
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=env)
        assert self.process.stdout is not None
        for text in self.process.stdout:
            if matched := re.match(says, text):
                self.port = int(matched[1])
                return
        raise RuntimeError(f"{' '.join(line)} did not start")

    def ask(self, method: str, path: str, body: bytes = b"", kind: str = "image/png") -> Any:
        """Sends a request; returns the status and the body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        head = {"Content-Type": kind, "Authorization": f"Bearer {TOKEN}"}
        with contextlib.closing(connection):
            connection.request(method, path, body, head)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def memory(self) -> tuple[float, int]:
        """Returns the resident memory in MB, and the number of memory maps."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert resident is not None
        maps = Path(f"/proc/{self.process.pid}/maps").read_text().count("\n")
        return int(resident[1]) * 1024 / 1e6, maps

    def threads(self) -> int:
        """Returns the number of threads."""
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def end(self) -> tuple[float, int]:
        """Sends SIGTERM; returns the seconds until the process ends, and its exit code."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(120)
        return time.monotonic() - start, code


@contextlib.contextmanager
def running(line: list[str], says: str, **environment: str) -> Iterator[Service]:
    service = Service(line, says, **environment)
    try:
        yield service
    finally:
        service.process.kill()
        service.process.wait()


def served(folder: Path) -> contextlib.AbstractContextManager[Service]:
    line = [sys.executable, "-m", "jaxatr", "serve", f"--workdir={folder}", "--port=0"]
    more = [f"--score={SCORE}", "--method=none", "--batches=1,4"]
    return running([*line, *more], r"console: .*:(\d+)/")


class Others(threading.Thread):
    """A client that asks for a prediction every 50 ms, and notes how long it waits."""

    def __init__(self, console: Service, chip: bytes):
        """Takes the service, and the image to ask for."""
        super().__init__()
        self._console, self._chip, self._ends = console, chip, threading.Event()
        self.seconds: list[float] = []
        self.refused = 0

    def run(self) -> None:
        """Asks until it is to end."""
        while not self._ends.wait(0.05):
            start = time.monotonic()
            try:
                status, _ = self._console.ask("POST", "/api/predict", self._chip)
            except (OSError, http.client.HTTPException):
                status = 0
            self.seconds.append(time.monotonic() - start)
            self.refused += status != 200

    def __enter__(self) -> "Others":
        """Starts to ask."""
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stops to ask."""
        self._ends.set()
        self.join()

    @property
    def times(self) -> dict[str, Any]:
        """The number of requests, how many were refused, and how long they took."""
        cut = np.quantile(self.seconds, np.arange(1, 100) / 100).tolist()
        return {
            "requests": len(self.seconds),
            "refused": self.refused,
            "p50_ms": round(1e3 * cut[49], 1),
            "p99_ms": round(1e3 * cut[98], 1),
            "worst_ms": round(1e3 * max(self.seconds), 1),
        }


def png(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def chips(seed: int, count: int, side: int) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [png(rng.integers(0, 255, (side, side), np.uint8)) for _ in range(count)]


def form(images: list[bytes]) -> tuple[bytes, str]:
    body = b""
    for number, image in enumerate(images):
        named = f'name="images"; filename="{number}"'
        body += f"--cut\r\nContent-Disposition: form-data; {named}\r\n\r\n".encode()
        body += image + b"\r\n"
    return body + b"--cut--\r\n", "multipart/form-data; boundary=cut"


def enrol(console: Service, name: str, images: list[bytes]) -> None:
    status, body = console.ask("POST", f"/api/enrol?name={name}&score={SCORE}", *form(images))
    if status != 202:
        raise RuntimeError(body.decode())


def enrolled(console: Service) -> str:
    while True:
        state = json.loads(console.ask("GET", "/api/enrol")[1])
        if state["state"] != "busy":
            return state["state"]
        time.sleep(0.05)


def quiet(console: Service, chip: bytes, side: int) -> dict[str, Any]:
    with Others(console, chip) as others:
        time.sleep(20)
    return others.times


def enrolments(console: Service, chip: bytes, side: int, count: int) -> dict[str, Any]:
    enrol(console, "first", chips(1000, 3, side))  # compiles what all enrolments need
    enrolled(console)
    before = console.memory()
    failed = 0
    with Others(console, chip) as others:
        for number in range(count):
            enrol(console, f"class{number}", chips(number + 1, 3, side))
            failed += enrolled(console) != "done"
    after = console.memory()
    return others.times | {
        "enrolments": count,
        "failed_enrolments": failed,
        "grown_mb": round(after[0] - before[0], 1),
        "grown_maps": after[1] - before[1],
    }


def slow_images(console: Service, chip: bytes, side: int) -> dict[str, Any]:
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (1000, 1000), np.uint8)
    Image.fromarray(noise).save(file, "JPEG", progressive=True, quality=20)
    body, kind = form([file.getvalue()] * 60)
    head = (
        "POST /api/predict HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with Others(console, chip) as others:
        for _ in range(10):
            with contextlib.ExitStack() as stack:
                for _ in range(4):
                    one = stack.enter_context(opened(console))
                    one.sendall(head + body)
                time.sleep(0.5)
        start = time.monotonic()
        while json.loads(console.ask("GET", "/api/health")[1]).get("decoding", 0) > 1:
            time.sleep(0.01)
        left = time.monotonic() - start
    return others.times | {"seconds_until_free": round(left, 2)}


def unread_answers(console: Service, chip: bytes, side: int) -> dict[str, Any]:
    asks = b"GET /api/run HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1024
    with Others(console, chip) as others, contextlib.ExitStack() as stack:
        for _ in range(300):
            one = stack.enter_context(opened(console))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                one.sendall(asks)
        time.sleep(15)
    return others.times


def long_heads(console: Service, chip: bytes, side: int) -> dict[str, Any]:
    start = b"GET /api/run HTTP/1.1\r\nHost: localhost\r\nA: "
    with Others(console, chip) as others, contextlib.ExitStack() as stack:
        for number in range(400):
            one = stack.enter_context(opened(console))
            with contextlib.suppress(OSError):
                one.sendall(start + b"a" * (100_000 if number % 2 else 10))
        time.sleep(15)
    return others.times


def held_lock(console: Service, chip: bytes, side: int, folder: Path) -> dict[str, Any]:
    with files.locked(folder / ".enrolled.json.lock"):
        enrol(console, "late", chips(2000, 3, side))
        time.sleep(1)
        seconds, code = console.end()
    return {"seconds_until_the_end": round(seconds, 2), "exit_code": code}


def tiff_of_a_large_strip(bits: int, kind: int) -> bytes:
    """Returns a TIFF of 64 x 64 pixels, of samples of a SampleFormat, whose strip has 1 GB."""
    packer = zlib.compressobj()
    strip = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1000)) + packer.flush()
    tags = {256: 64, 257: 64, 258: bits, 259: 8, 262: 1, 273: 8, 277: 1, 278: 64, 279: len(strip)}
    tags[339] = kind
    entries = b"".join(struct.pack("<HHLL", tag, 4, 1, value) for tag, value in tags.items())
    head = struct.pack("<2sHL", b"II", 42, 8 + len(strip)) + strip
    return head + struct.pack("<H", len(tags)) + entries + bytes(4)


def large_strips(console: Service, chip: bytes, side: int) -> dict[str, Any]:
    content = {bits: tiff_of_a_large_strip(bits, kind) for bits, kind in ((8, 1), (64, 3))}
    process = Path(f"/proc/{console.process.pid}")
    (process / "clear_refs").write_text("5")  # the peak becomes the current use
    before = console.memory()[0]
    found: dict[str, Any] = {}
    for bits, one in content.items():
        asked = [console.ask("POST", "/api/predict", one, "image/tiff")[0] for _ in range(20)]
        found[f"statuses_of_{bits}_bits"] = sorted(set(asked))
    peak = re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())
    assert peak is not None
    found["peak_mb"] = round(int(peak[1]) * 1024 / 1e6 - before, 1)
    return found | {"kept_mb": round(console.memory()[0] - before, 1)}


def two_trainings(folder: Path) -> dict[str, Any]:
    line = [sys.executable, "-m", "jaxatr", "train", "--config=cbc:smoke", f"--workdir={folder}"]
    first = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (folder / ".training.json").exists():
            if first.poll() is not None:
                raise RuntimeError(f"the first training ended with {first.returncode}")
            time.sleep(0.01)
        start = time.monotonic()
        second = subprocess.run(line, capture_output=True, text=True)
        seconds = time.monotonic() - start
        first.send_signal(signal.SIGTERM)
        code = first.wait(120)
    finally:
        first.kill()
    return {
        "seconds_until_the_second_is_refused": round(seconds, 2),
        "its_exit_code": second.returncode,
        "named": str(first.pid) in second.stderr,
        "exit_code_of_the_first_at_SIGTERM": code,
    }


def slow_heads(folder: Path, output: Path, chip: bytes) -> dict[str, Any]:
    export_run(folder, output / "model.onnx", score=SCORE)
    container.write_container(output / "model.onnx")
    line = [sys.executable, str(output / "server.py"), str(output / "model.onnx")]
    with running(line, r"serving .* (\d+)$", PORT="0", JAXATR_TOKEN=TOKEN) as service:
        service.ask("POST", "/api/predict", chip)
        before, most = (service.memory()[0], service.threads()), 0
        with Others(service, chip) as others, contextlib.ExitStack() as stack:
            slow: list[socket.socket] = []
            for _ in range(25):
                ended = [one for one in slow if not sent(one, b"G")]
                slow = [one for one in slow if one not in ended]
                slow += [stack.enter_context(opened(service)) for _ in range(200 - len(slow))]
                most = max(most, service.threads())
                time.sleep(1)
        grown = service.memory()[0] - before[0]
    more = {"threads_before": before[1], "threads": most, "grown_mb": round(grown, 1)}
    return others.times | more


def sent(one: socket.socket, content: bytes) -> bool:
    with contextlib.suppress(OSError):
        one.sendall(content)
        return True
    return False


def opened(console: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", console.port), timeout=20)


def page(recording: Recording) -> Iterator[str]:
    """Yields the lines of the record as Markdown."""
    about = recording.about
    yield f"{about['device']}, {os.cpu_count()} cores, {about['machine']}; jax {about['jax']}."
    yield ""
    shown = ("p50_ms", "p99_ms", "worst_ms", "refused", "requests")
    rows = []
    for row in recording.rows:
        rest = {name: value for name, value in row.items() if name not in (*shown, "fault")}
        more = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in rest.items())
        rows.append([row["fault"], *(str(row.get(name, "")) for name in shown), more])
    yield from table(["fault", "p50, ms", "p99, ms", "worst, ms", *shown[3:], "found"], *rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--enrolments", type=int, default=100)
    parser.add_argument("--machine", default="otherwise idle", help="what else the machine does")
    parser.add_argument("--run", type=Path, help="a run of cbc:smoke; default: it is trained")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="without suffix")
    flags = parser.parse_args()
    recording = Recording(flags.output, {**device_and_version(), "machine": flags.machine})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        if flags.run:
            shutil.copytree(flags.run, folder)
        else:
            trained(folder)
        side = json.loads((folder / "record.json").read_text())["image_shape"][0]
        (chip,) = chips(0, 1, side)
        faults: dict[str, Callable[[Service], dict[str, Any]]] = {
            "none": lambda console: quiet(console, chip, side),
            # before the enrolments, with which a run has no export
            "slow heads to a container": lambda _: slow_heads(folder, Path(temporary), chip),
            "enrolments": lambda console: enrolments(console, chip, side, flags.enrolments),
            "slow images": lambda console: slow_images(console, chip, side),
            "unread answers": lambda console: unread_answers(console, chip, side),
            "long heads": lambda console: long_heads(console, chip, side),
            "large strips": lambda console: large_strips(console, chip, side),
            "two trainings": lambda _: two_trainings(Path(temporary) / "twice"),
            "a held lock": lambda console: held_lock(console, chip, side, folder),  # ends it
        }
        left = {name: tried for name, tried in faults.items() if not recording.has({"fault": name})}
        with served(folder) as console:
            for name, tried in left.items():
                recording.add({"fault": name}, tried(console))
                print(json.dumps(recording.row({"fault": name})), flush=True)
    print(recording.write_page(page(recording)))


if __name__ == "__main__":
    main()
