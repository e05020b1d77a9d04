"""The network of a run, ready to predict: compiled by jax, or in another engine.

For another engine, the network is exported once, with its normalisation and all outputs that the
scores in use need, to ``fitted/STEP/network.KEY.onnx``, beside the fitted decisions. The key is a
hash of its weights, configuration and outputs: decisions that need the same outputs share a file.
The decision, the search and the explanations stay in jax, because they need galleries, enrolled
classes and gradients.
"""

import contextlib
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxatr
from jaxatr.files import Scratch
from jaxatr.kernels.compiled import Compiled
from jaxatr.kernels.onednn import Form
from jaxatr.models.build import is_built_in
from jaxatr.onnx.sessions import ONEDNN, OWN, Session, divided, open_session
from jaxatr.training import TrainedRun, digest
from jaxatr.typing import PyTree

Infer = Callable[..., Mapping[str, jax.Array]]
"""``(variables, *inputs) -> outputs by name``, each with the batch first."""

Reduce = Callable[[Any], Any]
"""Converts the ``ModelProto`` of a network in float32 to one of another precision."""

FOLDER = "fitted"
"""Subfolder of a run for files derived from a checkpoint: exported networks, fitted decisions."""


def ready_network(
    run: TrainedRun,
    network: Callable[[TrainedRun], Infer],
    variables: PyTree,
    examples: Sequence[np.ndarray],
    *,
    runtime: str,
    about: Collection[str] = (),
    reduce: Reduce | None = None,
) -> Compiled | Session:
    """Prepares the network of a run.

    Args:
      run: the run.
      network: builds the network's function from the run's configuration.
      variables: the network's variables.
      examples: example inputs, a batch of one.
      runtime: one of :data:`jaxatr.onnx.sessions.RUNTIMES`; a precision may follow a colon. Engines
        other than jax's own compute in float32 without one, even for a run that was trained in
        bfloat16.
      about: texts of further facts on which the outputs depend, in addition to the run.
      reduce: converts the exported network to the precision that ``runtime`` names; None if the
        outputs are used with decisions that were made in float32.

    Raises:
      ValueError: the network cannot be exported to ONNX, the exported file cannot be read, a
        precision is named without ``reduce``, or the backbone has no bfloat16.
      ImportError: a package is not installed; the message names the extra.
    """
    name, precision = divided(runtime)
    if precision and reduce is None:
        raise ValueError(
            f"precision: {run.workdir} runs in float32 only, {precision} is for recognisers of "
            "single images"
        )
    if name in OWN:
        run = computing_in(run, precision) if precision else run
        return Compiled(network(run), variables, compete=name == ONEDNN)
    run, about = computing_in(run, "float32"), {*about, *filter(None, [precision])}
    path = Path(run.workdir) / FOLDER / str(run.step) / f"network.{_key(run, examples, about)}.onnx"
    with contextlib.ExitStack() as stack:
        if not path.is_file():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(run, network(run), examples, path, reduce)
            except OSError as error:
                warnings.warn(f"the exported network cannot be saved: {error}", stacklevel=2)
                scratch = stack.enter_context(Scratch())
                path = Path(scratch) / path.name
                _write(run, network(run), examples, path, reduce)
        try:
            return open_session(runtime, path)
        except Exception as error:  # each engine has its own types
            raise ValueError(
                f"{path}: {runtime} cannot read it ({error}): remove it, and it is exported again"
            ) from error


def engine_note(network: Any) -> str:
    """Returns a note that names the engine of a network and its version; empty for plain jax."""
    about = network.about
    return f"the network runs in {about}" if about else ""


def forms_of(network: Any) -> Mapping[str, Form]:
    """Returns the forms of a network by the shapes of its inputs; empty for other engines."""
    return network.forms if isinstance(network, Compiled) else {}


def computing_in(run: TrainedRun, dtype: str) -> TrainedRun:
    """Returns a run whose backbone computes in another type.

    Args:
      run: the run.
      dtype: ``"float32"``, which all backbones take and ONNX's older operators need, or
        ``"bfloat16"``.

    Raises:
      ValueError: the backbone has no bfloat16.
    """
    config = run.config.copy_and_resolve_references()
    if dtype != "float32" and not is_built_in(config.model):
        raise ValueError(
            f"precision: the backbone of {run.workdir} is not built in and computes in its own "
            f"types, got {dtype}"
        )
    if "dtype" in config.model:
        config.model.dtype = dtype
    return run._replace(config=config)


def _key(run: TrainedRun, examples: Sequence[np.ndarray], about: Collection[str]) -> str:
    """Hashes everything that the exported network depends on."""
    inputs = [f"{one.dtype} {one.shape}" for one in examples]
    texts = [jaxatr.__version__, run.config.model.to_json(), *sorted(about), *inputs]
    return digest([run.variables, run.mean, run.std, *texts])[:16]


def exported(run: TrainedRun, infer: Infer, examples: Sequence[np.ndarray]) -> Any:
    """Exports the network of a run; returns the ``ModelProto``.

    Args:
      run: the run.
      infer: the network's function.
      examples: example inputs, a batch of one.

    Raises:
      ValueError: the network cannot be exported to ONNX.
    """
    with Scratch() as scratch:
        return _export(
            computing_in(run, "float32"), infer, examples, Path(scratch) / "network.onnx"
        )


def _write(
    run: TrainedRun,
    infer: Infer,
    examples: Sequence[np.ndarray],
    path: Path,
    reduce: Reduce | None,
) -> None:
    if reduce is None:
        _export(run, infer, examples, path)
        return
    from jaxatr.onnx.writer.serialisation import write_model  # needs the extra onnx

    write_model(reduce(exported(run, infer, examples)), path)


def _export(run: TrainedRun, infer: Infer, examples: Sequence[np.ndarray], path: Path) -> Any:
    from jaxatr.onnx.writer.exporter import export  # needs the extra onnx

    try:
        return export(infer, run.variables, list(examples), path)
    except (ValueError, jax.errors.InconclusiveDimensionOperation) as error:
        reason = " ".join(str(error).partition("\n\n")[0].split())
        raise ValueError(f"{run.workdir}: its network runs only in jax: {reason}") from error
