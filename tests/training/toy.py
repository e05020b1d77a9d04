"""A small task for the tests of the loop: a network with batch norm on synthetic images.

Also a program, ``python toy.py WORKDIR [name=value ...]``: trains the task and writes the final
parameters to ``WORKDIR/final.npz``, for tests that kill it.
"""

import dataclasses
import sys
import time
from pathlib import Path

import flax.linen as nn
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from jaxatr import kernels, parallel, training
from jaxatr.training import LossOutput, Phase, Task

EXAMPLES = 64


def convolve(x, kernel, strides, padding, **_):
    return kernels.convolution(x, kernel, stride=strides, padding=padding)


class Net(nn.Module):
    """A convolution, batch norm over all devices, a linear layer."""

    @nn.compact
    def __call__(self, images, train=False):
        synchronised = parallel.AXIS if train and not self.is_initializing() else None
        x = nn.Conv(8, (3, 3), conv_general_dilated=convolve, name="conv")(images)
        x = nn.BatchNorm(use_running_average=not train, axis_name=synchronised, name="norm")(x)
        return nn.Dense(4, name="head")(nn.relu(x).mean(axis=(1, 2)))


@dataclasses.dataclass
class Toy(Task):
    """The task."""

    phases: tuple
    cycles: int = 1
    best: str = "accuracy"
    hook: object = None
    batch_size: int = 16
    nan_at: int = -1
    pause: float = 0.0

    def init(self, key):
        variables = Net().init(key, jnp.zeros((1, 8, 8, 1)))
        return variables["params"], {"batch_stats": variables["batch_stats"]}

    def batches(self, phase):
        size, index, count = self.batch_size, jax.process_index(), jax.process_count()
        share = slice(index * size // count, (index + 1) * size // count)
        dataset = grain.MapDataset.source(np.arange(EXAMPLES)).seed(0).shuffle().repeat()
        dataset = dataset.map(example).batch(size).map(self._slow)
        dataset = dataset.map(lambda batch: {name: leaf[share] for name, leaf in batch.items()})
        return iter(dataset.to_iter_dataset(grain.ReadOptions(2, 4)))

    def _slow(self, batch):
        time.sleep(self.pause)
        return batch

    def evaluate(self, params, model_state):
        data = example(np.arange(EXAMPLES))
        outputs = parallel.map_batches(_infer, (params, model_state), [data], jax.local_devices())
        ((batch, logits),) = list(outputs)
        return {"accuracy": float(np.mean(np.argmax(logits, -1) == batch["label"]))}


def _infer(variables, batch):
    params, model_state = variables
    return Net().apply({"params": params, **model_state}, batch["image"])


def example(index):
    """Images whose class is a brightness, one in three of them masked out."""
    index = np.asarray(index)
    noise = np.sin(np.arange(64, dtype=np.float32) * (index[..., None] + 1)) * 0.5
    label = index % 4
    return {
        "id": index.astype(np.int32),
        "image": (noise + label[..., None]).astype(np.float32).reshape(*index.shape, 8, 8, 1),
        "label": label.astype(np.int32),
        "mask": index % 3 > 0,
    }


def loss(params, model_state, batch, key, step, nan_at=-1):
    """Masked cross-entropy on images with noise that depends on the example."""
    keys = jax.vmap(lambda index: jax.random.fold_in(key, index))(batch["id"])
    noise = jax.vmap(lambda k: jax.random.normal(k, (8, 8, 1)))(keys)
    images = batch["image"] + 0.1 * noise
    logits, new = Net().apply(
        {"params": params, **model_state}, images, train=True, mutable=["batch_stats"]
    )
    each = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    each = jnp.where(step == nan_at, jnp.nan, each)
    mask = batch["mask"]
    correct = jnp.sum((jnp.argmax(logits, -1) == batch["label"]) & mask)
    return LossOutput(jnp.sum(each * mask), jnp.sum(mask), {"accuracy": (correct, mask.sum())}, new)


def make(steps=20, nan_at=-1, **fields):
    """Returns the task with one phase of ``steps`` steps."""

    def phase_loss(*arguments):
        return loss(*arguments, nan_at=nan_at)

    optimizer = optax.sgd(optax.cosine_decay_schedule(0.1, 20), momentum=0.9)
    return Toy((Phase("train", phase_loss, optimizer, steps),), **fields)


def config(**fields):
    """Returns a configuration to record."""
    return ConfigDict({"data": {"data_dir": ""}, "train": {"steps": 20, "lr": 0.1}} | fields)


def run(workdir, task=None, **options):
    """Trains with settings for tests."""
    settings = {"config": config(), "log_every": 3, "checkpoint_every": 5, "progress": False}
    return training.train(task or make(), workdir=workdir, **(settings | options))


def main(workdir, *, devices=0, **options):
    """Trains like the command, and writes the final parameters."""
    parallel.initialize_from_environment()
    training.enable_compilation_cache()
    fields = {
        name: options.pop(name) for name in ("steps", "pause", "batch_size") if name in options
    }
    options.setdefault("log_every", 1)
    options["find_kernels"] = bool(options.pop("find", False))
    if devices:
        options["devices"] = jax.devices()[:devices]
    try:
        result = run(workdir, make(**fields), **options)
    except training.Preempted as stop:
        print(stop)
        sys.exit(stop.exit_code)
    if jax.process_index() == 0:
        np.savez(Path(workdir) / "final.npz", **named((result.params, result.model_state)))


def named(tree):
    """Returns the leaves of a tree by their paths."""
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


if __name__ == "__main__":
    pairs = (argument.split("=") for argument in sys.argv[2:])
    main(sys.argv[1], **{k: float(v) if "." in v else int(v) for k, v in pairs})
