"""The setting in which all templates of pages are rendered."""

from collections.abc import Iterable

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from jaxatr.reporting.tables import percent, worst_confusions


def environment(packages: Iterable[str] = ("jaxatr.reporting",)) -> Environment:
    """Makes an environment that escapes what it is given and refuses what it is not.

    Args:
      packages: whose folders ``templates`` are searched, in this order.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,  # class names and paths are a user's
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"percent": percent, "worst_confusions": worst_confusions}
    return made
