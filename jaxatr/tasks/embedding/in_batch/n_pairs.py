"""N-pairs."""

from jaxatr import losses
from jaxatr.tasks.embedding.in_batch.batch_loss import BatchLoss

PART = BatchLoss(losses.n_pairs, margin=None)
