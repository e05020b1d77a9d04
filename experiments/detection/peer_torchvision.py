"""Trains a detector of torchvision on annotated scenes for given hours, and records COCO's figures.

    python experiments/detection/peer_torchvision.py --scenes=HITUAV --model=fcos --hours=2 \
        --weights_dir=WEIGHTS --out=results/fcos.json
    jaxatr train --config=detect:hituav --config.data.source=HITUAV \
        --config.model.pretrained=mobilenet_v2 --workdir=runs/hituav

Both start from the same weights of ImageNet, MobileNetV2, with fixed batch statistics. torchvision
sees whole scenes, mirrored at random. On a GPU it uses TF32 and cuDNN's benchmarked algorithms, and
processes of their own read its scenes. On a CPU the hours are the processor's, divided by the
threads, so that other programs take nothing from them. Every figure is computed by
jaxatr.scenes.metrics.
"""

import argparse
import functools
import itertools
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from torchvision.models.detection import FCOS, RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.ssd import SSD
from torchvision.models.detection.ssdlite import SSDLiteHead
from torchvision.ops.misc import FrozenBatchNorm2d

from jaxatr import data, models
from jaxatr.models import pretrained
from jaxatr.scenes import metrics

_SAVED_EVERY = 600.0  # seconds
_PLACES = ("scenes", "weights_dir", "checkpoint", "out")

MODELS = ("fcos", "retinanet", "ssdlite")
STRIDES = (4, 8, 16, 32)
LAYERS = {"3": 24, "6": 32, "13": 96, "18": 1280}  # of MobileNetV2's features, at these strides
_WIDTH = 64  # channels of the pyramid


def backbone(weights_dir: str) -> BackboneWithFPN:
    """Makes MobileNetV2 with a pyramid, with the weights that jaxatr finds."""
    created = models.create("mobilenet_v2", pretrained=True, weights_dir=weights_dir)
    tensors = pretrained.to_torch(created.variables, created.model)
    network = torchvision.models.mobilenet_v2(weights=None, norm_layer=FrozenBatchNorm2d)
    state = {name: torch.from_numpy(array.copy()) for name, array in tensors.items()}
    missing, unexpected = network.load_state_dict(state, strict=False)
    if unexpected or any(not name.startswith("classifier") for name in missing):
        raise ValueError(f"weights: missing {missing}, unexpected {unexpected}")
    names = {layer: str(number) for number, layer in enumerate(LAYERS)}
    return BackboneWithFPN(network.features, names, list(LAYERS.values()), _WIDTH)


def detector(name: str, classes: int, weights_dir: str) -> torch.nn.Module:
    """Makes a detector; class 0 is the background of torchvision."""
    body = backbone(weights_dir)
    size: dict[str, Any] = {"min_size": 512, "max_size": 640}
    ratios = ((1.0,),) * (len(STRIDES) + 1)
    if name == "fcos":
        sizes = tuple((stride,) for stride in (*STRIDES, 64))
        return FCOS(body, classes + 1, anchor_generator=AnchorGenerator(sizes, ratios), **size)
    if name == "retinanet":
        sizes = tuple(
            tuple(int(4 * stride * 2 ** (third / 3)) for third in range(3))
            for stride in (*STRIDES, 64)
        )
        ratios = ((0.5, 1.0, 2.0),) * len(sizes)
        anchors = AnchorGenerator(sizes, ratios)
        return RetinaNet(body, classes + 1, anchor_generator=anchors, **size)
    if name == "ssdlite":  # its light heads and its loss, on the same pyramid
        levels = len(STRIDES) + 1
        boxes = DefaultBoxGenerator(
            [[2, 3]] * levels,
            scales=[4 * stride / 576 for stride in (*STRIDES, 64, 128)],  # shares of the picture
            steps=[*STRIDES, 64],
        )
        norm = functools.partial(torch.nn.BatchNorm2d, eps=0.001, momentum=0.03)
        head = SSDLiteHead([_WIDTH] * levels, boxes.num_anchors_per_location(), classes + 1, norm)
        return SSD(body, boxes, (640, 512), classes + 1, head=head)
    raise ValueError(f"model: got {name!r}, wanted one of {', '.join(MODELS)}")


def clock(device: torch.device) -> float:
    """Returns seconds: by the wall for a GPU, else of the processor by each of the threads."""
    if device.type == "cuda":
        return time.monotonic()
    return time.process_time() / torch.get_num_threads()


def example(split: data.Split, number: int, flip: bool) -> tuple[torch.Tensor, dict]:
    """Returns a scene and its boxes as torchvision takes them."""
    scene = split[number]
    image = np.repeat(scene["image"], 4 - len(scene["image"].shape), axis=2)
    image = np.broadcast_to(image, (*image.shape[:2], 3)).astype(np.float32) / 255
    kept = scene["labels"] >= 0
    boxes, width = scene["boxes"][kept], image.shape[1]
    if flip:
        image = image[:, ::-1]
        boxes = np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], 1)
    pixels = torch.from_numpy(image.copy()).permute(2, 0, 1)
    labels = torch.from_numpy(scene["labels"][kept].astype(np.int64) + 1)
    return pixels, {"boxes": torch.from_numpy(boxes.copy()), "labels": labels}


class Scenes(torch.utils.data.Dataset):
    """The scenes of a part, each mirrored at random; every process opens them itself."""

    def __init__(self, source: str, part: str):
        self.source, self.part = source, part

    @functools.cached_property
    def split(self) -> data.Split:
        """The part's scenes with their boxes."""
        return data.open_dataset("whole_scenes", source=self.source).splits[self.part]

    def __getitem__(self, number: int) -> tuple[torch.Tensor, dict]:
        """Returns a scene and its boxes as torchvision takes them."""
        return example(self.split, number, bool(torch.rand(()) < 0.5))


def batches(source: str, batch: int, seed: int, workers: int) -> Iterator[list]:
    """Draws batches of training scenes without end; each is a list of scenes with their boxes."""
    scenes, rng = Scenes(source, "train"), np.random.default_rng(seed)
    count = len(scenes.split)
    drawn = (rng.choice(count, batch, replace=False).tolist() for _ in itertools.count())
    loader = torch.utils.data.DataLoader(
        Scenes(source, "train"),
        batch_sampler=drawn,
        num_workers=workers,
        collate_fn=list,
        multiprocessing_context="spawn" if workers else None,  # jax's threads survive no fork
    )
    return iter(loader)


def train(
    network: torch.nn.Module,
    source: str,
    hours: float,
    batch: int,
    rate: float,
    workers: int,
    checkpoint: Path | None = None,
) -> int:
    """Trains for some hours with a cosine schedule over them; returns the number of steps.

    Every ten minutes the state is saved to ``checkpoint``, from which an interrupted training goes
    on; the hours are those of training alone.
    """
    before, steps = 0.0, 0
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=1e-3)
    if checkpoint is not None and checkpoint.is_file():
        saved = torch.load(checkpoint, weights_only=True)
        network.load_state_dict(saved["network"])
        optimiser.load_state_dict(saved["optimiser"])
        before, steps = saved["seconds"], saved["steps"]
    place, examples = next(network.parameters()).device, batches(source, batch, steps, workers)
    start = kept = clock(place)
    network.train()
    while (share := (before + clock(place) - start) / (3600 * hours)) < 1:
        if checkpoint is not None and clock(place) - kept > _SAVED_EVERY:
            _save(checkpoint, network, optimiser, before + clock(place) - start, steps)
            kept = clock(place)
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, (steps + 1) / 50) * (1 + math.cos(math.pi * share)) / 2
        drawn = next(examples)
        images = [image.to(place) for image, _ in drawn]
        targets = [{name: part.to(place) for name, part in boxes.items()} for _, boxes in drawn]
        loss = torch.stack([*network(images, targets).values()]).sum()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 10.0)
        optimiser.step()
        steps += 1
        if steps % 20 == 0:
            print(f"step {steps}, {share:.0%} of the time, loss {float(loss):.3f}", flush=True)
    if checkpoint is not None:  # the hours are over: an evaluation that fails can be repeated
        _save(checkpoint, network, optimiser, 3600 * hours, steps)
    return steps


def _save(
    path: Path,
    network: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
    seconds: float,
    steps: int,
) -> None:
    state: dict[str, Any] = {"network": network.state_dict(), "optimiser": optimiser.state_dict()}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(state | {"seconds": seconds, "steps": steps}, partial)
    partial.replace(path)


def evaluate(network: torch.nn.Module, split: data.Split, classes: tuple[str, ...]) -> dict:
    """Returns COCO's figures on a split."""
    device = next(network.parameters()).device
    found: list[list[np.ndarray]] = [[], [], [], []]
    truth: list[list[np.ndarray]] = [[], [], []]
    network.eval()
    for number in range(len(split)):
        image, _ = example(split, number, False)
        with torch.no_grad():
            (out,) = network([image.to(device)])
        out = {name: part.cpu() for name, part in out.items()}
        scene, count = split[number], len(out["scores"])
        columns = (out["boxes"], out["scores"], out["labels"] - 1)
        for place, column in zip(found, (torch.full((count,), number), *columns), strict=True):
            place.append(column.numpy())
        images = np.full(len(scene["labels"]), number)
        for place, column in zip(truth, (images, scene["boxes"], scene["labels"]), strict=True):
            place.append(column)
    detections = metrics.Detections(*(np.concatenate(column) for column in found))
    images, boxes, labels = (np.concatenate(column) for column in truth)
    nothing = np.flatnonzero(labels < 0)  # regions in which nothing counts, for every class
    rows = np.concatenate([np.flatnonzero(labels >= 0), np.tile(nothing, len(classes))])
    own = np.concatenate([labels[labels >= 0], np.repeat(np.arange(len(classes)), len(nothing))])
    crowd = np.arange(len(rows)) >= np.sum(labels >= 0)
    measured = metrics.average_precision(
        detections,
        metrics.Truths(images[rows], boxes[rows], own, crowd),
        classes=range(len(classes)),
    )
    by_class = {classes[label]: row for label, row in measured.by_class.items()}
    return {**measured._asdict(), "by_class": by_class}


def main() -> None:
    """Trains, measures and records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", required=True)
    parser.add_argument("--model", choices=MODELS, default="fcos")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0, help="processes that read scenes")
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--weights_dir", default="")
    parser.add_argument("--checkpoint", type=Path, default=None)
    parser.add_argument("--part", default="test")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    dataset = data.open_dataset("whole_scenes", source=given.scenes)
    place = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    network = detector(given.model, len(dataset.classes), given.weights_dir).to(place)
    recipe = (given.hours, given.batch, given.rate, given.workers, given.checkpoint)
    steps = train(network, given.scenes, *recipe)
    figures = evaluate(network, dataset.splits[given.part], dataset.classes)
    settings = {name: str(value) for name, value in vars(given).items() if name not in _PLACES}
    settings |= {"steps": steps, "threads": torch.get_num_threads()}
    settings["device"] = torch.cuda.get_device_name() if place == "cuda" else "cpu"
    settings |= {"torch": torch.__version__, "torchvision": torchvision.__version__}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({"settings": settings, "figures": figures}, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
