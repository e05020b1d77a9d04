"""Writes ``configuration.md``: the fields of every kind of run, from their declarations.

python docs/make_configuration.py
"""

from collections.abc import Mapping
from pathlib import Path

from jaxatr import config as configuration
from jaxatr.config import Field
from jaxatr.data import augmentations
from jaxatr.tasks.detection.fields import FIELDS as DETECTION
from jaxatr.tasks.distillation.fields import FIELDS as DISTILLATION
from jaxatr.tasks.embedding.fields import FIELDS as EMBEDDING
from jaxatr.tasks.gan.fields import FIELDS as GAN
from jaxatr.tasks.open_set import terms
from jaxatr.tasks.open_set.fields import FIELDS as OPEN_SET
from jaxatr.tasks.open_set.fields import RECIPES, TESTS
from jaxatr.tasks.track.fields import FIELDS as TRACK

PAGE = Path(__file__).parent / "configuration.md"

INTRODUCTION = """# Configuration

<!-- docs/make_configuration.py writes this page from the code; do not edit it by hand. -->

A run has the fields of every run and those of its task. A configuration file starts from
`jaxatr.config.of_task("package.module:Task")` and sets fields, or defines several variants with
`jaxatr.config.of_variant`. On the command line `--config.data.size=64` sets a field, and commas separate values:
`--config.data.select.range_m=1000,2000`. `None` means unset, nothing after the `=` an empty value.
"""

GROUPS = {
    "data": "Data",
    "open_set": "Known and unknown classes",
    "augment": "Augmentation",
    "model": "Model",
    "optimizer": "Optimiser",
    "train": "Training",
    "kernels": "Kernels",
}

KINDS = {
    "Open-set recognition": (
        "Fields of `jaxatr.tasks.open_set:OpenSet`, which also has those of [G-OpenMax's generator]"
        "(#g-openmaxs-generator), its baseline.",
        OPEN_SET,
    ),
    "Recipes of open-set recognition": (
        "Fields of `jaxatr.tasks.open_set:OpenSet`, all off by default. "
        "[Guide](training.md#recipes).",
        {**RECIPES, **terms.fields()},
    ),
    "Tests of open-set recognition": (
        "Fields of `jaxatr.tasks.open_set:OpenSet`, all off by default, which can be changed after "
        "training. [Guide](open_set.md#images-of-other-data).",
        TESTS,
    ),
    "Further augmentations": (
        "Fields of open-set recognition of single images and of embeddings, all off by default. "
        "[Guide](training.md#recipes).",
        augmentations.fields(),
    ),
    "Tracks": (
        "Fields of `jaxatr.tasks.track:TrackOpenSet`, in addition to those of open-set "
        "recognition. [Guide](tracks.md).",
        TRACK,
    ),
    "Embeddings": (
        "Fields of `jaxatr.tasks.embedding:Embedding`. [Guide](embeddings.md).",
        EMBEDDING,
    ),
    "Detection": (
        "Fields of `jaxatr.tasks.detection:Detection`. [Guide](scenes.md#a-detector).",
        DETECTION,
    ),
    "Surrogates": (
        "Fields of `jaxatr.tasks.distillation:Distillation`. [Guide](explanations.md).",
        DISTILLATION,
    ),
    "G-OpenMax's generator": ("Fields of `jaxatr.tasks.gan:ConditionalGan`.", GAN),
}


def page() -> str:
    """Returns the page's text."""
    parts = [INTRODUCTION, "## Every run\n", configuration.table(_of_group(None))]
    for group, title in GROUPS.items():
        parts += [f"\n### {title}\n", configuration.table(_of_group(group))]
    for title, (sentence, fields) in KINDS.items():
        parts += [f"\n## {title}\n", f"{sentence}\n", configuration.table(fields)]
    return "\n".join(parts) + "\n"


def _of_group(group: str | None) -> Mapping[str, Field]:
    """Returns the common fields of a group; for ``None``, those that are in no group."""
    found = configuration.COMMON.items()
    return {name: field for name, field in found if (name.split(".")[:-1] or [None])[0] == group}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
