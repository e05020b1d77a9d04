"""Losses: arrays in, one value per example out, unreduced, differentiable and jittable."""

from jaxatr.losses.open_set import cbc, cross_entropy, entropy, one_vs_rest_bce, open_set
from jaxatr.losses.reduce import masked_mean

__all__ = ["cbc", "cross_entropy", "entropy", "masked_mean", "one_vs_rest_bce", "open_set"]
