"""Learns how bright an image is."""

import os

import flax.linen as nn
import grain
import jax.numpy as jnp
import numpy as np
import optax

from jaxatr import data, training
from jaxatr.config import Field


class Network(nn.Module):
    @nn.compact
    def __call__(self, images):
        return nn.Dense(1)(images.mean(axis=(1, 2)))[:, 0]


class Brightness(training.Task):
    predictor = "brightness:Meter"
    best = "exactness"

    @classmethod
    def fields(cls):
        return {"brightness.images": Field(32, "training images")}

    def __init__(self, config):
        self.config = config
        self.module = self.network(config, self.record)
        self.steps_per_epoch = config.brightness.images // 8
        optimizer = optax.sgd(config.optimizer.learning_rate)
        self.phases = [training.Phase("fit", self.loss, optimizer, config.train.steps)]

    @classmethod
    def network(cls, config, record):
        return Network()

    @property
    def record(self):
        return {
            "image_shape": [4, 4, 1],
            "image_dtype": "uint8",
            "normalization": {"mean": [0.0], "std": [255.0]},
        }

    def init(self, key):
        return self.module.init(key, jnp.zeros((1, 4, 4, 1)))["params"], {}

    def batches(self, phase):
        source = grain.MapDataset.source(np.arange(self.config.brightness.images))
        return iter(source.seed(0).shuffle().repeat().map(example).batch(8).to_iter_dataset())

    def loss(self, params, model_state, batch, key, step):
        found = self.module.apply({"params": params}, batch["image"])
        error = jnp.square(found - batch["brightness"])
        return training.LossOutput(jnp.sum(error), jnp.float32(len(error)), {}, model_state)

    def evaluate(self, params, model_state):
        return {"exactness": -self.error({"params": params})}

    def error(self, variables):
        batch = example(np.arange(self.config.brightness.images))
        found = self.module.apply(variables, batch["image"])
        return float(np.abs(found - batch["brightness"]).mean())

    def test(self, variables, *, scale=1.0):
        return {"error": scale * self.error(variables)}, {"test_id": np.arange(3)}

    @classmethod
    def exportable(cls, run):
        def apply(variables, images):
            return [run.module.apply(variables, images)]

        return training.Exportable(apply, run.variables, ("brightness",), ())


def example(index):
    brightness = (np.asarray(index) % 8 / 8).astype(np.float32)
    image = np.broadcast_to(brightness[..., None, None, None], (*brightness.shape, 4, 4, 1))
    return {"id": np.asarray(index, np.int32), "image": image.copy(), "brightness": brightness}


class Meter(training.Predictor):
    def __init__(self, run, offset):
        self.run, self.offset, self.chip = run, offset, run.intake

    @classmethod
    def load(cls, workdir: str | os.PathLike, *, checkpoint="latest", offset: float = 0.0):
        run = training.load_run(workdir, checkpoint)
        training.check_predictor(run, cls)
        return cls(run, offset)

    def read(self, path):
        return data.read_image(path)

    def prepare(self, item):
        return self.chip(item)

    def answers(self, chips):
        for chip in chips:
            images = self.run.normalize(chip[None])
            yield float(self.run.module.apply(self.run.variables, images)[0]) + self.offset

    def describe(self, prediction):
        return f"{prediction:.2f} of full brightness"

    def to_json(self, prediction):
        return {"brightness": prediction}
