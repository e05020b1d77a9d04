"""Measures every problem of a network's training step and of its inference.

jaxatr tune model --name=resnet18 --size=64 --batch=32
"""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from absl import flags

from jaxatr import config as configuration
from jaxatr import kernels, models, parallel
from jaxatr.tuning import driver
from jaxatr.typing import PyTree


def define_flags() -> None:
    """Defines the sub-command's flags."""
    flags.DEFINE_string("name", "resnet18", "A built-in backbone, or my.module:Class.")
    flags.DEFINE_integer("size", 64, "Rows and columns of a chip.")
    flags.DEFINE_integer("channels", 1, "Channels of a chip.")
    flags.DEFINE_integer("batch", 32, "Chips on one device.")
    flags.DEFINE_integer("classes", 10, "Known classes.")
    flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Type of the computation.")
    flags.DEFINE_bool("train", True, "Include training; --notrain measures inference only.")
    driver.define_flags()


def main(arguments: Sequence[str]) -> int:
    """Lists, verifies and times the solvers of each problem of the network."""
    if arguments:
        raise ValueError(f"got {arguments[0]!r}, which is not a flag: write --name=resnet18")
    for name in ("size", "channels", "batch", "classes"):
        if (value := getattr(flags.FLAGS, name)) < 1:
            raise ValueError(f"--{name}: got {value}, wanted at least 1")
    config = configuration.common().model
    config.backbone, config.dtype = flags.FLAGS.name, flags.FLAGS.dtype
    model = models.build_open_set(config, flags.FLAGS.classes)
    size, channels = flags.FLAGS.size, flags.FLAGS.channels
    problems = problems_of(
        model, (flags.FLAGS.batch, size, size, channels), training=flags.FLAGS.train
    )
    print(f"{len(problems)} problems")
    return driver.drive_all(problems, ())


def problems_of(model: nn.Module, shape: tuple[int, ...], *, training: bool) -> list[Any]:
    """Returns the distinct problems of a network on a batch of chips, without computing anything.

    Args:
      model: a network for images, with an argument ``train``.
      shape: shape of the batch, ``(b, h, w, c)``.
      training: whether to include the problems of a gradient of all parameters.
    """
    images = jax.ShapeDtypeStruct(shape, jnp.float32)
    variables = jax.eval_shape(model.init, jax.random.key(0), images)

    def infer(variables: PyTree, images: Any) -> Any:
        return model.apply(variables, images)

    def loss(params: PyTree, rest: PyTree, images: Any) -> Any:
        outputs, _ = model.apply({"params": params, **rest}, images, train=True, mutable=list(rest))
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(outputs))

    with kernels.collected() as collector:
        jax.jit(infer).lower(variables, images)
        if training:
            rest = {name: value for name, value in variables.items() if name != "params"}
            # Batch norm reduces over the devices' axis.
            step = jax.pmap(jax.grad(loss), axis_name=parallel.AXIS)
            given = variables["params"], rest, images
            step.lower(*jax.tree.map(_on_one_device, given))
    return [problem for _, problem, _ in collector.problems.values()]


def _on_one_device(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype)
