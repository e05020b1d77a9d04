"""Times every explanation method against a forward pass of the explained network.

The target's forward pass, the surrogate, Grad-CAM and Grad-CAM++ process a batch; the methods that
need many passes process one image, as in use. All run alternately in one process. The record has
medians and their ratios to a forward pass per image. The networks have random weights, because the
content of a map does not affect its cost. A method of many passes is timed with a small number of
turns (masks, steps or windows) and extrapolated to the default number of
:mod:`jaxatr.explain.methods`; the record has both. LIME also segments the image and fits a
regression once, so it is timed with two numbers of turns, and their difference gives the cost of
further turns.

Run: python experiments/benchmarks/explanations.py [--sizes=32,64,224] [--repeats=20]
"""

import argparse
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from alternating import alternately
from recording import device_and_version

from jaxatr import config as configuration
from jaxatr import models
from jaxatr.explain import METHODS

OUTPUT = Path(__file__).parent / "results" / "explanations_cpu.json"
CLASSES = 10


class Case(NamedTuple):
    """An explained network, its chips and its surrogate.

    Attributes:
      size: rows and columns of a chip.
      channels: channels of a chip.
      backbone: name of the backbone of target and student.
      width: width of the backbone.
      stem: stem of the backbone.
      explainer: width of the explanation network.
      deltas: the student's values that the explanation network receives.
    """

    size: int
    channels: int
    backbone: str
    width: int
    stem: str
    explainer: int
    deltas: str

    @property
    def name(self) -> str:
        """The name in tables."""
        stem = ", 3x3 stem" if self.stem == "3x3" else ""
        features = ", from features" if self.deltas == "features" else ""
        return f"{self.backbone}, width {self.width}{stem}, {self.size} pixels{features}"


NETWORKS = (
    Case(64, 1, "resnet18", 32, "7x7", 16, "features"),  # short variants of configs/distill.py
    Case(64, 1, "resnet18", 32, "7x7", 16, "last"),
    Case(64, 1, "resnet18", 16, "7x7", 16, "features"),  # experiments/attentive_distillation
    Case(32, 3, "resnet18", 16, "3x3", 16, "features"),
    Case(224, 3, "resnet50", 64, "7x7", 64, "last"),  # the paper's
)


class Turns(NamedTuple):
    """The turns of a method that needs many passes of one image.

    Attributes:
      options: the options that it is timed with.
      timed: the number of turns with these options.
      full: the number of turns by default.
      halved: options for half of the timed turns, if the method also has a fixed cost.
    """

    options: Mapping[str, Any]
    timed: int
    full: int
    halved: Mapping[str, Any] | None = None

    def in_full(self, seconds: float, of_half: float | None) -> float:
        """Extrapolates to the seconds of all turns."""
        if of_half is None:
            return seconds * self.full / self.timed
        return seconds + (self.full - self.timed) * (seconds - of_half) / (self.timed / 2)


def turns(size: int) -> dict[str, Turns]:
    """Returns the turns of the methods of many passes, for chips of ``size`` pixels a side."""
    window = size // 8  # only the number of windows affects the cost, not their size
    windows = -(-(size - _default("occlusion", "window")) // _default("occlusion", "stride")) + 1
    return {
        "rise": Turns({"samples": 100}, 100, _default("rise", "samples")),
        "lime": Turns({"samples": 100}, 100, _default("lime", "samples"), {"samples": 50}),
        "occlusion": Turns({"window": window, "stride": window}, 8**2, windows**2),
        "integrated_gradients": Turns({"steps": 5}, 5, _default("integrated_gradients", "steps")),
        "smoothgrad": Turns({"samples": 5}, 5, _default("smoothgrad", "samples")),
    }


def _default(method: str, option: str) -> int:
    return inspect.signature(METHODS[method].function).parameters[option].default


def timed(case: Case, batch: int) -> dict[str, Callable[[], Any]]:
    """Returns the timed functions; methods of many passes take one image, the others a batch."""
    config = configuration.of_task("jaxatr.tasks.distillation:Distillation")
    channels, size = case.channels, case.size
    for name in ("backbone", "width", "stem"):
        config.model[name] = getattr(case, name)
    config.surrogate.width, config.surrogate.deltas = case.explainer, case.deltas
    target = models.build_open_set(config.model, CLASSES)
    surrogate = models.build_surrogate(config, CLASSES)
    images = np.random.default_rng(0).random((batch, size, size, channels), np.float32)
    variables = target.init(jax.random.key(0), images[:1])
    own = dict(surrogate.init(jax.random.key(1), images[:1]))
    mean, std = np.full(channels, 0.5, np.float32), np.full(channels, 0.3, np.float32)

    def logits(variables, images):
        out: Any = target.apply(variables, (images - mean) / std)
        return out.logits

    predict = jax.tree_util.Partial(logits, variables)
    forward = jax.jit(logits)

    @jax.jit
    def saliency(variables, images):
        out: Any = surrogate.apply(variables, (images - mean) / std)
        return out.saliency

    def maps(name, images, **options):
        method = METHODS[name]
        explain = method.bind(predict, mean, **options)
        return lambda: method.scaled(explain(images))

    few = {}
    for name, passes in turns(size).items():
        few[name] = maps(name, images[:1], **passes.options)
        if passes.halved:
            few[_half(name)] = maps(name, images[:1], **passes.halved)
    return {
        "forward pass": lambda: forward(variables, jnp.asarray(images)),
        "surrogate": lambda: saliency(own, jnp.asarray(images)),
        "grad_cam": maps("grad_cam", images),
        "grad_cam_plus_plus": maps("grad_cam_plus_plus", images),
        **few,
    }


def _half(name: str) -> str:
    return f"{name}, half of its turns"


def measured(case: Case, batch: int, repeats: int) -> dict[str, dict[str, float]]:
    """Returns each method's milliseconds per image, and the same in forward passes."""
    seconds = alternately(timed(case, batch), repeats)
    many, one, rows = turns(case.size), 1e3 * seconds["forward pass"] / batch, {}
    halves = {name: seconds.pop(_half(name), None) for name in many}
    for name, value in seconds.items():
        passes = many.get(name)
        an_image = 1e3 * (passes.in_full(value, halves[name]) if passes else value / batch)
        more = {"timed_turns": passes.timed, "turns": passes.full} if passes else {}
        rows[name] = {"milliseconds": an_image, "passes": an_image / one, **more}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="32,64,224")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, default=OUTPUT)
    flags = parser.parse_args()
    record: dict[str, Any] = {
        **device_and_version(),
        "batch": flags.batch,
        "repeats": flags.repeats,
        "sizes": {},
    }
    sizes = set(map(int, flags.sizes.split(",")))
    for case in NETWORKS:
        if case.size not in sizes:
            continue
        record["sizes"][case.name] = measured(case, flags.batch, flags.repeats)
        print(case.name, json.dumps(record["sizes"][case.name]), flush=True)
        flags.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
