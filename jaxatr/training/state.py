"""The train state, which part of the parameters a phase trains, and the state as plain arrays."""

from collections.abc import Callable
from typing import Any, cast

import flax.serialization
import flax.struct
import flax.traverse_util
import jax
import numpy as np

from jaxatr.training.average import AVERAGE, start_average
from jaxatr.training.task import Task
from jaxatr.typing import ArrayLike, Key, PyTree

Trainable = Callable[[tuple[str, ...]], bool] | None


class TrainState(flax.struct.PyTreeNode):
    """Everything that a step changes, as arrays; the model and the optimiser live in closures.

    Attributes:
      step: how many steps were taken.
      params: all parameters, a nested dictionary.
      model_state: the model's other variables (batch statistics).
      opt_state: phase name to the state of its optimiser, for the part that it trains only;
        ``"average"`` to that of the parameters, where one is kept.
      key: the run's random key; steps fold into it and never replace it.
    """

    step: Any
    params: Any
    model_state: Any
    opt_state: Any
    key: Any


def create_state(task: Task, key: Key, *, ema: float = 0.0) -> TrainState:
    """Returns the state of ``task`` before its first step.

    Args:
      task: what is trained.
      key: of the parameters and of the run.
      ema: decay of the average of the parameters; 0 keeps none.

    Raises:
      ValueError: a phase trains no parameter at all.
    """
    init_key, run_key = jax.random.split(key)
    params, model_state = _compiled_fast(task.init)(init_key)
    opt_state = {}
    for phase in task.phases:
        trained, _ = split(params, phase.trainable)
        if not trained:
            raise ValueError(f"phase {phase.name!r}: its trainable() selects no parameter")
        opt_state[phase.name] = _compiled_fast(phase.optimizer.init)(trained)
    if ema:
        opt_state[AVERAGE] = start_average(params, task.phases)
    return TrainState(np.zeros((), np.int32), params, model_state, opt_state, run_key)


def _compiled_fast(init: Callable) -> Callable:
    """Returns ``jit(init)`` for one call: on CPU most of its time would be the compiler's."""
    on_cpu = jax.default_backend() == "cpu"
    return jax.jit(init, compiler_options={"xla_backend_optimization_level": 1} if on_cpu else None)


def split(params: PyTree, trainable: Trainable) -> tuple[PyTree, PyTree]:
    """Returns ``(trained, frozen)``: the parameters whose path is trainable, and the others."""
    flat = flax.traverse_util.flatten_dict(params)
    trained = {path: leaf for path, leaf in flat.items() if trainable is None or trainable(path)}
    frozen = {path: leaf for path, leaf in flat.items() if path not in trained}
    return flax.traverse_util.unflatten_dict(trained), flax.traverse_util.unflatten_dict(frozen)


def merge(trained: PyTree, frozen: PyTree) -> PyTree:
    """Returns the parameters that :func:`split` took apart."""
    flat = flax.traverse_util.flatten_dict(trained) | flax.traverse_util.flatten_dict(frozen)
    return flax.traverse_util.unflatten_dict(flat)


def to_arrays(state: TrainState) -> dict[str, Any]:
    """Returns an unreplicated state as nested dictionaries of NumPy arrays of its own.

    The copies are real: the step donates the state's buffers while a save may still be reading.
    """
    plain = state.replace(key=jax.random.key_data(state.key))
    return jax.tree.map(np.array, flax.serialization.to_state_dict(plain))


def from_arrays(template: TrainState, arrays: dict[str, Any]) -> TrainState:
    """Returns the state that :func:`to_arrays` took apart.

    Raises:
      ValueError: the arrays are not those of a state like ``template``: names, shapes or dtypes.
    """
    plain = template.replace(key=jax.random.key_data(template.key))
    wanted = _signature(flax.serialization.to_state_dict(plain))
    found = _signature(arrays)
    if wanted != found:
        odd = sorted(name for name in wanted | found if wanted.get(name) != found.get(name))
        name = odd[0]
        raise ValueError(
            f"{name}: got {found.get(name, 'nothing')}, wanted {wanted.get(name, 'nothing')}"
            + (f" (and {len(odd) - 1} more)" if len(odd) > 1 else "")
        )
    state = cast(TrainState, flax.serialization.from_state_dict(plain, arrays))
    impl = jax.random.key_impl(template.key)
    return state.replace(key=jax.random.wrap_key_data(state.key, impl=impl))


def flatten(arrays: dict[str, Any]) -> dict[str, ArrayLike]:
    """Returns nested dictionaries as one, ``"params/stem/kernel"`` to array."""
    flat: Any = flax.traverse_util.flatten_dict(arrays)
    return {"/".join(map(str, path)): leaf for path, leaf in flat.items() if leaf is not None}


def _signature(arrays: dict[str, Any]) -> dict[str, str]:
    return {
        name: f"{np.dtype(leaf.dtype).name}{list(np.shape(leaf))}"
        for name, leaf in flatten(arrays).items()
    }
