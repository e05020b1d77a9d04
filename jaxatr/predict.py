"""Says what is in images: a known class or "unknown".

python -m jaxatr.predict --workdir=DIR IMAGE... [--jsonl] [--gamma=0.9|fitted]
"""

import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from absl import flags

from jaxatr import command, data, training
from jaxatr.recogniser import Prediction, Recogniser


def define_flags() -> None:
    """Defines the command's flags; only the command itself does, so that it can be imported."""
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    flags.DEFINE_string("gamma", None, "γ, or 'fitted'; default: the run's configured γ.")
    flags.DEFINE_bool("jsonl", False, "Print one JSON object a line.")


def main(arguments) -> int:
    """Prints a line for each image; images that cannot be used are named, the others still done."""
    if not arguments:
        raise ValueError("no image given: python -m jaxatr.predict --workdir=DIR IMAGE...")
    training.enable_compilation_cache()
    recogniser = Recogniser.load(
        flags.FLAGS.workdir,
        checkpoint=command.checkpoint(flags.FLAGS.checkpoint),
        gamma=_gamma(flags.FLAGS.gamma),
    )
    used: deque[str] = deque()
    failed: list[str] = []
    for prediction in recogniser(_usable(arguments, recogniser, used, failed)):
        print(_line(used.popleft(), prediction), flush=True)
    return 1 if failed else 0


def _usable(
    paths: Sequence[str], recogniser: Recogniser, used: deque[str], failed: list[str]
) -> Iterator[np.ndarray]:
    """Yields the images that can be used, and notes their paths; names the others at once."""
    for path in paths:
        try:
            image = data.read_image(path)
            recogniser.chip(image)
        except (ValueError, OSError) as error:
            message = str(error)
            print(f"error: {message if path in message else f'{path}: {message}'}", file=sys.stderr)
            failed.append(path)
            continue
        used.append(path)
        yield image


def _gamma(text: str | None) -> float | str | None:
    if text is None or text == "fitted":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--gamma: got {text!r}, wanted a probability or 'fitted'") from None


def _line(path: str, prediction: Prediction) -> str:
    if flags.FLAGS.jsonl:
        return json.dumps({"image": path, **prediction._asdict()}, ensure_ascii=False)
    best = sorted(prediction.probabilities.items(), key=lambda item: -item[1])
    classes = " ".join(f"{name}={value:.3f}" for name, value in best)
    return (
        f"{path}: {prediction.label} (known {prediction.known_probability:.4f}, score "
        f"{prediction.score:.2f}, γ {prediction.gamma:.6g}) {classes}"
    )


if __name__ == "__main__":
    command.run(main, define_flags)
