"""Load-tests `jaxatr serve` with 50 clients, against the bare network's rate on batches of 32.

The command serves a run of cbc:smoke, and runs with the networks of the default and of the paper's
variant on as little data, in a separate process. Each client keeps a connection and requests one
chip, or 16, at a time. Another process has the same run and computes its jitted network's outputs
on batches of 32 chips in memory, without HTTP, decoding or decisions. The two take turns, so that
both see the machine in the same state. Every response must be 200 with a verdict for each chip.

The clients are plain asyncio streams with a prepared request. Locust is not used because its client
takes as much processor time per request as the server, which would distort the measurement. The
processor time of these clients is in the record. Run again, an interrupted run continues.

Run: python experiments/benchmarks/serving.py [--seconds=60] [--rounds=6] [--clients=50]
"""

from jaxatr import memory

if __name__ == "__main__":  # like the server, before the imports below start threads
    memory.keep()

import argparse
import asyncio
import contextlib
import io
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from recording import Recording, table
from serve import serve
from small_run import trained
from training_step import machine

HERE = Path(__file__).parent
OUTPUT = HERE / "results" / "serving_cpu"
NETWORKS = {"smoke": 16, "default": 32, "paper": 64}
"""Widths of the networks."""
BATCH = 32


def bare(folder: str) -> None:
    """Computes batches on request, by the protocol of :func:`serve.serve`."""
    import jaxatr
    from jaxatr import training

    training.enable_compilation_cache()
    recogniser = jaxatr.Recogniser.load(folder)
    chips = chips_of(recogniser.chip.shape, BATCH)
    serve(lambda: recogniser.session.batch(chips, count=BATCH))


def chips_of(shape: tuple[int, ...], count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (count, *shape), dtype=np.uint8)


def form(chips: np.ndarray) -> bytes:
    """Returns the HTTP request for some chips, as PNGs in a multipart form."""
    body = b""
    for number, chip in enumerate(chips):
        file = io.BytesIO()
        Image.fromarray(chip[:, :, 0] if chip.shape[2] == 1 else chip).save(file, "PNG")
        named = f'name="images"; filename="{number}.png"'
        body += f"--cut\r\nContent-Disposition: form-data; {named}\r\n\r\n".encode()
        body += file.getvalue() + b"\r\n"
    body += b"--cut--\r\n"
    head = (
        "POST /api/predict HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: multipart/form-data; boundary=cut\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@contextlib.contextmanager
def served(folder: Path) -> Iterator[int]:
    """Starts the server and yields its port."""
    line = [sys.executable, "-m", "jaxatr", "serve", f"--workdir={folder}", "--port=0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            if matched := re.match(r"console: .*:(\d+)/", text):
                yield int(matched[1])
                break
        else:
            raise RuntimeError("jaxatr serve did not start")
        process.terminate()
        if process.wait(60):
            raise RuntimeError(f"jaxatr serve ended with {process.returncode}")


@contextlib.contextmanager
def computing(folder: Path) -> Iterator[Any]:
    """Starts the bare network; yields a function that runs a number of batches and times them."""
    line = [sys.executable, __file__, f"--bare={folder}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        stdout.readline()

        def run(count: int) -> list[float]:
            print(count, file=stdin, flush=True)
            return json.loads(stdout.readline())["seconds"]

        run(10)
        yield run
        stdin.close()


async def load(port: int, request: bytes, images: int, clients: int, seconds: float) -> Any:
    """Sends requests for some seconds; returns the latencies, the errors and the elapsed time."""
    latencies: list[float] = []
    errors: list[str] = []
    end = time.perf_counter() + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            start = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            latencies.append(time.perf_counter() - start)
            if not head.startswith(b"HTTP/1.1 200") or body.count(b'"verdict"') != images:
                errors.append(head.partition(b"\r\n")[0].decode())
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return latencies, errors, time.perf_counter() - start


def measured(folder: Path, images: int, flags: argparse.Namespace) -> dict[str, Any]:
    """Measures one run with one size of request."""
    shape = tuple(json.loads((folder / "record.json").read_text())["image_shape"])
    request = form(chips_of(shape, images))
    each = flags.seconds / flags.rounds
    latencies: list[float] = []
    errors: list[str] = []
    rates, bare_rates, own = [], [], 0.0
    with computing(folder) as run, served(folder) as port:
        one = statistics.median(run(10))
        asyncio.run(load(port, request, images, flags.clients, min(2.0, each)))  # warm
        for _ in range(flags.rounds):
            bare_rates.append(BATCH / statistics.fmean(run(max(3, round(each / 2 / one)))))
            before = time.process_time()
            times, failed, took = asyncio.run(load(port, request, images, flags.clients, each))
            own += time.process_time() - before
            latencies += times
            errors += failed
            rates.append(images * len(times) / took)
    ratios = [rate / of for rate, of in zip(rates, bare_rates, strict=True)]
    cut = statistics.quantiles(latencies, n=100)
    return {
        "requests": len(latencies),
        "errors": len(errors),
        "chips_per_second": round(statistics.median(rates), 1),
        "bare_chips_per_second": round(statistics.median(bare_rates), 1),
        "ratio": round(statistics.median(ratios), 3),
        "p50_ms": round(1e3 * cut[49], 1),
        "p99_ms": round(1e3 * cut[98], 1),
        "clients_cpu_seconds": round(own, 1),
    }


def page(recording: Recording) -> Iterator[str]:
    """Yields the lines of the record as Markdown."""
    about = recording.about
    yield (
        f"{about['clients']} clients, {about['seconds']:g} s for each row; {about['device']}; jax "
        f"{about['jax']}. The network alone computes batches of {BATCH}."
    )
    yield ""
    rows = [
        [
            f"{row['network']}, {row['bare_chips_per_second']:.0f} chips/s alone",
            str(row["images"]),
            f"{row['chips_per_second']:.0f}",
            f"{row['ratio']:.2f}",
            f"{row['p50_ms']:.0f}",
            f"{row['p99_ms']:.0f}",
            f"{row['errors']} of {row['requests']}",
        ]
        for row in recording.rows
    ]
    header = ["network", "chips per request", "chips/s", "share of the network alone"]
    yield from table([*header, "p50, ms", "p99, ms", "errors"], *rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="seconds of load over all rounds"
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--images", default="1,16", help="chips in a request")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--output", type=Path, default=OUTPUT, help="without suffix")
    flags = parser.parse_args()
    if flags.bare:
        bare(flags.bare)
        return
    about = machine()
    recording = Recording(
        flags.output,
        {
            "device": f"{about['device']}, {about['cores']} cores",
            "jax": about["versions"]["jax"],
            "clients": flags.clients,
            "seconds": flags.seconds,
        },
    )
    with tempfile.TemporaryDirectory() as temporary:
        for network in flags.networks.split(","):
            folder = Path(temporary) / network
            for images in map(int, flags.images.split(",")):
                key = {"network": network, "images": images}
                if recording.has(key):
                    continue
                if not folder.exists():
                    trained(folder, NETWORKS[network])
                recording.add(key, measured(folder, images, flags))
                print(json.dumps(recording.row(key)), flush=True)
    print(recording.write_page(page(recording)))


if __name__ == "__main__":
    main()
