"""Lifted structure."""

from jaxatr import losses
from jaxatr.tasks.embedding.in_batch.batch_loss import BatchLoss

PART = BatchLoss(losses.lifted_structure)
