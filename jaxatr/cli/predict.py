"""Predicts what is in images: a known class or "unknown", or the most similar training chips.

jaxatr predict --workdir=DIR IMAGE... [--jsonl] [--score=auto|cbc|vim|…] [--gamma=0.9|fitted]
jaxatr predict --workdir=DIR IMAGE|FOLDER|ARCHIVE... [--out=table.csv|table.jsonl|table.parquet]
jaxatr predict --workdir=DIR IMAGE... --explain=OUT [--method=grad_cam|rise|…]
jaxatr predict --workdir=DIR IMAGE... --neighbours=5 [--jsonl] [--max_distance=0.5]
jaxatr predict --workdir=DIR --workdir=DIR IMAGE... [--jsonl]
jaxatr predict --workdir=TRACKS FOLDER... [--jsonl] [--gamma=0.9|fitted]
"""

import json
import os
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from absl import flags

from jaxatr import data, runs, training
from jaxatr.cli import command, inputs
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
    flags.DEFINE_string(
        "out", None, "Write a row for each image into this table (.csv, .jsonl or .parquet)."
    )
    flags.DEFINE_string("explain", None, "Explain each prediction, in pictures in this folder.")
    flags.DEFINE_string("method", None, "Of --explain; default: --surrogate's, or grad_cam.")
    flags.DEFINE_string("surrogate", None, "The folder of the run whose surrogate explains.")
    flags.DEFINE_bool("jsonl", False, "Print one JSON object a line.")


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each input; names those that cannot be used, and goes on."""
    if not arguments:
        raise ValueError("no image given: jaxatr predict --workdir=DIR IMAGE|FOLDER|ARCHIVE...")
    training.enable_compilation_cache()
    values = flags.FLAGS
    if values.out:
        data.check_table(values.out)
    explainer = _explainer()
    workdirs = values.workdir
    predictor = runs.load_predictor(workdirs if len(workdirs) > 1 else workdirs[0], **_options())
    if predictor.note:
        print(predictor.note, file=sys.stderr)
    used: deque[tuple[int, data.ImagePath]] = deque()
    done: list[data.ImagePath] = []
    rows: dict[int, dict[str, data.Cell]] = {}  # by the input's number
    failed: dict[int, dict[str, data.Cell]] = {}
    with tempfile.TemporaryDirectory(prefix="jaxatr-") as scratch:
        for prediction in predictor(_usable(predictor, arguments, scratch, used, failed)):
            number, path = used.popleft()
            done.append(path)
            if values.out:
                rows[number] = _row(path.name, predictor.to_row(prediction))
            if values.jsonl:
                fields = {"image": path.name, **predictor.to_json(prediction)}
                print(json.dumps(fields, ensure_ascii=False), flush=True)
            else:
                print(f"{path.name}: {predictor.describe(prediction)}", flush=True)
        if values.out:
            _write(values.out, rows, failed)
        if explainer is not None:
            _explain(explainer, done)
    if values.out:
        return 0 if done else command.EXIT_USER_ERROR
    return 1 if failed else 0


def _usable(
    predictor: training.Predictor,
    arguments: Iterable[str],
    scratch: str,
    used: deque[tuple[int, data.ImagePath]],
    failed: dict[int, dict[str, data.Cell]],
) -> Iterator[Any]:
    """Yields the inputs that can be used; names the others on standard error, at once.

    Args:
      predictor: reads and checks them.
      arguments: of the command line.
      scratch: a folder for what is in archives.
      used: gets number and path of each input before it is yielded.
      failed: gets the number of each of the others, and its row.
    """
    for number, path in enumerate(_inputs(predictor, arguments, scratch)):
        try:
            if isinstance(path, _Refused):
                raise path.error
            item = predictor.read(path.file)
            predictor.check(item)
        except (ValueError, OSError) as error:
            # A file of an archive has two paths, of which a user knows one.
            reason = str(error) if isinstance(path, _Refused) else _renamed(str(error), path)
            named = reason if path.name in reason else f"{path.name}: {reason}"
            kind = "warning" if flags.FLAGS.out else "error"
            print(f"{kind}: {named}", file=sys.stderr)
            failed[number] = {"path": path.name, "error": reason.removeprefix(f"{path.name}: ")}
            continue
        used.append((number, path))
        yield item


class _Refused(NamedTuple):
    """A path of the command line that leads to no image."""

    name: str
    error: ValueError | OSError


def _inputs(
    predictor: training.Predictor, arguments: Iterable[str], scratch: str
) -> Iterator[data.ImagePath | _Refused]:
    """Yields what the arguments lead to; a folder of a run on tracks is one input."""
    for number, argument in enumerate(arguments):
        if predictor.takes == "FOLDER":
            yield data.ImagePath(argument, argument)
            continue
        try:
            found = data.image_paths(argument, os.path.join(scratch, str(number)))
        except (ValueError, OSError) as error:
            yield _Refused(argument, error)
            continue
        if passed := data.describe_passed(found):
            print(f"{argument}: {passed}", file=sys.stderr)
        yield from found.images


def _renamed(message: str, path: data.ImagePath) -> str:
    return message.replace(path.file, path.name)


def _row(path: str, fields: dict[str, data.Cell]) -> dict[str, data.Cell]:
    """Writes the row of an input; an own kind's fields cannot have the names of the first two."""
    first: dict[str, data.Cell] = {"path": path, "error": None}
    if double := first.keys() & fields.keys():
        raise ValueError(f"--out: a prediction's field {min(double)!r} has the name of a column")
    return first | fields


def _write(
    out: str, rows: dict[int, dict[str, data.Cell]], failed: dict[int, dict[str, data.Cell]]
) -> None:
    """Writes the table, in the order of the inputs."""
    every = rows | failed
    data.write_table(out, [every[number] for number in sorted(every)], text=("path", "error"))
    print(f"{out}: {len(rows)} predicted, {len(failed)} not", file=sys.stderr)


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


def _explain(explainer: Explainer, paths: list[data.ImagePath]) -> None:
    """Writes the pictures; to standard error, where JSON goes to standard output."""
    out = sys.stderr if flags.FLAGS.jsonl else sys.stdout
    pictures = Pictures(flags.FLAGS.explain, explainer.method)
    images = (data.read_image(path.file) for path in paths)
    for path, explanation in zip(paths, explainer(images), strict=True):
        picture = pictures.write(path.name, explanation)
        print(describe(path.name, explanation, picture), file=out, flush=True)
