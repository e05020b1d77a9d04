"""The configuration fields of an embedding."""

from jaxatr.config import Field, Fields

FIELDS: Fields = {
    "data.coarse": Field(
        "",
        "the coarse classes: the name of a [written table](data.md#class-hierarchies); empty: those"
        " that the data set has of its own",
    ),
    "embedding.loss": Field(
        "quadruplet",
        "`quadruplet`, `semi_hard_triplet`, `semi_hard_one`, `lifted_structure`, `n_pairs`, "
        "`clustering`, `triplet_global`, or [your own](extending.md#a-loss), `my.module:function`",
    ),
    "embedding.dimension": Field(1024, "of the layer that embeds; 0: the backbone's features"),
    "embedding.unit_length": Field(True, "bring embeddings to length 1"),
    "embedding.class_weights": Field(
        (0.08, 0.25), "weights of the coarse and of the fine cross-entropy (equation 4)"
    ),
    "embedding.margin": Field(
        None,
        "margin of a loss that forms its tuples in the batch; unset: its own default",
        float,
        formerly=0.0,
    ),
    "embedding.per_class": Field(4, "images of a class in a batch for such a loss"),
    "quadruplet.margins": Field((0.7, 0.3), "m₁ and m₂ of equation 5"),
    "quadruplet.global_margins": Field((0.7, 0.3), "t₁ and t₂ of equation 3"),
    "quadruplet.global_weights": Field((1.0, 1.0), "λ of equation 3"),
    "quadruplet.eta": Field(1.0, "η of equation 6"),
    "quadruplet.reduction": Field(
        "sum",
        "over the quadruplets of a batch, as in the paper, or `mean`, which makes the learning rate"
        " independent of the batch size",
    ),
    "mining.method": Field(
        "nearest_to_reference", "method 2; `nearest_to_negative` is method 1; `random`"
    ),
    "mining.sibling_class": Field(
        "",
        "the sibling's fine class: `any`, or `drawn` first; empty: as the paper has the method (2 "
        "draws, 1 searches all)",
    ),
    "mining.refresh": Field(1.0, "epochs between two selections"),
    "mining.refresh_steps": Field(
        0, "steps between two selections, in place of `mining.refresh`; 0: unset"
    ),
    "mining.block_size": Field(512, "references that are searched for at a time; memory follows"),
    "open_set.tpr": Field(0.95, "share of known examples at whose acceptance FPR@TPR is measured"),
}
