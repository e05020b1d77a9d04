"""Differentiable, jittable loss functions, which return one unreduced value per example.

Losses without a value per example (batch statistics, tuples formed in the batch) return a scalar.
Losses of quadruplets are in :mod:`jaxatr.losses.quadruplet`. Mismatched shapes and non-integer
labels raise an ``AssertionError`` from chex.
"""

from jaxatr.losses import quadruplet
from jaxatr.losses.adversarial import discriminator_hinge, generator_hinge
from jaxatr.losses.area import saliency_area
from jaxatr.losses.centres import centre_focal
from jaxatr.losses.clustering import clustering
from jaxatr.losses.curves import faithfulness, top_share
from jaxatr.losses.distillation import (
    distillation,
    end_to_end,
    explanation,
    saliency_l1,
    soft_distillation,
    sparse_explanation,
)
from jaxatr.losses.in_batch import lifted_structure, n_pairs, semi_hard_triplet, triplet_global
from jaxatr.losses.influence import influence
from jaxatr.losses.label_smoothing import smoothed_cross_entropy
from jaxatr.losses.logit_normalisation import normalised_logits
from jaxatr.losses.open_set import cbc, cross_entropy, entropy, one_vs_rest_bce, open_set
from jaxatr.losses.outlier_exposure import outlier_exposure, refused_by_all
from jaxatr.losses.reciprocal_points import open_space_risk, reciprocal_logits
from jaxatr.losses.reduce import masked_mean
from jaxatr.losses.supervised_contrastive import supervised_contrastive
from jaxatr.losses.tuples import contrastive, triplet

__all__ = [
    "cbc",
    "centre_focal",
    "clustering",
    "contrastive",
    "cross_entropy",
    "discriminator_hinge",
    "distillation",
    "end_to_end",
    "entropy",
    "explanation",
    "faithfulness",
    "generator_hinge",
    "influence",
    "lifted_structure",
    "masked_mean",
    "n_pairs",
    "normalised_logits",
    "one_vs_rest_bce",
    "open_set",
    "open_space_risk",
    "outlier_exposure",
    "quadruplet",
    "reciprocal_logits",
    "refused_by_all",
    "saliency_area",
    "saliency_l1",
    "semi_hard_triplet",
    "smoothed_cross_entropy",
    "soft_distillation",
    "sparse_explanation",
    "supervised_contrastive",
    "top_share",
    "triplet",
    "triplet_global",
]
