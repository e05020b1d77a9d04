import dataclasses
from collections import Counter

import pytest
from tensorflow_datasets.image_classification import cars196 as tfds_cars196

from jaxatr import data
from jaxatr.data.hierarchies import NAMES, cub200, groups
from jaxatr.data.sources import dsiac, simulated

MSTAR = ("2S1", "BMP2", "BRDM_2", "BTR60", "BTR70", "D7", "T62", "T72", "ZIL131", "ZSU_23_4")
CARS = tuple(tfds_cars196._NAMES)
BIRDS = tuple(str(number) for number in range(200))
# One class of each group of CIFAR-100, and the group.
CIFAR100 = {
    "whale": "aquatic mammals",
    "ray": "fish",
    "orchid": "flowers",
    "can": "food containers",
    "sweet_pepper": "fruit and vegetables",
    "lamp": "household electrical devices",
    "wardrobe": "household furniture",
    "bee": "insects",
    "wolf": "large carnivores",
    "skyscraper": "large man-made outdoor things",
    "sea": "large natural outdoor scenes",
    "kangaroo": "large omnivores and herbivores",
    "skunk": "medium-sized mammals",
    "worm": "non-insect invertebrates",
    "baby": "people",
    "turtle": "reptiles",
    "mouse": "small mammals",
    "oak_tree": "trees",
    "train": "vehicles 1",
    "tank": "vehicles 2",
}


def members(found, classes):
    """Returns coarse classes to the fine classes in them."""
    groups = {name: [] for name in found.coarse_classes}
    for fine, coarse in zip(classes, found.fine_to_coarse, strict=True):
        groups[found.coarse_classes[coarse]].append(fine)
    return groups


def coarse(name, fine):
    found = data.hierarchy(name, (fine,))
    assert found.fine_to_coarse == (0,) and len(found.coarse_classes) == 1
    return found.coarse_classes[0]


def test_cifar100_is_twenty_groups_of_five():
    classes = sorted(groups.CIFAR100.spellings)
    # In the data set's order, which is alphabetical.
    for number, name in {0: "apple", 23: "cloud", 52: "oak_tree", 85: "tank", 99: "worm"}.items():
        assert classes[number] == name
    found = data.hierarchy("cifar100", classes)
    assert len(set(classes)) == 100 and len(found.coarse_classes) == 20
    assert Counter(found.fine_to_coarse) == dict.fromkeys(range(20), 5)
    assert found.coarse_classes == tuple(sorted(found.coarse_classes))
    for fine, name in CIFAR100.items():
        assert fine in members(found, classes)[name]


def test_the_groups_of_a_subset_are_those_that_it_has():
    classes = ("tank", "beaver", "whale")
    found = data.hierarchy("cifar100", classes)
    assert found == data.Hierarchy("cifar100", ("aquatic mammals", "vehicles 2"), (1, 0, 0))


def test_mstar():
    assert members(data.hierarchy("mstar", MSTAR), MSTAR) == {
        "personnel carrier": ["BMP2", "BRDM_2", "BTR60", "BTR70"],
        "self-propelled gun": ["2S1", "ZSU_23_4"],
        "tank": ["T62", "T72"],
        "utility": ["D7", "ZIL131"],
    }
    assert coarse("mstar", "brdm-2") == "personnel carrier"


def test_every_simulated_vehicle_has_a_sibling():
    found = members(data.hierarchy("simulated", simulated.VEHICLES), simulated.VEHICLES)
    assert {name: sorted(group) for name, group in found.items()} == {
        "artillery": ["2S3", "ZSU23"],
        "civilian": ["PICKUP", "SUV"],
        "tracked armour": ["BMP2", "T72"],
        "wheeled armour": ["BRDM2", "BTR70"],
    }
    every = data.hierarchy("simulated", tuple(dsiac.TARGETS.values()))
    assert len(every.fine_to_coarse) == 11 and len(every.coarse_classes) == 4


def test_cars_have_the_papers_number_of_types():
    found = data.hierarchy("cars196", CARS)
    assert len(CARS) == 196 and len(found.coarse_classes) == 22
    sizes = {name: len(group) for name, group in members(found, CARS).items()}
    assert sizes["Sedan"] == 46 and sizes["SUV"] == 34 and sizes["Cab"] == 17
    assert sum(size == 1 for size in sizes.values()) == 11
    assert [coarse("cars196", car) for car in CARS] == [car.split()[-2] for car in CARS]


def test_every_car_body_has_two_cars():
    sizes = {
        name: len(group)
        for name, group in members(data.hierarchy("cars196/body", CARS), CARS).items()
    }
    # Counted by hand: by the word before the year, and the cars below moved.
    assert sizes == {
        "SUV": 34 + 1,
        "cargo van": 2,
        "convertible": 26,
        "coupe": 25 + 7,
        "crew cab": 8 + 1,
        "extended cab": 3 + 2,
        "hatchback": 13 + 2,
        "minivan": 6,
        "regular cab": 4,
        "sedan": 46 + 4,
        "van": 5,
        "wagon": 6 + 1,
    }


@pytest.mark.parametrize(
    "car, type_, body",
    [
        ("Acura Integra Type R 2001", "R", "hatchback"),
        ("Acura TL Type-S 2008", "Type-S", "sedan"),
        ("BMW X6 SUV 2012", "SUV", "SUV"),
        ("Bentley Continental Supersports Conv. Convertible 2012", "Convertible", "convertible"),
        ("Chevrolet Cobalt SS 2010", "SS", "coupe"),
        ("Chevrolet Corvette Ron Fellows Edition Z06 2007", "Z06", "coupe"),
        ("Chevrolet Express Cargo Van 2007", "Van", "cargo van"),
        ("Chevrolet Express Van 2007", "Van", "van"),
        ("Chevrolet HHR SS 2010", "SS", "wagon"),
        ("Chevrolet TrailBlazer SS 2009", "SS", "SUV"),
        ("Dodge Challenger SRT8 2011", "SRT8", "coupe"),
        ("Dodge Charger SRT-8 2009", "SRT-8", "sedan"),
        ("Dodge Dakota Club Cab 2007", "Cab", "extended cab"),
        ("Dodge Ram Pickup 3500 Quad Cab 2009", "Cab", "crew cab"),
        ("Ford E-Series Wagon Van 2012", "Van", "van"),
        ("Ford F-150 Regular Cab 2012", "Cab", "regular cab"),
        ("Ford Ranger SuperCab 2011", "SuperCab", "extended cab"),
        ("Infiniti G Coupe IPL 2012", "IPL", "coupe"),
        ("Lamborghini Gallardo LP 570-4 Superleggera 2012", "Superleggera", "coupe"),
        ("Nissan NV Passenger Van 2012", "Van", "van"),
        ("Ram C/V Cargo Van Minivan 2012", "Minivan", "minivan"),
        ("Ram C-V Cargo Van Minivan 2012", "Minivan", "minivan"),
        ("Rolls-Royce Phantom Drophead Coupe Convertible 2012", "Convertible", "convertible"),
        ("smart_fortwo_Convertible_2012", "Convertible", "convertible"),
    ],
)
def test_awkward_cars(car, type_, body):
    assert (coarse("cars196", car), coarse("cars196/body", car)) == (type_, body)


def test_cub_has_37_families_of_200_birds():
    names = cub200.FAMILIES.spellings
    assert len(set(names)) == 200
    # The data set orders birds by their last word, with a few exceptions.
    kinds = [name.split("_")[-1].lower() for name in names]
    assert sum(one > other for one, other in zip(kinds, kinds[1:], strict=False)) <= 8
    sizes = Counter(data.hierarchy("cub200", BIRDS).fine_to_coarse)
    assert len(sizes) == 37 and sum(sizes.values()) == 200
    families = members(data.hierarchy("cub200", names), names)
    assert {name: len(families[name]) for name in ("Parulidae", "Laridae", "Passerellidae")} == {
        "Parulidae": 30,
        "Laridae": 16,
        "Passerellidae": 23,
    }


@pytest.mark.parametrize(
    "number, bird, family",
    [
        (1, "Black_footed_Albatross", "Diomedeidae"),
        (17, "Cardinal", "Cardinalidae"),
        (18, "Spotted_Catbird", "Ptilonorhynchidae"),
        (19, "Gray_Catbird", "Mimidae"),
        (35, "Purple_Finch", "Fringillidae"),
        (54, "Blue_Grosbeak", "Cardinalidae"),
        (55, "Evening_Grosbeak", "Fringillidae"),
        (57, "Rose_breasted_Grosbeak", "Cardinalidae"),
        (76, "Dark_eyed_Junco", "Passerellidae"),
        (99, "Ovenbird", "Parulidae"),
        (110, "Geococcyx", "Cuculidae"),
        (118, "House_Sparrow", "Passeridae"),
        (141, "Artic_Tern", "Laridae"),
        (148, "Green_tailed_Towhee", "Passerellidae"),
        (183, "Northern_Waterthrush", "Parulidae"),
        (192, "Downy_Woodpecker", "Picidae"),
        (196, "House_Wren", "Troglodytidae"),
        (200, "Common_Yellowthroat", "Parulidae"),
    ],
)
def test_a_bird_by_its_number_or_its_name(number, bird, family):
    names = (str(number - 1), f"{number:03}.{bird}", bird, bird.lower(), bird.replace("_", " "))
    assert {coarse("cub200", name) for name in names} == {family}


@pytest.mark.parametrize(
    "name, classes, match",
    [
        ("cifar10", ("cat",), "no hierarchy 'cifar10'; did you mean 'cifar100'.*cub200, mstar"),
        ("cifar100", ("wale", "bee"), "for 1 of 2 classes, 'wale'; did you mean 'whale'"),
        ("mstar", tuple("abcdefg"), "for 7 of 7 classes, 'a', 'b', 'c', 'd', 'e', …"),
        ("cub200", ("Blck_footed_Albatross",), "did you mean 'Black_footed_Albatross'"),
        ("cub200", ("200",), "for 1 of 1 classes, '200'"),
        ("cub200", ("007",), "'007'"),
        ("cub200", ("002.Black_footed_Albatross",), "'002.Black_footed_Albatross'"),
        ("cars196", ("Audi S5 Coupe",), "names: make, model, type and year, as 'Audi S5"),
        ("cars196", ("Audi S5 Quattro 2012",), "'Audi S5 Quattro 2012'"),
        ("cars196/body", ("Audi S5 Quattro 2012",), "'Audi S5 Quattro 2012'"),
    ],
)
def test_classes_that_do_not_belong_are_named(name, classes, match):
    with pytest.raises(ValueError, match=match):
        data.hierarchy(name, classes)


@pytest.mark.parametrize("name", NAMES)
def test_no_classes_have_no_coarse_ones(name):
    assert data.hierarchy(name, ()) == data.Hierarchy(name, (), ())


def test_a_data_set_has_its_own_hierarchy_or_the_given_one(folder, data_dir):
    plain = data.open_dataset("image_folder", source=folder, data_dir=data_dir)
    with pytest.raises(
        ValueError, match="'image_folder' has no .*set data.coarse to one of .*folders"
    ):
        data.coarse_of(plain, "")
    with pytest.raises(ValueError, match="no coarse class for 3 of 3"):
        data.coarse_of(plain, "mstar")
    (folder / "coarse.json").write_text('{"car": "civil", "van": "civil", "tank": "military"}')
    grouped = data.open_dataset("image_folder", source=folder, data_dir=data_dir)
    own = data.Hierarchy("image_folder", ("civil", "military"), (0, 1, 0))
    assert data.coarse_of(grouped, "") == own
    renamed = dataclasses.replace(plain, classes=("T72", "BTR60", "T62"))
    assert data.coarse_of(renamed, "mstar").fine_to_coarse == (1, 0, 1)
