"""The worker that runs PyTorch for training_step.py.

The network is torchvision's ResNet-18 with the two heads of the paper. It is defined here because
torchvision is not built for every version of PyTorch.
"""

import sys

from serve import parse, serve

from jaxatr import memory

if __name__ == "__main__" and parse(__doc__).keep:  # before the imports below start threads
    memory.keep(one_heap=False)

import torch
import torch._inductor.config as inductor
import torch.nn.functional as F
import torch_mobile
from torch import nn

CLASSES = 6


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inputs, outputs, stride):
        """Makes the layers.

        Args:
          inputs: channels of the input.
          outputs: channels of the output.
          stride: stride of the first convolution.
        """
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        """Returns the block's output after the last activation."""
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


class Network(nn.Module):
    """ResNet-18 with a closed-set head and one logit per binary classifier."""

    def __init__(self):
        """Makes the layers."""
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks, inputs = [], 64
        for stage in range(4):
            for index in range(2):
                outputs = 64 * 2**stage
                blocks.append(Block(inputs, outputs, 2 if stage > 0 and index == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.closed, self.open = nn.Linear(512, CLASSES), nn.Linear(512, CLASSES)

    def forward(self, x):
        """Returns the logits of both heads."""
        z = self.blocks(self.stem(x)).mean((2, 3))
        return self.closed(z), self.open(z)


def loss_of(network, images, labels):
    logits, open_logits = network(images)
    own = F.one_hot(labels, CLASSES).bool()
    positive = F.softplus(-open_logits[own])
    negative = F.softplus(open_logits.masked_fill(own, -torch.inf).amax(1))
    return F.cross_entropy(logits, labels) + (positive + negative).mean()


def training_step(network, images, labels, setting):
    network.train()
    optimizer = torch.optim.SGD(
        network.parameters(), 1e-2, 0.9, weight_decay=5e-4, nesterov=True, fused=True
    )
    loss = torch.compile(loss_of) if setting == "compile" else loss_of

    def step():
        optimizer.zero_grad(set_to_none=True)
        value = loss(network, images, labels)
        value.backward()
        optimizer.step()
        return value.item()

    return step


def inference_step(network, images, setting):
    network.eval()
    if setting in ("jit", "onednn_graph"):
        torch.jit.enable_onednn_fusion(setting == "onednn_graph")
        with torch.inference_mode():
            network = torch.jit.freeze(torch.jit.trace(network, images))
            if setting == "jit":
                network = torch.jit.optimize_for_inference(network)
            network(images)
            network(images)
    elif setting in ("compile", "compile_freezing"):
        inductor.freezing = setting == "compile_freezing"
        network = torch.compile(network)

    def step():
        with torch.no_grad() if "compile" in setting else torch.inference_mode():
            return network(images)

    return step


def main():
    options = parse(__doc__)
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    name = options.network
    network = Network() if name == "resnet18" else torch_mobile.Network(name, CLASSES)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.randn(options.batch, 3, options.size, options.size)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (options.batch,))
    if options.mode == "training":
        serve(training_step(network, images, labels, options.setting))
    else:
        serve(inference_step(network, images, options.setting))


if __name__ == "__main__":
    sys.exit(main())
