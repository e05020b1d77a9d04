import numpy as np
import pytest

from jaxatr.data.sources import simulated
from jaxatr.data.sources.simulated.decoys import decoy
from jaxatr.data.sources.simulated.vehicles import FLEET

NEAR = {"ranges": (1000, 2000), "bands": ("visible",), "size": 32}


@pytest.mark.slow
def test_a_decoy_stands_on_the_ground_and_has_the_size_of_a_land_vehicle():
    for number in range(60):
        vehicle = decoy(number, seed=3)
        length, width, height = vehicle.size
        corners = np.concatenate([solid.corners for solid in vehicle.solids])
        assert 3.8 <= length <= 8 and 1.2 < width < 4 and 0.9 < height < 4.5
        assert 0 <= corners[:, 2].min() < 0.1
        assert len(vehicle.posed(0.1, 0.02).offsets)


@pytest.mark.slow
def test_no_two_decoys_are_one_vehicle_and_none_is_of_the_fleet():
    drawn = [decoy(number, seed) for seed in (0, 1) for number in range(30)]
    sizes = np.array([vehicle.size for vehicle in (*drawn, *FLEET)])
    apart = np.abs(sizes[:, None] - sizes).max(axis=-1)[~np.eye(len(sizes), dtype=bool)]
    assert apart.min() > 1e-3
    again = decoy(7, seed=1)
    assert again.size == drawn[37].size and len(again.solids) == len(drawn[37].solids)


def test_the_split_of_decoys():
    found = simulated.generate("decoys", decoys=3, **NEAR)
    train = simulated.generate("train", aspects=3, turns=2, **NEAR)
    assert set(found) == set(train) and found["image"].shape == (6, 32, 32, 1)
    assert set(found["label"]) == {-1} and found["range_m"].tolist() == [1000] * 3 + [2000] * 3
    assert not set(found["id"]) & set(train["id"]) and len(set(found["id"])) == 6
    assert found["mask"].any(axis=(1, 2, 3)).all()
    fewer = simulated.generate("decoys", decoys=2, **NEAR | {"ranges": (2000,)})
    np.testing.assert_array_equal(fewer["image"], found["image"][3:5])


def test_so_many_decoys_are_refused():
    with pytest.raises(ValueError, match="decoys: got -1, wanted 0 to 3600"):
        simulated.generate("decoys", decoys=-1)
