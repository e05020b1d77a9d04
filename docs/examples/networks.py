"""A target of one's own: a network in a safetensors file, in raw units."""

import jax.numpy as jnp
from safetensors.numpy import load_file

from jaxatr import models
from jaxatr.tasks import Target

FILE, CLASSES = "birds.safetensors", ("albatross", "auklet", "blackbird")
backbone = models.ResNet50()


def logits(variables, images):  # [b, h, w, 3] in raw units, to [b, k]; pure and differentiable
    mean, std = jnp.array([123.7, 116.3, 103.5]), jnp.array([58.4, 57.1, 57.4])
    features = backbone.apply(variables["backbone"], (images - mean) / std)
    return features @ variables["weight"].T + variables["bias"]


def birds():
    file = load_file(FILE)
    variables = {"backbone": models.pretrained.load(FILE, backbone)}
    variables |= {name: file[f"fc.{name}"] for name in ("weight", "bias")}
    return Target(logits, variables, CLASSES, {"weights": FILE})
