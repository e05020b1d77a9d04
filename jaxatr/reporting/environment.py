"""The Jinja environment of all page templates."""

from collections.abc import Iterable

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from jaxatr.reporting.tables import percent, worst_confusions


def environment(packages: Iterable[str] = ("jaxatr.reporting",)) -> Environment:
    """Makes an environment that escapes all values and raises an error for undefined ones.

    Args:
      packages: packages whose ``templates`` folders are searched, in this order.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,  # class names and paths come from users
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"percent": percent, "worst_confusions": worst_confusions}
    return made
