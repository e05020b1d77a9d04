"""Times training and inference of pretrained ONNX networks against PyTorch, alternately.

MobileNetV2 and EfficientNet-Lite0 are read from their ONNX files (NCHW, with batch norms) and
trained as in a run; PyTorch has the same networks (channels_last). The method is that of
``training_step.py``. Run again, an interrupted run continues.

Run: python experiments/benchmarks/pretrained.py FILE [FILE ...] [--sizes 96 224]
    [--modes training inference] [--quick]

The files' names, without ``.onnx``, must be names of networks in ``torch_mobile.py``.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clock import cores
from recording import Recording, table
from training_step import HEADER, SETTINGS, cells, compare, machine

OUTPUT = Path(__file__).parent / "results" / "pretrained_cpu"


def cases(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yields the fields that identify each row, and the file."""
    for size in options.sizes:
        for file in options.files:
            for mode in options.modes:
                yield {"network": file.stem, "size": size, "mode": mode}, file


def page(recording: Recording) -> Iterator[str]:
    """Yields the lines of the record as Markdown."""
    about = recording.about
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    yield (
        f"Made by `pretrained.py`. {about['device']}, {about['cores']} cores; batch "
        f"{about['batch']}; {versions}. The engine is jax; kernels by the heuristic. Inference is "
        "compiled as with `runtime=onednn`."
    )
    yield ""
    rows = [[row["network"], *cells(row)] for row in recording.rows]
    yield from table(("network", *HEADER[:-1]), *rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--sizes", type=int, nargs="+", default=[96, 224])
    parser.add_argument("--modes", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=cores(), help="PyTorch's")
    parser.add_argument(
        "--quick", action="store_true", help="only the settings of PyTorch that are usually fastest"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="without suffix")
    options = parser.parse_args()
    options.find = False
    about = machine() | {"batch": options.batch, "rounds": options.rounds, "quick": options.quick}
    recording = Recording(options.output, about)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["JAXATR_CACHE"] = cache
        for key, file in cases(options):
            if not recording.has(key):
                network = {"network": file.stem, "onnx": file.resolve()}
                case = compare(key["mode"], key["size"], options, network)
                recording.add(key, case)
                print(table(HEADER[:-1], cells(case))[-1], flush=True)
    print(recording.write_page(page(recording)))


if __name__ == "__main__":
    main()
