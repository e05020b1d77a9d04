"""The eight vehicles of the DSIAC database as simple solids with true dimensions, in metres.

Length, width and height include running gear and turret, but not guns and antennas. Shapes are
approximate: only features that distinguish the vehicles at a kilometre are modelled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxatr.data.sources.simulated import raycast
from jaxatr.data.sources.simulated.solids import Part, Solid, cylinder, frustum, pair, prism, turned

_BODY, _GUN, _DARK = Part.BODY, Part.GUN, Part.DARK


@dataclass(frozen=True)
class Vehicle:
    """A vehicle.

    Attributes:
      name: the name used by the DSIAC files.
      size: length, width and height.
      solids: the solids that make it up.
      engine: (x, y, z) of the engine, which warms the skin around it.
      pivot: (x, y, z) of the turret's axis and the gun's trunnion, or ``None`` without a turret.
    """

    name: str
    size: tuple[float, float, float]
    solids: Sequence[Solid]
    engine: tuple[float, float, float]
    pivot: tuple[float, float, float] | None = None

    def posed(self, traverse: float = 0.0, lift: float = 0.0) -> raycast.Mesh:
        """Returns the solids with the turret turned left and the gun raised, both in radians."""
        if self.pivot is None:
            return raycast.mesh(self.solids)
        pivot = np.array(self.pivot)
        cos, sin = np.cos(traverse), np.sin(traverse)
        turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
        cos, sin = np.cos(lift), np.sin(lift)
        raised = turn @ np.array([[cos, 0, -sin], [0, 1, 0], [sin, 0, cos]])
        return raycast.mesh(
            [
                turned(s, raised, pivot) if s.lifts else turned(s, turn, pivot) if s.turns else s
                for s in self.solids
            ]
        )


def on_turret(*solids: Solid) -> list[Solid]:
    """Marks solids as parts of the turret."""
    return [Solid(s.part, s.normals, s.offsets, s.corners, turns=True) for s in solids]


def barrel(z: float, radius: float, x: tuple[float, float], y: float = 0.0) -> Solid:
    """Creates a gun barrel, which moves with turret and trunnion.

    Args:
      z: height of its axis.
      radius: radius of the tube.
      x: rear and front end.
      y: lateral position of its axis.
    """
    tube = cylinder(_GUN, "x", (y, z), radius, x, sides=8)
    return Solid(tube.part, tube.normals, tube.offsets, tube.corners, turns=True, lifts=True)


def wheels(xs: Sequence[float], radius: float, y: tuple[float, float]) -> list[Solid]:
    """Creates tyres with bright hubs on both sides, with the outer face at ``y[1]``."""
    solids = []
    for x in xs:
        solids += pair(cylinder(Part.RUBBER, "y", (x, radius), radius, (y[0], y[1] - 0.02)))
        solids += pair(cylinder(Part.WHEEL, "y", (x, radius), 0.55 * radius, (y[1] - 0.1, y[1])))
    return solids


def tracks(
    x: tuple[float, float],
    height: float,
    y: tuple[float, float],
    wheels: tuple[int, float],
    skirt: float,
) -> list[Solid]:
    """Creates both tracks with their road wheels and the fenders above.

    Args:
      x: rear and front end.
      height: height of the upper run.
      y: inner and outer face.
      wheels: number of road wheels per side, and their radius.
      skirt: overlap of the fender's skirt with the track.
    """
    (rear, front), rise = x, 0.45 * height
    belt = [
        (rear + 0.75, 0.0), (front - 0.85, 0.0), (front, rise + 0.1), (front - 0.1, height),
        (rear + 0.1, height), (rear, rise),
    ]  # fmt: skip
    solids = pair(prism(Part.TRACK, side=belt, y=(y[0], y[1] - 0.04)))
    count, radius = wheels
    for at in np.linspace(rear + 0.95, front - 1.05, count):
        rim = cylinder(Part.WHEEL, "y", (at, radius + 0.06), radius, (y[1] - 0.3, y[1]))
        solids += pair(rim)
    for at, size in ((rear + 0.35, 0.26), (front - 0.35, 0.24)):
        sprocket = cylinder(Part.WHEEL, "y", (at, 0.68 * height), size, (y[1] - 0.3, y[1]))
        solids += pair(sprocket)
    fender = (height - skirt, height + 0.05)
    return solids + pair(prism(_BODY, x=(rear, front), y=(y[1] - 0.03, y[1]), z=fender))


def _pickup() -> Vehicle:
    lower = [(-2.705, 0.45), (-2.6, 0.3), (2.55, 0.3), (2.705, 0.5), (2.66, 0.9), (-2.705, 0.9)]
    hood = [(0.8, 0.85), (2.66, 0.85), (2.5, 0.98), (0.95, 1.06)]
    glass = [(-0.62, 1.0), (1.25, 1.0), (0.62, 1.63), (-0.5, 1.63)]
    rear_pillar = [(-0.6, 1.0), (-0.42, 1.0), (-0.36, 1.65), (-0.52, 1.65)]
    front_pillar = [(1.2, 1.0), (1.3, 1.0), (0.7, 1.65), (0.6, 1.65)]
    solids = [
        prism(_BODY, side=lower, y=(-0.88, 0.88)),
        prism(Part.DECK, side=hood, y=(-0.84, 0.84)),
        prism(Part.GLASS, side=glass, front=[(-0.86, 1.0), (0.86, 1.0), (0.7, 1.63), (-0.7, 1.63)]),
        prism(_BODY, x=(-0.55, 0.65), y=(-0.72, 0.72), z=(1.6, 1.68)),
        prism(_BODY, x=(-0.68, 1.15), y=(-0.88, 0.88), z=(0.85, 1.06)),
        *pair(prism(_BODY, x=(-2.7, -0.6), y=(0.8, 0.9), z=(0.85, 1.14))),
        prism(_BODY, x=(-2.705, -2.62), y=(-0.88, 0.88), z=(0.85, 1.14)),
        *pair(prism(_BODY, side=rear_pillar, y=(0.7, 0.8))),
        *pair(prism(_BODY, side=front_pillar, y=(0.68, 0.8))),
        prism(_DARK, x=(2.62, 2.7), y=(-0.55, 0.55), z=(0.5, 0.85)),
        cylinder(Part.EXHAUST, "x", (-0.5, 0.3), 0.06, (-2.7, -1.9), sides=8),
        *wheels((-1.65, 1.72), 0.37, (0.66, 0.9)),
    ]
    return Vehicle("PICKUP", (5.41, 1.80, 1.68), solids, (1.8, 0.0, 0.8))


def _suv() -> Vehicle:
    lower = [(-2.285, 0.5), (-2.2, 0.34), (2.15, 0.34), (2.285, 0.55), (2.24, 1.0), (-2.285, 1.0)]
    hood = [(0.8, 0.95), (2.24, 0.95), (2.1, 1.04), (0.9, 1.12)]
    glass = [(-2.2, 1.05), (1.2, 1.05), (0.6, 1.62), (-2.05, 1.62)]
    solids = [
        prism(_BODY, side=lower, y=(-0.85, 0.85)),
        prism(Part.DECK, side=hood, y=(-0.82, 0.82)),
        prism(Part.GLASS, side=glass, front=[(-0.84, 1.0), (0.84, 1.0), (0.7, 1.62), (-0.7, 1.62)]),
        prism(_BODY, x=(-2.12, 0.64), y=(-0.72, 0.72), z=(1.58, 1.68)),
        *pair(prism(_DARK, x=(-1.8, 0.3), y=(0.55, 0.62), z=(1.66, 1.73))),
        prism(_BODY, x=(-2.28, 1.1), y=(-0.85, 0.85), z=(0.95, 1.1)),
        *pair(prism(_BODY, x=(-2.2, -1.95), y=(0.66, 0.8), z=(1.0, 1.62))),
        *pair(prism(_BODY, x=(-1.15, -1.0), y=(0.68, 0.8), z=(1.0, 1.62))),
        *pair(prism(_BODY, x=(-0.1, 0.04), y=(0.68, 0.8), z=(1.0, 1.62))),
        prism(_DARK, x=(2.2, 2.28), y=(-0.55, 0.55), z=(0.6, 0.9)),
        cylinder(Part.EXHAUST, "x", (0.5, 0.34), 0.06, (-2.28, -1.6), sides=8),
        *wheels((-1.35, 1.4), 0.38, (0.62, 0.865)),
    ]
    return Vehicle("SUV", (4.57, 1.73, 1.73), solids, (1.5, 0.0, 0.85))


def _btr70() -> Vehicle:
    side = [
        (-3.81, 0.85), (-3.3, 0.45), (2.7, 0.45), (3.81, 1.0), (3.75, 1.15), (2.3, 1.65),
        (1.7, 1.8), (-3.3, 1.8), (-3.81, 1.2),
    ]  # fmt: skip
    front = [(-0.95, 0.4), (0.95, 0.4), (1.37, 1.05), (0.92, 1.8), (-0.92, 1.8), (-1.37, 1.05)]
    deck = [(-3.3, 1.81), (-3.3, 1.7), (-1.9, 1.7), (-1.9, 1.84)]
    solids = [
        prism(_BODY, side=side, front=front),
        prism(Part.DECK, side=deck, y=(-0.85, 0.85)),
        *pair(cylinder(Part.EXHAUST, "x", (1.1, 1.35), 0.16, (-3.5, -2.2), sides=8)),
        *pair(prism(_DARK, x=(2.45, 2.62), y=(0.15, 0.7), z=(1.5, 1.62))),
        *on_turret(frustum(_BODY, (0.75, 0.0), (0.75, 0.45), (1.78, 2.16))),
        barrel(2.0, 0.05, (1.2, 2.5)),
        *wheels((-2.65, -1.2, 0.55, 2.0), 0.56, (1.0, 1.395)),
    ]
    return Vehicle("BTR70", (7.62, 2.79, 2.16), solids, (-2.7, 0.0, 1.3), (0.75, 0.0, 2.0))


def _brdm2() -> Vehicle:
    side = [
        (-2.86, 0.95), (-2.6, 0.5), (1.6, 0.5), (2.86, 0.95), (2.8, 1.1), (1.3, 1.38),
        (-2.8, 1.38), (-2.86, 1.3),
    ]  # fmt: skip
    front = [(-0.8, 0.45), (0.8, 0.45), (1.12, 1.0), (0.78, 1.65), (-0.78, 1.65), (-1.12, 1.0)]
    cabin = [(-2.7, 1.35), (1.4, 1.35), (0.95, 1.65), (-2.0, 1.65)]
    deck = [(-2.7, 1.3), (-1.2, 1.3), (-1.2, 1.68), (-2.0, 1.68), (-2.7, 1.44)]
    solids = [
        prism(_BODY, side=side, front=front),
        prism(_BODY, side=cabin, front=front),
        prism(Part.DECK, side=deck, y=(-0.7, 0.7)),
        *pair(cylinder(Part.EXHAUST, "x", (0.95, 1.15), 0.12, (-2.7, -1.9), sides=8)),
        *pair(prism(_DARK, x=(1.12, 1.3), y=(0.15, 0.6), z=(1.38, 1.5))),
        *on_turret(frustum(_BODY, (-0.25, 0.0), (0.62, 0.4), (1.63, 2.03))),
        barrel(1.87, 0.05, (0.1, 1.3)),
        *wheels((-1.45, 1.55), 0.6, (0.75, 1.145)),
    ]
    return Vehicle("BRDM2", (5.72, 2.29, 2.03), solids, (-2.0, 0.0, 1.2), (-0.25, 0.0, 1.85))


def _bmp2() -> Vehicle:
    side = [
        (-3.365, 0.6), (-3.2, 0.45), (2.4, 0.45), (3.365, 1.05), (1.2, 1.75), (-3.3, 1.75),
        (-3.365, 1.6),
    ]  # fmt: skip
    front = [(-1.0, 0.4), (1.0, 0.4), (1.5, 1.05), (1.35, 1.75), (-1.35, 1.75), (-1.5, 1.05)]
    deck = [(0.75, 1.6), (2.0, 1.42), (2.0, 1.52), (1.2, 1.78), (0.75, 1.78)]
    solids = [
        prism(_BODY, side=side, front=front),
        prism(Part.DECK, side=deck, y=(-1.2, 0.0)),
        prism(Part.EXHAUST, x=(0.1, 0.75), y=(-1.3, -1.0), z=(1.6, 1.84)),
        *pair(prism(_BODY, x=(-3.365, -3.3), y=(0.1, 1.1), z=(0.7, 1.7))),
        *on_turret(frustum(_BODY, (-0.35, 0.0), (1.15, 0.8), (1.73, 2.3), width=1.05)),
        *on_turret(prism(_BODY, x=(-0.9, -0.3), y=(0.1, 0.6), z=(2.25, 2.45))),
        *on_turret(prism(_DARK, x=(0.1, 0.4), y=(-0.6, -0.3), z=(2.25, 2.4))),
        barrel(2.03, 0.06, (0.5, 3.1)),
        *tracks((-3.2, 2.95), 1.05, (1.0, 1.575), (6, 0.3), 0.12),
    ]
    return Vehicle("BMP2", (6.73, 3.15, 2.45), solids, (1.4, -0.5, 1.3), (-0.35, 0.0, 2.03))


def _t72() -> Vehicle:
    side = [
        (-3.295, 1.1), (-2.9, 0.45), (2.3, 0.45), (3.295, 0.9), (3.2, 1.0), (1.9, 1.4),
        (-3.1, 1.4), (-3.295, 1.35),
    ]  # fmt: skip
    deck = [(-3.2, 1.3), (-1.3, 1.3), (-1.3, 1.47), (-3.2, 1.43)]
    solids = [
        prism(_BODY, side=side, y=(-1.2, 1.2)),
        *pair(prism(_BODY, x=(-3.1, 2.6), y=(1.1, 1.75), z=(1.12, 1.38))),
        prism(Part.DECK, side=deck, y=(-1.1, 1.1)),
        prism(Part.EXHAUST, x=(-2.2, -1.5), y=(1.5, 1.795), z=(1.1, 1.36)),
        *pair(cylinder(_BODY, "y", (-3.1, 1.52), 0.19, (0.15, 1.05), sides=8)),
        *on_turret(
            frustum(_BODY, (0.3, 0.0), (1.35, 1.2), (1.38, 1.75)),
            frustum(_BODY, (0.25, 0.0), (1.2, 0.65), (1.75, 2.05)),
            cylinder(_BODY, "z", (-0.1, 0.5), 0.35, (1.9, 2.21)),
            prism(_BODY, x=(-1.6, -0.7), y=(-0.9, 0.9), z=(1.5, 1.85)),
        ),
        barrel(1.72, 0.1, (1.2, 5.9)),
        barrel(1.72, 0.15, (3.6, 4.2)),
        *tracks((-3.25, 3.15), 1.05, (1.2, 1.795), (6, 0.37), 0.32),
    ]
    return Vehicle("T72", (6.59, 3.59, 2.21), solids, (-2.4, 0.0, 1.1), (0.3, 0.0, 1.72))


def _zsu23() -> Vehicle:
    side = [
        (-2.97, 0.9), (-2.8, 0.4), (2.2, 0.4), (2.97, 0.75), (2.6, 1.1), (1.9, 1.3), (-2.97, 1.3),
    ]  # fmt: skip
    turret = [(-1.75, 1.3), (1.1, 1.3), (1.45, 1.6), (0.95, 2.34), (-1.5, 2.34), (-1.75, 2.1)]
    front = [(-1.4, 1.3), (1.4, 1.3), (1.4, 1.7), (1.15, 2.34), (-1.15, 2.34), (-1.4, 1.7)]
    guns = [(y, z) for y in (-0.32, 0.32) for z in (1.78, 2.02)]
    solids = [
        prism(_BODY, side=side, y=(-1.1, 1.1)),
        prism(_BODY, x=(-2.9, 2.1), y=(-1.4, 1.4), z=(1.0, 1.3)),
        prism(Part.DECK, x=(-2.9, -1.8), y=(-1.0, 1.0), z=(1.2, 1.4)),
        prism(Part.EXHAUST, x=(-2.6, -1.7), y=(-1.44, -1.2), z=(1.0, 1.25)),
        *on_turret(
            prism(_BODY, side=turret, front=front),
            cylinder(Part.ANTENNA, "x", (0.0, 2.85), 0.5, (-1.5, -1.35)),
            prism(Part.ANTENNA, x=(-1.55, -1.3), y=(-0.12, 0.12), z=(2.3, 2.8)),
        ),
        *(barrel(z, 0.055, (1.0, 2.9), y) for y, z in guns),
        *tracks((-2.9, 2.75), 0.95, (1.05, 1.44), (6, 0.33), 0.1),
    ]
    return Vehicle("ZSU23", (5.94, 2.88, 2.34), solids, (-2.2, 0.0, 1.0), (0.0, 0.0, 1.9))


def _2s3() -> Vehicle:
    side = [
        (-3.355, 0.9), (-3.2, 0.45), (2.4, 0.45), (3.355, 0.95), (2.9, 1.3), (1.2, 1.65),
        (-3.355, 1.65),
    ]  # fmt: skip
    deck = [(0.9, 1.55), (2.6, 1.3), (2.6, 1.4), (1.2, 1.7), (0.9, 1.7)]
    turret = [(-3.0, 1.65), (0.35, 1.65), (0.6, 1.95), (0.2, 2.5), (-2.9, 2.5), (-3.0, 2.4)]
    plan = [(-3.0, 1.1), (-3.0, -1.1), (-2.4, -1.5), (-0.3, -1.5), (0.6, -0.8), (0.6, 0.8),
            (-0.3, 1.5), (-2.4, 1.5)]  # fmt: skip
    solids = [
        prism(_BODY, side=side, y=(-1.15, 1.15)),
        *pair(prism(_BODY, x=(-3.3, 2.5), y=(1.1, 1.58), z=(1.05, 1.6))),
        prism(Part.DECK, side=deck, y=(-1.05, 0.1)),
        prism(Part.EXHAUST, x=(0.9, 1.6), y=(-1.615, -1.3), z=(1.15, 1.45)),
        *on_turret(
            prism(_BODY, side=turret, plan=plan),
            cylinder(_BODY, "z", (-1.0, 0.7), 0.4, (2.45, 2.72)),
        ),
        barrel(2.05, 0.11, (0.3, 4.3)),
        barrel(2.05, 0.19, (4.2, 4.85)),
        barrel(2.05, 0.16, (1.9, 2.4)),
        *tracks((-3.2, 3.15), 1.05, (1.1, 1.615), (6, 0.33), 0.1),
    ]
    return Vehicle("2S3", (6.71, 3.23, 2.72), solids, (1.9, -0.5, 1.2), (-1.0, 0.0, 2.05))


FLEET: tuple[Vehicle, ...] = (
    _pickup(),
    _suv(),
    _btr70(),
    _brdm2(),
    _bmp2(),
    _t72(),
    _zsu23(),
    _2s3(),
)
