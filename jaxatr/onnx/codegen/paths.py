"""Names layers, blocks and weights after the graph's names, and locates each weight."""

import re
from collections.abc import Iterator, Sequence

from jaxatr.onnx.codegen.blocks import blocks_of
from jaxatr.onnx.codegen.bodies import Body, Row
from jaxatr.onnx.codegen.bodies import shared as common
from jaxatr.onnx.codegen.names import Names, identifier
from jaxatr.onnx.codegen.steps import Step, Weight

# Suffixes that exporters append to a layer's name to name its arrays.
LEAF = re.compile(
    r"(?<=[\w)])[._/:](weights?|bias|kernel|gamma|beta|scale|w|b|s|r|rm|riv|mean|var|"
    r"running_mean|running_var|moving_mean|moving_variance|num_batches_tracked)(_\d+)?$",
    re.IGNORECASE,
)

_COLLECTION = re.compile(r"^(params|batch_stats)/")  # flax's collections, which are not modules

ANONYMOUS = re.compile(r"onnx::|[a-z]?\d+$")
"""Names that exporters generate for unnamed weights."""

Words = tuple[str, ...]


def words(name: str) -> Words:
    """Returns the parts of a name.

    >>> words("layer1.0/conv1_w")
    ('layer1', '0', 'conv1', 'w')
    """
    return tuple(word for word in re.split(r"[\W_]+", name[:400]) if word)


def hint(step: Step) -> Words:
    """Returns the words of a step's name in the graph, taken from its weights or its node."""
    if step.kind == "block":
        body, index = step.block
        return common([found for row in body.rows if (found := hint(row.steps[index]))])
    weights = [weight.name for weight in step.weights.values()]
    if not weights and step.kind != "weight":
        weights = [operand.name for operand in step.operands if isinstance(operand, Weight)]
    weights = [name for name in weights if not ANONYMOUS.match(name)]
    if not weights:
        # PyTorch's exporter names a node by the path of its module, followed by the operator.
        scope, _, operator = step.hint.rpartition("/")
        return words(scope or operator) if step.kind == "layer" else ()
    stems = [words(_COLLECTION.sub("", LEAF.sub("", name))) for name in weights]
    return common(stems) or (stems[0] if stems else ())


def assign(model: Body) -> None:
    """Names every layer, block and weight of a model, identically in all instances of a class."""
    for body in [model, *blocks_of(model)]:
        names = Names(body.fields)
        scopes = [_scope(body, index) for index in range(len(body.outputs))]
        for row in body.rows:
            if row.steps[0].kind in ("layer", "block"):
                row.name = names.take(_relative(row, scopes, body is not model))
        _count_up(body, names)
        for row in body.rows:
            if any(isinstance(operand, Weight) for operand in row.steps[0].operands):
                row.weight = names.take(_weight_name(row, scopes))


def _scope(body: Body, index: int) -> Words:
    """Returns the common prefix of all names in one instance, which is dropped inside it."""
    hints = [h for row in body.rows if (h := hint(row.steps[index]))]
    keeps_names = body.named and not body.title  # the model keeps its names in full
    return common(hints) if len(hints) > 1 and not keeps_names else ()


def _relative(row: Row, scopes: Sequence[Words], inside: bool) -> str:
    """Returns the name of a layer or block inside its body."""
    step = row.steps[0]
    function = step.block.body.title if step.block else step.function
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", function).lower()
    names = {
        "_".join(hint(one)[len(scope) :]) for one, scope in zip(row.steps, scopes, strict=True)
    }
    if len(names) == 1 and "" not in names:
        return identifier(names.pop(), plain)
    return plain if inside or "" in names else identifier(names.pop(), plain)


def _weight_name(row: Row, scopes: Sequence[Words]) -> str:
    names = set()
    for step, scope in zip(row.steps, scopes, strict=True):
        weight = next(o for o in step.operands if isinstance(o, Weight))
        parts = words(_COLLECTION.sub("", weight.name))
        names.add("_".join(parts[len(scope) :] if parts[: len(scope)] == scope else parts))
    return identifier(names.pop(), "weight") if len(names) == 1 else "weight"


def runs(body: Body) -> Iterator[tuple[int, int]]:
    """Yields the start and the end of each chain of at least three blocks of the same class."""
    start = 0
    while start < len(body.rows):
        stop = start + 1
        while stop < len(body.rows) and _follows(body.rows[stop - 1], body.rows[stop]):
            stop += 1
        names = [row.name for row in body.rows[start:stop]]
        if stop - start >= 3 and not (body.named and counted(names) is None):
            yield start, stop
        start = stop


def _follows(before: Row, after: Row) -> bool:
    """Returns whether a block takes the result of the one before it, and is otherwise the same."""
    first, second = before.steps[0], after.steps[0]
    if first.kind != "block" or second.function != first.function or before.fields != after.fields:
        return False
    if repr(first.options) != repr(second.options):
        return False
    operands = second.operands
    if first.block.body.star:
        return operands[:-1] == first.operands and operands[-1].name == first.targets[0]  # pyright: ignore[reportOptionalMemberAccess]
    chained = operands[0] is not None and operands[0].name == first.targets[0]
    return chained and operands[1:] == first.operands[1:]


def _count_up(body: Body, names: Names) -> None:
    """Renames chained blocks whose names do not count up by one, so that a loop can make them."""
    for start, stop in runs(body):
        rows = body.rows[start:stop]
        if counted([row.name for row in rows]) is not None:
            continue
        shared = "_".join(common([words(row.name) for row in rows]))
        stem = re.sub(r"\d+$", "", shared).strip("_") or rows[0].name.rstrip("0123456789_")
        while any(not names.free(f"{stem}_{i}") for i in range(len(rows))):
            stem += "_block"
        for i, row in enumerate(rows):
            row.name = names.take(f"{stem}_{i}")


def counted(names: Sequence[str]) -> tuple[str, int] | None:
    """Returns the stem and the first number of names if they count up by one, else None.

    >>> counted(["conv4_8", "conv4_9", "conv4_10"])
    ('conv4_', 8)
    """
    matches = [re.fullmatch(r"(.*?)(0|[1-9]\d*)", name) for name in names]
    if None in matches:
        return None
    pairs = [(m[1], int(m[2])) for m in matches if m]
    stem, first = pairs[0]
    return pairs[0] if pairs == [(stem, first + i) for i in range(len(pairs))] else None


def locations(model: Body) -> dict[tuple[str, ...], Weight]:
    """Returns the weights of a model by (collection, modules…, name)."""
    places: dict[tuple[str, ...], Weight] = {}

    def visit(body: Body, index: int, scope: tuple[str, ...]) -> None:
        for row in body.rows:
            step = row.steps[index]
            if step.kind == "block":
                visit(step.block.body, step.block.index, (*scope, row.name))
            for leaf, weight in step.weights.items():
                places[weight.collection, *scope, row.name, leaf] = weight
            held = [operand for operand in step.operands if isinstance(operand, Weight)]
            for position, weight in enumerate(held):
                places[weight.collection, *scope, leaf_name(row.weight, position)] = weight
        for position, operand in enumerate(body.outputs[index]):
            if isinstance(operand, Weight):
                places[operand.collection, *scope, output_name(position)] = operand

    visit(model, 0, ())
    return places


def leaf_name(name: str, position: int) -> str:
    """Returns the name of the weight at a position among the weights of a statement.

    >>> leaf_name("bias", 0), leaf_name("bias", 1)
    ('bias', 'bias__1')
    """
    return f"{name}__{position}" if position else name


def output_name(position: int) -> str:
    """Returns the name of a weight that is an output of the model.

    >>> output_name(0)
    'output__0'
    """
    return f"output__{position}"
