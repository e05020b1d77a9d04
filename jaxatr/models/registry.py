"""Backbones by name, for programs of one's own: no run and no configuration."""

import builtins
import os
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr.models import published
from jaxatr.models.backbones import BACKBONES
from jaxatr.models.pretrained import fit, load, of_backbone, put_into
from jaxatr.models.published_files import tensors_of
from jaxatr.resolve import nearest
from jaxatr.typing import Key, PyTree


class Created(NamedTuple):
    """A network with its variables.

    Attributes:
      model: the linen module: ``model.apply(variables, images)`` gives features ``[b, d]``.
      variables: ``{"params": …, "batch_stats": …}``, float32.
    """

    model: nn.Module
    variables: PyTree


def create(
    name: str,
    *,
    pretrained: bool | str | os.PathLike = False,
    in_channels: int = 3,
    weights_dir: str | os.PathLike = "",
    key: Key | None = None,
    **options: Any,
) -> Created:
    """Creates a backbone with random or pretrained weights.

    Published weights were trained on images normalised by
    ``models.published.named(name).normalization(in_channels)``. For other than three channels, the
    stem's kernel is summed over the published channels and divided evenly among the images'.

    Args:
      name: a name from :func:`list`.
      pretrained: True for the published weights of ImageNet, which are never downloaded, or a file
        of weights (:func:`jaxatr.models.pretrained.load`).
      in_channels: channels of the images.
      weights_dir: folder with the published weights, if they are not in an installed package.
      key: random key of the initial values; by default ``jax.random.key(0)``.
      **options: further arguments of the network, such as ``dtype``, ``attention``, or ``width``
        and ``stem`` of a residual network. ``axis_name`` names the ``pmap`` axis over which batch
        statistics are averaged; there is none by default.

    Raises:
      ValueError: there is no backbone of this name, it has no published weights, they are not on
        this machine (the message tells how to get them), or they do not fit the options.
      TypeError: the network does not take one of the options.
    """
    model = BACKBONES.find(name).build(**options)
    loaded = None
    if pretrained is True:
        network = published.of_backbone(name)
        if network is None:
            known = list(pretrained=True)
            raise ValueError(
                f"pretrained: there are no published weights of {name}, but of "
                f"{', '.join(known)}{nearest(name, known)}"
            )
        tensors, source = tensors_of(network, weights_dir)
        tensors = of_backbone(tensors, model)
        loaded = fit(tensors, model, in_channels=in_channels, channels="sum", title=source["path"])
    elif pretrained:
        loaded = load(pretrained, model, in_channels=in_channels, channels="sum")
    if loaded is not None and getattr(model, "attention", None) is None:
        return Created(model, jax.tree.map(jnp.asarray, loaded))
    key = jax.random.key(0) if key is None else key
    variables = jax.jit(model.init)(key, jnp.zeros((1, 32, 32, in_channels)))
    return Created(model, variables if loaded is None else put_into(variables, loaded))


def list(*, pretrained: bool = False) -> builtins.list[str]:
    """Returns the names of the backbones, or of those with published weights.

    Args:
      pretrained: only those with published weights.

    >>> "resnet18" in list(), "resnet18" in list(pretrained=True)
    (True, False)
    """
    return [name for name in BACKBONES if not pretrained or published.of_backbone(name)]
