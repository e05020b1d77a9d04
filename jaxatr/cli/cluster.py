"""Groups the images that a run rejects as unknown, as candidates for classes to enrol.

jaxatr cluster --workdir=DIR IMAGE|FOLDER|ARCHIVE... [--out=clusters.html] [--fewest=5]

Writes a page with pictures of each group and the command that enrols it, and
beside the page a JSON file with the groups, which that command reads.
"""

import json
import sys
from collections.abc import Sequence

from absl import flags

from jaxatr.cli import inputs
from jaxatr.cli.terminal import one_line
from jaxatr.extras import require


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_string("out", "clusters.html", "The HTML page; the JSON is written beside it.")
    flags.DEFINE_integer("fewest", 5, "Least number of images in a group.", 2)
    flags.DEFINE_string("score", None, "The score that decides; default: the run's.")
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    flags.DEFINE_bool("json", False, "Print the groups as JSON.")


def main(arguments: Sequence[str]) -> None:
    """Groups the images, and prints the groups and the paths of the files."""
    require("jinja2", "sklearn", extra="report", what="jaxatr cluster")
    # Late, to keep --help fast.
    from jaxatr import runs, training
    from jaxatr.recognition.clusters import enrol_command
    from jaxatr.reporting import text_table

    if not arguments:
        raise ValueError("no image given: jaxatr cluster --workdir=DIR IMAGE|FOLDER|ARCHIVE...")
    training.enable_compilation_cache()
    values = flags.FLAGS
    inputs.say(f"loading {values.workdir}, and predicting the images")
    result = runs.cluster_run(
        values.workdir,
        arguments,
        values.out,
        fewest=values.fewest,
        score=values.score,
        checkpoint=inputs.checkpoint(values.checkpoint),
    )
    for name, reason in result.left_out:
        print(f"warning: {one_line(name)}: {reason}", file=sys.stderr)
    content = result.content
    if values.json:
        print(json.dumps(content, indent=2, ensure_ascii=False))
        return
    rows = [
        [
            str(one["group"]),
            str(one["size"]),
            f"{one['spread']:.2f}",
            ", ".join(f"{name} {count}" for name, count in list(one["nearest"].items())[:3]),
        ]
        for one in content["groups"]
    ]
    if rows:
        print(text_table(["group", "images", "spread", "most similar to"], rows))
    alone = len(content["alone"])
    print(f"{content['rejected']} of {content['images']} images are unknown, {alone} in no group")
    if rows:
        by = result.content["enrols_by"]
        command = enrol_command(values.workdir, result.file, 1, by)
        print(f"to enrol group 1: {command}")
    print(f"page: {result.page}")
