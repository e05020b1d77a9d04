"""Times `detect` on frames, the tiles of a large scene, and CFAR.

- Frames of 640 x 512 pixels: a whole call of `detect` on an array, in each engine, beside the same
  network with the same parameters in eager PyTorch, followed by the peaks of its map and their
  boxes, without suppression. Aim: at least 0.8 times PyTorch's rate. The exported file has to find
  the same boxes.
- The suppression of 17,000 boxes, such as the tiles of a large scene give, few of which overlap.
- A scene of 30,000 columns in a .npy file: its tiles, read, searched and merged, beside one tile
  again and again by the compiled function alone. Aim: 0.9 times that rate.
- CFAR by the mean, the mean logarithm and order statistics on simulated speckle, on one core. Aim:
  20 megapixels a second.

Contenders take turns; the record has medians and ratios.

Run: python experiments/benchmarks/scenes.py [--repeats=20] [--rows=4000]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime
import step_torch
import torch
from alternating import alternately
from recording import device_and_version
from torch import nn

import jaxatr
from jaxatr import bundled
from jaxatr.kernels import onednn
from jaxatr.runs.export import export_run
from jaxatr.scenes import cfar
from jaxatr.scenes.clutter import Clutter
from jaxatr.scenes.suppression import kept
from jaxatr.tasks.detection.predictor import Detector, opened

OUTPUT = Path(__file__).parent / "results" / "scenes_cpu.json"
FRAME, COLUMNS = (512, 640), 30_000
LEVELS = ("mean", "log_mean", "order")


def trained(folder: Path) -> Detector:
    """Trains the default detector's network for some steps, which do not affect its cost."""
    config, default = bundled.load("detect:smoke"), bundled.load("detect")
    config.model.width = default.model.width
    config.detection.width = default.detection.width
    jaxatr.train(config, folder, progress=False)
    return Detector.load(folder)


class Pyramid(nn.Module):
    """The detector of jaxatr.models.detector on a residual network, in PyTorch."""

    def __init__(self, channels: int, stem: int, width: int, classes: int):
        """Makes the layers in the order in which flax calls them."""
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, stem, 7, 2, 3, bias=False),
            nn.BatchNorm2d(stem),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        stages, inputs = [], stem
        for stage in range(4):
            outputs = stem * 2**stage
            first = step_torch.Block(inputs, outputs, 2 if stage else 1)
            stages.append(nn.Sequential(first, step_torch.Block(outputs, outputs, 1)))
            inputs = outputs
        self.stages = nn.ModuleList(stages)
        self.lateral = nn.ModuleList(
            nn.Sequential(nn.Conv2d(stem * 2**stage, width, 1, bias=False), _norm(width))
            for stage in (3, 2, 1, 0)
        )
        self.trunk, self.what, self.where = (
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False), _norm(width), nn.ReLU(True)
            )
            for _ in range(3)
        )
        self.heads = nn.ModuleList(nn.Conv2d(width, n, 1) for n in (1, classes, 4))

    def forward(self, x):
        """Returns the three maps."""
        x, maps = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        x = None
        for lateral, finer in zip(self.lateral.children(), reversed(maps), strict=True):
            conv, norm = lateral.children()
            y = conv(finer)
            if x is not None:
                y = y + nn.functional.interpolate(x, scale_factor=2, mode="nearest")
            x = nn.functional.relu(norm(y))
        x = self.trunk(x)
        what = self.what(x)
        target, classes = self.heads[0](what)[:, 0], self.heads[1](what)
        return target, classes, 16 * nn.functional.softplus(self.heads[2](self.where(x)))


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(8, width, eps=1e-6)


def in_torch(detector: Detector, module: Any) -> Pyramid:
    """Makes the network in PyTorch with a detector's parameters."""
    variables = jax.device_get(detector._variables)
    network = Pyramid(
        detector.channels, module.backbone.width, module.width, len(detector.classes)
    ).eval()
    # Parameters in the order of the calls: flax keeps it when it initialises without jit.
    shape = (1, 64, 64, detector.channels)
    order = module.init(jax.random.key(0), np.zeros(shape, np.float32))["params"]
    layers = [one for one in network.modules() if not list(one.children()) and _has_weights(one)]
    names = list(_leaves(order))
    assert len(names) == len(layers), (len(names), len(layers))
    for path, layer in zip(names, layers, strict=True):
        values = dict(_at(variables["params"], path))
        if "kernel" in values:
            state = {"weight": values["kernel"].transpose(3, 2, 0, 1)}
        else:
            state = {"weight": values["scale"]}
        if "bias" in values:
            state["bias"] = values["bias"]
        if isinstance(layer, nn.BatchNorm2d):
            statistics = _at(variables["batch_stats"], path)
            state |= {"running_mean": statistics["mean"], "running_var": statistics["var"]}
        tensors = {name: torch.tensor(np.ascontiguousarray(one)) for name, one in state.items()}
        missing, unexpected = layer.load_state_dict(tensors, strict=False)
        if unexpected or {*missing} - {"num_batches_tracked"}:
            raise ValueError(f"{path}: missing {missing}, unexpected {unexpected}")
    return network


def _has_weights(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Conv2d | nn.BatchNorm2d | nn.GroupNorm)


def _leaves(tree: Any, path: tuple[str, ...] = ()) -> Any:
    """Yields the paths of the layers."""
    if "kernel" in tree or "scale" in tree:
        yield path
        return
    for name, one in tree.items():
        yield from _leaves(one, (*path, name))


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def frames(folder: Path, detector: Detector, repeats: int) -> dict[str, Any]:
    """Times `detect` in each engine and PyTorch on a frame."""
    run = jaxatr.training.load_run(folder, "latest")
    network, module = in_torch(detector, run.module), run.module
    frame = np.random.default_rng(0).integers(0, 255, (*FRAME, 1), dtype=np.uint8)
    most = 4 * run.config.detection.most
    normalised = np.array(run.normalize(frame[None]))

    def peer():
        with torch.inference_mode():
            x = torch.from_numpy(frame.astype(np.float32)).permute(2, 0, 1)[None]
            x = (x - x.mean()) / x.std()
            target, classes, distances = network(x)
            around = nn.functional.max_pool2d(target[:, None], 3, 1, 1)[:, 0]
            peaks = torch.where(target == around, target, -torch.inf).flatten(1)
            _, at = peaks.topk(min(most, peaks.shape[1]))
            return at, distances.flatten(2)[:, :, at[0]], classes.flatten(2)[:, :, at[0]]

    with torch.inference_mode():
        theirs = network(torch.from_numpy(normalised.transpose(0, 3, 1, 2)))
    ours = module.apply(run.variables, normalised)
    difference = float(np.abs(np.asarray(ours.target) - theirs[0].numpy()).max())
    if difference > 1e-3:
        raise ValueError(f"the networks differ by {difference}")
    path = folder / "detector.onnx"
    export_run(folder, path, size=FRAME)
    session = onnxruntime.InferenceSession(path)
    names = [one.name for one in session.get_outputs()]
    outputs = map(np.asarray, session.run(None, {"images": frame[None]}))
    exported = dict(zip(names, outputs, strict=True))
    del session  # the threads of a second one would disturb the others
    found = detector.detect(frame)
    np.testing.assert_allclose(exported["boxes"][exported["valid"]], found.boxes, atol=1e-2)
    contenders: dict[str, Any] = {
        "detect": lambda: detector.detect(frame).scores,
        "torch": peer,
    }
    for runtime in ["onnxruntime", *["onednn"] * onednn.usable()]:
        other = Detector.load(folder, runtime=runtime)
        np.testing.assert_allclose(other.detect(frame).boxes, found.boxes, atol=1e-2)
        contenders[f"detect_{runtime}"] = lambda other=other: other.detect(frame).scores
    seconds = alternately(contenders, repeats, warm=True)
    return {
        "milliseconds": {name: round(1e3 * one, 2) for name, one in seconds.items()},
        "ratio": round(seconds["torch"] / seconds["detect"], 3),
        "largest_difference": difference,
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
    }


def suppression(repeats: int) -> dict[str, Any]:
    """Times the suppression of many boxes."""
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 8000, (17_000, 2)).astype(np.float32)
    sides = rng.uniform(4, 12, low.shape).astype(np.float32)
    boxes, scores = np.concatenate([low, low + sides], axis=1), rng.uniform(size=len(low))
    stay = len(kept(boxes, scores, overlap=0.3))  # compiles
    seconds = alternately({"kept": lambda: kept(boxes, scores, overlap=0.3)}, repeats)
    return {"boxes": len(boxes), "stay": stay, "seconds": round(seconds["kept"], 3)}


def tiles(folder: Path, detector: Detector, rows: int) -> dict[str, Any]:
    """Times a large scene and one of its tiles, in turn."""
    path = folder / "scene.npy"
    scene = np.lib.format.open_memmap(path, "w+", np.uint8, (rows, COLUMNS))
    rng = np.random.default_rng(0)
    for start in range(0, rows, 500):
        part = scene[start : start + 500]
        part[:] = rng.integers(0, 255, part.shape, dtype=np.uint8)
    scene.flush()
    del scene
    batch = 4  # tiles at once, as `detect` has it
    side = detector.tile
    tile = rng.integers(0, 255, (batch, side, side, detector.channels), dtype=np.uint8)
    one = lambda: detector.decoded(tile)  # noqa: E731
    jax.block_until_ready(one())
    with opened(path) as read:
        count = len(detector._tiling.windows(read.height, read.width))
    rates: dict[str, list[float]] = {"scene": [], "tile": []}
    for _ in range(3):
        start = time.perf_counter()
        detector.detect(path)
        rates["scene"].append(count / (time.perf_counter() - start))
        start, done = time.perf_counter(), 0
        while done < count:
            jax.block_until_ready(one())
            done += batch
        rates["tile"].append(done / (time.perf_counter() - start))
    medians = {name: float(np.median(values)) for name, values in rates.items()}
    return {
        "rows": rows,
        "columns": COLUMNS,
        "tiles": count,
        "tile_side": side,
        "tiles_a_second": {name: round(value, 3) for name, value in medians.items()},
        "ratio": round(medians["scene"] / medians["tile"], 3),
    }


def radar(repeats: int) -> dict[str, Any]:
    """Times CFAR on this process's cores, in megapixels a second."""
    intensity = np.random.default_rng(0).exponential(size=(4096, 4096)).astype(np.float32)
    runs = {}
    for level in LEVELS:
        settings = cfar.Cfar(rate=1e-6, method=level, clutter=Clutter())
        runs[level] = lambda settings=settings: cfar.grouped(cfar.exceedance(intensity, settings))
    seconds = alternately(runs, repeats)
    return {name: round(intensity.size / 1e6 / one, 2) for name, one in seconds.items()}


def main() -> None:
    """Measures everything and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, help="timed runs of each contender")
    parser.add_argument("--rows", type=int, default=4000, help="rows of the large scene")
    parser.add_argument("--radar", action="store_true", help="print CFAR's rates only")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the record to write")
    args = parser.parse_args()
    if args.radar:
        print(json.dumps(radar(max(3, args.repeats // 4))))
        return
    core = min(os.sched_getaffinity(0))
    command = ["taskset", "-c", str(core), sys.executable, __file__, "--radar"]
    done = subprocess.run(
        [*command, f"--repeats={args.repeats}"], check=True, capture_output=True, text=True
    )
    record = device_and_version() | {"cfar_megapixels_a_second": json.loads(done.stdout)}
    with tempfile.TemporaryDirectory() as folder:
        detector = trained(Path(folder) / "run")
        record["frame"] = frames(Path(folder) / "run", detector, args.repeats)
        record["suppression"] = suppression(max(3, args.repeats // 4))
        record["large_scene"] = tiles(Path(folder), detector, args.rows)
    args.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
