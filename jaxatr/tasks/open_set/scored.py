"""The facts about a run that scores are computed from."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol, runtime_checkable

from jaxatr import openset
from jaxatr.tasks.parts import Part
from jaxatr.typing import Config, PyTree


@runtime_checkable  # the tests check annotations as they run
class Scored(Protocol):
    """The task of a run whose outputs are scored."""

    config: Config
    parts: dict[str, Part]

    @property
    def given(self) -> frozenset[str]:
        """Names of the needs of scores that the task gives."""
        ...

    @property
    def record(self) -> dict[str, Any]:
        """Facts that a result must state."""
        ...

    def outputs(self, variables: PyTree, part: str, needs: Collection[str] = ()) -> openset.Outputs:
        """Computes the network's outputs on a part of the data."""
        ...


@runtime_checkable  # the tests check annotations as they run
class Deciding(Scored, Protocol):
    """The task of a run that decides whether something is known."""

    def __init__(self, config: Config):
        """Opens the data and describes the training."""

    def decided_outputs(
        self, variables: PyTree, part: str, needs: Collection[str] = ()
    ) -> openset.Outputs:
        """Computes the outputs on a part, example by example as a recogniser takes them."""
        ...

    def beside(self, config: Config) -> Mapping[str, Config]:
        """Lists the short trainings that the choice of a score needs, by their folders."""
        ...


def head(variables: PyTree, prefix: str = "") -> openset.Head:
    """Finds the closed-set classifier's last layer among a network's variables.

    Of reciprocal points it is the layer whose logits are theirs but for a number that all classes
    of an example share, the mean square of its features.
    """
    layer = variables["params"][f"{prefix}closed_head"]
    if "points" in layer:
        points = layer["points"]
        kernel = -(1 + 2 / points.shape[-1]) * points.T
        return openset.Head(kernel, (points**2).mean(axis=-1))
    return openset.Head(layer["kernel"], layer.get("bias"))
