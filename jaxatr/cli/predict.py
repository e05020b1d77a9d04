"""Predicts the content of images: a known class or "unknown", or the nearest training chips.

jaxatr predict --workdir=DIR IMAGE... [--jsonl] [--score=auto|cbc|vim|…] [--gamma=0.9|fitted]
jaxatr predict --workdir=DIR IMAGE|FOLDER|ARCHIVE... [--out=table.csv|table.jsonl|table.parquet]
jaxatr predict --workdir=DIR SOURCE... --engine=ray|local --out=FOLDER [--shard=10000]
jaxatr predict --workdir=DIR IMAGE... --runtime=jax|onednn|onnxruntime|openvino
jaxatr predict --workdir=DIR IMAGE... --explain=OUT [--method=grad_cam|rise|…]
jaxatr predict --workdir=DIR IMAGE... --neighbours=5 [--jsonl] [--max_distance=0.5]
jaxatr predict --workdir=DIR --workdir=DIR IMAGE... [--jsonl]
jaxatr predict --workdir=TRACKS FOLDER... [--jsonl] [--gamma=0.9|fitted]

IMAGE is an image file, FOLDER a folder of images, ARCHIVE a .zip or .tar file
of images. SOURCE is one of these, a Parquet table, or tfds:NAME for a prepared
data set. TRACKS is the folder of a run on tracks, whose inputs are folders
with the images of one track.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags
from tqdm import tqdm

from jaxatr import data, runs, training
from jaxatr.cli import command, inputs, parts
from jaxatr.cli.images import Inputs
from jaxatr.explain import Explainer, Pictures, describe, explain_all, load_explainers, load_target

# Options of the predictors; each kind of run has some of them.
_OPTIONS = (
    *("checkpoint", "gamma", "score", "source", "data_dir", "neighbours", "max_distance"),
    "runtime",
)


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_multi_string(
        "workdir", None, "The run's folder; repeat it for an ensemble.", required=True
    )
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    flags.DEFINE_string(
        "score",
        None,
        "The open-set score that decides; 'auto' chooses one. Default: the run's.",
    )
    flags.DEFINE_string(
        "gamma",
        None,
        "The threshold: a probability γ for CBC, a value of the score for others, or 'fitted'. "
        "Default: 'fitted', but the configured γ with --score=cbc.",
    )
    flags.DEFINE_string(
        "source", None, "Present location of the training data, if a score must be fitted."
    )
    flags.DEFINE_string("data_dir", None, "Present folder of prepared data sets.")
    flags.DEFINE_integer(
        "neighbours", 1, "Number of nearest training chips to list (runs of embeddings).", 1
    )
    flags.DEFINE_float(
        "max_distance",
        None,
        "Distance beyond which an image is unknown (runs of embeddings); default: fitted to "
        "validation data.",
    )
    inputs.define_runtime()
    flags.DEFINE_string(
        "out",
        None,
        "Write a row for each image to this table (.csv, .jsonl or .parquet) instead of printing a "
        "line; with --engine: the folder of the part files.",
    )
    flags.DEFINE_string(
        "explain", None, "Also write an explanation of each prediction to this folder."
    )
    flags.DEFINE_string(
        "method", None, "With --explain: the method; default: --surrogate's, or grad_cam."
    )
    flags.DEFINE_string(
        "surrogate", None, "With --explain: folder of the run whose surrogate explains."
    )
    flags.DEFINE_bool("jsonl", False, "Print a JSON object per line.")
    parts.define_flags()


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each input, or writes a table; reports unusable inputs and continues."""
    if not arguments:
        raise ValueError("no image given: jaxatr predict --workdir=DIR IMAGE|FOLDER|ARCHIVE...")
    values = flags.FLAGS
    parts.check_flags()
    if values.engine:
        return parts.main(arguments, _options())
    training.enable_compilation_cache()
    if values.out:
        data.check_table(values.out)
    explainers = _explainers()
    workdirs = values.workdir
    predictor = runs.load_predictor(workdirs if len(workdirs) > 1 else workdirs[0], **_options())
    if predictor.note:
        print(predictor.note, file=sys.stderr)
    done: list[data.ImagePath] = []
    rows: dict[int, dict[str, data.Cell]] = {}  # by the input's number
    with tempfile.TemporaryDirectory(prefix="jaxatr-") as scratch:
        found = Inputs(
            arguments,
            scratch,
            read=predictor.read,
            check=predictor.check,
            folders=predictor.takes == "FOLDER",
            named="warning" if values.out else "error",
        )
        verdicts: list[str] = []
        quiet = None if values.out and not values.jsonl else True  # None: unless on a terminal
        bar = tqdm(desc="predicting", unit=" images", leave=False, disable=quiet)
        for prediction in predictor(found):
            number, path = found.used.popleft()
            done.append(path)
            verdicts.append(predictor.verdict(prediction))
            bar.update()
            if values.out:
                rows[number] = _row(path.name, predictor, prediction)
            if values.jsonl:
                fields = {"image": path.name, "runtime": predictor.runtime}
                fields |= predictor.to_json(prediction)
                print(json.dumps(fields, ensure_ascii=False), flush=True)
            elif not values.out:
                print(f"{path.name}: {predictor.describe(prediction)}", flush=True)
        bar.close()
        for shapes, form in predictor.forms.items():
            print(f"{shapes}: {form}", file=sys.stderr)
        if values.out:
            _write(values.out, rows, found.failed)
        if explainers:
            _explain(explainers, done, verdicts)
    if values.out:
        return 0 if done else command.EXIT_USER_ERROR
    return 1 if found.failed else 0


def _row(path: str, predictor: training.Predictor, prediction: Any) -> dict[str, data.Cell]:
    """Makes the row of an input; the prediction's fields follow the first columns."""
    first: dict[str, data.Cell] = {"path": path, "error": None, "runtime": predictor.runtime}
    fields = predictor.to_row(prediction)
    if double := first.keys() & fields.keys():
        raise ValueError(
            f"--out: the prediction's field {min(double)!r} has the name of another column"
        )
    return first | fields


def _write(
    out: str, rows: dict[int, dict[str, data.Cell]], failed: dict[int, dict[str, data.Cell]]
) -> None:
    """Writes the table, in the order of the inputs."""
    every = rows | failed
    data.write_table(
        out, [every[number] for number in sorted(every)], text=("path", "error", "runtime")
    )
    labels = Counter(str(row["label"]) for row in rows.values() if "label" in row)
    counts = ", ".join(f"{label} {count}" for label, count in labels.most_common())
    of = f" ({counts})" if counts else ""
    print(f"{out}: {len(rows)} predicted{of}, {len(failed)} failed", file=sys.stderr)


def _options() -> dict[str, Any]:
    """Collects the options on the command line; the predictor checks that its kind has them."""
    options = inputs.given(*_OPTIONS)
    if "checkpoint" in options:
        options["checkpoint"] = inputs.checkpoint(options["checkpoint"])
    return options


def _explainers() -> dict[str, Explainer]:
    values = flags.FLAGS
    for name in ("method", "surrogate"):
        if values[name].present and not values.explain:
            raise ValueError(f"--{name} needs --explain=FOLDER")
    if not values.explain:
        return {}
    if values.checkpoint != "latest":
        raise ValueError("--explain uses the newest checkpoint: leave --checkpoint out")
    if len(values.workdir) > 1:
        raise ValueError("--explain cannot be used with an ensemble: give one --workdir")
    (workdir,) = values.workdir
    if values.surrogate:
        target = load_target(workdir).source
        kind = training.task_of(values.surrogate)
        if not kind.explains(training.read_record(values.surrogate), target):
            raise ValueError(f"--surrogate: {values.surrogate} does not explain {workdir}")
    return load_explainers(values.surrogate or workdir, values.method, progress=True)


def _explain(
    explainers: Mapping[str, Explainer], paths: list[data.ImagePath], verdicts: list[str]
) -> None:
    """Writes the pictures, and prints their paths; to standard error if stdout has JSON lines."""
    out = sys.stderr if flags.FLAGS.jsonl else sys.stdout
    pictures = Pictures(flags.FLAGS.explain)
    images = (data.read_image(path.file) for path in paths)
    explained = explain_all(explainers, images)
    for path, word, explanations in zip(paths, verdicts, explained, strict=True):
        picture = pictures.write(path, explanations, verdict=word)
        print(describe(path.name, explanations, picture, verdict=word), file=out, flush=True)
