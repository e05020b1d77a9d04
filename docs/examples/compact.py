"""Distances beyond a margin within the classes."""

from jaxatr.losses.mine import compact

from jaxatr.tasks.embedding.in_batch.batch_loss import BatchLoss

PART = BatchLoss(compact)
