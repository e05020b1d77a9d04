"""Interfaces of tasks whose outputs are scored, and the last layer for scores."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol, runtime_checkable

from jaxatr import openset
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.parts import Part
from jaxatr.typing import Config, Network, PyTree

MOST_COMPARED = 10_000
"""Largest number of training examples with which scores are compared, to bound memory and time."""


@runtime_checkable  # the tests check annotations at run time
class Divided(Protocol):
    """A task whose data is divided into parts."""

    config: Config
    parts: dict[str, Part]


@runtime_checkable
class Scored(Divided, Protocol):
    """A task whose outputs are scored."""

    @property
    def given(self) -> frozenset[str]:
        """Names of the needs of scores that the task provides."""
        ...

    @property
    def record(self) -> dict[str, Any]:
        """The run's record."""
        ...

    def outputs(self, variables: PyTree, part: str, needs: Collection[str] = ()) -> openset.Outputs:
        """Computes the network's outputs for a part of the data."""
        ...


@runtime_checkable
class Deciding(Scored, Protocol):
    """A task that decides between known and unknown."""

    def __init__(self, config: Config):
        """Opens the data and sets up the training."""

    def decided_outputs(
        self, variables: PyTree, part: str, needs: Collection[str] = ()
    ) -> openset.Outputs:
        """Computes the outputs for a part of the data, for each input of the recogniser."""
        ...

    def sampled_outputs(
        self, variables: PyTree, most: int, needs: Collection[str] = ()
    ) -> openset.Outputs:
        """Computes the outputs for a random sample of the training examples."""
        ...

    def beside(self, config: Config) -> Mapping[str, Config]:
        """Returns the configurations of trials for choosing a score, by their folders."""
        ...


@runtime_checkable
class Enrollable(Deciding, Protocol):
    """A task whose decision can be extended by enrolled classes."""

    examples: Examples

    @property
    def module(self) -> Network:
        """The network, without its variables."""
        ...


def head(variables: PyTree, prefix: str = "") -> openset.Head:
    """Returns the closed-set classifier's last layer from a network's variables.

    A head of reciprocal points is converted to a linear layer. Its logits differ by the same
    constant for all classes of an example, the mean square of the features.

    Args:
      variables: variables of the network.
      prefix: prefix of the head's name.
    """
    layer = variables["params"][f"{prefix}closed_head"]
    if "points" in layer:
        points = layer["points"]
        kernel = -(1 + 2 / points.shape[-1]) * points.T
        return openset.Head(kernel, (points**2).mean(axis=-1))
    return openset.Head(layer["kernel"], layer.get("bias"))
