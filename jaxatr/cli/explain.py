"""Explains predictions: shows which pixels of an image support the predicted class.

jaxatr explain --workdir=DIR IMAGE|FOLDER|ARCHIVE... --out=DIR [--method=grad_cam|rise|…|all]
"""

import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from jaxatr import data, runs, training
from jaxatr.cli.images import Inputs
from jaxatr.explain import METHODS, Explainer, Pictures, describe, explain_all, load_explainers


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_string("out", None, "The folder to write to.", required=True)
    flags.DEFINE_string(
        "method",
        None,
        f"The method: surrogate, {', '.join(METHODS)}, module:NAME of your own, or 'all' for one "
        "sheet of all methods with their agreement. Default: surrogate for a surrogate's run, else "
        "grad_cam.",
    )
    flags.DEFINE_integer("seed", 0, "Random seed of RISE, LIME and SmoothGrad.")


def main(arguments: Sequence[str]) -> int:
    """Writes a picture, a map and figures for each image; returns 1 if an image is unusable."""
    if not arguments:
        raise ValueError("no image given: jaxatr explain --workdir=DIR IMAGE... --out=DIR")
    training.enable_compilation_cache()
    values = flags.FLAGS
    explainers = load_explainers(values.workdir, values.method, seed=values.seed, progress=True)
    first = next(iter(explainers.values()))
    predictor = _predictor(first)
    pictures = Pictures(values.out)
    with tempfile.TemporaryDirectory(prefix="jaxatr-") as scratch:
        found = Inputs(arguments, scratch, read=data.read_image, check=first.chip)
        images: deque[np.ndarray] = deque()
        for explanations in explain_all(explainers, _remembered(found, images)):
            (_, path), image = found.used.popleft(), images.popleft()
            verdict = predictor.verdict(predictor.predict(image)) if predictor else ""
            picture = pictures.write(path, explanations, verdict=verdict)
            print(describe(path.name, explanations, picture, verdict=verdict), flush=True)
    return 1 if found.failed else 0


def _predictor(explainer: Explainer) -> training.Predictor[Any, Any] | None:
    """Loads the run's predictor; None if there is only a network without a decision."""
    workdir = str(explainer.source.get("workdir", ""))
    if not Path(workdir).is_dir():
        return None
    try:
        return runs.load_predictor(workdir)
    except ValueError as error:
        print(f"the pictures show the class without a decision: {error}", file=sys.stderr)
        return None


def _remembered(images: Iterable[np.ndarray], kept: deque[np.ndarray]) -> Iterator[np.ndarray]:
    for image in images:
        kept.append(image)
        yield image
