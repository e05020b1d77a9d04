"""Models exported from PyTorch have the same outputs and gradients."""

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


def written(network, x, **options):
    """Exports a network with PyTorch and returns the bytes."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter is deprecated
        torch.onnx.export(network, (x,), stream, dynamo=False, input_names=["x"], **options)
    return stream.getvalue()


def exported(network, x):
    """Returns PyTorch's export of a network, its outputs, and the gradients of their squares."""
    raw = written(network, x, do_constant_folding=False)
    x = x.clone().requires_grad_(True)
    y = network(x)
    y.square().sum().backward()
    gradients = {name: p.grad.numpy() for name, p in network.named_parameters()}
    return raw, y.detach().numpy(), x.grad.numpy(), gradients


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
    assert set(by_params) == set(of_parameters)
    for name in by_params:
        np.testing.assert_allclose(by_params[name], of_parameters[name], atol=1e-3, rtol=1e-3)


def test_weights_of_a_recurrent_layer():
    """PyTorch joins and reorders them in the export: gates i, f, g, o become i, o, f, g."""
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(4, 5, bidirectional=True)
    x = torch.randn(6, 3, 4)

    class Outputs(torch.nn.Module):
        def forward(self, x):
            return lstm(x)[0]

    network = Outputs()
    network.lstm = lstm
    model = importer.load(written(network.eval(), x))
    network(x).square().sum().backward()

    def loss(params):
        return jnp.sum(jnp.square(model.apply({**model.variables, "params": params}, x.numpy())))

    found = {g.shape: g for g in jax.jit(jax.grad(loss))(model.variables["params"]).values()}

    def ours(kind):
        """Returns PyTorch's gradient of both directions in ONNX's layout."""
        both = [getattr(lstm, f"{kind}_l0{end}").grad.numpy() for end in ("", "_reverse")]
        return np.stack([np.concatenate([np.split(g, 4)[i] for i in (0, 3, 1, 2)]) for g in both])

    np.testing.assert_allclose(found[2, 20, 4], ours("weight_ih"), atol=1e-4)
    np.testing.assert_allclose(found[2, 20, 5], ours("weight_hh"), atol=1e-4)
    biases = np.concatenate([ours("bias_ih"), ours("bias_hh")], 1)
    np.testing.assert_allclose(found[2, 40], biases, atol=1e-4)


def test_derivatives_where_a_function_has_a_corner():
    class Corners(torch.nn.Module):
        def forward(self, x):
            limited = torch.clamp(x, 0, 2) + 2 * torch.clamp(x, min=1) + 4 * torch.clamp(x, max=-1)
            return limited + 8 * torch.relu(x)

    x = torch.tensor([-2.0, -1, 0, 1, 2, 3])
    model = importer.load(written(Corners(), x))
    x.requires_grad_(True)
    Corners()(x).sum().backward()
    found = jax.grad(lambda x: jnp.sum(model.apply({}, x)))(x.detach().numpy())
    np.testing.assert_array_equal(found, x.grad.numpy())


def fresh():
    """Returns an untrained network: scales and variances are 1, shifts and means 0."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 4, 3),
        torch.nn.BatchNorm2d(4),
    )


def trained(step, variables, x):
    """Returns the variables after two steps of gradient descent."""
    for _ in range(2):
        state, gradient = step(variables, x)
        params = jax.tree.map(lambda p, g: p - 0.1 * g, variables["params"], gradient)
        variables = {**variables, **state, "params": params}
    return variables


def test_a_network_that_begins_to_be_trained():
    network, x = fresh(), torch.randn(8, 1, 8, 8)
    model = importer.load(written(network.eval(), x, do_constant_folding=False))
    statistics = {f"{i}.running_{k}" for i in (1, 4) for k in ("mean", "var")}
    assert set(model.variables["params"]) == {name for name, _ in network.named_parameters()}
    assert set(model.variables["batch_stats"]) == statistics

    @jax.jit
    def step(variables, x):
        def loss(params):
            y, state = model.apply({**variables, "params": params}, x, training=True)
            return jnp.mean(jnp.square(y - 1)), state

        gradient, state = jax.grad(loss, has_aux=True)(variables["params"])
        return state, gradient

    found = trained(step, model.variables, x.numpy())
    network.train()
    descent = torch.optim.SGD(network.parameters(), 0.1)
    for _ in range(2):
        descent.zero_grad()
        (network(x) - 1).square().mean().backward()
        descent.step()
    wanted = {name: value.numpy() for name, value in network.state_dict().items()}
    for name, value in found["params"].items():
        np.testing.assert_allclose(value, wanted[name], atol=1e-4)
    for name in statistics:
        if name.endswith("mean"):
            np.testing.assert_allclose(found["batch_stats"][name], wanted[name], atol=1e-5)
        else:  # of which PyTorch keeps the unbiased one
            np.testing.assert_allclose(found["batch_stats"][name], wanted[name], rtol=1e-2)
