"""The Jinja environment of all page templates."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jaxatr.extras import extra
from jaxatr.reporting.tables import percent, worst_confusions

if TYPE_CHECKING:
    import jinja2


def environment(packages: Iterable[str] = ("jaxatr.reporting",)) -> "jinja2.Environment":
    """Makes an environment that escapes all values and raises an error for undefined ones.

    Args:
      packages: packages whose ``templates`` folders are searched, in this order.
    """
    jinja2 = extra("jinja2", "report", "an HTML page or a model card")  # slow to import

    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package) for package in packages]),
        autoescape=True,  # class names and paths come from users
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"percent": percent, "worst_confusions": worst_confusions}
    return made
