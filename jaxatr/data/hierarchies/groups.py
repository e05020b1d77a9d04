"""Hierarchies given as groups of names: CIFAR-100, MSTAR, and the vehicles of ``simulated``."""

from jaxatr.data.hierarchies.table import grouped

# The data set's own twenty superclasses (Krizhevsky 2009).
CIFAR100 = grouped(
    {
        "aquatic mammals": "beaver dolphin otter seal whale",
        "fish": "aquarium_fish flatfish ray shark trout",
        "flowers": "orchid poppy rose sunflower tulip",
        "food containers": "bottle bowl can cup plate",
        "fruit and vegetables": "apple mushroom orange pear sweet_pepper",
        "household electrical devices": "clock keyboard lamp telephone television",
        "household furniture": "bed chair couch table wardrobe",
        "insects": "bee beetle butterfly caterpillar cockroach",
        "large carnivores": "bear leopard lion tiger wolf",
        "large man-made outdoor things": "bridge castle house road skyscraper",
        "large natural outdoor scenes": "cloud forest mountain plain sea",
        "large omnivores and herbivores": "camel cattle chimpanzee elephant kangaroo",
        "medium-sized mammals": "fox porcupine possum raccoon skunk",
        "non-insect invertebrates": "crab lobster snail spider worm",
        "people": "baby boy girl man woman",
        "reptiles": "crocodile dinosaur lizard snake turtle",
        "small mammals": "hamster mouse rabbit shrew squirrel",
        "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
        "vehicles 1": "bicycle bus motorcycle pickup_truck train",
        "vehicles 2": "lawn_mower rocket streetcar tank tractor",
    },
    "CIFAR-100's, as 'maple_tree'",
)

MSTAR = grouped(
    {
        "personnel carrier": "BMP2 BRDM_2 BTR60 BTR70",
        "self-propelled gun": "2S1 ZSU_23_4",
        "tank": "T62 T72",
        "utility": "D7 ZIL131",
    },
    "MSTAR's, as 'BRDM_2'",
)

# Grouped by running gear and weapon, which are visible in the chips and give each of the eight
# vehicles a sibling. By role, the T72 would be the only tank, and the BMP2 a carrier like the
# wheeled BTR70. The three further vehicles are in the DSIAC database, which uses the same table.
SIMULATED = grouped(
    {
        "artillery": "ZSU23 2S3 D20",
        "civilian": "PICKUP SUV",
        "tracked armour": "BMP2 T72 T62 MTLB",
        "wheeled armour": "BRDM2 BTR70",
    },
    "the DSIAC database's, as 'BTR70'",
)
