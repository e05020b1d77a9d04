"""Boxes that are found again: every chip is cut anew before it is scored.

A detector's box is a little off, and the maps by which chips are compared notice a shift by a tenth
of the box. How far a box is off can be seen, though: a linear map of the network's own maps
estimates it, as detectors refine their boxes (Girshick et al. 2014, "Rich feature hierarchies",
appendix C). It is fitted to training chips with boxes that are moved on purpose. The chip is then
cut at the estimated box, out of itself, and the network sees it a second time. All chips are
treated alike: those in galleries, those of the threshold, and those of the field.

The estimate is one more collection of a run's variables, and a file beside the fitted decisions.
"""

import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxatr import data
from jaxatr.files import load_arrays
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.open_set.needs import MAPS, with_maps
from jaxatr.tasks.parts import Part, ids
from jaxatr.tasks.runtime import FOLDER
from jaxatr.training.folder import write_file
from jaxatr.typing import Array, ArrayLike, Config, Float, Network, PyTree, Shaped

COLLECTION = "reframing"
"""Name of the estimate among a run's variables."""

MOST = 12_000
"""Largest number of chips to which the estimate is fitted, which bounds the time of the fit."""

COPIES = 4
"""Largest number of moved boxes for each training chip."""

RIDGE = 1000.0
"""Penalty on the square of the weights, for maps in units of their deviation. It was chosen on
thermal simulated vehicles, by validation chips."""

_PREFERRED = ("map_stage2", "map_stage3")


class Estimate(NamedTuple):
    """A fitted estimate of how a chip's box has to move.

    Attributes:
      kernel: ``[d, 3]``, of the flattened maps.
      bias: ``[3]``.
      most: ``[3]``, bound of each output.
      left: ``[3]``, root of the mean square of what remains on validation chips, in the unit of the
        outputs; not a number without such chips.
    """

    kernel: Float[np.ndarray, "d 3"]
    bias: Float[np.ndarray, " 3"]
    most: Float[np.ndarray, " 3"]
    left: Float[np.ndarray, " 3"]


def maps_of(module: Network) -> tuple[str, ...]:
    """Returns the names of the maps from which boxes are estimated; empty if there are none."""
    sown = getattr(getattr(module, "backbone", None), "maps", ())
    return tuple(name for name in _PREFERRED if name in sown and name in MAPS)


def corrections(
    errors: Float[np.ndarray, "n 3"], *, error: float, margin: float
) -> Float[np.ndarray, "n 3"]:
    """Returns the moves that undo the errors of boxes.

    Args:
      errors: from :func:`jaxatr.data.box_errors`.
      error: largest deviation of a box, as a share of its side.
      margin: how much larger a chip is than its box, as a share of the box's side.

    Returns:
      The shift of the centre down and right, as shares of the chip's side, and the logarithm of the
      factor of the side.
    """
    factor = 1 + error * errors[:, 2]
    shifts = -error / (1 + margin) * errors[:, :2] / factor[:, None]
    return np.column_stack([shifts, -np.log(factor)])


def fit(
    rows: Shaped[np.ndarray, "n d"],
    moves: Float[np.ndarray, "n 3"],
    ridge: float = RIDGE,
) -> tuple[Float[np.ndarray, "d 3"], Float[np.ndarray, " 3"]]:
    """Fits a linear map by least squares with a penalty.

    Args:
      rows: ``[n, d]``, flattened maps.
      moves: ``[n, 3]``, the moves to estimate.
      ridge: the penalty; the maps are divided by their deviation before.

    Returns:
      Kernel and bias.
    """
    import scipy.linalg  # slow to import

    mean = rows.mean(axis=0, dtype=np.float32)
    centred = rows.astype(np.float32) - mean
    # One deviation of all: pixels that hardly vary stay unimportant.
    scale = np.sqrt(np.mean(np.square(centred))) or np.float32(1)
    centred /= scale
    middle = moves.mean(axis=0)
    wanted = (moves - middle).astype(np.float32)
    n, d = centred.shape
    small = n < d  # the smaller of two equal problems
    square = centred @ centred.T if small else centred.T @ centred
    square[np.diag_indices(len(square))] += ridge
    if small:
        kernel = centred.T @ scipy.linalg.solve(square, wanted, assume_a="pos", overwrite_a=True)
    else:
        kernel = scipy.linalg.solve(square, centred.T @ wanted, assume_a="pos", overwrite_a=True)
    kernel /= scale
    return kernel, (middle - mean @ kernel).astype(np.float32)


def rows_of(maps: Mapping[str, ArrayLike], names: tuple[str, ...]) -> Any:
    """Flattens the named maps, ``[n, h, w, f]``, and puts them side by side, ``[n, d]``."""
    chosen = [maps[name] for name in names]
    # The number of chips may be a symbol, in a graph.
    flat = [one.reshape(one.shape[0], math.prod(one.shape[1:])) for one in chosen]
    return (np if isinstance(flat[0], np.ndarray) else jnp).concatenate(flat, axis=1)


def estimated(
    examples: Examples,
    config: Config,
    names: tuple[str, ...],
    maps_of: Callable[[Part], Mapping[str, np.ndarray]],
) -> Estimate:
    """Fits an estimate to training chips whose boxes are moved, and tests it on validation chips.

    Args:
      examples: the run's examples.
      config: the run's configuration.
      names: names of the maps.
      maps_of: computes the maps of a part's chips.

    Raises:
      ValueError: the chips are not square, or their centre is blanked.
    """
    error = config.open_set.box_error
    bounds = {"error": error, "margin": config.data.box_margin}

    def seen(part: str, copy: int) -> tuple[np.ndarray, np.ndarray]:
        moved = examples.moved(part, error=error, copy=copy)
        if len(moved.labels) > MOST:
            moved = moved.sample(MOST, config.seed)
        errors = np.array([data.box_errors(int(one), copy) for one in ids(moved)])
        return rows_of(maps_of(moved), names), corrections(errors, **bounds)

    copies = min(COPIES, max(1, round(MOST / len(examples.parts["train"].labels))))
    rows, moves = zip(*(seen("train", copy) for copy in range(copies)), strict=True)
    kernel, bias = fit(np.concatenate(rows), np.concatenate(moves))
    left = np.full(3, np.nan)
    if "validation" in examples.parts:
        rows, moves = seen("validation", COPIES)
        left = np.sqrt(np.mean(np.square(rows @ kernel + bias - moves), axis=0))
    most = np.abs(corrections(-np.ones((1, 3)), **bounds))[0]
    return Estimate(kernel, bias, most.astype(np.float32), left)


def reframed(
    module: Network,
    variables: PyTree,
    images: ArrayLike,
    normalize: Callable[[ArrayLike], Array],
) -> Array:
    """Cuts chips at their estimated boxes; without an estimate, returns them as they are.

    Args:
      module: a network of single images.
      variables: variables of the network, with the estimate if there is one.
      images: ``[b, h, w, c]``, chips in raw units.
      normalize: normalises chips for the network.
    """
    images = jnp.asarray(images)
    if COLLECTION not in variables:
        return images
    estimate = variables[COLLECTION]
    names = maps_of(module)
    rows = rows_of(with_maps(names, module, variables, normalize(images)), names)
    moves = rows.astype(jnp.float32) @ estimate["kernel"] + estimate["bias"]
    moves = jnp.clip(moves, -estimate["most"], estimate["most"])
    sides = jnp.array(images.shape[1:3], jnp.float32)
    cut = data.moved(images.astype(jnp.float32), moves[:, :2] * sides, jnp.exp(moves[:, 2]))
    if jnp.issubdtype(images.dtype, jnp.integer):
        cut = jnp.round(cut)  # the mean of values in range stays in range
    return cut.astype(images.dtype)


def mark(config: Config) -> str:
    """Returns the part of a fit's name about the error of boxes; empty without an estimate."""
    error = config.open_set.get("box_error", 0.0)
    return f".boxes_{100 * error:g}" if error else ""


def path_of(workdir: Path, step: int, config: Config) -> Path:
    """Returns the path of the estimate of a checkpoint."""
    return Path(workdir) / FOLDER / str(step) / f"{COLLECTION}{mark(config)}.npz"


def save(path: Path, estimate: Estimate) -> None:
    """Writes an estimate, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, lambda file: np.savez(file, allow_pickle=False, **estimate._asdict()))


def with_estimate(variables: PyTree, path: Path) -> PyTree:
    """Returns variables with the estimate of a file; as they are if there is no file.

    Raises:
      ValueError: the file is damaged.
    """
    if not path.is_file():
        return variables
    try:
        arrays = load_arrays(path)
        found = Estimate(**{name: np.asarray(arrays[name]) for name in Estimate._fields})
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not readable ({error}): remove it to fit it again") from error
    return joined(variables, found)


def joined(variables: PyTree, estimate: Estimate) -> PyTree:
    """Returns variables with an estimate."""
    used = {name: getattr(estimate, name) for name in ("kernel", "bias", "most")}
    return {**variables, COLLECTION: used}


def check_present(variables: PyTree, config: Config, workdir: Path, step: int) -> None:
    """Checks that a run has the estimate that its configuration asks for.

    Raises:
      ValueError: it has none.
    """
    if mark(config) and COLLECTION not in variables:
        raise ValueError(
            f"open_set.box_error: {workdir} has no estimate of boxes that are off by "
            f"{100 * config.open_set.box_error:g} % at step {step}: jaxatr evaluate "
            f"--workdir={workdir} --checkpoint={step} fits it"
        )
