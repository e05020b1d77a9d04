"""Shades: plain images of two brightnesses."""

import numpy as np

from jaxatr.data.source import Contents, Feature, Option, Request, Scan, Source, all_options


class Shades(Source):
    """The source."""

    name, version = "shades", 1
    options = {"count": Option(4, "images of each class")}

    def scan(self, request: Request) -> Scan:
        """Returns the contents for the options."""
        settings = all_options(self, request.options)

        def examples():
            for label in range(2 * settings["count"]):
                image = np.full((8, 8, 1), 60 + 120 * (label % 2), np.uint8)
                yield {"image": image, "label": label % 2}

        contents = Contents(
            classes=("dark", "bright"),
            features={"image": Feature(np.uint8, (8, 8, 1)), "label": Feature(np.int32)},
            splits={"train": examples, "test": examples},
            total=4 * settings["count"],
        )
        return Scan(self, settings, settings, lambda folder: contents)


PART = Shades()
