"""Semi-hard triplets with one negative for each pair."""

from functools import partial

from jaxatr import losses
from jaxatr.tasks.embedding.in_batch.batch_loss import BatchLoss

PART = BatchLoss(partial(losses.semi_hard_triplet, negatives="one"))
