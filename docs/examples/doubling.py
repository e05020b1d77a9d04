"""Operators that multiply."""

from jaxatr.onnx.ops.registry import register


@register("Multiple", domain="my.domain", since=1)
def multiple(x, *, times=2):
    """Multiplies by a number."""
    return times * x
