"""The normalisation of a run's images."""

import numpy as np
import pytest

from jaxatr import config
from jaxatr.models.published import NETWORKS
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.normalization import constants_of, normalizing_network

NAME = "efficientnet_lite0"


def made(**fields):
    full = config.common()
    full.update_from_flattened_dict({name.replace("__", "."): v for name, v in fields.items()})
    return full


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, None),
        ({"model__pretrained": NAME}, NAME),
        ({"model__pretrained": "weights.safetensors"}, None),
        ({"model__pretrained": NAME, "data__normalize_by": "data"}, None),
        ({"data__normalize_by": "mobilenet_v2"}, "mobilenet_v2"),
        ({"model__pretrained": NAME, "data__normalize": False}, None),
    ],
)
def test_whose_constants(fields, name):
    network = normalizing_network(made(**fields))
    assert (network and network.name) == name


def test_an_unknown_network_is_refused():
    with pytest.raises(ValueError, match="data.normalize_by: got 'dat', .*; did you mean 'data'"):
        normalizing_network(made(data__normalize_by="dat"))
    with pytest.raises(ValueError, match="got 'mobilenet_v2' with data.normalize=False"):
        normalizing_network(made(data__normalize_by="mobilenet_v2", data__normalize=False))


def test_the_constants_are_the_published_ones_and_of_8_bits():
    """Compares one pixel with torchvision, and with (x - 127) / 128."""
    pixel = np.array([10.0, 200.0, 255.0])
    for name, wanted in [
        ("mobilenet_v2", (pixel / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]),
        ("efficientnet_lite0", (pixel - 127) / 128),
        ("efficientnet_lite2", (pixel - 127) / 128),
    ]:
        mean, std = constants_of(NETWORKS[name], np.dtype("uint8"), (96, 96, 3))
        np.testing.assert_allclose((pixel - mean) / std, wanted, rtol=1e-12)
    with pytest.raises(ValueError, match="uint8 images, got uint16: set --config.data.normal"):
        constants_of(NETWORKS[NAME], np.dtype("uint16"), (96, 96, 3))


def test_examples_take_them_and_record_whose_they_are(small_config):
    full = small_config.copy_and_resolve_references()
    full.data.normalize_by = NAME
    examples = Examples(full)
    assert examples.record["normalization"] == {"mean": [127.0], "std": [128.0], "by": NAME}
    image = np.full((1, 24, 24, 1), 255, np.uint8)
    np.testing.assert_allclose(examples.normalize(image), 1.0)
