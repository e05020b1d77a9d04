"""ResNet-18 and ResNet-50 with the two heads of the paper, in PyTorch."""

import sys
from pathlib import Path

from torch import nn
from torch.nn import functional as F

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from step_torch import CLASSES, Network, loss_of

__all__ = ["Bottleneck", "build", "loss_of"]


class Bottleneck(nn.Module):
    """A bottleneck block: 1x1, 3x3 and 1x1 convolutions and a shortcut."""

    def __init__(self, inputs: int, narrow: int, stride: int):
        """Makes the layers.

        Args:
          inputs: channels of the input.
          narrow: channels of the inner convolutions, a quarter of the output's.
          stride: stride of the 3x3 convolution.
        """
        super().__init__()
        shapes = ((inputs, narrow, 1, 1), (narrow, narrow, 3, stride), (narrow, 4 * narrow, 1, 1))
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, taps, step, taps // 2, bias=False) for a, b, taps, step in shapes
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(shape[1]) for shape in shapes)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != 4 * narrow:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, 4 * narrow, 1, stride, bias=False), nn.BatchNorm2d(4 * narrow)
            )

    def forward(self, x):
        """Returns the block's output after the last activation."""
        y = x
        for index in range(3):
            y = self.norms[index](self.convs[index](y))
            y = F.relu(y if index < 2 else y + self.shortcut(x), inplace=True)
        return y


def build(depth: int) -> Network:
    """Builds the network of 18 or 50 layers."""
    network = Network()
    if depth == 18:
        return network
    blocks, inputs = [], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for index in range(count):
            narrow = 64 * 2**stage
            blocks.append(Bottleneck(inputs, narrow, 2 if stage > 0 and index == 0 else 1))
            inputs = 4 * narrow
    network.blocks = nn.Sequential(*blocks)
    network.closed, network.open = nn.Linear(inputs, CLASSES), nn.Linear(inputs, CLASSES)
    return network
