"""The ranking of labels that may be wrong, for ``jaxatr check --suspects``."""

import sys
from collections.abc import Iterator, Sequence

import numpy as np

from jaxatr import data, files, models
from jaxatr.cli import inputs
from jaxatr.cli.terminal import one_line
from jaxatr.data import doctor
from jaxatr.inference import stacked_batches
from jaxatr.reporting import label_page
from jaxatr.reporting.check_page import without_name
from jaxatr.tasks.open_set.needs import pooled
from jaxatr.typing import Float, Shaped

SIDE = 64
"""Side in pixels of the chips that a published network sees."""

_BATCH = 32
_SMALL = 16  # side of the images that are compared as they are
_SHOWN = 10
_PICTURED = 200


def rank(
    subject: doctor.Subject, out: str, network: str, chip: data.Chip | None, page: str = ""
) -> None:
    """Prints the most doubtful labels of a set, and writes the whole ranking as a table.

    Args:
      subject: the set; images that cannot be read are left out, with a warning.
      out: path of the table, with the columns ``path``, ``label``, ``likely``,
        ``given_probability`` and ``likely_probability``, the most doubtful first.
      network: name of a published network whose features are compared as well; empty for none.
      chip: geometry applied to each image first.
      page: path of an HTML page that shows the most doubtful labels and takes corrections; empty
        for none.

    Raises:
      ValueError: there is no such network, too few examples or classes, or no image can be read.
    """
    kept, images, broken = [], [], []
    for number in np.flatnonzero(subject.labels >= 0).tolist():
        try:
            image = subject.read(number)
            image = chip(image) if chip else image
        except ValueError as error:
            name = subject.names[number]
            broken.append((name, str(error)))
            continue
        kept.append(number)
        images.append(image)
    broken += subject.unreadable
    lines = [f"{one_line(name)}: {one_line(without_name(name, why))}" for name, why in broken]
    if not images:
        reason = f" ({lines[0]})" if lines else ""
        raise ValueError(f"{subject.name}: no image can be read{reason}")
    for line in lines:
        print(f"warning: left out: {line}", file=sys.stderr)
    names, labels = np.unique(subject.labels[kept], return_inverse=True)
    alone = [
        subject.classes[name]
        for name, size in zip(names, np.bincount(labels), strict=True)
        if size < 2
    ]
    if alone:
        raise ValueError(
            f"labels: {', '.join(alone)} has one image, which has none to compare with"
        )
    inputs.say(f"predicting {len(labels)} labels without their images")
    found = doctor.suspects(representations(images, network), labels)
    given = [subject.classes[name] for name in names]
    table = [
        {
            "path": subject.names[kept[row]],
            "label": given[labels[row]],
            "likely": given[found.likely[row]],
            "given_probability": float(found.given[row]),
            "likely_probability": float(found.probability[row]),
        }
        for row in found.order
    ]
    data.write_table(out, table, text=("path", "label", "likely"))
    print(
        f"{found.agreement:.1%} of {len(labels)} labels are predicted by {found.by}; most doubtful:"
    )
    for row in table[:_SHOWN]:
        print(f"  {row['path']}: {row['label']}, likely {row['likely']}")
    print(f"table: {out}; a table of corrected rows is data.corrections of a training")
    if page:
        cards = [
            label_page.Card(
                row["path"],
                row["path"],
                data.thumbnail(images[place], side=label_page.SIDE),
                label_page.doubt(
                    row["likely"], row["likely_probability"], row["given_probability"]
                ),
                row["label"],
            )
            for place, row in zip(found.order[:_PICTURED], table, strict=False)
        ]
        words = label_page.TO_CORRECT
        files.write_text(page, label_page.render(subject.name, given, cards, words))
        print(f"page: {page}")


def representations(
    images: Sequence[Shaped[np.ndarray, "h w c"]], network: str = ""
) -> dict[str, Float[np.ndarray, "n _"]]:
    """Represents images by their pixels, and by the features and maps of a published network.

    Args:
      images: n images of any size with the same number of channels.
      network: name of the network; empty for none.

    Raises:
      ValueError: the images differ in channels, or there is no such network.
    """
    channels = sorted({image.shape[-1] for image in images})
    if len(channels) > 1:
        raise ValueError(f"the images have {' and '.join(map(str, channels))} channels, wanted one")
    small, chips = (
        np.stack([data.Chip(size=side, square=True)(image) for image in images])
        for side in (_SMALL, SIDE)
    )
    found = {"the image": np.float32(small).reshape(len(small), -1)}
    return found | (dict(_published(network, chips)) if network else {})


def _published(
    name: str, chips: Shaped[np.ndarray, "n h w c"]
) -> Iterator[tuple[str, Float[np.ndarray, "n _"]]]:
    """Yields the features and the maps of a published network."""
    import jax  # both late, to keep --help fast
    import jax.numpy as jnp

    channels = chips.shape[-1]
    module, variables = models.create(name, pretrained=True, in_channels=channels)
    published = models.published.named(name)
    if published is None:
        raise ValueError(f"--network: got {name!r}, which has no published weights")
    mean, std = published.normalization(channels)
    scale = 255 / np.iinfo(chips.dtype).max if chips.dtype.kind == "u" else 1.0

    @jax.jit
    def outputs(images: jax.Array) -> dict[str, jax.Array]:
        found, state = module.apply(variables, images, mutable=["intermediates"])
        maps = {key: pooled(jnp.asarray(value[0])) for key, value in state["intermediates"].items()}
        return {"features": found, **maps}

    parts = [
        jax.device_get(outputs((np.float32(batch) * scale - mean) / std))
        for batch, _ in stacked_batches(chips, _BATCH, full=True)
    ]
    for key in parts[0]:
        values = np.concatenate([part[key] for part in parts])[: len(chips)]
        yield f"{key} of {name}", values.reshape(len(chips), -1)
