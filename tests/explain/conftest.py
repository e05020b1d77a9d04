"""A small network as three functions, and the same network in PyTorch."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

CLASSES = 4


@pytest.fixture(scope="session")
def images():
    """Three images whose sides differ."""
    return np.random.default_rng(0).normal(size=(3, 12, 10, 3)).astype(np.float32)


@pytest.fixture(scope="session")
def network():
    """``predict``, and its parts ``features`` and ``head``; their weights by name."""
    draw = np.random.default_rng(1)
    weights = {
        "first": draw.normal(size=(3, 3, 3, 6)) / 5,
        "second": draw.normal(size=(3, 3, 6, 8)) / 7,
        "last": draw.normal(size=(8, CLASSES)) * 2,
    }
    weights = {name: value.astype(np.float32) for name, value in weights.items()}

    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def features(x):
        return jax.nn.relu(convolve(x, weights["first"]))

    def head(maps):
        return jax.nn.relu(convolve(maps, weights["second"])).mean((1, 2)) @ weights["last"]

    def predict(x):
        return head(features(x))

    return SimpleNamespace(predict=predict, features=features, head=head, weights=weights)


@pytest.fixture(scope="session")
def peer(network):
    """captum's methods on the same network: ``module``, its ``features``, ``tensor``."""
    torch = pytest.importorskip("torch", reason="extra 'peers' is not installed")
    attr = pytest.importorskip("captum.attr", reason="extra 'peers' is not installed")

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Conv2d(3, 6, 3, padding=1, bias=False)
            self.second = torch.nn.Conv2d(6, 8, 3, padding=1, bias=False)
            self.last = torch.nn.Linear(8, CLASSES, bias=False)
            self.features = torch.nn.ReLU()

        def forward(self, x):
            x = torch.relu(self.second(self.features(self.first(x))))
            return self.last(x.mean((2, 3)))

    module = Network().eval()
    for name, value in network.weights.items():
        order = (3, 2, 0, 1) if value.ndim == 4 else (1, 0)
        getattr(module, name).weight.data = torch.from_numpy(np.transpose(value, order).copy())

    def tensor(images):
        return torch.from_numpy(np.transpose(images, (0, 3, 1, 2)).copy())

    return SimpleNamespace(module=module, attr=attr, tensor=tensor)


@pytest.fixture(scope="session")
def linear():
    """Logits linear in the pixels, as a jax function and, with softmax, in NumPy's float64."""

    def of_shape(*shape, seed=2, scale=0.5):
        kernel = scale * np.random.default_rng(seed).normal(size=(int(np.prod(shape)), CLASSES))

        def predict(x):
            return x.reshape(len(x), -1) @ jnp.float32(kernel)

        def probability(image, target):
            logits = np.float64(image).ravel() @ kernel
            return np.exp(logits[target]) / np.sum(np.exp(logits))

        return SimpleNamespace(predict=predict, probability=probability, kernel=kernel)

    return of_shape
