"""The registry of operators: which function computes each operator."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Operator:
    """An implementation of an operator.

    Attributes:
      name: name of the operator, such as ``"Conv"``.
      domain: domain of the operator; empty for ONNX's standard domain.
      since: first opset version that the function implements.
      function: the function; it takes arrays in the operator's order and attributes as keywords.
      optional: operands that may be absent though others, which may not, follow them.
      static: operands whose values must be known while jit traces.
      weights: operands that hold a layer's weights; a constant passed to one is trainable.
      settings: operands that are not weights, such as exponents; an array that only such operands
        read is not trained.
      statistics: running statistics that training updates: pairs of operand and output index.
      dtypes: attributes that name a data type.
      renamed: pairs of an attribute whose name the importer uses itself and its parameter.
      ignored: attributes of old versions that have no effect.
      folds: whether the function computes cheaply in NumPy if all operands are NumPy arrays.
      counted: whether the results depend on how many outputs the node has, used or not.
      host: whether the results are Python objects, such as dictionaries, which cannot be compiled.
      shape_only: whether the function reads only the shapes of its operands, not their values.
      labels: attributes with the labels of classes as strings and as integers.
      layout: ``"any"`` for elementwise functions with NumPy broadcasting, whose operands may have
        their axes in any order; ``"channels"`` for functions that compute images channels-last;
        otherwise empty.
    """

    name: str
    domain: str
    since: int
    function: Callable[..., Any]
    optional: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    statistics: tuple[tuple[str, int], ...] = ()
    dtypes: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    folds: bool = False
    counted: bool = False
    host: bool = False
    shape_only: bool = False
    labels: tuple[str, str] | tuple[()] = ()
    layout: Literal["", "any", "channels"] = ""

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of the function's parameters that take one input each, in order."""
        return tuple(p.name for p in self._parameters if p.kind == p.POSITIONAL_OR_KEYWORD)

    @cached_property
    def variadic(self) -> bool:
        """Whether the function takes any number of inputs after the named ones."""
        return any(p.kind == p.VAR_POSITIONAL for p in self._parameters)

    @cached_property
    def keywords(self) -> dict[str, Any]:
        """Parameters that can be given by name, mainly attributes, with their defaults."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {p.name: p.default for p in self._parameters if p.kind in kinds}

    @property
    def running(self) -> tuple[str, ...]:
        """Names of the operands that are running statistics."""
        return tuple(operand for operand, _ in self.statistics)

    def positions(self, names: tuple[str, ...], count: int) -> list[int]:
        """Returns the indices below ``count`` of named operands; ``"*"`` names variadic ones."""
        named = [i for i, operand in enumerate(self.operands[:count]) if operand in names]
        return named + (list(range(len(self.operands), count)) if "*" in names else [])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the operator as its place in the registry."""
        return _registered, (self.domain, self.name, self.since)


def _registered(domain: str, name: str, since: int) -> Operator:
    found = find(name, domain, since)
    if found is None or found.since != since:
        raise ValueError(f"operator {titled(domain, name)} is not registered in this process")
    return found


_TABLE: dict[tuple[str, str], dict[int, Operator]] = {}


def register(
    name: str,
    domain: str = "",
    since: int = 1,
    *,
    attributes_of: Callable[..., Any] | None = None,
    **facts: Any,
):
    """Returns a decorator that registers a function as the implementation of an operator.

    The function takes the operator's inputs in order (None for an absent optional input) and its
    attributes as keywords. It returns an array, or a tuple for several outputs. The importer fills
    in four further keywords if the function has them: ``outputs``, the number of outputs that the
    model uses; ``training``, whether the model is trained; ``rng``, a key or None; ``opset``, the
    version of the domain in the model. A second registration of the same version replaces the
    first.

    Args:
      name: name of the operator.
      domain: domain of the operator; ``""`` and ``"ai.onnx"`` both mean ONNX's standard domain.
      since: first opset version that the function implements.
      attributes_of: what the function passes its ``**keywords`` on to, whose keywords it shares.
      **facts: further attributes of :class:`Operator`.

    >>> @register("Twice", domain="my.domain")
    ... def twice(x, *, bias=0.0):
    ...     return 2 * x + bias
    >>> find("Twice", "my.domain", 3).function(4.0)
    8.0
    """
    domain = own(domain)

    def decorate(function: Function) -> Function:
        if attributes_of is not None:
            share_keywords(function, attributes_of)
        entry = Operator(name, domain, since, function, **facts)
        _TABLE.setdefault((domain, name), {})[since] = entry
        return function

    return decorate


def share_keywords(function: Callable[..., Any], other: Callable[..., Any]) -> None:
    """Replaces ``**keywords`` in a function's signature by the other's parameters with names."""
    own = dict(inspect.signature(function).parameters)
    shared = {
        p.name: p.replace(kind=p.KEYWORD_ONLY)
        for p in inspect.signature(other).parameters.values()
        if p.kind == p.KEYWORD_ONLY and p.name not in own
    }
    kept = [p for p in own.values() if p.kind != p.VAR_KEYWORD]
    vars(function)["__signature__"] = inspect.Signature([*kept, *shared.values()])


def find(name: str, domain: str, opset: int) -> Operator | None:
    """Returns the newest implementation that is not newer than the opset, or None."""
    versions = _TABLE.get((own(domain), name), {})
    usable = [since for since in versions if since <= opset]
    return versions[max(usable)] if usable else None


def operators(domain: str | None = None) -> Iterator[Operator]:
    """Yields every implementation (of one domain), by domain, name and version."""
    for key in sorted(_TABLE):
        if domain in (None, key[0]):
            yield from (_TABLE[key][since] for since in sorted(_TABLE[key]))


def titled(domain: str, name: str) -> str:
    """Returns an operator's name with its domain before it, unless that is ONNX's standard one."""
    return f"{domain}.{name}".lstrip(".")


def own(domain: str) -> str:
    """Returns the canonical spelling of a domain: ``""`` for ``"ai.onnx"``."""
    return "" if domain == "ai.onnx" else domain


@contextmanager
def restored() -> Iterator[None]:
    """Restores the registry when the context ends; for tests and notebooks that add operators."""
    before = {key: dict(versions) for key, versions in _TABLE.items()}
    try:
        yield
    finally:
        _TABLE.clear()
        _TABLE.update(before)
