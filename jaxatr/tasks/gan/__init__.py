"""The generator of G-OpenMax."""

from jaxatr.tasks.gan.task import ConditionalGan

__all__ = ["ConditionalGan"]
