"""The work of ``jaxatr explain``: a picture, a map and figures for each image."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from jaxatr import runs, training
from jaxatr.cli.images import Inputs
from jaxatr.cli.terminal import one_line
from jaxatr.explain import (
    Explainer,
    Pictures,
    describe,
    explain_all,
    load_explainers,
    with_evidence,
)
from jaxatr.files import Scratch


def main(arguments: Sequence[str]) -> int:
    """Explains the images, and returns the exit code."""
    training.enable_compilation_cache()
    values = flags.FLAGS
    with training.loading_once():
        explainers = load_explainers(values.workdir, values.method, seed=values.seed, progress=True)
        first = next(iter(explainers.values()))
        predictor = _predictor(first)
    pictures = Pictures(values.out)
    with Scratch() as scratch:
        found = Inputs(
            arguments,
            scratch,
            read=first.chip.read,
            prepare=first.chip,
            bands=first.chip.bands,
        )
        for explanations in explain_all(explainers, found):
            _, path = found.used.popleft()
            verdict = ""
            if predictor:
                (prediction,) = predictor.answers([next(iter(explanations.values())).chip])
                word = predictor.verdict(prediction)
                verdict = with_evidence(word, prediction.nearest, explanations)
            picture = pictures.write(path, explanations, verdict=verdict)
            print(describe(one_line(path.name), explanations, picture, verdict=verdict), flush=True)
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
