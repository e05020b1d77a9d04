"""MobileNetV2 and EfficientNet-Lite0 in PyTorch, up to their 1,280 features, with two heads.

They are defined here because torchvision is not built for every version of PyTorch. Both are stacks
of inverted residuals (Sandler et al. 2018): a 1x1 convolution to more channels, a depthwise
convolution, and a 1x1 convolution back.
"""

from torch import nn

FEATURES = 1280
# Expansion factor, channels, number of blocks, stride of the first block, kernel size.
MOBILENET_V2 = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 32, 3, 2, 3),
    (6, 64, 4, 2, 3),
    (6, 96, 3, 1, 3),
    (6, 160, 3, 2, 3),
    (6, 320, 1, 1, 3),
)
EFFICIENTNET_LITE0 = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
STACKS = {"mobilenet_v2": MOBILENET_V2, "efficientnet_lite0": EFFICIENTNET_LITE0}


def layer(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list:
    """Returns convolution, norm and ReLU6."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]


class Residual(nn.Module):
    """An inverted residual; without expansion it has no first convolution."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int, kernel: int):
        """Makes the layers.

        Args:
          inputs: channels of the input.
          outputs: channels of the output.
          expansion: factor of the channels in between.
          stride: stride of the depthwise convolution.
          kernel: size of the depthwise convolution.
        """
        super().__init__()
        wide = inputs * expansion
        first = layer(inputs, wide, 1) if expansion != 1 else []
        *last, _ = layer(wide, outputs, 1)
        self.body = nn.Sequential(*first, *layer(wide, wide, kernel, stride, wide), *last)
        self.added = stride == 1 and inputs == outputs

    def forward(self, x):
        """Returns the block's output."""
        return x + self.body(x) if self.added else self.body(x)


class Network(nn.Module):
    """One of the two networks, with a closed-set head and one logit per binary classifier."""

    def __init__(self, name: str, classes: int):
        """Makes the layers of :data:`STACKS`."""
        super().__init__()
        blocks, channels = layer(3, 32, 3, 2), 32
        for expansion, outputs, count, stride, kernel in STACKS[name]:
            for index in range(count):
                step = stride if index == 0 else 1
                blocks.append(Residual(channels, outputs, expansion, step, kernel))
                channels = outputs
        self.body = nn.Sequential(*blocks, *layer(channels, FEATURES, 1))
        self.closed, self.open = nn.Linear(FEATURES, classes), nn.Linear(FEATURES, classes)

    def forward(self, x):
        """Returns the logits of both heads."""
        z = self.body(x).mean((2, 3))
        return self.closed(z), self.open(z)
