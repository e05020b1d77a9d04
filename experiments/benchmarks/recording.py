"""Records of long benchmarks: each row is saved at once and not measured again."""

import json
import os
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

HERE = Path(__file__).parent
PEERS = ("auto", "torch", "flax")  # the other contenders are single forms
FAR = 0.9  # of the best form's speed; slower choices are timed again
NEAR = 0.97  # of the best form's speed; faster choices count as equal


def device_and_version() -> dict[str, str]:
    """Returns the device and the version of jax, as small records name them."""
    device = jax.devices()[0]
    return {
        "device": f"{device.platform}, {device.device_kind}, {jax.device_count()} device",
        "jax": jax.__version__,
    }


class Recording:
    """A file of rows, with the device, versions and settings that they depend on.

    Attributes:
      about: the device, versions and settings.
      rows: the rows recorded so far.
    """

    def __init__(self, output: Path, about: dict[str, Any]):
        """Opens a record, with the rows of earlier runs.

        Args:
          output: the file's path, without its suffix.
          about: the device, versions and settings of this run.

        Raises:
          ValueError: the file was recorded on another device, or with another version or setting.
        """
        self._output, self.about = output, dict(about)
        self.rows: list[dict[str, Any]] = []
        if self._path.is_file():
            earlier = json.loads(self._path.read_text(encoding="utf-8"))
            self.rows = earlier.pop("rows")
            for name, value in about.items():
                if earlier.get(name) != value:
                    raise ValueError(
                        f"{self._path}: {name}: recorded with {earlier.get(name)!r}, this run has "
                        f"{value!r}: move the file, or give another --output"
                    )
            self.about = earlier
        self._note_revision()

    @property
    def _path(self) -> Path:
        return self._output.with_name(self._output.name + ".json")

    def _note_revision(self) -> None:
        """Adds the current commit to the record; its rows may come from several commits."""
        command = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        known = self.about.setdefault("revisions", [])
        if (revision := done.stdout.strip()) and revision not in known:
            known.append(revision)

    def has(self, key: Mapping[str, Any]) -> bool:
        """Returns whether there is a row for ``key`` without a failure."""
        return any(_begins(row, key) and not row.get("failed") for row in self.rows)

    def row(self, key: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the row for ``key``, which must exist."""
        return next(row for row in self.rows if _begins(row, key))

    def add(self, key: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        """Adds a row, replacing any for the same key, and saves the record."""
        new = {**key, **row}
        if any(_begins(one, key) for one in self.rows):
            self.rows = [new if _begins(one, key) else one for one in self.rows]
        else:
            self.rows.append(new)
        self._replace(self._path, json.dumps(self.about | {"rows": self.rows}, indent=1))

    def write_page(self, lines: Iterable[str]) -> str:
        """Writes the lines as a Markdown file beside the record, and returns the text."""
        text = "\n".join(lines)
        self._replace(self._output.with_name(self._output.name + ".md"), text)
        return text

    def _replace(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(text + "\n", encoding="utf-8")
        os.replace(partial, path)


def _begins(row: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    return all(row.get(name) == value for name, value in key.items())


def heading(script: str, recording: Recording) -> str:
    """Returns the first line of a page, with the script, device and versions."""
    about = recording.about
    peers = [f"{name} {version}" for name, version in about.get("peers", {}).items()]
    versions = ", ".join([f"jax {about['jax']}", *peers])
    top = ", ".join(f"{value} {name}" for name, value in about["ceilings"].items())
    return (
        f"Made by `{script}`. {about['device']}; {about['dtype']}; {versions}; "
        f"{len(recording.rows)} problems. Ceilings measured here: {top}. On a CPU, this package "
        "and PyTorch keep freed memory (jaxatr.memory)."
    )


def ratio(row: dict[str, Any], name: str, measured: str = "milliseconds") -> float:
    """Returns the speed-up of auto over another contender.

    Args:
      row: a problem's row.
      name: the other contender; ``"best"`` is the fastest single form.
      measured: the field with the times, ``"again"`` for those of a second measurement.
    """
    times = row[measured]
    if name == "best":
        return min(time for one, time in times.items() if one not in PEERS) / times["auto"]
    return times[name] / times["auto"]


def losses(name: str, rows: Iterable[dict[str, Any]], least: float = 1.0) -> list[str]:
    """Returns a line for each row with a ratio to ``name`` below ``least``, the worst first."""
    lines = []
    for row in sorted(rows, key=lambda row: ratio(row, name)):
        if (one := ratio(row, name)) < least:
            twice = name == "best" and "again" in row
            again = f", again {ratio(row, name, 'again'):.2f}" if twice else ""
            lines.append(f"  - {one:.2f}{again}: {row['problem']}, {row['chosen']}")
    return [f"- losses to {name}, below {least:g}: {len(lines)}", *lines]


def confirmed(rows: Iterable[dict[str, Any]], least: float) -> str:
    """Returns a line with the number of choices below a ratio to the best form, once and twice."""
    once = [row for row in rows if ratio(row, "best") < least]
    twice = [row for row in once if "again" in row]
    again = sum(ratio(row, "best", "again") < least for row in twice)
    return (
        f"- below {least:g} of the best single form: {len(once)}; timed once more: "
        f"{len(twice)}, of them again below: {again}"
    )


def roofline(rates: dict[str, float]) -> list[str]:
    """Returns the table cells for a result of :func:`ceilings.reached`."""
    return [f"{rates['TFLOP/s']:.3f}", f"{rates['TB/s']:.4f}", f"{rates['roof']:.2f}"]


def geometric_mean(ratios: Sequence[float]) -> str:
    """Returns the geometric mean and the least ratio, as text."""
    if not ratios:
        return "none"
    middle = statistics.geometric_mean(ratios)
    return f"{middle:.3f}, least {min(ratios):.3f}, of {len(ratios)}"


def table(*rows: Iterable[str]) -> list[str]:
    """Returns the lines of a Markdown table; the first row is its header."""
    header, *others = map(list, rows)
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *others)]


def failures(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Returns a line with the message of each failure."""
    return [
        f"- failed: {row['problem']}: {who}: {' '.join(message.split())[:300]}"
        for row in rows
        for who, message in row.get("failed", {}).items()
    ]
