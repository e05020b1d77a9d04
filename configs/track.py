"""Open-set recognition of tracks: a convolutional network and an LSTM over its features.

    jaxatr train --config=track[:variant]

Variants:
  default   simulated tracks, visible band: 4 to 8 chips each, 5° of aspect and 150 m of range
            apart, starting from 2100 to 3450 m, cropped to the target's box, which training
            perturbs by up to a tenth; 5 vehicles known and 3 unknown. A network of half the usual
            width and an LSTM of size 128. Each evaluation compares the tracks with the mean over
            single chips, from heads on the same convolutional network. To start from the weights
            of the variant below: --config.model.pretrained=RUN
  chips     the same without the LSTM, trained on shuffled single chips for the same number of
            steps and chips per step; a track's score is the mean over its chips
  smoke     the default on very little data, to check that everything runs
"""

from jaxatr import config as configuration
from jaxatr.typing import Config


def get_config(variant: str = "default") -> Config:
    """Returns the configuration of a variant; see the module's docstring."""
    variants = {"default": _default, "chips": _chips, "smoke": _smoke}
    return configuration.of_variant(variants, variant, task="jaxatr.tasks.track:TrackOpenSet")


def _default(config: Config) -> None:
    views = {"tracks": 192, "frames": (4, 8), "starts": (2000, 3500), "closing": 150}
    configuration.simulated_vehicles(config, views, name="simulated_tracks")
    config.data.box_error = 0.1
    config.model.width = 32
    config.optimizer.learning_rate = 3e-2
    config.optimizer.nesterov = True
    config.optimizer.schedule = "cosine"
    config.optimizer.warmup_epochs = 1.0
    config.train.batch_size = 8  # tracks, of 6 chips on average
    config.train.epochs = 20
    config.train.evaluate_every = 5.0


def _chips(config: Config) -> None:
    _default(config)
    config.track.hidden = 0


def _smoke(config: Config) -> None:
    _default(config)
    config.data.options.tracks = 4
    config.data.validation = 0.25
    config.model.width = 8
    config.track.hidden = 16
    config.train.epochs = 2
    config.train.evaluate_every = 1.0
