"""The examples whose maps are recorded, for a report to show: failures first."""

from collections.abc import Mapping

import numpy as np

from jaxatr.typing import Float, Int


def evenly_spread(rows: Int[np.ndarray, " n"], count: int) -> Int[np.ndarray, " m"]:
    """Chooses so many of the rows at most, evenly spread in their order."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)]


def arrays_to_record(
    values: Mapping[str, Mapping[str, np.ndarray]],
    maps: Mapping[str, Float[np.ndarray, "n h w"]],
    *,
    each: int = 8,
) -> dict[str, np.ndarray]:
    """Collects the arrays that are recorded of some methods' explanations of n chips.

    Args:
      values: method to the values of :func:`jaxatr.explain.measures.judge`; one is ``"surrogate"``.
      maps: method to its maps, in [0, 1].
      each: so many of each kind are shown at most.

    Returns:
      ``METHOD_MEASURE`` ``[n]``; ``sheet_worst`` and ``sheet_drawn``, positions in n of what a
      report shows: those with the surrogate's lowest insertion, the lowest first, and others,
      evenly spread in their order; ``METHOD_map`` uint8 ``[m, h, w]``, the maps of these, in that
      order, 255 for 1.
    """
    order = np.argsort(values["surrogate"]["insertion"], kind="stable")
    worst, drawn = order[:each], evenly_spread(np.sort(order[each:]), each)
    arrays: dict[str, np.ndarray] = {"sheet_worst": worst, "sheet_drawn": drawn}
    rows = np.concatenate([worst, drawn])
    for name, judged in values.items():
        arrays |= {f"{name}_{measure}": numbers for measure, numbers in judged.items()}
        arrays[f"{name}_map"] = np.rint(255 * maps[name][rows]).astype(np.uint8)
    return arrays
