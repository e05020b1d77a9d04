"""Coarse classes of Cars-196 (Krause et al. 2013), from names such as 'Audi S5 Coupe 2012'.

The quadruplet paper (Karaman et al. 2019, section 4) has "22 coarse classes … using the types of
the cars" but no table. :data:`TYPES` takes the last word before the year: the 196 names have
exactly 22 different ones, so this is most likely the authors' choice. It is crude: 11 of the 22
have a single car (``ZR1``, ``Superleggera`` …) without a sibling, and nearly all cabs share one.
:data:`BODIES` has 12 body styles, each with two cars or more.
"""

import re

from jaxatr.data.hierarchies.table import Table

_TYPES = frozenset(
    "Abarth Cab Convertible Coupe GS Hatchback IPL Minivan R SRT-8 SRT8 SS SUV Sedan SuperCab "
    "Superleggera Type-S Van Wagon XKR Z06 ZR1".split()
)

_BODIES = {
    "Cargo Van": "cargo van",
    "Club Cab": "extended cab",  # like SuperCab: two doors and a rear bench
    "Convertible": "convertible",
    "Coupe": "coupe",
    "Crew Cab": "crew cab",
    "Extended Cab": "extended cab",
    "Hatchback": "hatchback",
    "Minivan": "minivan",
    "Quad Cab": "crew cab",  # four doors
    "Regular Cab": "regular cab",
    "SUV": "SUV",
    "Sedan": "sedan",
    "SuperCab": "extended cab",
    "Van": "van",
    "Wagon": "wagon",
}
_BODY = re.compile(rf"\b(?:{'|'.join(_BODIES)})\b")

# Names that state a version but no body style.
_VERSIONS = {
    "Acura Integra Type R": "hatchback",
    "Acura TL Type-S": "sedan",
    "Buick Regal GS": "sedan",
    "Chevrolet Cobalt SS": "coupe",
    "Chevrolet Corvette Ron Fellows Edition Z06": "coupe",
    "Chevrolet Corvette ZR1": "coupe",
    "Chevrolet HHR SS": "wagon",
    "Chevrolet TrailBlazer SS": "SUV",
    "Chrysler 300 SRT-8": "sedan",
    "Dodge Challenger SRT8": "coupe",
    "Dodge Charger SRT-8": "sedan",
    "FIAT 500 Abarth": "hatchback",
    "Jaguar XK XKR": "coupe",  # a convertible exists too
    "Lamborghini Gallardo LP 570-4 Superleggera": "coupe",
}


def _car(name: str) -> str:
    """Returns a name without its year, or an empty string if it does not end in a year."""
    found = re.fullmatch(r"(.+) (?:19|20)\d\d", name.replace("_", " "))
    return found[1] if found else ""


def _type(name: str) -> str | None:
    last = _car(name).rpartition(" ")[2]
    return last if last in _TYPES else None


def _body(name: str) -> str | None:
    """Returns the last body style in the name: a 'Cargo Van Minivan' is a minivan."""
    car = _car(name)
    named = _BODY.findall(car)
    return _VERSIONS.get(car) or (_BODIES[named[-1]] if named else None)


_NAMES = "make, model, type and year, as 'Audi S5 Coupe 2012'"
TYPES = Table(_type, _NAMES)
BODIES = Table(_body, _NAMES)
