"""The selection of examples whose maps are recorded for the report, failures first."""

from collections.abc import Mapping

import numpy as np

from jaxatr.typing import Float, Int


def evenly_spread(rows: Int[np.ndarray, " n"], count: int) -> Int[np.ndarray, " m"]:
    """Returns at most ``count`` of the rows, evenly spaced."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)]


def arrays_to_record(
    values: Mapping[str, Mapping[str, np.ndarray]],
    maps: Mapping[str, Float[np.ndarray, "n h w"]],
    *,
    each: int = 8,
) -> dict[str, np.ndarray]:
    """Returns the arrays to record for the explanations of n chips by several methods.

    Args:
      values: values of :func:`jaxatr.explain.measures.judge` by method, including ``"surrogate"``.
      maps: saliency maps in [0, 1], by method.
      each: maximum number of chips of each kind.

    Returns:
      ``METHOD_MEASURE`` ``[n]``; ``sheet_worst`` and ``sheet_drawn``, positions of the chips that a
      report shows: those for which the surrogate has the lowest insertion, lowest first, and an
      evenly spaced selection of the others; ``METHOD_map`` uint8 ``[m, h, w]``, the maps of these
      chips in that order, scaled to 255.
    """
    order = np.argsort(values["surrogate"]["insertion"], kind="stable")
    worst, drawn = order[:each], evenly_spread(np.sort(order[each:]), each)
    arrays: dict[str, np.ndarray] = {"sheet_worst": worst, "sheet_drawn": drawn}
    rows = np.concatenate([worst, drawn])
    for name, judged in values.items():
        arrays |= {f"{name}_{measure}": numbers for measure, numbers in judged.items()}
        arrays[f"{name}_map"] = np.rint(255 * maps[name][rows]).astype(np.uint8)
    return arrays
