"""The built-in data set: eight simulated vehicles in the visible and mid-wave infrared bands.

>>> chips = generate("train", ranges=(3000,), bands=("thermal",), aspects=1)
>>> chips["image"].shape, chips["label"].tolist()
((8, 64, 64, 1), [0, 1, 2, 3, 4, 5, 6, 7])
"""

from typing import Any

from jaxatr.data.sources.simulated.render import View, render
from jaxatr.data.sources.simulated.sensor import BANDS
from jaxatr.data.sources.simulated.source import FRAMING, Simulator
from jaxatr.data.sources.simulated.views import RANGES_M, SPLITS, VEHICLES, generate

__all__ = [
    "BANDS",
    "RANGES_M",
    "PART",
    "SPLITS",
    "VEHICLES",
    "View",
    "generate",
    "render",
]


def _bands_at_ranges(settings: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"ranges": (metres,), "bands": (band,)}
        for metres in settings["ranges"]
        for band in settings["bands"]
    ]


PART = Simulator(
    "simulated",
    "1.0.0",
    generate,
    {
        "ranges": "ranges in metres, from 1000 to 5000 in steps of 500",
        "bands": "visible, thermal or both",
        "aspects": "views per turn, 1 to 3600",
        "seed": "seed of all draws, a non-negative integer",
        "size": "rows and columns of a chip",
        **FRAMING,
        "turns": "renderings of each training view, with separate draws, 1 to 100",
        "decoys": "random vehicles of no class in the split decoys, 0 to 3600",
    },
    _bands_at_ranges,
)
