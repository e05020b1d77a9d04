"""Times every explanation beside one forward pass of the network that it explains.

A batch goes through the target's forward pass, the surrogate, Grad-CAM, RISE and LIME alternately,
in one run; medians, and their ratio to the forward pass. The networks have random weights: what a
map shows does not change what it costs. RISE and LIME are timed on one image with few masks, and
their full number (8,000 and 1,000) is that time times so many more; the record has both numbers.

Run: python experiments/benchmarks/explanations.py [--sizes=64,224] [--repeats=20]
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from alternating import alternately

from jaxatr import config as configuration
from jaxatr import models
from jaxatr.tasks.distillation import surrogate_saliency
from jaxatr.tasks.explaining import rival

OUTPUT = Path(__file__).parent / "results" / "explanations_cpu.json"
NETWORKS = {64: ("resnet18", 32, 1), 224: ("resnet50", 64, 3)}
"""Side of the chip to the target's backbone, its width and the chip's channels."""
MASKS = {"rise": (100, 8000), "lime": (100, 1000)}
CLASSES = 10


def cases(size: int, batch: int) -> dict[str, Callable[[], Any]]:
    """Returns what is timed: of the batch, but RISE and LIME of one image."""
    backbone, width, channels = NETWORKS[size]
    config = configuration.base()
    config.model.backbone, config.model.width = backbone, width
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
    saliency = jax.jit(partial(surrogate_saliency, surrogate, mean=mean, std=std))
    grad_cam = rival("grad_cam", predict, mean)
    few = {name: rival(name, predict, mean, samples=masks[0]) for name, masks in MASKS.items()}
    return {
        "forward pass": lambda: forward(variables, jnp.asarray(images)),
        "surrogate": lambda: saliency(own, jnp.asarray(images)),
        "grad_cam": lambda: grad_cam(images),
        **{name: partial(method, images[:1]) for name, method in few.items()},
    }


def measured(size: int, batch: int, repeats: int) -> dict[str, dict[str, float]]:
    """Returns milliseconds an image and forward passes, of each method."""
    seconds = alternately(cases(size, batch), repeats)
    medians = {name: 1e3 * value for name, value in seconds.items()}
    images = {name: medians[name] / batch for name in ("forward pass", "surrogate", "grad_cam")}
    rows = {}
    for name, (few, all_of_them) in MASKS.items():
        images[name] = medians[name] * all_of_them / few
        rows[name] = {"timed_masks": few, "masks": all_of_them}
    one = images["forward pass"]
    return {
        name: {"milliseconds": value, "passes": value / one, **rows.get(name, {})}
        for name, value in images.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="64,224")
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
    for size in map(int, flags.sizes.split(",")):
        backbone, width, _ = NETWORKS[size]
        name = f"{backbone}, width {width}, {size} pixels"
        record["sizes"][name] = measured(size, flags.batch, flags.repeats)
        print(name, json.dumps(record["sizes"][name]), flush=True)
        flags.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
