"""Batch prediction of any number of inputs into part files, in one process or on a cluster.

``manifest`` lists the inputs of all ``sources`` in numbered shards. A ``worker`` predicts a shard
and writes its part file atomically (``parts``). When a batch is started again, complete parts are
kept. An ``engine`` distributes the shards to workers; ``predicting`` runs a batch.
"""

from jaxatr.batch.prediction import ENGINES, Totals, predict_parts
from jaxatr.batch.worker import Part, Search

__all__ = ["ENGINES", "Part", "Search", "Totals", "predict_parts"]
