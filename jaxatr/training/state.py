"""The train state, its split into trained and frozen parameters, and its conversion to arrays."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import flax.serialization
import flax.struct
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.training.average import AVERAGE, start_average
from jaxatr.training.task import Task
from jaxatr.typing import Key, PyTree

Trainable = Callable[[tuple[str, ...]], bool] | None


class TrainState(flax.struct.PyTreeNode):
    """Everything that a step changes, as arrays, without the model and the optimiser.

    Attributes:
      step: number of steps so far.
      params: all parameters, a nested dictionary.
      model_state: the model's other variables (batch statistics).
      opt_state: state of each phase's optimiser, for the parameters that the phase trains, by phase
        name; also the average of the parameters, if there is one, as ``"average"``.
      key: the run's random key; step numbers are folded into it, and it never changes.
    """

    step: Any
    params: Any
    model_state: Any
    opt_state: Any
    key: Any


def create_state(task: Task, key: Key, *, ema: float = 0.0) -> TrainState:
    """Creates the initial train state of a task.

    Args:
      task: the task to train.
      key: random key of the initial parameters and of the run.
      ema: decay of the average of the parameters; 0 for none.

    Raises:
      ValueError: a phase trains no parameters, or there are parameters and no phase.
    """
    _, compute = trace_state(task, key, ema=ema)
    return compute()


def trace_state(
    task: Task, key: Key, *, ema: float = 0.0
) -> tuple[TrainState, Callable[[], TrainState]]:
    """Traces :func:`create_state`, without compiling it.

    Returns:
      The shapes of the state, and a function that compiles and computes it. Another thread may call
      the function while this one lowers a step for the shapes.
    """

    def create(key: Key) -> TrainState:
        init_key, run_key = jax.random.split(key)
        params, model_state = task.init(init_key)
        if params and not task.phases:
            raise ValueError("phases: got none, wanted at least one, which trains the parameters")
        opt_state = {}
        for phase in task.phases:
            trained, _ = split(params, phase.trainable)
            if not trained:
                raise ValueError(f"phase {phase.name!r}: its trainable() selects no parameters")
            opt_state[phase.name] = phase.optimizer.init(trained)
        if ema:
            opt_state[AVERAGE] = start_average(params, task.phases)
        return TrainState(jnp.zeros((), jnp.int32), params, model_state, opt_state, run_key)

    on_cpu = jax.default_backend() == "cpu"
    # Few optimisations: for a single call, compilation dominates.
    options = {"xla_backend_optimization_level": 1} if on_cpu else None
    traced = jax.jit(create, compiler_options=options).trace(key)
    return traced.out_info, lambda: traced.lower().compile()(key)


def split(params: PyTree, trainable: Trainable) -> tuple[PyTree, PyTree]:
    """Splits parameters into ``(trained, frozen)``: those with a trainable path, and the others."""
    flat = _flat(params)
    trained = {path: leaf for path, leaf in flat.items() if trainable is None or trainable(path)}
    frozen = {path: leaf for path, leaf in flat.items() if path not in trained}
    return flax.traverse_util.unflatten_dict(trained), flax.traverse_util.unflatten_dict(frozen)


def merge(one: PyTree, other: PyTree) -> PyTree:
    """Merges parameters that were split by :func:`split`; of both, ``other`` takes precedence."""
    return flax.traverse_util.unflatten_dict(_flat(one) | _flat(other))


def evaluated_params(params: PyTree, opt_state: Mapping[str, Any]) -> PyTree:
    """Returns the parameters to evaluate and use: their average, if the run keeps one."""
    if AVERAGE not in opt_state:
        return params
    return merge(params, opt_state[AVERAGE]["params"])


def _flat(params: Any) -> dict[tuple[str, ...], Any]:
    """Flattens nested dictionaries, of which some may be empty, as of a target's variables."""
    return flax.traverse_util.flatten_dict(params, keep_empty_nodes=True)


def to_arrays(state: TrainState) -> dict[str, Any]:
    """Copies an unreplicated state to nested dictionaries of NumPy arrays.

    Copies are needed because the next step donates the state's buffers, possibly before the arrays
    have been saved.
    """
    return jax.tree.map(np.array, flax.serialization.to_state_dict(_without_keys(state)))


def from_arrays(template: TrainState, arrays: dict[str, Any]) -> TrainState:
    """Restores a state from the arrays of :func:`to_arrays`.

    Args:
      template: a state of the same task, or its shapes.
      arrays: the state's, NumPy.

    Raises:
      ValueError: names, shapes or dtypes of the arrays differ from those of ``template``.
    """
    plain = jax.eval_shape(_without_keys, template)
    whole = flax.serialization.to_state_dict(plain)
    wanted, found = _signature(whole), _signature(arrays)
    if wanted != found:
        odd = sorted(name for name in wanted | found if wanted.get(name) != found.get(name))
        name = odd[0]
        raise ValueError(
            f"{name}: got {found.get(name, 'nothing')}, wanted {wanted.get(name, 'nothing')}"
            + (f" (and {len(odd) - 1} more)" if len(odd) > 1 else "")
        )
    # Checkpoints of earlier versions lack empty dictionaries.
    filled = merge(whole, arrays)
    state = cast(TrainState, flax.serialization.from_state_dict(plain, filled))

    def as_in(leaf: Any, data: Any) -> Any:
        if not _is_key(leaf):
            return data
        impl = jax.random.key_impl(jnp.empty((), leaf.dtype))
        return jax.random.wrap_key_data(data, impl=impl)

    return jax.tree.map(as_in, template, state)


def _without_keys(state: TrainState) -> TrainState:
    """Replaces random keys, also those in the optimisers' states, by their data."""
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, state)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)


def flatten(arrays: dict[str, Any]) -> dict[str, Any]:
    """Flattens nested dictionaries to one with keys such as ``"params/stem/kernel"``."""
    flat: Any = flax.traverse_util.flatten_dict(arrays)
    return {"/".join(map(str, path)): leaf for path, leaf in flat.items() if leaf is not None}


def _signature(arrays: dict[str, Any]) -> dict[str, str]:
    return {
        name: f"{np.dtype(leaf.dtype).name}{list(np.shape(leaf))}"
        for name, leaf in flatten(arrays).items()
    }
