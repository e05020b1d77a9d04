"""Shows which pixels of images speak for the class that a trained network predicts.

jaxatr explain --workdir=DIR IMAGE... --out=DIR [--method=surrogate|grad_cam|rise|lime|…]
"""

from collections import deque
from collections.abc import Sequence

from absl import flags

from jaxatr import training
from jaxatr.cli import inputs
from jaxatr.explain import METHODS, Explainer, Pictures, describe


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_string("out", None, "The folder to write to.", required=True)
    flags.DEFINE_string(
        "method",
        None,
        f"surrogate, {', '.join(METHODS)}, or module:NAME of your own; default: surrogate of its "
        "run, else grad_cam.",
    )
    flags.DEFINE_integer("seed", 0, "Of the methods that draw (RISE, LIME, SmoothGrad).")


def main(arguments: Sequence[str]) -> int:
    """Writes a picture, a map and figures of each image; names those that cannot be used."""
    if not arguments:
        raise ValueError("no image given: jaxatr explain --workdir=DIR IMAGE... --out=DIR")
    training.enable_compilation_cache()
    values = flags.FLAGS
    explainer = Explainer.load(values.workdir, values.method, seed=values.seed, progress=True)
    pictures = Pictures(values.out, explainer.method)
    used: deque[str] = deque()
    failed: list[str] = []
    for explanation in explainer(inputs.usable_images(arguments, explainer.chip, used, failed)):
        path = used.popleft()
        print(describe(path, explanation, pictures.write(path, explanation)), flush=True)
    return 1 if failed else 0
