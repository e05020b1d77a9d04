"""The network of a run, ready to predict: compiled by jax, or in another engine.

For another engine it is exported once, with its normalisation and all that the scores in use need
of it, and kept beside what is fitted for decisions: ``fitted/STEP/network.KEY.onnx``. The key is
that of its weights, its configuration and its outputs, so that another decision uses the file as
long as it needs nothing else, and gets one of its own where it does. The decision, the search and
the explanations stay in jax: they need galleries, enrolled classes and gradients.
"""

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxatr
from jaxatr.kernels.compiled import Compiled
from jaxatr.kernels.onednn import Form
from jaxatr.onnx.sessions import ONEDNN, OWN, Session, open_session
from jaxatr.training import TrainedRun, digest
from jaxatr.typing import PyTree

Infer = Callable[..., Mapping[str, jax.Array]]
"""``(variables, *inputs) -> outputs by name``, each with the batch first."""

FOLDER = "fitted"
"""In a run's folder, of what is derived from a checkpoint: exported networks, fitted decisions."""


def ready_network(
    run: TrainedRun,
    network: Callable[[TrainedRun], Infer],
    variables: PyTree,
    examples: Sequence[np.ndarray],
    *,
    runtime: str,
    about: Collection[str] = (),
) -> Compiled | Session:
    """Prepares the network of a run.

    Args:
      run: the run.
      network: makes the function of its configuration.
      variables: of the network.
      examples: its inputs, of a batch of one.
      runtime: one of :data:`jaxatr.onnx.sessions.RUNTIMES`. Those that are not of jax compute in
        float32, a run that was trained in bfloat16 too.
      about: what the outputs depend on besides the run.

    Raises:
      ValueError: the network has no form in ONNX, or the kept file cannot be read.
      ImportError: a package is not installed; the message names the extra.
    """
    if runtime in OWN:
        return Compiled(network(run), variables, compete=runtime == ONEDNN)
    run = _in_float32(run)
    path = Path(run.workdir) / FOLDER / str(run.step) / f"network.{_key(run, examples, about)}.onnx"
    with contextlib.ExitStack() as stack:
        if not path.is_file():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                _export(run, network(run), examples, path)
            except OSError as error:
                warnings.warn(f"the exported network is not kept: {error}", stacklevel=2)
                scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="jaxatr-"))
                path = Path(scratch) / path.name
                _export(run, network(run), examples, path)
        try:
            return open_session(runtime, path)
        except Exception as error:  # each engine has its own
            raise ValueError(
                f"{path}: {runtime} cannot read it ({error}): remove it, and it is made again"
            ) from error


def engine_note(network: Any) -> str:
    """Says which engine runs a network, and its version; empty of jax alone."""
    about = network.about
    return f"the network runs in {about}" if about else ""


def forms_of(network: Any) -> Mapping[str, Form]:
    """Returns the forms of a network by the shapes of its inputs; none of other engines."""
    return network.forms if isinstance(network, Compiled) else {}


def _in_float32(run: TrainedRun) -> TrainedRun:
    config = run.config.copy_and_resolve_references()
    if "dtype" in config.model:
        config.model.dtype = "float32"  # ONNX's older operators do not take bfloat16
    return run._replace(config=config)


def _key(run: TrainedRun, examples: Sequence[np.ndarray], about: Collection[str]) -> str:
    """Hashes all that the exported network depends on."""
    inputs = [f"{one.dtype} {one.shape}" for one in examples]
    texts = [jaxatr.__version__, run.config.model.to_json(), *sorted(about), *inputs]
    return digest([run.variables, run.mean, run.std, *texts])[:16]


def _export(run: TrainedRun, infer: Infer, examples: Sequence[np.ndarray], path: Path) -> None:
    from jaxatr.onnx.writer.exporter import export  # which needs a package of its own

    try:
        export(infer, run.variables, list(examples), path)
    except (ValueError, jax.errors.InconclusiveDimensionOperation) as error:
        reason = " ".join(str(error).partition("\n\n")[0].split())
        raise ValueError(f"{run.workdir}: its network runs in jax alone: {reason}") from error
