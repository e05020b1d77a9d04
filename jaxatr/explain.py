"""Shows which pixels of images speak for what a trained network says of them.

python -m jaxatr.explain --workdir=DIR IMAGE... --out=DIR [--method=surrogate|grad_cam|rise|lime|…]
"""

import json
from collections import deque
from pathlib import Path

import numpy as np
from absl import flags

from jaxatr import command, reporting, training
from jaxatr.explanation import METHODS, Explainer, Explanation


def define_flags() -> None:
    """Defines the command's flags; only the command itself does, so that it can be imported."""
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_string("out", None, "The folder to write to.", required=True)
    flags.DEFINE_enum("method", None, METHODS, "Default: surrogate of its run, else grad_cam.")
    flags.DEFINE_integer("seed", 0, "Of the methods that draw (RISE, LIME, SmoothGrad).")


def main(arguments) -> int:
    """Writes a picture, a map and figures of each image; names those that cannot be used."""
    if not arguments:
        raise ValueError(
            "no image given: python -m jaxatr.explain --workdir=DIR IMAGE... --out=DIR"
        )
    training.enable_compilation_cache()
    values = flags.FLAGS
    explainer = Explainer.load(values.workdir, values.method, seed=values.seed)
    out = Path(values.out)
    out.mkdir(parents=True, exist_ok=True)
    used: deque[str] = deque()
    failed: list[str] = []
    names: set[str] = set()
    for explanation in explainer(command.usable_images(arguments, explainer.chip, used, failed)):
        path = used.popleft()
        name = _own_name(Path(path).stem, names)
        _write(out, name, path, explainer.method, explanation)
        print(
            f"{path}: {explanation.label} ({explanation.score:.4f}), insertion "
            f"{explanation.insertion:.4f}, deletion {explanation.deletion:.4f}, "
            f"{out / f'{name}.png'}",
            flush=True,
        )
    return 1 if failed else 0


def _own_name(stem: str, names: set[str]) -> str:
    """Returns the file's name, with a number where another image had it already."""
    name, number = stem, 2
    while name in names:
        name, number = f"{stem}-{number}", number + 1
    names.add(name)
    return name


def _write(out: Path, name: str, path: str, method: str, explanation: Explanation) -> None:
    title = (
        f"{explanation.label} {explanation.score:.3f}   {method}   "
        f"ins {explanation.insertion:.3f}  del {explanation.deletion:.3f}"
    )
    picture = reporting.overlay(explanation.chip, explanation.saliency, title=title)
    picture.save(out / f"{name}.png")
    np.save(out / f"{name}.npy", explanation.saliency)
    figures = {
        "image": path,
        "method": method,
        "class": explanation.label,
        "score": explanation.score,
        "insertion": explanation.insertion,
        "deletion": explanation.deletion,
    }
    (out / f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    command.run(main, define_flags)
