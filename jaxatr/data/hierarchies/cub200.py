"""Coarse classes of CUB-200-2011 (Wah et al. 2011): the families of its 200 birds.

The families follow the eBird/Clements checklist. Cardinalidae therefore include the *Passerina*
buntings, the blue and rose-breasted grosbeaks and both tanagers, unlike other birds of those
names; New World sparrows, towhees and the junco are Passerellidae, but the house sparrow is not;
the yellow-breasted chat has a family of its own.
"""

from jaxatr.data.hierarchies.table import Table, plain

# The classes in the data set's order, numbers 001 to 200, and with its spelling (Artic_Tern),
# grouped into runs of one family.
_RUNS = (
    ("Diomedeidae", "Black_footed_Albatross Laysan_Albatross Sooty_Albatross"),
    ("Cuculidae", "Groove_billed_Ani"),
    ("Alcidae", "Crested_Auklet Least_Auklet Parakeet_Auklet Rhinoceros_Auklet"),
    ("Icteridae", "Brewer_Blackbird Red_winged_Blackbird Rusty_Blackbird Yellow_headed_Blackbird"),
    ("Icteridae", "Bobolink"),
    ("Cardinalidae", "Indigo_Bunting Lazuli_Bunting Painted_Bunting Cardinal"),
    ("Ptilonorhynchidae", "Spotted_Catbird"),
    ("Mimidae", "Gray_Catbird"),
    ("Icteriidae", "Yellow_breasted_Chat"),
    ("Passerellidae", "Eastern_Towhee"),
    ("Caprimulgidae", "Chuck_will_Widow"),
    ("Phalacrocoracidae", "Brandt_Cormorant Red_faced_Cormorant Pelagic_Cormorant"),
    ("Icteridae", "Bronzed_Cowbird Shiny_Cowbird"),
    ("Certhiidae", "Brown_Creeper"),
    ("Corvidae", "American_Crow Fish_Crow"),
    ("Cuculidae", "Black_billed_Cuckoo Mangrove_Cuckoo Yellow_billed_Cuckoo"),
    ("Fringillidae", "Gray_crowned_Rosy_Finch Purple_Finch"),
    ("Picidae", "Northern_Flicker"),
    (
        "Tyrannidae",
        "Acadian_Flycatcher Great_Crested_Flycatcher Least_Flycatcher Olive_sided_Flycatcher "
        "Scissor_tailed_Flycatcher Vermilion_Flycatcher Yellow_bellied_Flycatcher",
    ),
    ("Fregatidae", "Frigatebird"),
    ("Procellariidae", "Northern_Fulmar"),
    ("Anatidae", "Gadwall"),
    ("Fringillidae", "American_Goldfinch European_Goldfinch"),
    ("Icteridae", "Boat_tailed_Grackle"),
    ("Podicipedidae", "Eared_Grebe Horned_Grebe Pied_billed_Grebe Western_Grebe"),
    ("Cardinalidae", "Blue_Grosbeak"),
    ("Fringillidae", "Evening_Grosbeak Pine_Grosbeak"),
    ("Cardinalidae", "Rose_breasted_Grosbeak"),
    ("Alcidae", "Pigeon_Guillemot"),
    (
        "Laridae",
        "California_Gull Glaucous_winged_Gull Heermann_Gull Herring_Gull Ivory_Gull "
        "Ring_billed_Gull Slaty_backed_Gull Western_Gull",
    ),
    (
        "Trochilidae",
        "Anna_Hummingbird Ruby_throated_Hummingbird Rufous_Hummingbird Green_Violetear",
    ),
    ("Stercorariidae", "Long_tailed_Jaeger Pomarine_Jaeger"),
    ("Corvidae", "Blue_Jay Florida_Jay Green_Jay"),
    ("Passerellidae", "Dark_eyed_Junco"),
    ("Tyrannidae", "Tropical_Kingbird Gray_Kingbird"),
    (
        "Alcedinidae",
        "Belted_Kingfisher Green_Kingfisher Pied_Kingfisher Ringed_Kingfisher "
        "White_breasted_Kingfisher",
    ),
    ("Laridae", "Red_legged_Kittiwake"),
    ("Alaudidae", "Horned_Lark"),
    ("Gaviidae", "Pacific_Loon"),
    ("Anatidae", "Mallard"),
    ("Icteridae", "Western_Meadowlark"),
    ("Anatidae", "Hooded_Merganser Red_breasted_Merganser"),
    ("Mimidae", "Mockingbird"),
    ("Caprimulgidae", "Nighthawk"),
    ("Corvidae", "Clark_Nutcracker"),
    ("Sittidae", "White_breasted_Nuthatch"),
    ("Icteridae", "Baltimore_Oriole Hooded_Oriole Orchard_Oriole Scott_Oriole"),
    ("Parulidae", "Ovenbird"),
    ("Pelecanidae", "Brown_Pelican White_Pelican"),
    ("Tyrannidae", "Western_Wood_Pewee Sayornis"),
    ("Motacillidae", "American_Pipit"),
    ("Caprimulgidae", "Whip_poor_Will"),
    ("Alcidae", "Horned_Puffin"),
    ("Corvidae", "Common_Raven White_necked_Raven"),
    ("Parulidae", "American_Redstart"),
    ("Cuculidae", "Geococcyx"),
    ("Laniidae", "Loggerhead_Shrike Great_Grey_Shrike"),
    (
        "Passerellidae",
        "Baird_Sparrow Black_throated_Sparrow Brewer_Sparrow Chipping_Sparrow Clay_colored_Sparrow",
    ),
    ("Passeridae", "House_Sparrow"),
    (
        "Passerellidae",
        "Field_Sparrow Fox_Sparrow Grasshopper_Sparrow Harris_Sparrow Henslow_Sparrow "
        "Le_Conte_Sparrow Lincoln_Sparrow Nelson_Sharp_tailed_Sparrow Savannah_Sparrow "
        "Seaside_Sparrow Song_Sparrow Tree_Sparrow Vesper_Sparrow White_crowned_Sparrow "
        "White_throated_Sparrow",
    ),
    ("Sturnidae", "Cape_Glossy_Starling"),
    ("Hirundinidae", "Bank_Swallow Barn_Swallow Cliff_Swallow Tree_Swallow"),
    ("Cardinalidae", "Scarlet_Tanager Summer_Tanager"),
    (
        "Laridae",
        "Artic_Tern Black_Tern Caspian_Tern Common_Tern Elegant_Tern Forsters_Tern Least_Tern",
    ),
    ("Passerellidae", "Green_tailed_Towhee"),
    ("Mimidae", "Brown_Thrasher Sage_Thrasher"),
    (
        "Vireonidae",
        "Black_capped_Vireo Blue_headed_Vireo Philadelphia_Vireo Red_eyed_Vireo Warbling_Vireo "
        "White_eyed_Vireo Yellow_throated_Vireo",
    ),
    (
        "Parulidae",
        "Bay_breasted_Warbler Black_and_white_Warbler Black_throated_Blue_Warbler "
        "Blue_winged_Warbler Canada_Warbler Cape_May_Warbler Cerulean_Warbler "
        "Chestnut_sided_Warbler Golden_winged_Warbler Hooded_Warbler Kentucky_Warbler "
        "Magnolia_Warbler Mourning_Warbler Myrtle_Warbler Nashville_Warbler "
        "Orange_crowned_Warbler Palm_Warbler Pine_Warbler Prairie_Warbler Prothonotary_Warbler "
        "Swainson_Warbler Tennessee_Warbler Wilson_Warbler Worm_eating_Warbler Yellow_Warbler "
        "Northern_Waterthrush Louisiana_Waterthrush",
    ),
    ("Bombycillidae", "Bohemian_Waxwing Cedar_Waxwing"),
    (
        "Picidae",
        "American_Three_toed_Woodpecker Pileated_Woodpecker Red_bellied_Woodpecker "
        "Red_cockaded_Woodpecker Red_headed_Woodpecker Downy_Woodpecker",
    ),
    (
        "Troglodytidae",
        "Bewick_Wren Cactus_Wren Carolina_Wren House_Wren Marsh_Wren Rock_Wren Winter_Wren",
    ),
    ("Parulidae", "Common_Yellowthroat"),
)
_BIRDS = tuple((bird, family) for family, birds in _RUNS for bird in birds.split())
_NUMBERS = {plain(bird): number for number, (bird, _) in enumerate(_BIRDS)}


def _family(name: str) -> str | None:
    if name.isdecimal():  # TFDS names the classes by number, from 0
        number = int(name)
        return _BIRDS[number][1] if name == str(number) and number < len(_BIRDS) else None
    ordinal, _, bird = name.rpartition(".")
    number = _NUMBERS.get(plain(bird))
    if number is None or ordinal not in ("", f"{number + 1:03}"):
        return None
    return _BIRDS[number][1]


FAMILIES = Table(
    _family,
    "CUB-200's, as '001.Black_footed_Albatross', 'Black_footed_Albatross' or '0' to '199'",
    tuple(bird for bird, _ in _BIRDS),
)
