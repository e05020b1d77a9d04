"""Random vehicles of no class, for learning to reject: varied hulls on wheels or tracks.

Every dimension is drawn uniformly from the range found in land vehicles. No decoy is a copy or a
variation of a vehicle of the fleet.
"""

import numpy as np

from jaxatr.data.sources.simulated.solids import Part, Solid, cylinder, frustum, pair, prism
from jaxatr.data.sources.simulated.vehicles import (
    Vehicle,
    barrel,
    on_turret,
    tracks,
    wheels,
)

_TRACKED = 0.5  # share on tracks
_TURRETS = 0.6  # share with a turret
_CABINS = 0.75  # share with a cabin, of those without a turret


def decoy(number: int, seed: int) -> Vehicle:
    """Draws a vehicle.

    Args:
      number: number of the decoy, non-negative.
      seed: seed of all decoys, non-negative.
    """
    rng = np.random.default_rng(np.random.SeedSequence((seed, number), spawn_key=(7,)))
    length, tracked = rng.uniform(3.8, 8.0), rng.random() < _TRACKED
    half = rng.uniform(0.19, 0.28) * length if length < 6.5 else rng.uniform(0.18, 0.24) * length
    roof = rng.uniform(0.9, 1.9)  # the hull's roof
    x = (-length / 2, length / 2)
    belly = rng.uniform(0.3, 0.55)
    solids = [_hull(rng, x, half, belly, roof)]
    engine = (float(rng.choice([-1, 1]) * rng.uniform(0.2, 0.38) * length), 0.0, 0.7 * roof)
    solids += _details(rng, x, half, roof, engine[0])
    if tracked:
        width = rng.uniform(0.3, 0.55)
        height = min(rng.uniform(0.75, 1.15), roof)
        solids += tracks(
            (x[0] + 0.1, x[1] - 0.15),
            height,
            (half - width, half),
            (int(rng.integers(4, 8)), float(rng.uniform(0.22, 0.42))),
            float(rng.uniform(0.05, 0.4)),
        )
    else:
        radius = rng.uniform(0.33, 0.65)
        axles = int(rng.integers(2, 2 + max(1, int(length / (2.3 * radius + 1.0)))))
        ends = (x[0] + radius + rng.uniform(0.1, 0.6), x[1] - radius - rng.uniform(0.1, 0.6))
        at = np.linspace(*ends, axles) + (rng.uniform(-0.25, 0.25, axles) if axles > 2 else 0)
        solids += wheels(at.tolist(), float(radius), (half - rng.uniform(0.2, 0.4), half))
    pivot = None
    if rng.random() < _TURRETS:
        turret, pivot = _turret(rng, x, half, roof)
        solids += turret
    elif rng.random() < _CABINS:
        solids += _cabin(rng, x, half, roof)
    highest = max(float(solid.corners[:, 2].max()) for solid in solids)
    return Vehicle(f"decoy {number}", (length, 2 * half, highest), solids, engine, pivot)


def _hull(
    rng: np.random.Generator, x: tuple[float, float], half: float, belly: float, roof: float
) -> Solid:
    """Draws a convex hull: a box with bevelled ends and, half of the time, bevelled sides."""
    (rear, front), high = x, roof - belly
    # The heights at which the ends protrude most.
    nose, tail = rng.uniform(0.25, 0.75, 2) * high + belly
    reach = rng.uniform(0.02, 0.3, 4) * (front - rear) * rng.choice([0.3, 1.0], 4)
    side = [
        (rear, tail), (rear + reach[0], belly), (front - reach[1], belly), (front, nose),
        (front - reach[2], roof), (rear + reach[3], roof),
    ]  # fmt: skip
    if rng.random() < 0.5:
        return prism(Part.BODY, side=side, y=(-0.92 * half, 0.92 * half))
    low, top = rng.uniform(0.6, 0.95), rng.uniform(0.55, 0.98)
    waist = belly + rng.uniform(0.3, 0.7) * high
    right = [(low * half, belly), (half, waist), (top * half, roof)]
    return prism(Part.BODY, side=side, front=[*right, *((-y, z) for y, z in reversed(right))])


def _details(
    rng: np.random.Generator, x: tuple[float, float], half: float, roof: float, engine: float
) -> list[Solid]:
    """Draws the details on a hull: engine deck, exhaust, boxes, a dark hatch or grille."""
    solids = []
    size = rng.uniform(0.5, 1.1)
    deck = (max(x[0], engine - size), min(x[1], engine + size))
    solids.append(
        prism(Part.DECK, x=deck, y=(-0.7 * half, 0.7 * half), z=(roof - 0.15, roof + 0.03))
    )
    start, side = engine + rng.uniform(-0.6, 0.3), rng.choice([-1, 1]) * rng.uniform(0.6, 0.9)
    pipe = rng.uniform(0.06, 0.17)
    solids.append(
        cylinder(
            Part.EXHAUST,
            "x",
            (side * half, roof - rng.uniform(0.0, 0.4)),
            pipe,
            (start, start + rng.uniform(0.4, 1.2)),
            sides=8,
        )
    )
    for _ in range(rng.integers(0, 4)):
        at, wide, tall = rng.uniform(*x), rng.uniform(0.15, 0.6, 2), rng.uniform(0.08, 0.45)
        y = rng.uniform(-0.7, 0.7) * half
        part = Part.DARK if rng.random() < 0.3 else Part.BODY
        span = (max(x[0], at - wide[0]), min(x[1], at + wide[0]))
        solids.append(
            prism(part, x=span, y=(y - wide[1] / 2, y + wide[1] / 2), z=(roof - 0.1, roof + tall))
        )
    return solids


def _turret(
    rng: np.random.Generator, x: tuple[float, float], half: float, roof: float
) -> tuple[list[Solid], tuple[float, float, float]]:
    """Draws a turret of one of three shapes with one to four barrels; also returns its pivot."""
    centre = float(rng.uniform(-0.3, 0.2) * (x[1] - x[0]))
    radius, tall = rng.uniform(0.45, 0.95) * half, rng.uniform(0.3, 0.95)
    top = roof + tall
    build = rng.integers(3)
    if build == 0:
        shrunk = rng.uniform(0.45, 0.95) * radius
        body = [frustum(Part.BODY, (centre, 0.0), (radius, shrunk), (roof - 0.02, top))]
    elif build == 1:
        body = [cylinder(Part.BODY, "z", (centre, 0.0), radius, (roof - 0.02, top))]
    else:
        long = rng.uniform(0.9, 1.6) * radius
        slope = rng.uniform(0.0, 0.45, 2) * long
        side = [
            (centre - long, roof - 0.02), (centre + long, roof - 0.02),
            (centre + long - slope[0], top), (centre - long + slope[1], top),
        ]  # fmt: skip
        body = [prism(Part.BODY, side=side, y=(-radius, radius))]
    if rng.random() < 0.4:
        spot = (centre + rng.uniform(-0.4, 0.4) * radius, rng.uniform(-0.5, 0.5) * radius)
        body.append(cylinder(Part.BODY, "z", spot, rng.uniform(0.2, 0.4), (top - 0.05, top + 0.25)))
    if rng.random() < 0.2:
        mast = (top - 0.05, top + rng.uniform(0.3, 0.8))
        body.append(prism(Part.ANTENNA, x=(centre - 0.5, centre - 0.25), y=(-0.4, 0.4), z=mast))
    height = float(rng.uniform(roof + 0.35 * tall, roof + 0.8 * tall))
    calibre = float(rng.uniform(0.035, 0.13))
    reach = centre + radius + (12 + 25 * rng.random()) * calibre + rng.uniform(0.2, 1.5)
    spread = float(rng.uniform(0.15, 0.5) * radius)
    offsets = {1: [0.0], 2: [-spread, spread], 4: [-spread, -0.5 * spread, 0.5 * spread, spread]}
    count = int(rng.choice([1, 2, 4], p=[0.75, 0.17, 0.08]))
    guns = [barrel(height, calibre, (centre + 0.5 * radius, reach), y) for y in offsets[count]]
    if count == 1 and rng.random() < 0.4:
        sleeve = centre + radius + rng.uniform(0.3, 0.8) * (reach - centre - radius)
        guns.append(barrel(height, 1.5 * calibre, (sleeve - 0.3, sleeve + 0.3)))
    return [*on_turret(*body), *guns], (centre, 0.0, height)


def _cabin(
    rng: np.random.Generator, x: tuple[float, float], half: float, roof: float
) -> list[Solid]:
    """Draws a cabin with windows anywhere on the hull, and possibly a body behind it."""
    long = rng.uniform(0.2, 0.65) * (x[1] - x[0])
    front = rng.uniform(x[0] + long, x[1] - 0.05)
    top, rake = roof + rng.uniform(0.5, 1.1), rng.uniform(0.02, 0.45, 2) * min(long, 1.6)
    wide = rng.uniform(0.8, 0.98) * half
    narrow = rng.uniform(0.75, 1.0) * wide
    side = [
        (front - long, roof - 0.05), (front, roof - 0.05),
        (front - rake[0], top), (front - long + rake[1], top),
    ]  # fmt: skip
    across = [(-wide, roof - 0.05), (wide, roof - 0.05), (narrow, top), (-narrow, top)]
    solids = [
        prism(Part.GLASS, side=side, front=across),
        prism(
            Part.BODY,
            x=(front - long + rake[1], front - rake[0]),
            y=(-narrow, narrow),
            z=(top - 0.05, top + 0.06),
        ),
    ]
    for at in np.linspace(front - long + rake[1], front - rake[0], int(rng.integers(2, 5))):
        solids += pair(
            prism(Part.BODY, x=(at - 0.06, at + 0.06), y=(0.9 * narrow, wide), z=(roof, top))
        )
    if front - long - x[0] > 1.0 and rng.random() < 0.6:
        z = (roof - 0.05, roof + rng.uniform(0.15, 1.3))
        solids.append(prism(Part.BODY, x=(x[0], front - long - 0.05), y=(-wide, wide), z=z))
    return solids
