"""Post-training quantisation of exported networks to int8, in the QDQ form.

:func:`int8` surrounds convolutions, products with weights, and additions of activations by pairs of
``QuantizeLinear`` and ``DequantizeLinear``. An engine with integer kernels fuses the pairs around
an operator into one operator on integers; any other computes the same in float32. Weights are int8,
symmetric, with a scale for each output channel; activations are uint8 with a zero point, in ranges
that are measured on examples. The scales are such that integer kernels are exact on every processor
(:mod:`jaxatr.saturation`).

The first convolution and the last layers stay in float32, as Krishnamoorthi (2018), "Quantizing
deep convolutional networks for efficient inference", recommends. What reads no weight of the
network, such as a decision, stays as it is; its galleries are rounded when they are traced
(:mod:`jaxatr.openset.gallery.rounding`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import saturation
from jaxatr.onnx.package import onnx
from jaxatr.onnx.reader.model import load
from jaxatr.onnx.writer.network import Network, attribute, has_weights, values_read
from jaxatr.typing import Array, Float

BINS = 2048
"""Number of bins of the histograms from which ranges are chosen."""

_LEVELS = 255
_SHARES = np.linspace(0.3, 1.0, 71)  # candidates for the ends of a range, as shares of the widest


class Observed(NamedTuple):
    """The range and the means of an activation.

    Attributes:
      low, high: its range, which includes 0.
      means: ``[c]``, means of its channels (axis 1).
      size: number of its elements for one example.
      rounded: whether :func:`int8` rounds it; otherwise it stays in float32.
    """

    low: float
    high: float
    means: Float[np.ndarray, " c"]
    size: int
    rounded: bool = True

    @property
    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        """The scale, float32, and the zero point, uint8, of the range."""
        scale = np.array((self.high - self.low) / _LEVELS, np.float32)
        return scale, np.array(np.clip(np.round(-self.low / scale), 0, _LEVELS), np.uint8)


class Layer(NamedTuple):
    """An operator to be quantised.

    Attributes:
      node: the operator.
      reads: the activations that it reads.
      gives: its result, after an activation function that the range of a uint8 includes.
      absorbed: names of the results of that function's nodes.
    """

    node: onnx.NodeProto
    reads: tuple[str, ...]
    gives: str
    absorbed: tuple[str, ...]


def layers_of(graph: Network) -> list[Layer]:
    """Lists the operators to be quantised, in the order of the graph.

    Raises:
      ValueError: there are none.
    """
    weighted = [id(node) for node in graph.nodes if has_weights(graph, node)]
    followed: set[str] = set()  # values on which a later layer depends
    inner, layers = set(), []
    for node in reversed(graph.nodes):
        if after := any(name in followed for name in node.output):
            inner.add(id(node))
        if after or id(node) in weighted:
            followed.update(values_read(node))
    results: set[str] = set()
    for node in graph.nodes:
        if id(node) not in inner or (weighted and id(node) == weighted[0]):
            continue
        reads = tuple(node.input[:1] if id(node) in weighted else node.input)
        joins = node.op_type == "Add" and any(name in results for name in reads)
        made = all(name in graph.makers for name in reads)
        if made and (joins or id(node) in weighted):
            _, *absorbed = chain = list(_chain(graph, node.output[0]))
            layers.append(Layer(node, reads, chain[-1], tuple(absorbed)))
            results.add(chain[-1])
    if not layers:
        raise ValueError("the network has no layer between its first and its last one to quantise")
    return layers


def _chain(graph: Network, name: str) -> Iterator[str]:
    """Yields a result, and that of each ReLU or ReLU6 that alone reads the one before."""
    yield name
    positive = False
    while (node := graph.only_reader(name)) is not None:
        low = graph.array(node.input[1]) if node.op_type == "Clip" and node.input[1] else None
        starts = node.op_type == "Relu" or (low is not None and low == 0)
        if not starts and not (positive and low is not None and low < 0):
            return
        positive, name = True, node.output[0]
        yield name


def _values(layers: Sequence[Layer]) -> list[str]:
    return list(dict.fromkeys(name for one in layers for name in (*one.reads, one.gives)))


def observe(model: onnx.ModelProto, batches: Sequence[Sequence[np.ndarray]]) -> dict[str, Observed]:
    """Measures the activations of a network on examples.

    The ends of a range minimise the mean squared error of the rounded values, over a histogram.

    Args:
      model: the network, with float32 weights.
      batches: at least one batch of its inputs.

    Returns:
      Ranges and channels' means of the activations that :func:`int8` rounds, by name.

    Raises:
      ValueError: there is nothing to quantise, no example, or an activation is not finite.
    """
    if not batches:
        raise ValueError("batches: got none, wanted examples to measure the activations on")
    graph = Network(model)
    names = _values(layers_of(graph))
    probe = graph.finished(graph.nodes)
    del probe.graph.output[:]
    unknown = onnx.helper.make_tensor_value_info
    probe.graph.output.extend(unknown(name, onnx.TensorProto.FLOAT, None) for name in names)
    network = load(probe)
    run = jax.jit(lambda *inputs: network.apply(network.variables, *inputs))

    def values(inputs: Sequence[np.ndarray]) -> list[Array]:
        return jax.tree.leaves(run(*inputs))

    facts = [[np.asarray(_facts(value)) for value in values(inputs)] for inputs in batches]
    sizes = [float(len(inputs[0])) for inputs in batches]
    spans: dict[str, tuple[float, float]] = {}
    means: dict[str, np.ndarray] = {}
    for name, *rows in zip(names, *facts, strict=True):
        if not np.isfinite(np.concatenate(rows)).all():
            raise ValueError(f"{name}: not finite on the examples")
        low, high = min(0.0, *(row[0] for row in rows)), max(0.0, *(row[1] for row in rows))
        spans[name] = (float(low), float(high) if high > low else 1.0)
        means[name] = np.average([row[2:] for row in rows], axis=0, weights=sizes)
    counts = {name: np.zeros(BINS) for name in names}
    elements: dict[str, int] = {}
    for inputs in batches:
        for name, value in zip(names, values(inputs), strict=True):
            elements[name] = value.size // len(inputs[0])
            low, high = map(jnp.float32, spans[name])
            counts[name] += np.asarray(_histogram(value, low, high))
    ranges = {name: _range(*spans[name], counts[name]) for name in names}
    return {name: Observed(*ranges[name], means[name], elements[name]) for name in names}


@jax.jit
def _facts(value: Float[Array, "b c *s"]) -> Float[Array, " f"]:
    """Returns the lowest and the highest value, and the channels' means."""
    means = jnp.mean(value, axis=(0, *range(2, value.ndim)))
    return jnp.concatenate([jnp.stack([jnp.min(value), jnp.max(value)]), means])


@jax.jit
def _histogram(value: Array, low: Array, high: Array) -> Float[Array, " bins"]:
    places = (value.ravel() - low) / (high - low) * BINS
    return jnp.zeros(BINS).at[jnp.clip(places.astype(jnp.int32), 0, BINS - 1)].add(1.0)


def _range(low: float, high: float, counts: np.ndarray) -> tuple[float, float]:
    """Shortens a range so that rounding to 255 steps has the least mean squared error."""
    centres = low + (np.arange(BINS) + 0.5) * (high - low) / BINS

    def error(share: float) -> float:
        step = share * (high - low) / _LEVELS
        rounded = np.round((np.clip(centres, low * share, high * share) - low * share) / step)
        return float(counts @ np.square(rounded * step + low * share - centres))

    share = float(min(_SHARES[::-1], key=error))
    return low * share, high * share


def int8(model: onnx.ModelProto, observed: Mapping[str, Observed]) -> onnx.ModelProto:
    """Quantises a network to 8 bits.

    A layer beside an activation that is not rounded computes in float32, with rounded weights.
    Biases are corrected for the mean error that the rounding of the weights causes (Nagel et al.
    2019, "Data-free quantization through weight equalization and bias correction", section 4.2), by
    the measured means of the inputs.

    Args:
      model: the network, with float32 weights; more may follow it, such as a decision.
      observed: from :func:`observe` on the same network, with or without what follows it.

    Raises:
      ValueError: there is nothing to quantise, or an activation was not observed.
    """
    graph = Network(model)
    layers = layers_of(graph)
    values = _values(layers)
    if missing := [name for name in values if name not in observed]:
        raise ValueError(f"{missing[0]}: its range was not measured; the network is another one")
    by_node = {id(one.node): one for one in layers}
    whole = {name for name in values if observed[name].rounded}
    gone = {name for one in layers if one.gives in whole for name in one.absorbed}
    nodes: list[onnx.NodeProto] = []
    for node in graph.nodes:
        if node.output[0] in gone:
            continue
        one = by_node.get(id(node))
        if one is not None and node.op_type != "Add":
            integer = {node.input[0], one.gives} <= whole
            nodes.extend(_rounded_weights(graph, one, observed[node.input[0]], integer))
        nodes.append(node)
        for place, name in enumerate(node.output):
            name = one.gives if one is not None and one.gives in whole else name
            if name in whole:
                node.output[place] = f"{name}/float"
                nodes.extend(rounded(graph, name, observed[name]))
    return graph.finished(nodes)


def rounded(graph: Network, name: str, observed: Observed) -> list[onnx.NodeProto]:
    """Returns two nodes, which round ``NAME/float`` to uint8 and give ``NAME`` again."""
    scale, zero = observed.affine
    constants = [graph.put(f"{name}/scale", scale), graph.put(f"{name}/zero_point", zero)]
    make, whole = onnx.helper.make_node, f"{name}/uint8"
    return [
        make("QuantizeLinear", [f"{name}/float", *constants], [whole], f"{name}/QuantizeLinear"),
        make("DequantizeLinear", [whole, *constants], [name], f"{name}/DequantizeLinear"),
    ]


def output_axis(node: onnx.NodeProto) -> int:
    """Returns the axis of a layer's kernel on which its output channels are."""
    return 0 if node.op_type == "Conv" or attribute(node, "transB", 0.0) else 1


def _scales(kernel: np.ndarray, axis: int, groups: int) -> Float[np.ndarray, " c"]:
    """Returns the scales of a kernel's output channels, which are on an axis.

    onnxruntime and OpenVINO sum up a convolution's rows, columns and channels in this order. They
    compute depthwise convolutions exactly with any weights.
    """
    rows = np.moveaxis(kernel, axis, 0)
    if kernel.ndim > 2:
        rows = np.moveaxis(rows, 1, -1)
    depthwise = kernel.ndim > 2 and kernel.shape[1] == 1 and groups == len(kernel)
    return saturation.steps(rows.reshape(len(rows), -1), paired=not depthwise)


def _rounded_weights(
    graph: Network, layer: Layer, observed: Observed, integer: bool
) -> Iterator[onnx.NodeProto]:
    """Replaces a layer's kernel by int8 and corrects its bias; yields the nodes that give them.

    Args:
      graph: the network.
      layer: the layer.
      observed: facts of what it reads.
      integer: whether an engine can compute it with integers. If not, onnxruntime would restore the
        kernel in each call, from the usual operator; it does so once from those used here.
    """
    node, made = layer.node, f"{layer.gives}/kernel"
    name, kernel = node.input[1], graph.array(node.input[1])
    assert kernel is not None  # a layer has weights
    axis = output_axis(node)
    others = tuple(place for place in range(kernel.ndim) if place != axis)
    scales = _scales(kernel, axis, int(attribute(node, "group", 1)))
    steps = np.expand_dims(scales, others)
    rounded = np.round(kernel / steps)
    integers, make = graph.put(f"{name}/int8", rounded.astype(np.int8)), onnx.helper.make_node
    if integer:
        constants = [
            graph.put(f"{name}/scale", scales),
            graph.put(f"{name}/zero_point", np.zeros(len(scales), np.int8)),
        ]
        operator = "DequantizeLinear"
        yield make(operator, [integers, *constants], [made], f"{made}/{operator}", axis=axis)
    else:
        scale, wide = graph.put(f"{name}/scale", steps), f"{made}/wide"
        yield make("Cast", [integers], [wide], f"{made}/Cast", to=onnx.TensorProto.FLOAT)
        yield make("Mul", [wide, scale], [made], f"{made}/Mul")
    node.input[1] = made
    if node.op_type == "MatMul":
        return
    error = np.float64(rounded * steps - kernel)
    means = observed.means
    if node.op_type == "Conv":
        # Each group of output channels reads its own group of input channels.
        error = error.sum(axis=tuple(range(2, kernel.ndim)))
        groups = len(means) // error.shape[1]
        of_output = np.repeat(means.reshape(groups, -1), len(error) // groups, axis=0)
        shift = (error * of_output).sum(axis=1)
    else:
        shift = means @ (error if axis else error.T)
    bias = graph.array(node.input[2]) if len(node.input) > 2 else None
    bias = (np.zeros(len(scales)) if bias is None else bias) - shift
    made = f"{layer.gives}/bias"
    del node.input[2:]
    node.input.append(made)
    if not integer:
        graph.put(made, bias.astype(np.float32))
        return
    unit = scales * observed.affine[0]
    largest = np.iinfo(np.int32).max
    integers = np.clip(np.round(bias / unit), -largest, largest).astype(np.int32)
    constants = [graph.put(f"{made}/int32", integers), graph.put(f"{made}/scale", unit)]
    yield make("DequantizeLinear", constants, [made], f"{made}/DequantizeLinear", axis=0)
