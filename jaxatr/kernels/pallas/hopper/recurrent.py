"""All steps of an LSTM or GRU in one launch, with the recurrent matrix kept in shared memory.

This is a persistent recurrent network (Diamos et al. 2016) within one multiprocessor: a block
computes all steps of 64 sequences and never waits for another block. Each of its warp groups
computes all gates of 32 units. After a step, the groups exchange the new state, or in the backward
pass the cotangents of the gates, through shared memory. The cell's state stays in registers.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from jaxatr.kernels.pallas import costs
from jaxatr.kernels.pallas.gates import grouped, update, update_gru
from jaxatr.kernels.pallas.hopper.tiles import PARAMS, fetch, reader, stated, swizzled
from jaxatr.typing import Array, Float

ROWS, UNITS = 64, 32  # sequences of a block, units of a warp group
_GROUPS = 4  # the most warp groups; more would leave too few registers for each
GATES = {"lstm": 4, "gru": 3}
_LINE = 64  # bytes of a line of the layout: one of 32 units


def applies(cell: str, hidden: int, dtype: str) -> bool:
    """Returns whether the matrix fits in shared memory and the type suits tensor cores."""
    fits = hidden % UNITS == 0 and 0 < hidden <= _GROUPS * UNITS
    return cell in GATES and fits and dtype in ("bfloat16", "float16")


def forward(
    cell: str,
    state: Sequence[Float[Array, "b h"]],
    r: Float[Array, "h columns"],
    parts: Float[Array, "t b columns"],
    bias: Float[Array, " h"] | None = None,
    reverse: bool = False,
    interpret: Any = None,
) -> tuple[Float[Array, "t b h"], ...]:
    """Runs all steps.

    Args:
      cell: ``"lstm"`` or ``"gru"``, whose reset gate acts after the product.
      state: the initial state, float32: ``h`` and, for an LSTM, ``c``. ``b`` must be a multiple of
        64, ``h`` a multiple of 32 up to 128.
      r: the recurrent matrix, bfloat16 or float16, one block of columns per gate.
      parts: the input's part of the gates for all steps, float32, with the same columns.
      bias: the bias of the recurrent product of a GRU's candidate, float32.
      reverse: whether to run from the last step to the first.
      interpret: parameters of Mosaic's interpreter, for tests.

    Returns:
      ``h`` after each step, in the type of ``r``, and an LSTM's ``c`` after each step, in float32.

    Raises:
      NotImplementedError: the sizes or the type are not supported.
    """
    first = state[0].astype(r.dtype)
    columns = grouped(r, UNITS, GATES[cell])
    operands = {"parts": parts, "first": first, "carried": state[-1], "r": columns}
    if cell == "gru":
        zeros, rows = jnp.zeros(r.shape[0], jnp.float32), (ROWS, r.shape[0])
        operands["bias"] = jnp.broadcast_to(zeros if bias is None else bias, rows)
    shape = (parts.shape[0], *first.shape)
    results = [jax.ShapeDtypeStruct(shape, r.dtype)]
    results += [jax.ShapeDtypeStruct(shape, jnp.float32)] * (len(state) - 1)
    return _launch(_forward, cell, operands, results, reverse, interpret)


def backward(
    cell: str,
    r: Float[Array, "h columns"],
    gates: Float[Array, "t b columns"],
    others: Sequence[Float[Array, "t b h"]],
    cotangents: Float[Array, "t b h"],
    final: Float[Array, "b h"],
    reverse: bool = False,
    interpret: Any = None,
) -> tuple[Float[Array, "t b h"], ...]:
    """Computes the cotangents of the states after each step (MIOpen, eq. 15).

    Args:
      cell: as for :func:`forward`.
      r: the recurrent matrix, as for :func:`forward`.
      gates: the factors of the cotangents of the gates, float32: an LSTM's ``to_gates``, a GRU's
        ``of_state`` (see :mod:`jaxatr.kernels.ops.recurrent.tangents`).
      others: an LSTM's ``f`` and ``to_h``, or a GRU's ``z``, float32.
      cotangents: of ``h`` after each step, by the layer's results alone, float32.
      final: that of an LSTM's last ``c``; for a GRU, zeros.
      reverse: whether the forward pass ran from the last step to the first.
      interpret: parameters of Mosaic's interpreter, for tests.

    Returns:
      The cotangents of ``h`` and, for an LSTM, of ``c`` by all later steps and the results,
      float32. That of ``c`` is without its part in the ``h`` of the same step.

    Raises:
      NotImplementedError: the sizes or the type are not supported.
    """
    result = jax.ShapeDtypeStruct(cotangents.shape, jnp.float32)
    results = [result] * (2 if cell == "lstm" else 1)
    operands = {"gates": gates, "others": list(others), "cotangents": cotangents}
    operands |= {"carried": final, "r": r}
    return _launch(_backward, cell, operands, results, reverse, interpret)


def _launch(kernel, cell, operands, results, reverse, interpret):
    r, (steps, batch, hidden) = operands["r"], results[0].shape
    if batch % ROWS or not applies(cell, hidden, r.dtype.name):
        raise NotImplementedError(
            f"got {cell!r}, a batch of {batch}, {hidden} units, {r.dtype.name}; wanted one of "
            f"{list(GATES)}, a multiple of {ROWS}, a multiple of {UNITS} up to {_GROUPS * UNITS}, "
            "and bfloat16 or float16"
        )
    arrays = [*jax.tree.leaves(operands), *results]
    launch = plgpu.kernel(
        partial(kernel, cell=cell, reverse=reverse, load=reader(interpret)),
        out_type=results,
        grid=(batch // ROWS,),
        grid_names=("row",),
        num_threads=hidden // UNITS,
        thread_name="group",
        **stated(costs.recurrent(arrays, r, steps, batch)),
        compiler_params=PARAMS,
        **({} if interpret is None else {"interpret": interpret}),
    )
    return tuple(launch(operands))


class _Place(NamedTuple):
    """The part of the arrays that a warp group computes.

    Attributes:
      group: number of the warp group.
      groups: number of warp groups.
      rows: the sequences of the block.
      load: the function of :func:`~.tiles.reader`.
    """

    group: Any
    groups: int
    rows: Any
    load: Callable[..., jax.Array]

    @classmethod
    def here(cls, hidden: int, load: Callable[..., jax.Array]) -> "_Place":
        """Returns the part of this warp group."""
        rows = pl.ds(jax.lax.axis_index("row") * ROWS, ROWS)
        return cls(jax.lax.axis_index("group"), hidden // UNITS, rows, load)

    def units(self, block: int = 0) -> Any:
        """Returns the columns of the group's units in a block of columns."""
        return pl.ds((block * self.groups + self.group) * UNITS, UNITS)

    def read(self, array: Any, step: Any, block: int = 0) -> jax.Array:
        """Reads the group's units of a block of columns at one step."""
        return self.load(array, (step, self.rows, self.units(block)))


def _sum(shape: tuple[int, int], product: Callable[[Any], None]) -> jax.Array:
    """Returns the accumulator of ``product(accumulator)``."""

    def scoped(total: Any) -> jax.Array:
        product(total)
        return total[...]

    return pl.run_scoped(scoped, plgpu.WGMMAAccumulatorRef(shape, jnp.float32))


def _forward(
    operands: dict[str, Any], hs: Any, *cs: Any, cell: str, reverse: bool, load: Any
) -> None:
    r, parts, gates = operands["r"], operands["parts"], GATES[cell]
    steps = parts.shape[0]
    place = _Place.here(r.shape[0], load)
    group, groups = place.group, place.groups

    def scoped(matrix: Any, h: Any, loaded: Any, stepped: Any) -> None:
        columns = pl.ds(group * gates * UNITS, gates * UNITS)
        first = operands["first"].at[place.rows, place.units()]
        fetch([(r.at[:, columns], matrix.at[group]), (first, h.at[0, group])], loaded.at[group])
        plgpu.barrier_wait(loaded.at[group])
        plgpu.barrier_arrive(stepped)

        def step(count: Any, carried: Any) -> Any:
            t = steps - 1 - count if reverse else count
            now = jax.lax.rem(count, jnp.int32(2))
            after = 1 - now

            def product(total: Any) -> None:
                for k in range(groups):
                    rows = pl.ds(k * UNITS, UNITS)
                    plgpu.wgmma(total, h.at[now, k], matrix.at[group, rows])

            plgpu.barrier_wait(stepped)  # all groups have stored their units of h
            total = _sum((ROWS, gates * UNITS), product)
            recurrent = [total[:, gate * UNITS : (gate + 1) * UNITS] for gate in range(gates)]
            inputs = [place.read(parts, t, gate) for gate in range(gates)]
            if cell == "lstm":
                sums = [a + b for a, b in zip(recurrent, inputs, strict=True)]
                new, carried, _ = update(sums, carried)
                cs[0][t, place.rows, place.units()] = carried
            else:
                sums = [a + b for a, b in zip(recurrent[:2], inputs[:2], strict=True)]
                bias = load(operands["bias"], (slice(None), place.units()))
                new = carried = update_gru(sums, inputs[2], recurrent[2] + bias, carried)
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)
            h[after, group] = new.astype(h.dtype)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(h.at[after, group], hs.at[t, place.rows, place.units()])
            plgpu.barrier_arrive(stepped)
            return carried

        carried = load(operands["carried"], (place.rows, place.units()))
        jax.lax.fori_loop(0, steps, step, carried)
        plgpu.barrier_wait(stepped)
        plgpu.wait_smem_to_gmem(0)

    pl.run_scoped(
        scoped,
        matrix=swizzled((groups, r.shape[0], gates * UNITS), r.dtype, _LINE),
        h=swizzled((2, groups, ROWS, UNITS), r.dtype, _LINE),
        loaded=plgpu.Barrier(num_arrivals=2, num_barriers=groups),
        stepped=plgpu.Barrier(num_arrivals=groups),
        collective_axes="group",
    )


def _backward(operands: dict[str, Any], *results: Any, cell: str, reverse: bool, load: Any) -> None:
    r, cotangents, gates = operands["r"], operands["cotangents"], GATES[cell]
    steps = cotangents.shape[0]
    place = _Place.here(r.shape[0], load)
    group, groups, blocks = place.group, place.groups, gates * place.groups

    def scoped(matrix: Any, sums: Any, loaded: Any, stored: Any, multiplied: Any) -> None:
        copies = [
            (r.at[place.units(), pl.ds(block * UNITS, UNITS)], matrix.at[group, block])
            for block in range(blocks)
        ]
        fetch(copies, loaded.at[group])
        for gate in range(gates):
            sums[gate * groups + group] = jnp.zeros((ROWS, UNITS), sums.dtype)
        plgpu.commit_smem()
        plgpu.barrier_wait(loaded.at[group])
        plgpu.barrier_arrive(stored)

        def step(count: Any, carried: Any) -> Any:
            t = count if reverse else steps - 1 - count

            def product(total: Any) -> None:
                def one(block: Any, _: None) -> None:
                    turned = matrix.at[group, block].transpose((1, 0))
                    plgpu.wgmma(total, sums.at[block], turned)

                jax.lax.fori_loop(0, blocks, one, None)  # unrolled, it would need more registers

            plgpu.barrier_wait(stored)
            dh = _sum((ROWS, UNITS), product)
            plgpu.barrier_arrive(multiplied)
            dh = dh + place.read(cotangents, t)
            others = [place.read(each, t) for each in operands["others"]]
            here = t, place.rows, place.units()
            if cell == "lstm":
                (f, to_h), dc = others, carried
                results[1][here] = dc
                dc = dc + to_h * dh
                carried, by_gate = f * dc, (dc, dc, dh, dc)
            else:
                dh = dh + carried
                carried, by_gate = others[0] * dh, (dh, dh, dh)
            results[0][here] = dh
            plgpu.barrier_wait(multiplied)  # no group reads the sums any more
            new = [by_gate[gate] * place.read(operands["gates"], t, gate) for gate in range(gates)]
            for gate in range(gates):
                sums[gate * groups + group] = new[gate].astype(sums.dtype)
            plgpu.commit_smem()
            plgpu.barrier_arrive(stored)
            return carried

        carried = load(operands["carried"], (place.rows, place.units()))
        jax.lax.fori_loop(0, steps, step, carried)
        plgpu.barrier_wait(stored)

    pl.run_scoped(
        scoped,
        matrix=swizzled((groups, blocks, UNITS, UNITS), r.dtype, _LINE),
        sums=swizzled((blocks, ROWS, UNITS), r.dtype, _LINE),
        loaded=plgpu.Barrier(num_arrivals=blocks, num_barriers=groups),
        stored=plgpu.Barrier(num_arrivals=groups),
        multiplied=plgpu.Barrier(num_arrivals=groups),
        collective_axes="group",
    )
