"""Source generated from the files of PyTorch's exporter agrees with PyTorch."""

import io
import re
import warnings

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from torch import nn  # noqa: E402

from jaxatr.onnx import load  # noqa: E402


class Net(nn.Module):
    """Convolution, three layers of attention, a bidirectional recurrent layer, a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.lstm = nn.LSTM(8, 5, bidirectional=True, batch_first=True)
        self.head = nn.Linear(10, 4)

    def forward(self, x):
        x = self.encoder(self.stem(x).flatten(2).transpose(1, 2))
        return self.head(self.lstm(x)[0][:, -1])


@pytest.mark.slow
def test_a_network_of_torch_s(written):
    torch.manual_seed(0)
    net = Net().eval()
    for value in net.parameters():  # else the layers begin as copies, and are exported as one
        value.data.add_(0.1 * torch.randn_like(value))
    file, x = io.BytesIO(), torch.randn(2, 3, 4, 4)
    axes = {"image": {0: "batch"}}
    names = {"input_names": ["image"], "output_names": ["logits"], "dynamic_axes": axes}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter is deprecated
        torch.onnx.export(net, (x,), file, dynamo=False, opset_version=17, **names)
    module, variables, text = written(file.getvalue())
    assert text.count("class ") == 2
    for i in range(3):
        assert f'AttentionBlock(name="encoder_layers_{i}")' in text
    assert set(variables["params"]["encoder_layers_1"]) >= {"linear1", "linear2", "norm1", "norm2"}
    assert 'LSTM(5, direction="bidirectional", name="lstm")' in text
    for batch in (2, 3):
        x = torch.randn(batch, 3, 4, 4)
        found = module.apply(variables, x.numpy())
        np.testing.assert_allclose(found, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_network_that_begins_to_be_trained(written):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4)).eval()
    file, x = io.BytesIO(), torch.randn(8, 1, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter is deprecated
        torch.onnx.export(net, (x,), file, dynamo=False, do_constant_folding=False)
    module, variables, text = written(file.getvalue())
    assert text.count("BatchNorm(name=") == 2 and "ops.identity" not in text
    reference = load(file.getvalue())
    state = reference.variables
    for _ in range(2):
        y, new = module.apply(variables, x.numpy(), train=True, mutable=["batch_stats"])
        variables = {**variables, **new}
        wanted, new = reference.apply(state, x.numpy(), training=True)
        state = {**state, **new}
        np.testing.assert_allclose(y, wanted, atol=1e-5)
    found = {**flatten_dict(variables["batch_stats"], sep=".")}
    assert len(found) == len(state["batch_stats"]) == 4
    for name, value in found.items():
        (layer,) = re.findall(r"\d", name)
        statistic = f"{layer}.running_{name.rpartition('.')[2]}"
        np.testing.assert_allclose(value, state["batch_stats"][statistic], rtol=1e-5, atol=1e-6)
