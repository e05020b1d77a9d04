"""Times what a small training does between its last step and the evaluation, against others.

python experiments/benchmarks/completion.py [--checkouts=FOLDER,...] [--rounds=3]

The data are 40 photographs of each of six classes of CIFAR-10, two of them unknown, with
``cbc:folder``. Seconds are the processor's, so that other programs on the machine count little.
Every checkout trains in turn, each time without a compilation cache.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from recording import HERE, device_and_version

OUTPUT = HERE / "results" / "completion_cpu.json"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog")
KNOWN = CLASSES[:4]
EACH = 40
_BEGINS, _ENDS = "completing the run", "evaluating on"


def write_chips(archive: Path, out: Path) -> None:
    """Writes the first photographs of each class as ``OUT/CLASS/*.png``."""
    with tarfile.open(archive) as opened:
        members = sorted(opened.getmembers(), key=lambda one: one.name)
        for label in CLASSES:
            own = [one for one in members if f"train/{label}/" in one.name and one.isfile()]
            (out / label).mkdir(parents=True)
            for one in own[:EACH]:
                content = opened.extractfile(one)
                assert content is not None  # it is a file
                (out / label / Path(one.name).name).write_bytes(content.read())


def completion(checkout: Path, chips: Path, scratch: Path) -> float:
    """Trains with a checkout; returns the processor seconds between last step and evaluation.

    Raises:
      RuntimeError: the training failed.
    """
    command = [sys.executable, "-u", "-m", "jaxatr", "train", "--config=cbc:folder"]
    command += [f"--config.data.source={chips}", f"--workdir={scratch / 'run'}", "--noprogress"]
    command += ["--config.train.epochs=3", f"--config.open_set.split=known:{','.join(KNOWN)}"]
    own = {"PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(scratch / "cache")}
    environment = os.environ | own | {"JAX_PLATFORMS": "cpu"}
    places, lines = {}, []
    with subprocess.Popen(
        command, env=environment, cwd=scratch, stderr=subprocess.STDOUT, stdout=-1, text=True
    ) as process:
        assert process.stdout is not None  # it is a pipe
        for line in process.stdout:
            lines.append(line)
            for mark in (_BEGINS, _ENDS):
                if line.startswith(mark):
                    places[mark] = _seconds(process.pid)
    if process.returncode or len(places) < 2:
        raise RuntimeError(f"{checkout}: {''.join(lines[-5:])}")
    return places[_ENDS] - places[_BEGINS]


def _seconds(process: int) -> float:
    """Returns the processor seconds that a running process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measures and records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkouts", default="", help="folders of other versions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", default=os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    checkouts = [HERE.parents[1], *map(Path, filter(None, options.checkouts.split(",")))]
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        chips = Path(scratch) / "chips"
        write_chips(Path(options.data) / "cifar10.tar.gz", chips)
        for _ in range(options.rounds):
            for checkout in checkouts:
                git = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
                commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout
                with tempfile.TemporaryDirectory() as own:
                    found = completion(checkout.absolute(), chips, Path(own))
                seconds.setdefault(commit.strip(), []).append(round(found, 1))
                print(commit.strip(), found, flush=True)
    rows = {
        commit: {"processor_seconds": statistics.median(found), "all": found}
        for commit, found in seconds.items()
    }
    record = device_and_version() | {"chips": EACH * len(CLASSES), "commits": rows}
    options.output.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
