"""The generator of G-OpenMax."""

from typing import TYPE_CHECKING

from jaxatr import lazy

if TYPE_CHECKING:
    from jaxatr.tasks.gan.task import ConditionalGan

__all__ = ["ConditionalGan"]

__getattr__ = lazy.attributes(__name__, {"ConditionalGan": "jaxatr.tasks.gan.task"})
