"""The choice of activations that a network in int8 keeps in float32.

Rounding errors are not spread evenly: in a MobileNetV2, four of 62 activations may cause more than
half of the outputs' squared error. :func:`spared` measures the share of each activation and keeps
those with the largest shares in float32. :func:`settled` then moves the edges between the two types
to where they cost least.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

import jax
import numpy as np

from jaxatr.onnx.package import onnx
from jaxatr.onnx.reader.model import load
from jaxatr.onnx.writer.network import Network
from jaxatr.onnx.writer.quantisation import (
    Layer,
    Observed,
    int8,
    layers_of,
    output_axis,
    rounded,
)
from jaxatr.typing import Array

LOSS = 0.1
"""Largest error of an output that is accepted, in standard deviations of the output."""

# The cost of an edge for each of its elements, in multiplications. In onnxruntime, an element that
# is rounded and put in another order takes 3 ns, and a multiplication in float32 up to 0.02 ns more
# than in int8 (seen on two cores with VNNI and AMX). Half of that is left for what else is slower.
_EDGE = 100

_Batches = Sequence[Sequence[np.ndarray]]


def spared(
    model: onnx.ModelProto,
    observed: Mapping[str, Observed],
    batches: _Batches,
    *,
    loss: float = LOSS,
) -> dict[str, Observed]:
    """Keeps the activations in float32 whose rounding changes the outputs most.

    The share of an activation is what the outputs' squared error loses if it alone is not rounded,
    in one pass for each. By decreasing share, as many are kept as are needed for an error of at
    most ``loss``, or else all that have a positive share.

    Args:
      model: the network, with float32 weights.
      observed: from :func:`jaxatr.onnx.writer.quantisation.observe` on the network.
      batches: batches of its inputs.
      loss: largest root mean square error of an output, relative to its standard deviation over
        the examples.

    Returns:
      ``observed``, with ``rounded`` False for the activations to keep.
    """
    switched = _Switched(model, observed, batches)
    whole = switched.error([])
    if whole <= loss:
        return dict(observed)
    alone = {name: switched.error([name]) for name in observed}
    order = sorted((name for name in observed if alone[name] < whole), key=lambda name: alone[name])
    # Bisection: fewer than `enough` are not enough, as far as the error falls with their number.
    few, enough = 0, len(order)
    while enough - few > 1:
        middle = (few + enough) // 2
        if switched.error(order[:middle]) <= loss:
            enough = middle
        else:
            few = middle
    kept = set(order[:enough])
    return {name: one._replace(rounded=name not in kept) for name, one in observed.items()}


class _Switched:
    """A network in int8 beside the exact one, with an input for each activation that keeps it."""

    def __init__(self, model: onnx.ModelProto, observed: Mapping[str, Observed], batches: _Batches):
        exact, network = load(model), load(_with_switches(model, observed))
        run = jax.jit(lambda *inputs: exact.apply(exact.variables, *inputs))
        self._names, self._batches = list(observed), batches
        self._expected = _joined([jax.tree.leaves(run(*inputs)) for inputs in batches])
        self._run = jax.jit(lambda kept, *inputs: network.apply(network.variables, *inputs, *kept))

    def error(self, names: Collection[str]) -> float:
        """Returns the largest error of an output, in standard deviations over the examples.

        Args:
          names: the activations that are not rounded.
        """
        kept = [np.bool_(name in names) for name in self._names]
        found = _joined([jax.tree.leaves(self._run(kept, *inputs)) for inputs in self._batches])
        errors = (
            np.sqrt(np.mean((one - exact) ** 2) / spread)
            for one, exact in zip(found, self._expected, strict=True)
            if (spread := np.mean((exact - exact.mean(axis=0)) ** 2)) > 0
        )
        return max(errors, default=0.0)


def settled(model: onnx.ModelProto, observed: Mapping[str, Observed]) -> dict[str, Observed]:
    """Keeps further activations in float32, which makes the network faster and no less exact.

    A layer beside an activation in float32 computes in float32. A rounded activation beside such a
    layer is an edge, which takes a pass to convert. As long as it makes the sum of edges and layers
    in float32 cheaper, one activation is kept, or all around a layer: the edges move to small
    activations, and a few layers in int8 between layers in float32 are given up.

    Args:
      model: the network, with float32 weights.
      observed: from :func:`spared` on the network.
    """
    graph = Network(model)
    around = [({*one.reads, one.gives}, one) for one in layers_of(graph)]
    costs = [_multiplications(graph, one, observed[one.gives]) for _, one in around]
    inner = {one.gives for _, one in around} & {name for _, one in around for name in one.reads}

    def cost(kept: set[str]) -> int:
        slow = [bool(names & kept) for names, _ in around]
        edges = set(observed) - inner  # beside the first or the last layers
        edges = edges.union(*itertools.compress((names for names, _ in around), slow))
        converted = sum(observed[name].size for name in edges - kept)
        return _EDGE * converted + sum(itertools.compress(costs, slow))

    kept = {name for name, one in observed.items() if not one.rounded}
    steps = [*({name} for name in observed), *(names for names, _ in around)]
    while cost(best := kept | min(steps, key=lambda names: cost(kept | names))) < cost(kept):
        kept = best
    return {name: one._replace(rounded=name not in kept) for name, one in observed.items()}


def _multiplications(graph: Network, layer: Layer, gives: Observed) -> int:
    """Returns the number of a layer's multiplications for one example."""
    kernel = graph.array(layer.node.input[1])  # of two activations to be added, the second one
    if kernel is None:
        return 0
    return gives.size * kernel.size // kernel.shape[output_axis(layer.node)]


def _joined(batches: Iterable[Sequence[Array]]) -> list[np.ndarray]:
    """Joins the batches of each output, in float64."""
    outputs = zip(*batches, strict=True)
    return [np.concatenate([np.float64(part) for part in parts]) for parts in outputs]


def _with_switches(model: onnx.ModelProto, observed: Mapping[str, Observed]) -> onnx.ModelProto:
    """Rounds the weights, and each activation unless its boolean input ``NAME/kept`` is set."""
    none = {name: one._replace(rounded=False) for name, one in observed.items()}
    graph, nodes = Network(int8(model, none)), []
    for node in graph.nodes:
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in observed:
                node.output[place] = exact = f"{name}/float"
                down, up = rounded(graph, name, observed[name])
                up.output[0] = inexact = f"{name}/rounded"
                choice = [f"{name}/kept", exact, inexact]
                switch = onnx.helper.make_node("Where", choice, [name], f"{name}/Where")
                nodes.extend([down, up, switch])
    switched = graph.finished(nodes)
    switched.graph.input.extend(
        onnx.helper.make_tensor_value_info(f"{name}/kept", onnx.TensorProto.BOOL, [])
        for name in observed
    )
    return switched
