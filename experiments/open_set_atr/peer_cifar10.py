"""The CIFAR-10 run of run.py in PyTorch, with either of two common initialisations.

torchvision draws a residual network's kernels from He's normal distribution by their fan-out, as
this package does; PyTorch's own layers draw uniformly, with a fifth of the variance or less. Before
batch normalisation, smaller kernels take relatively larger steps, which matters at a learning rate
of 1e-3. Network, split, recipe and flips are the same.

    python experiments/open_set_atr/peer_cifar10.py --images=FOLDER --initialisation=he|torch

FOLDER contains train/CLASS/*.jpg and test/CLASS/*.jpg. The script writes
results/peer-cifar10-NAME.json.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from jaxatr import metrics
from jaxatr.data import known_unknown

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))
from step_torch import CLASSES, Network  # noqa: E402


def load(folder: Path, classes: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Loads the images ``[n, 3, 32, 32]`` of the classes, uint8, and their labels."""
    images, labels = [], []
    for label, name in enumerate(classes):
        for path in sorted((folder / name).iterdir()):
            images.append(np.asarray(Image.open(path).convert("RGB")))
            labels.append(label)
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2), torch.tensor(labels)


def loss_of(network, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Computes equation 4, with the paper code's weight of 1/2 for the binary classifiers."""
    logits, open_logits = network(images)
    own = F.one_hot(labels, CLASSES).bool()
    positive = F.softplus(-open_logits[own])
    negative = F.softplus(open_logits.masked_fill(own, -torch.inf).amax(1))
    logs = F.log_softmax(logits, 1)
    entropy = -(logs.exp() * logs).sum(1)
    return F.nll_loss(logs, labels) + (0.5 * (positive + negative) + 0.1 * entropy).mean()


def scores(network, images, mean, std) -> tuple[np.ndarray, ...]:
    """Computes both heads' logits."""
    network.eval()
    with torch.inference_mode():
        parts = [network((part.float() - mean) / std) for part in images.split(500)]
    return tuple(np.concatenate([part[head].numpy() for part in parts]) for head in (0, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--initialisation", choices=["he", "torch"], required=True)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    names = sorted(path.name for path in (options.images / "train").iterdir())
    split = known_unknown("cifar10/paper-code", names)
    images, labels = load(options.images / "train", list(split.known))
    test, test_labels = load(options.images / "test", list(split.known))
    unknown, _ = load(options.images / "test", list(split.unknown))
    mean, std = (f(images.float(), (0, 2, 3), keepdim=True) for f in (torch.mean, torch.std))
    network = Network().to(memory_format=torch.channels_last)
    network.closed, network.open = (torch.nn.Linear(512, CLASSES, bias=False) for _ in range(2))
    if options.initialisation == "he":
        for layer in network.modules():
            if isinstance(layer, torch.nn.Conv2d):
                torch.nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    optimizer = torch.optim.SGD(
        network.parameters(), 1e-3, 0.9, weight_decay=5e-4, nesterov=True, fused=True
    )
    started, record = time.monotonic(), []
    for epoch in range(options.epochs):
        network.train()
        for chosen in torch.randperm(len(images)).split(64)[:-1]:
            batch = images[chosen].float()
            flipped = torch.rand(len(batch), 1, 1, 1) < 0.5
            batch = (torch.where(flipped, batch.flip(3), batch) - mean) / std
            optimizer.zero_grad()
            loss_of(network, batch, labels[chosen]).backward()
            optimizer.step()
        logits, open_logits = scores(network, test, mean, std)
        others = scores(network, unknown, mean, std)
        own, other = logits.argmax(1), others[0].argmax(1)
        record.append(
            {
                "epoch": epoch + 1,
                "closed_accuracy": float(np.mean(own == test_labels.numpy())),
                "mls": metrics.auroc(logits.max(1), others[0].max(1)),
                "cbc": metrics.auroc(
                    open_logits[np.arange(len(own)), own], others[1][np.arange(len(other)), other]
                ),
                "seconds": round(time.monotonic() - started),
            }
        )
        print(record[-1], flush=True)
        result = {"initialisation": options.initialisation, "torch": torch.__version__}
        output = HERE / "results" / f"peer-cifar10-{options.initialisation}.json"
        output.write_text(json.dumps(result | {"epochs": record}, indent=1) + "\n")


if __name__ == "__main__":
    main()
