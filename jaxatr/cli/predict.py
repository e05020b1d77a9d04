"""Predicts the content of images: a known class or "unknown", or the nearest training chips.

jaxatr predict --workdir=DIR IMAGE... [--json] [--score=auto|cbc|vim|…] [--gamma=0.9|fitted]
jaxatr predict --workdir=DIR IMAGE|FOLDER|ARCHIVE|TABLE... [--out=table.csv|.jsonl|.parquet]
jaxatr predict --workdir=DIR SOURCE... --engine=ray|local --out=FOLDER [--shard=10000]
jaxatr predict --workdir=DIR IMAGE... --runtime=jax|onednn|onnxruntime|openvino [--precision=…]
jaxatr predict --workdir=DIR IMAGE... --explain=OUT [--method=grad_cam|rise|…]
jaxatr predict --workdir=DIR IMAGE... --neighbours=5 [--json] [--max_distance=0.5]
jaxatr predict --workdir=DIR SCENES --boxes=FILE [--out=table.csv]
jaxatr predict --workdir=DIR --workdir=DIR IMAGE... [--json]
jaxatr predict --workdir=TRACKS FOLDER... [--json] [--gamma=0.9|fitted]

IMAGE is an image file, FOLDER a folder of images, ARCHIVE a .zip or .tar file
of images, TABLE a .csv, .tsv or .parquet file with a column of paths. SOURCE is
an image, a folder, an archive, a table of paths, a Parquet table of images, or
tfds:NAME for a prepared data set. SCENES is a folder of scenes, or one, and
FILE the file or folder of their boxes (see jaxatr prepare): a row is a box,
whose chip is cut as the run's were. TRACKS is the folder of a run on tracks,
whose inputs are folders with the images of one track.
"""

from collections.abc import Sequence
from typing import Any

from absl import flags

from jaxatr.cli import inputs

_SHARD = 10_000
# Options of the predictors; each kind of run has some of them.
_OPTIONS = ("checkpoint", "gamma", "score", "neighbours", "max_distance")


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
    inputs.define_data()
    flags.DEFINE_integer(
        "neighbours",
        None,
        "Number of nearest training chips to list; default: 1 for runs of embeddings, none for "
        "recognisers, which need the training data for it.",
        1,
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
    inputs.define_source_name()
    flags.DEFINE_string(
        "boxes", None, "Decide about these boxes of a scene, or of a folder of scenes."
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
    flags.DEFINE_bool("json", False, "Print a JSON object per line.")
    flags.DEFINE_alias("jsonl", "json")
    inputs.define_engine(_SHARD)
    flags.DEFINE_integer(
        "gallery_workers",
        0,
        "With --engine=ray: number of additional workers that share the gallery of the score; 0: "
        "every model holds the whole gallery.",
        0,
    )


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each input, or writes a table; reports unusable inputs and continues."""
    if not arguments:
        raise ValueError("no image given: jaxatr predict --workdir=DIR IMAGE|FOLDER|ARCHIVE...")
    _check_batch_flags()
    if flags.FLAGS.engine:
        from jaxatr.cli import parts  # late, to keep --help fast

        return parts.main(arguments, _options())
    _check_explanation_flags()
    from jaxatr.cli import predictions

    return predictions.main(arguments, _options())


def _check_batch_flags() -> None:
    """Checks the flags of ``--engine``.

    Raises:
      ValueError: flags cannot be combined, or one is missing.
    """
    values = flags.FLAGS
    if values.engine is None:
        for name in ("shard", "workers", "gallery_workers"):
            if values[name].present:
                raise ValueError(f"--{name} needs --engine")
        return
    if not values.out:
        raise ValueError("--engine needs --out=FOLDER, the folder of the part files")
    for name in ("json", "boxes", "explain", "method", "surrogate"):
        if values[name].present:
            raise ValueError(
                f"--{name} cannot be combined with --engine, which writes Parquet only"
            )


def _check_explanation_flags() -> None:
    """Checks the flags of ``--explain``.

    Raises:
      ValueError: flags cannot be combined, or one is missing.
    """
    values = flags.FLAGS
    for name in ("method", "surrogate"):
        if values[name].present and not values.explain:
            raise ValueError(f"--{name} needs --explain=FOLDER")
    if values.explain and values.checkpoint != "latest":
        raise ValueError("--explain uses the latest checkpoint: leave --checkpoint out")
    if values.explain and len(values.workdir) > 1:
        raise ValueError("--explain cannot be used with an ensemble: give one --workdir")


def _options() -> dict[str, Any]:
    """Collects the options on the command line; the predictor checks that its kind has them."""
    options = inputs.given(*_OPTIONS) | inputs.data_place()
    if inputs.given("runtime", "precision"):
        options["runtime"] = inputs.runtime()
    if "checkpoint" in options:
        options["checkpoint"] = inputs.checkpoint(options["checkpoint"])
    return options
