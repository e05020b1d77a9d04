"""Times every explanation beside one forward pass of the network that it explains.

A batch goes through the target's forward pass, the surrogate, Grad-CAM and Grad-CAM++, and one
image through the methods of many passes, as they are used, all alternately in one run; medians, and
their ratio to the forward pass of the batch's share. The networks have random weights: what a map
shows does not change what it costs. A method of many passes is timed with few of its turns (masks,
steps, windows), and its full number, the default of :mod:`jaxatr.explain.methods`, is that time
times so many more; the record has both. LIME, which also finds regions once and fits a regression,
is timed with two numbers, and their difference is the cost of the further turns.

Run: python experiments/benchmarks/explanations.py [--sizes=32,64,224] [--repeats=20]
"""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from alternating import alternately

from jaxatr import config as configuration
from jaxatr import models
from jaxatr.explain import METHODS

OUTPUT = Path(__file__).parent / "results" / "explanations_cpu.json"
CLASSES = 10


class Case(NamedTuple):
    """A network that is explained, its chips, and its surrogate.

    Attributes:
      size: side of a chip.
      channels: of a chip.
      backbone: of target and student.
      width: of that.
      stem: of that.
      explainer: width of the explanation network.
      deltas: what it is handed by the student.
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
        """How tables call it."""
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
    """A method that takes many passes of one image.

    Attributes:
      options: with which it is timed.
      timed: turns that it takes then.
      full: turns that it takes by default.
      halved: options with which it takes half of them, where a part of its time is for none.
    """

    options: Mapping[str, Any]
    timed: int
    full: int
    halved: Mapping[str, Any] | None = None

    def in_full(self, seconds: float, of_half: float | None) -> float:
        """Returns the seconds of all turns."""
        if of_half is None:
            return seconds * self.full / self.timed
        return seconds + (self.full - self.timed) * (seconds - of_half) / (self.timed / 2)


def turns(size: int) -> dict[str, Turns]:
    """Returns how the methods of many passes are timed on a chip of so many pixels a side."""
    window = size // 8  # which costs what another window does: what counts is how many there are
    return {
        "rise": Turns({"samples": 100}, 100, 8000),
        "lime": Turns({"samples": 100}, 100, 1000, {"samples": 50}),
        "occlusion": Turns({"window": window, "stride": window}, 8**2, ((size - 8) // 4 + 1) ** 2),
        "integrated_gradients": Turns({"steps": 5}, 5, 50),
        "smoothgrad": Turns({"samples": 5}, 5, 25),
    }


def timed(case: Case, batch: int) -> dict[str, Callable[[], Any]]:
    """Lists the timed functions: of the batch, but the methods of many passes of one image."""
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
    """Returns milliseconds an image and forward passes, of each method."""
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
    device = jax.devices()[0]
    record: dict[str, Any] = {
        "device": f"{device.platform}, {device.device_kind}, {jax.device_count()} device",
        "jax": jax.__version__,
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
