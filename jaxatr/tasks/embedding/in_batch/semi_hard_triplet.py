"""Semi-hard triplets, the mean over all negatives."""

from jaxatr import losses
from jaxatr.tasks.embedding.in_batch.batch_loss import BatchLoss

PART = BatchLoss(losses.semi_hard_triplet)
