"""Mean and deviation of a metric over splits and seeds."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class Summary(NamedTuple):
    """Mean and sample standard deviation (``n - 1``; NaN for a single value) of n values."""

    mean: float
    deviation: float
    count: int

    def __format__(self, spec: str) -> str:
        """Formats as ``mean ± deviation``, each by ``spec``; only the mean for a single value."""
        mean = format(self.mean, spec)
        return mean if self.count == 1 else f"{mean} ± {format(self.deviation, spec)}"


def summarize(values: Iterable[float]) -> Summary:
    """Computes the mean and the sample standard deviation of ``values``.

    Raises:
      ValueError: there are no values.

    >>> f"{summarize([0.5, 0.7]):.2f}"
    '0.60 ± 0.14'
    """
    array = np.asarray(list(values), np.float64)
    if not array.size:
        raise ValueError("values: got none, wanted at least one")
    deviation = float(np.std(array, ddof=1)) if array.size > 1 else float("nan")
    return Summary(float(np.mean(array)), deviation, array.size)
