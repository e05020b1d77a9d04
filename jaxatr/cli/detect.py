"""Finds targets in scenes, and says what each is: a known class or "unknown".

jaxatr detect --workdir=DETECTOR SCENE|FOLDER|ARCHIVE|TABLE... [--out=table.csv]
jaxatr detect --workdir=DETECTOR --recogniser=RUN SCENE... --out=table.parquet
jaxatr detect --workdir=DETECTOR SCENE... --out=targets.geojson|targets.json
jaxatr detect --workdir=DETECTOR SCENE... --pictures=FOLDER
jaxatr detect --workdir=DETECTOR --recogniser=RUN --tracks FRAMES... --out=t.csv
jaxatr detect --workdir=DETECTOR SCENE... --engine=local|ray --out=FOLDER

SCENE is an image of any size. A recogniser, if given, decides about each target
by its chip, which is cut as those of its training were; otherwise the binary
classifiers of the detector do. --runtime runs the networks of both. FRAMES is a
folder of the frames of a video, in the natural order of their names. Each line
or row is a target; --out writes a table (.csv, .jsonl, .parquet), COCO (.json)
or GeoJSON (.geojson). --engine searches any number of scenes into Parquet files
in a folder, and resumes.
"""

from collections.abc import Sequence
from typing import Any

from absl import flags

from jaxatr.cli import inputs

_SHARD = 100


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("workdir", None, "The folder of the detector's run.", required=True)
    flags.DEFINE_multi_string(
        "recogniser",
        [],
        "Folder of the run that decides about each target; repeat it for an ensemble.",
    )
    flags.DEFINE_string("checkpoint", "latest", "The detector's: 'latest', 'best' or a step.")
    flags.DEFINE_float(
        "threshold", None, "The least detection score of a target; default: the fitted one."
    )
    flags.DEFINE_string(
        "gamma", None, "The threshold of the recogniser, or γ of the detector; default: as fitted."
    )
    flags.DEFINE_string("score", None, "The recogniser's score that decides; default: the run's.")
    flags.DEFINE_string(
        "out",
        None,
        "Write the targets to this file instead of printing them: a table (.csv, .jsonl, "
        ".parquet), COCO (.json) or GeoJSON (.geojson).",
    )
    flags.DEFINE_string("pictures", None, "Write pictures of the scenes with boxes to this folder.")
    flags.DEFINE_bool(
        "tracks", False, "Link the targets over the frames of a folder, and decide once for each."
    )
    flags.DEFINE_bool("json", False, "Print a JSON object per scene.")
    inputs.define_runtime(precision=False)
    inputs.define_source_name()
    inputs.define_engine(_SHARD)
    flags.DEFINE_integer(
        "strips",
        1,
        "With --engine: number of strips of a scene that count as an input each, so that several "
        "workers share a large scene.",
        1,
    )


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each scene, or writes a file; reports unusable scenes and continues."""
    if not arguments:
        raise ValueError("no scene given: jaxatr detect --workdir=DETECTOR SCENE|FOLDER|ARCHIVE...")
    values = flags.FLAGS
    if values.score is not None and not values.recogniser:
        raise ValueError("--score needs --recogniser=RUN, whose score it is")
    _check_engine()
    options: dict[str, Any] = {"checkpoint": inputs.checkpoint(values.checkpoint)}
    options |= inputs.given("threshold", "runtime")
    of_recogniser = inputs.given("gamma", "score", "runtime")
    if not values.recogniser and (gamma := of_recogniser.pop("gamma", "fitted")) != "fitted":
        options["gamma"] = _probability(gamma)
    if values.engine:
        from jaxatr import batch  # late, to keep --help fast
        from jaxatr.cli import parts

        return parts.main(
            arguments, options, batch.Search(values.recogniser, of_recogniser, values.strips)
        )
    from jaxatr.cli import detections

    return detections.main(arguments, options, of_recogniser)


def _probability(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--gamma: got {text!r}, wanted a probability or 'fitted'") from None


def _check_engine() -> None:
    """Checks the flags of ``--engine``.

    Raises:
      ValueError: flags cannot be combined, or one is missing.
    """
    values = flags.FLAGS
    if values.engine is None:
        for name in ("shard", "workers", "strips"):
            if values[name].present:
                raise ValueError(f"--{name} needs --engine")
        return
    if not values.out:
        raise ValueError("--engine needs --out=FOLDER, the folder of the part files")
    for name in ("json", "pictures", "tracks"):
        if values[name].value:
            raise ValueError(
                f"--{name} cannot be combined with --engine, which writes Parquet only"
            )
