"""The worker that runs this package for training_step.py."""

import sys

from jaxatr import memory

if __name__ == "__main__":  # like the commands, before the imports below start threads
    memory.keep(one_heap="--mode=inference" in sys.argv)
    memory.collect_rarely()

import contextlib
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from serve import parse, serve

from jaxatr import config, kernels, losses, models, parallel, training
from jaxatr.kernels.compiled import Compiled
from jaxatr.tasks.optimizer import build_optimizer
from jaxatr.training.pace import Pace
from jaxatr.training.state import trace_state
from jaxatr.training.step import make_step
from jaxatr.training.task import LossOutput, Phase

CLASSES = 6


class Benchmark:
    """The open-set task of the paper on one batch of random images."""

    cycles = 1
    best = "loss"

    hook = None

    def __init__(self, size: int, file: str = ""):
        """Makes the task.

        Args:
          size: height and width of the images.
          file: an ONNX file to use as the backbone; by default a ResNet-18.
        """
        self.size = size
        backbone: Any = models.ResNet18(axis_name=parallel.AXIS)
        if file:
            # Other trainings do not import it, so their first step and memory are without it.
            from jaxatr.onnx.backbone import OnnxBackbone

            backbone = OnnxBackbone(file, "features")
        self.module = models.OpenSetClassifier(backbone, CLASSES)
        fields: Any = config.common().optimizer
        fields.update(learning_rate=1e-2, momentum=0.9, nesterov=True, weight_decay=5e-4)
        fields.update(schedule="constant", warmup_epochs=0.0)
        self.phases = [Phase("open_set", self.loss, build_optimizer(fields, 1, 1), 1)]

    def init(self, key):
        """Returns the parameters and the batch statistics."""
        variables = dict(self.module.init(key, jnp.zeros((1, self.size, self.size, 3))))
        return variables.pop("params"), variables

    def batches(self, phase):
        """Yields nothing, because the worker holds the only batch."""
        raise NotImplementedError

    def evaluate(self, params, model_state):
        """Evaluates nothing."""
        return {}

    def loss(self, params, model_state, batch, key, step):
        """Returns the loss, equation 4 without the entropy term."""
        variables = {"params": params, **model_state}
        out: Any
        out, model_state = self.module.apply(
            variables, batch["image"], train=True, mutable=["batch_stats"]
        )
        values = losses.open_set(out.logits, out.open_logits, batch["label"], entropy_weight=0.0)
        return LossOutput(jnp.sum(values), jnp.float32(len(values)), {}, model_state)

    def infer(self, variables, batch):
        """Returns the logits of both heads, in test mode."""
        out: Any = self.module.apply(variables, batch["image"], train=False)
        return out.logits, out.open_logits


def main():
    options = parse(__doc__)
    if options.mode == "training":
        parallel.compute_inline()
    training.enable_compilation_cache(options.cache or "off")
    task: Any = Benchmark(options.size, options.onnx)
    draw = np.random.default_rng(0)
    images = draw.standard_normal((options.batch, options.size, options.size, 3), np.float32)
    batch = {"image": images, "label": draw.integers(0, CLASSES, options.batch, np.int32)}
    batch = jax.device_put(parallel.shard(batch, 1))
    prepare = training_step if options.mode == "training" else inference_step
    step, lower = prepare(task, *begin(task), batch)
    pinned = contextlib.nullcontext()
    if options.find:  # as a training run does
        pinned = kernels.choices(kernels.freeze(lower, measure=True))
    with pinned:
        serve(step)


def begin(task):
    """Returns the shapes of the replicated state, and the state, which a thread creates."""
    shapes, compute = trace_state(task, jax.random.key(0))
    return parallel.replicated_shapes(shapes), parallel.replicate_in_background(compute)


def training_step(task, shapes, created, batch):
    train_step, stop = make_step(task.phases[0], None), np.zeros(1, np.int32)
    pace, state = Pace(), None
    lower = partial(train_step.lower, shapes, batch, stop)

    def step():  # as the training loop does it
        nonlocal created, state
        if created is not None:
            lower()
            state, created = created.result(), None
        state, sums = pace.dispatch("step", train_step, state, batch, stop)
        return jax.block_until_ready(sums)["loss"][0][0]

    return step, lower


def inference_step(task, shapes, created, batch):
    """Returns a call of the network as ``runtime=onednn`` compiles it, and its lowering."""
    del shapes
    state = created.result()
    # Without the optimiser's state, which would count in the peak memory.
    variables = jax.tree.map(lambda a: a[0], {"params": state.params, **state.model_state})
    infer = Compiled(task.infer, variables, compete=True)
    images = {"image": batch["image"][0]}
    return lambda: jax.block_until_ready(infer(images)), lambda: infer.lower(images)


if __name__ == "__main__":
    sys.exit(main())
