"""Predictions of any number of chips: in parts on disk, by one process or by a cluster.

The inputs of all ``sources`` are listed into numbered shards (``manifest``). A ``worker`` makes a
file of each shard (``parts``), which is there whole or not at all. Started again, what is whole is
kept. An ``engine`` shares the shards out among workers; ``predicting`` does it all.
"""

from jaxatr.batch.predicting import ENGINES, Totals, predict_parts
from jaxatr.batch.worker import Part

__all__ = ["ENGINES", "Part", "Totals", "predict_parts"]
