"""Compiles training steps and inference of the bundled configurations for described devices.

Networks, batches and losses come from a configuration, and the data from its smoke variant. Nothing
is trained, because a program depends on shapes only.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any
from unittest import mock

import jax
import numpy as np

from jaxatr import bundled, parallel, runs
from jaxatr.training import Phase, Target, Task
from jaxatr.training.state import TrainState, split
from jaxatr.training.step import make_step
from jaxatr.typing import PyTree

CONFIGS = ("cbc", "quadruplet", "distill", "track")
DTYPES = ("float32", "bfloat16")


@cache
def task_of(name: str, dtype: str) -> Task:
    """Makes the task of a configuration, with the default width of its network."""
    config, full = bundled.load(f"{name}:smoke"), bundled.load(name)
    config.model.width, config.model.dtype = full.model.width, dtype
    config.train.batch_size = full.train.batch_size
    if name == "quadruplet":
        config.mining.method = "random"  # needs no embedding of the training set
    if name == "track":
        config.track.hidden = full.track.hidden
    if name != "distill":
        return runs.make_task(config, "nowhere")
    config.distillation.target, config.model.pretrained = "given below", ""
    config.surrogate.width = full.surrogate.width
    classifier: Any = task_of("cbc", dtype)
    params, state = jax.jit(classifier.init)(jax.random.key(0))

    def logits(variables: PyTree, images: Any) -> jax.Array:
        normalised = classifier.examples.normalize(images)
        return classifier.module.apply(variables, normalised, train=False).logits

    target = Target(logits, {"params": params, **state}, classifier.split.known, {})
    with mock.patch("jaxatr.tasks.distillation.task.load_target", return_value=target):
        return runs.make_task(config, "nowhere")


def state_of(task: Task) -> TrainState:
    """Returns the shapes and types of a task's initial state."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    params, model_state = jax.eval_shape(task.init, key)
    optimizers = {
        phase.name: jax.eval_shape(phase.optimizer.init, split(params, phase.trainable)[0])
        for phase in task.phases
    }
    count = jax.ShapeDtypeStruct((), np.int32)
    return TrainState(count, params, model_state, optimizers, key)


@cache
def batch_of(task: Task, phase: Phase) -> dict[str, np.ndarray]:
    """Returns a batch of a phase."""
    if task.hook is None:
        return dict(next(task.batches(phase)))
    chosen = task.hook.run(0, None, None, False)
    return dict(next(task.hook.batches(phase, chosen)))


def _leading(count: int, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((count, *a.shape), a.dtype), tree)


def training_step(task: Task, phase: Phase, devices: Sequence[Any]) -> Any:
    """Compiles a phase's training step for devices, each with an equal share of the batch."""
    state, batch = state_of(task), batch_of(task, phase)
    count = len(devices)
    shares = {
        name: jax.ShapeDtypeStruct((count, len(a) // count, *a.shape[1:]), a.dtype)
        for name, a in batch.items()
    }
    stop = jax.ShapeDtypeStruct((count,), np.int32)
    step = make_step(phase, devices)
    return step.lower(_leading(count, state), shares, stop).compile()


def inference(task: Any, device: Any) -> Any:
    """Compiles inference for a device, on a batch of the last phase."""
    state, batch = state_of(task), batch_of(task, task.phases[-1])
    names = ("image", "length")
    shapes = {n: jax.ShapeDtypeStruct(batch[n].shape, batch[n].dtype) for n in names if n in batch}
    if "length" not in shapes and len(shapes["image"].shape) == 5:  # quadruplets, not tracks
        count, members, *shape = shapes["image"].shape
        shapes["image"] = jax.ShapeDtypeStruct((count * members, *shape), shapes["image"].dtype)
    variables = {"params": state.params, **state.model_state}
    mapped = jax.pmap(task.infer, axis_name=parallel.AXIS, devices=[device])
    return mapped.lower(*_leading(1, (variables, shapes))).compile()
