"""Which function computes an operator: the one table of the importer."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Operator:
    """One implementation of one operator.

    Attributes:
      name: of the operator, ``"Conv"``.
      domain: of the operator; empty for ONNX's own.
      since: first opset that the function is right for.
      function: arrays in the operator's order, then its attributes as keywords.
      static: operands whose values must be known where jit traces.
      weights: operands that are a layer's weights: constants there are trainable.
      settings: operands that are no weights: a constant there is never trained.
      statistics: operand to output: running values that a training step replaces.
      dtypes: attributes that name a type.
      ignored: attributes of old versions that mean nothing here.
      folds: computes with NumPy, and cheaply, where all operands are NumPy arrays.
      shape_only: looks at the shapes of its operands, never at their values.
      layout: ``"any"`` computes element by element with NumPy's broadcasting, so that the axes of
        its operands may come in any order; ``"channels"`` computes images with channels last.
    """

    name: str
    domain: str
    since: int
    function: Callable[..., Any]
    static: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    statistics: tuple[tuple[str, int], ...] = ()
    dtypes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    folds: bool = False
    shape_only: bool = False
    layout: Literal["", "any", "channels"] = ""

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of the function's parameters that take an input each, in order."""
        return tuple(p.name for p in self._parameters if p.kind == p.POSITIONAL_OR_KEYWORD)

    @cached_property
    def variadic(self) -> bool:
        """Whether the function takes any number of inputs after the named ones."""
        return any(p.kind == p.VAR_POSITIONAL for p in self._parameters)

    @cached_property
    def keywords(self) -> dict[str, Any]:
        """Everything that can be given by name, attributes above all, with the defaults."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {p.name: p.default for p in self._parameters if p.kind in kinds}

    def positions(self, names: tuple[str, ...], count: int) -> list[int]:
        """Returns which of ``count`` operands are among ``names`` (``"*"``: the variadic ones)."""
        named = [i for i, operand in enumerate(self.operands[:count]) if operand in names]
        return named + (list(range(len(self.operands), count)) if "*" in names else [])


_TABLE: dict[tuple[str, str], dict[int, Operator]] = {}


def register(name: str, domain: str = "", since: int = 1, **facts: Any):
    """Returns a decorator that makes a function the implementation of an operator.

    The function takes the operator's inputs in order (None for an absent optional one) and its
    attributes as keywords, and returns an array, or a tuple where there are several outputs. It
    may take four keywords more, which the importer fills in: ``outputs``, how many the model asks
    for; ``training``; ``rng``, a key or None; ``opset``, the version of the domain that the model
    is written in. A second registration of the same version replaces the first.

    Args:
      name: of the operator.
      domain: of the operator; ``""`` and ``"ai.onnx"`` are ONNX's own.
      since: the first opset version that the function is right for.
      **facts: the other attributes of :class:`Operator`.

    >>> @register("Twice", domain="my.domain")
    ... def twice(x, *, bias=0.0):
    ...     return 2 * x + bias
    >>> find("Twice", "my.domain", 3).function(4.0)
    8.0
    """
    domain = own(domain)

    def decorate(function: Function) -> Function:
        entry = Operator(name, domain, since, function, **facts)
        _TABLE.setdefault((domain, name), {})[since] = entry
        return function

    return decorate


def find(name: str, domain: str, opset: int) -> Operator | None:
    """Returns the newest implementation that is not newer than the opset, or None."""
    versions = _TABLE.get((own(domain), name), {})
    usable = [since for since in versions if since <= opset]
    return versions[max(usable)] if usable else None


def operators() -> Iterator[Operator]:
    """Yields every implementation, by domain, name and version."""
    for key in sorted(_TABLE):
        yield from (_TABLE[key][since] for since in sorted(_TABLE[key]))


def own(domain: str) -> str:
    """Returns the domain, in its one spelling."""
    return "" if domain == "ai.onnx" else domain


@contextmanager
def restored() -> Iterator[None]:
    """Puts back, at its end, the table as it was: for tests and notebooks that register."""
    before = {key: dict(versions) for key, versions in _TABLE.items()}
    try:
        yield
    finally:
        _TABLE.clear()
        _TABLE.update(before)
