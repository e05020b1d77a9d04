"""Explains predictions: shows which pixels of an image support the predicted class.

jaxatr explain --workdir=DIR IMAGE|FOLDER|ARCHIVE... --out=DIR [--method=grad_cam|rise|…|all]
"""

from collections.abc import Sequence

from absl import flags

from jaxatr import parts


def define_flags() -> None:
    """Defines the command's flags."""
    methods = ", ".join(parts.files("jaxatr.explain.methods"))
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_string("out", None, "The folder to write to.", required=True)
    flags.DEFINE_string(
        "method",
        None,
        f"The method: surrogate, {methods}, module:NAME of your own, or 'all' for "
        "one sheet of all methods with their agreement. Default: surrogate for a surrogate's run, "
        "else grad_cam.",
    )
    flags.DEFINE_integer("seed", 0, "Random seed of RISE, LIME and SmoothGrad.")


def main(arguments: Sequence[str]) -> int:
    """Writes a picture, a map and figures for each image; returns 1 if an image is unusable."""
    if not arguments:
        raise ValueError("no image given: jaxatr explain --workdir=DIR IMAGE... --out=DIR")
    from jaxatr.cli import explanations  # late, to keep --help fast

    return explanations.main(arguments)
