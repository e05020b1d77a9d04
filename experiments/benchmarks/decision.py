"""Times a decision by a gallery of 10,000 training examples against the network's forward pass.

A network of the default variant's size processes batches of chips: for its outputs alone, and in
recognisers that decide by CBC, by the map of stage 2, by the template, by the fusion of the last
two, and by the default rule. The galleries hold random examples, because their content does not
affect the cost of a search. All run alternately in one process; the record has medians and ratios
to the outputs alone.

Run: python experiments/benchmarks/decision.py [--examples=10000] [--repeats=20]
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from alternating import alternately
from recording import device_and_version
from small_run import trained

import jaxatr
from jaxatr import openset, training
from jaxatr.openset import gallery
from jaxatr.openset.detectors import knn, spatial, template
from jaxatr.openset.gallery import reduction

OUTPUT = Path(__file__).parent / "results" / "decision_cpu.json"
SCORES = ("cbc", "spatial_stage2", "template", "fusion_template", "consensus")
BATCHES = (1, 32)


def enlarged(model: Any, examples: int) -> Any:
    """Replaces a model's gallery by random examples, spread evenly over its classes."""
    if isinstance(model, knn.Neighbours):
        rows = np.random.default_rng(0).normal(size=(examples, model.features.shape[1]))
        return model._replace(features=gallery.unit(rows), k=np.array(knn.NEIGHBOUR))
    if "examples" not in getattr(model, "_fields", ()):
        return model
    rng, classes = np.random.default_rng(0), int(model.classes)
    labels = np.arange(examples) % classes
    if isinstance(model, spatial.Spatial):  # with the largest rank for so many examples
        shape = (examples, *model.mean.shape)
        return spatial.fit(
            rng.normal(size=shape).astype(np.float16),
            labels,
            classes,
            most_bytes=min(spatial.MOST_BYTES, spatial.MOST_OF_ALL // examples),
        )
    of_template = isinstance(model, template.Template)
    kept = reduction.sample(labels, template.MOST if of_template else spatial.MOST)
    rows = rng.normal(size=(len(kept), model.examples.shape[1]))
    build = gallery.directions if of_template else gallery.build
    return model._replace(**build(rows, labels[kept], classes)._asdict())


def contenders(folder: Path, examples: int, chips: list[np.ndarray]) -> dict[str, Callable]:
    """Returns the timed functions: chips to outputs, and chips to each score's decisions."""
    made = {}
    for name in SCORES:
        recogniser = jaxatr.Recogniser.load(folder, score=name)
        models = {key: enlarged(one, examples) for key, one in recogniser.decision.models.items()}
        decision = openset.Decision(
            recogniser.decision.score, models, recogniser.decision.gallery, threshold=0.0
        )
        large = jaxatr.Recogniser(training.load_run(folder, "latest"), decision)
        if name == "cbc":
            made["network"] = lambda large=large: list(large.outputs(chips, batch_size=len(chips)))
        made[name] = lambda large=large: list(large(chips, batch_size=len(chips)))
    return made


def measured(folder: Path, examples: int, batch: int, repeats: int) -> dict[str, Any]:
    """Times a batch; returns milliseconds and ratios to the network's outputs alone."""
    rng = np.random.default_rng(batch)
    chips = list(rng.integers(0, 255, (batch, 64, 64, 1), dtype=np.uint8))
    seconds = alternately(contenders(folder, examples, chips), repeats, warm=True)
    return {
        name: {"ms": round(1e3 * value, 3), "ratio": round(value / seconds["network"], 3)}
        for name, value in seconds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, default=OUTPUT)
    flags = parser.parse_args()
    record: dict[str, Any] = {
        **device_and_version(),
        "examples": flags.examples,
        "repeats": flags.repeats,
        "batches": {},
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        trained(folder, 32)
        for batch in BATCHES:
            result = measured(folder, flags.examples, batch, flags.repeats)
            record["batches"][str(batch)] = result
            print(batch, json.dumps(result), flush=True)
            flags.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
