"""Predicts what is in images: a known class or "unknown", or the most similar training chips.

jaxatr predict --workdir=DIR IMAGE... [--jsonl] [--score=auto|cbc|vim|…] [--gamma=0.9|fitted]
jaxatr predict --workdir=DIR IMAGE... --explain=OUT [--method=grad_cam|rise|…]
jaxatr predict --workdir=DIR IMAGE... --neighbours=5 [--jsonl] [--max_distance=0.5]
jaxatr predict --workdir=DIR --workdir=DIR IMAGE... [--jsonl]
jaxatr predict --workdir=TRACKS FOLDER... [--jsonl] [--gamma=0.9|fitted]
"""

import json
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

from absl import flags

from jaxatr import data, runs, training
from jaxatr.cli import inputs
from jaxatr.explain import Explainer, Pictures, describe, load_target

# Of the kinds' predictors.
_OPTIONS = ("checkpoint", "gamma", "score", "source", "data_dir", "neighbours", "max_distance")


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_multi_string(
        "workdir", None, "The run's folder; several times for an ensemble.", required=True
    )
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    flags.DEFINE_string(
        "score",
        None,
        "Decide by this open-set score, or by the one that 'auto' chooses; default: the run's.",
    )
    flags.DEFINE_string(
        "gamma",
        None,
        "The threshold: γ where CBC decides, else a value of the score; or 'fitted'. Default: the "
        "fitted one, and the configured γ where CBC is named.",
    )
    flags.DEFINE_string("source", None, "Where the training data is now, to fit a score to.")
    flags.DEFINE_string("data_dir", None, "Where prepared data is now.")
    flags.DEFINE_integer(
        "neighbours", 1, "Name so many of the nearest training chips (an embedding's run).", 1
    )
    flags.DEFINE_float(
        "max_distance", None, "An embedding's: unknown beyond; default: fitted to validation data."
    )
    flags.DEFINE_string("explain", None, "Explain each prediction, in pictures in this folder.")
    flags.DEFINE_string("method", None, "Of --explain; default: --surrogate's, or grad_cam.")
    flags.DEFINE_string("surrogate", None, "The folder of the run whose surrogate explains.")
    flags.DEFINE_bool("jsonl", False, "Print one JSON object a line.")


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each input; names those that cannot be used, and goes on."""
    if not arguments:
        raise ValueError("no image given: jaxatr predict --workdir=DIR IMAGE...")
    training.enable_compilation_cache()
    values = flags.FLAGS
    explainer = _explainer()
    workdirs = values.workdir
    predictor = runs.load_predictor(workdirs if len(workdirs) > 1 else workdirs[0], **_options())
    if predictor.note:
        print(predictor.note, file=sys.stderr)
    used: deque[str] = deque()
    done: list[str] = []
    failed: list[str] = []
    usable = inputs.usable_images(arguments, predictor.check, used, failed, read=predictor.read)
    for prediction in predictor(usable):
        path = used.popleft()
        done.append(path)
        if values.jsonl:
            fields = {"image": path, **predictor.to_json(prediction)}
            print(json.dumps(fields, ensure_ascii=False), flush=True)
        else:
            print(f"{path}: {predictor.describe(prediction)}", flush=True)
    if explainer is not None:
        _explain(explainer, done)
    return 1 if failed else 0


def _options() -> dict[str, Any]:
    """Collects the options that were given; a kind of run refuses those that it does not have."""
    options = inputs.given(*_OPTIONS)
    if "checkpoint" in options:
        options["checkpoint"] = inputs.checkpoint(options["checkpoint"])
    return options


def _explainer() -> Explainer | None:
    values = flags.FLAGS
    for name in ("method", "surrogate"):
        if values[name].present and not values.explain:
            raise ValueError(f"--{name} is of --explain=OUT, which is not given")
    if not values.explain:
        return None
    if values.checkpoint != "latest":
        raise ValueError("--explain is of the newest checkpoint: leave --checkpoint out")
    if len(values.workdir) > 1:
        raise ValueError("--explain is of one run, not of an ensemble: leave all but one --workdir")
    (workdir,) = values.workdir
    if values.surrogate:
        target = load_target(workdir).source
        kind = training.task_of(values.surrogate)
        if not kind.explains(training.read_record(values.surrogate), target):
            raise ValueError(f"--surrogate: {values.surrogate} does not explain {workdir}")
    return Explainer.load(values.surrogate or workdir, values.method, progress=True)


def _explain(explainer: Explainer, paths: list[str]) -> None:
    """Writes the pictures; to standard error, where JSON goes to standard output."""
    out = sys.stderr if flags.FLAGS.jsonl else sys.stdout
    pictures = Pictures(flags.FLAGS.explain, explainer.method)
    images = (data.read_image(path) for path in paths)
    for path, explanation in zip(paths, explainer(images), strict=True):
        print(describe(path, explanation, pictures.write(path, explanation)), file=out, flush=True)
