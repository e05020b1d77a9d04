import numpy as np
import pytest

from jaxatr.data.sources.simulated import radiance, raycast, solids
from jaxatr.data.sources.simulated.solids import Part
from jaxatr.data.sources.simulated.vehicles import FLEET

BEYOND = (Part.GUN, Part.ANTENNA)  # not counted in a vehicle's dimensions


def _inside(solid, points):
    return np.all(points @ solid.normals.T <= solid.offsets + 1e-9, axis=1)


def _points(n=4000, reach=3.0):
    return np.random.default_rng(0).uniform(-reach, reach, (n, 3))


def test_a_prism_is_the_intersection_of_its_outlines():
    roof = solids.prism(Part.BODY, side=[(-1.0, 0.0), (1.0, 0.0), (0.0, 1.0)], y=(-2.0, 2.0))
    x, y, z = _points().T
    expected = (z >= 0) & (z <= 1 - np.abs(x)) & (np.abs(y) <= 2)
    np.testing.assert_array_equal(_inside(roof, _points()), expected)
    np.testing.assert_array_equal(roof.corners.min(axis=0), [-1, -2, 0])
    np.testing.assert_array_equal(roof.corners.max(axis=0), [1, 2, 1])


@pytest.mark.parametrize("turn", [1, -1])
def test_outlines_may_run_either_way_round(turn):
    square = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)][::turn]
    assert _inside(solids.prism(Part.BODY, plan=square, z=(-1.0, 1.0)), np.zeros((1, 3)))[0]


def test_an_outline_that_is_not_convex_is_refused():
    with pytest.raises(ValueError, match="wanted a convex polygon"):
        solids.prism(Part.BODY, side=[(0.0, 0.0), (2.0, 0.0), (0.5, 0.5), (0.0, 2.0)], y=(0.0, 1.0))


def test_round_solids_lie_between_their_inner_and_outer_circle():
    drum = solids.cylinder(Part.WHEEL, "y", (0.5, 1.0), 0.8, (-1.0, 1.0), sides=16)
    x, y, z = _points().T
    radius = np.hypot(x - 0.5, z - 1.0)
    inside = _inside(drum, _points())
    assert np.all(inside <= ((radius <= 0.8) & (np.abs(y) <= 1)))
    assert np.all(inside >= ((radius <= 0.8 * np.cos(np.pi / 16)) & (np.abs(y) <= 1)))

    cone = solids.frustum(Part.BODY, (0.2, 0.0), (2.0, 1.0), (0.0, 2.0), width=0.5, sides=16)
    radius = np.hypot(x - 0.2, y / 0.5)
    between, limit = (z >= 0) & (z <= 2), 2 - z / 2
    inside = _inside(cone, _points())
    assert np.all(inside <= (between & (radius <= limit + 1e-9)))
    assert np.all(inside >= (between & (radius <= limit * np.cos(np.pi / 16) - 1e-9)))


def test_turning_and_mirroring_move_the_points():
    wedge = solids.prism(Part.BODY, side=[(0.0, 0.0), (2.0, 0.0), (0.0, 1.0)], y=(0.5, 1.5))
    flat = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    pivot = np.array([1.0, 0, 0])
    moved = solids.turned(wedge, flat, pivot)
    points = _points()
    back = (points - pivot) @ flat + pivot
    np.testing.assert_array_equal(_inside(moved, points), _inside(wedge, back))
    left, right = solids.pair(wedge)
    np.testing.assert_array_equal(_inside(right, points), _inside(left, points * [1, -1, 1]))


def test_axes_are_orthonormal_and_turn_clockwise_with_the_aspect():
    axes = raycast.frame(0.7, 0.2)
    np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-6)
    facing = raycast.frame(0.0, 0.0)
    np.testing.assert_allclose(facing[2], [-1, 0, 0], atol=1e-7)  # we look at its front
    np.testing.assert_allclose(facing[0], [0, 1, 0], atol=1e-7)  # its left is on our right
    # Seen from above, a vehicle that faced us and turned clockwise by 90° points to our left.
    np.testing.assert_allclose(raycast.frame(np.pi / 2, 0.0)[0], [-1, 0, 0], atol=1e-7)


def _cast_plainly(fleet_solids, axes, u, v):
    """Casts single rays through each solid's faces, in loops."""
    nearest, part, normal = 1e6, None, None
    origin, away = u * axes[0] + v * axes[1], axes[2]
    for solid in fleet_solids:
        first, last, entry = -np.inf, np.inf, None
        for face, offset in zip(solid.normals, solid.offsets, strict=True):
            speed, gap = face @ away, offset - face @ origin
            if speed < 0 and gap / speed > first:
                first, entry = gap / speed, face
            elif speed > 0:
                last = min(last, gap / speed)
            elif speed == 0 and gap < 0:
                last = -np.inf
        if first < min(last, nearest):
            nearest, part, normal = first, solid.part, entry
    return nearest, part, normal


@pytest.mark.parametrize("vehicle", [0, 5])
def test_casting_agrees_with_plain_loops(vehicle):
    shape = FLEET[vehicle].posed()
    axes = raycast.frame(0.9, 0.11)
    u = np.linspace(-4, 4, 19, dtype=np.float32)
    v = np.linspace(-0.5, 2.5, 11, dtype=np.float32)
    hits = raycast.cast(shape, axes, u, v)
    found = {int(i): k for k, i in enumerate(hits.index)}
    wrong = 0
    for index in range(len(u) * len(v)):
        row, column = divmod(index, len(u))
        depth, part, normal = _cast_plainly(
            FLEET[vehicle].solids, axes.astype(float), float(u[column]), float(v[row])
        )
        if part is None or index not in found:
            wrong += (part is None) != (index not in found)
            continue
        k = found[index]
        same = hits.parts[k] == part and np.allclose(hits.normals[k], normal, atol=1e-5)
        wrong += not (same and abs(hits.points[k] @ axes[2] - depth) < 1e-3)
    assert len(found) > 40
    assert wrong <= 2  # a ray along an edge may fall on either side of it in float32


@pytest.mark.parametrize("vehicle", FLEET, ids=lambda v: v.name)
def test_dimensions_are_true(vehicle):
    body = raycast.mesh([s for s in vehicle.solids if s.part not in BEYOND])
    step = 0.01
    grid = np.arange(-4.5, 4.5, step, dtype=np.float32)
    measured = []
    for azimuth in (np.pi / 2, 0.0):  # from its left side, from its front
        hits = raycast.cast(body, raycast.frame(azimuth, 0.0), grid, grid)
        across, up = grid[hits.index % len(grid)], grid[hits.index // len(grid)]
        measured += [np.ptp(across) + step, up.max() + step / 2]
        assert abs(up.min()) <= step
    length, height, width, _ = measured
    np.testing.assert_allclose([length, width, height], vehicle.size, atol=2.1 * step)


def test_the_turret_turns_and_the_gun_rises():
    tank = FLEET[5]
    guns = tank.posed().parts == Part.GUN
    ahead, left = tank.posed().corners[guns], tank.posed(traverse=np.pi / 2).corners[guns]
    assert ahead[..., 0].max() > 5.8
    assert left[..., 1].max() == pytest.approx(ahead[..., 0].max() - tank.pivot[0], abs=1e-5)
    assert tank.posed(lift=0.2).corners[guns][..., 2].max() > ahead[..., 2].max() + 1
    np.testing.assert_array_equal(FLEET[0].posed(1.0).corners, FLEET[0].posed().corners)


def test_hot_parts_are_warmer_than_the_hull():
    sun = raycast.frame(0.0, 0.5)
    heat = radiance.Heat(
        hull=1.0, engine=10.0, running=5.0, gun=8.0, sky=4.0, sun=0.0, sun_axes=sun
    )
    far = (100.0, 0.0, 0.0)
    parts = np.arange(len(Part))
    hits = raycast.Hits(
        parts, np.zeros((len(parts), 3)), np.tile([1.0, 0, 0], (len(parts), 1)), parts
    )
    warmth = radiance.temperature(hits, heat, far)
    hull = warmth[Part.BODY]
    for part in (Part.DECK, Part.EXHAUST, Part.TRACK, Part.WHEEL, Part.RUBBER, Part.GUN):
        assert warmth[part] > hull + 2
    assert warmth[Part.EXHAUST] == warmth.max() == pytest.approx(1 + 20)
    assert warmth[Part.GLASS] < hull
    near = radiance.temperature(hits, heat, (0.0, 0.0, 0.0))
    np.testing.assert_allclose(near - warmth, 4.5, rtol=1e-5)  # the skin over the engine


def test_surfaces_in_shadow_are_dark():
    slab = raycast.mesh([solids.prism(Part.BODY, x=(-1.0, 1.0), y=(-1.0, 1.0), z=(1.0, 1.2))])
    shade = radiance.Shade(slab, raycast.frame(0.0, np.pi / 2))  # from the zenith
    points = np.float32([[0, 0, 0], [0, 0, 1.2], [0.8, 0.8, 0.5], [1.5, 0, 0], [0, -1.5, 3]])
    np.testing.assert_array_equal(shade.lit(points), [0, 1, 0, 1, 1])
    low = radiance.Shade(slab, raycast.frame(0.0, np.pi / 4))  # the shadow falls behind
    np.testing.assert_array_equal(low.lit(np.float32([[-1, 0, 0], [1.2, 0, 0]])), [0, 1])


def test_sunlit_faces_outshine_those_turned_away():
    sun = raycast.frame(0.0, 0.4)
    light = radiance.Light(direct=0.8, sky=0.4, axes=sun)
    box = raycast.mesh([solids.prism(Part.BODY, x=(-1.0, 1.0), y=(-1.0, 1.0), z=(0.5, 1.5))])
    paint = radiance.Paint(0.3, 0.0, np.zeros((1, 4), np.float32))
    grid = np.linspace(-1.2, 1.7, 30, dtype=np.float32)

    def mean(azimuth):
        hits = raycast.cast(box, raycast.frame(azimuth, 0.0), grid, grid)
        seen = radiance.reflected(hits, light, paint, radiance.Shade(box, sun), 0.2, 0.3)
        return float(seen.mean())

    assert mean(0.0) > 3 * mean(np.pi)
    assert light.ground == pytest.approx(0.8 * np.sin(0.4) + 0.4, rel=1e-6)
