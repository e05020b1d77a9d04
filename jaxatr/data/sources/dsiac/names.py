"""Sensors, scenarios and targets encoded in the names of the DSIAC database's files."""

import re
from dataclasses import dataclass

BANDS = {"i1co": "visible", "cegr": "thermal"}
RANGES_M = (1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000)
# Scenario to range and time of day. The even numbers in between show people instead of vehicles.
SCENARIOS = {f"{2003 + 2 * i:05}": (metres, "day") for i, metres in enumerate(RANGES_M)} | {
    f"{1923 + 2 * i:05}": (metres, "night") for i, metres in enumerate(RANGES_M)
}
TARGETS = {
    "0001": "PICKUP",
    "0002": "SUV",
    "0005": "BTR70",
    "0006": "BRDM2",
    "0009": "BMP2",
    "0010": "T62",
    "0011": "T72",
    "0012": "ZSU23",
    "0013": "2S3",
    "0014": "MTLB",
    "0015": "D20",
}
# The eight classes of the open-set paper (section 3.1).
PAPER_CLASSES = ("PICKUP", "SUV", "BTR70", "BRDM2", "BMP2", "T72", "ZSU23", "2S3")
# Length, width and height in metres; not known for the T62.
SIZES_M = {
    "PICKUP": (5.41, 1.80, 1.68),
    "SUV": (4.57, 1.73, 1.73),
    "BTR70": (7.62, 2.79, 2.16),
    "BRDM2": (5.72, 2.29, 2.03),
    "BMP2": (6.73, 3.15, 2.45),
    "T72": (6.59, 3.59, 2.21),
    "ZSU23": (5.94, 2.88, 2.34),
    "2S3": (6.71, 3.23, 2.72),
    "MTLB": (6.25, 3.10, 2.30),
    "D20": (8.35, 2.40, 1.80),
}
FOV_DEG = (3.4, 2.6)  # horizontal and vertical, for both cameras
_OTHER_SPELLINGS = {"ZSU234": "ZSU23"}


@dataclass(frozen=True)
class ClipName:
    """The parts of a clip's name.

    Attributes:
      text: the whole name in lower case, ``cegr02003_0001``.
      band: ``"visible"`` or ``"thermal"``.
      scenario: five digits.
      target: four digits.
    """

    text: str
    band: str
    scenario: str
    target: str


def clip_name(stem: str) -> ClipName | None:
    """Parses a file name without its suffix; None if it is not a clip's name."""
    match = re.fullmatch(r"(cegr|i1co)(\d{5})_(\d{4})", stem.lower())
    return ClipName(match[0], BANDS[match[1]], match[2], match[3]) if match else None


def vehicle(kind: str) -> str | None:
    """Returns the class named by a ``TgtType`` such as ``"ZSU23-4"`` or ``"t72"``, or None."""
    plain = re.sub("[^0-9A-Z]", "", kind.upper())
    plain = _OTHER_SPELLINGS.get(plain, plain)
    return plain if plain in TARGETS.values() else None
