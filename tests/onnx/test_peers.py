"""Models that PyTorch has written: the same outputs, the same gradients."""

import io
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import onnx as importer

pytest.importorskip("onnx")
torch = pytest.importorskip("torch")


class Convolutions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.up = torch.nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1)
        self.last = torch.nn.Linear(4, 5)

    def forward(self, x):
        y = torch.nn.functional.silu(self.norm(self.first(x)))
        y = torch.nn.functional.max_pool2d(y + self.second(y), 3, 2, 1, ceil_mode=True)
        y = torch.nn.functional.interpolate(self.up(y), scale_factor=1.5, mode="bilinear")
        return self.last(torch.nn.functional.gelu(y).mean((2, 3)))


class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = torch.nn.GRU(10, 3, batch_first=True)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])[0]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = torch.nn.LayerNorm(8), torch.nn.LayerNorm(8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.dense = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)
        )

    def forward(self, x):
        y = self.before(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.dense(self.after(x))


def exported(network, x):
    """Returns the model as PyTorch writes it, its outputs, and the gradients of their squares."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (x,), stream, dynamo=False, input_names=["x"], do_constant_folding=False
        )
    x = x.clone().requires_grad_(True)
    y = network(x)
    y.square().sum().backward()
    gradients = {name: p.grad.numpy() for name, p in network.named_parameters()}
    return stream.getvalue(), y.detach().numpy(), x.grad.numpy(), gradients


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (Convolutions, (2, 3, 12, 12)),
        pytest.param(Both, (3, 6, 4), marks=pytest.mark.slow),
        (Block, (2, 5, 8)),
    ],
)
def test_forward_and_gradient(network, shape):
    torch.manual_seed(0)
    made = network().eval()
    for tensor in made.state_dict().values():  # PyTorch writes equal ones only once
        if tensor.is_floating_point():
            tensor.add_(0.1 * torch.rand_like(tensor))
    x = torch.randn(shape)
    raw, expected, of_x, of_parameters = exported(made, x)
    model = importer.load(raw)

    def loss(params, x):
        y = model.apply({**model.variables, "params": params}, x)
        return jnp.sum(jnp.square(y)), y

    step = jax.jit(jax.grad(loss, (0, 1), has_aux=True))
    (by_params, by_x), y = step(model.variables["params"], x.numpy())
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(by_x, of_x, atol=1e-4)
    same = set(by_params) & set(of_parameters)
    assert len(same) >= len(of_parameters) // 2 or network is Both
    for name in same:  # PyTorch renames what it transposes or joins
        np.testing.assert_allclose(by_params[name], of_parameters[name], atol=1e-3, rtol=1e-3)
