"""The configuration fields of an embedding."""

from jaxatr.config import Field, Fields
from jaxatr.tasks.embedding.in_batch import IN_BATCH

FIELDS: Fields = {
    "data.coarse": Field(
        "",
        "coarse classes: a [hierarchy's name](data.md#class-hierarchies); empty: the data set's "
        "own",
    ),
    "embedding.loss": Field(
        "quadruplet",
        f"`quadruplet`, {', '.join(f'`{name}`' for name in IN_BATCH)}, or "
        "[your own](extending.md#a-loss), `my.module:function`",
    ),
    "embedding.dimension": Field(
        1024,
        "dimension of the embedding layer; 0: none, the backbone's features are used",
    ),
    "embedding.unit_length": Field(True, "normalise embeddings to unit length"),
    "embedding.class_weights": Field(
        (0.08, 0.25), "weights of the coarse and the fine cross-entropy (equation 4)"
    ),
    "embedding.margin": Field(
        None,
        "margin of losses within the batch; unset: the loss's default",
        float,
        formerly=0.0,
    ),
    "embedding.per_class": Field(4, "images of each class in a batch, for losses within the batch"),
    "quadruplet.margins": Field((0.7, 0.3), "m₁ and m₂ of equation 5"),
    "quadruplet.global_margins": Field((0.7, 0.3), "t₁ and t₂ of equation 3"),
    "quadruplet.global_weights": Field((1.0, 1.0), "λ of equation 3"),
    "quadruplet.eta": Field(1.0, "η of equation 6"),
    "quadruplet.reduction": Field(
        "sum",
        "over a batch's quadruplets: `sum`, as in the paper, or `mean`",
    ),
    "mining.method": Field(
        "nearest_to_reference",
        "[selection](embeddings.md#the-method) of quadruplets: `nearest_to_reference`, "
        "`nearest_to_negative` or `random`",
    ),
    "mining.sibling_class": Field(
        "",
        "the sibling's fine class: `any` searches all, `drawn` draws one first; empty: as in the "
        "paper",
    ),
    "mining.refresh": Field(1.0, "epochs between two selections"),
    "mining.refresh_steps": Field(
        0, "steps between two selections, overrides `mining.refresh`; 0: unset"
    ),
    "mining.block_size": Field(512, "references searched at a time; memory grows in proportion"),
    "open_set.tpr": Field(0.95, "true-positive rate of known examples in FPR@TPR"),
}
