"""The configuration fields of G-OpenMax's generator."""

from jaxatr.config import Field, Fields

FIELDS: Fields = {
    "gan.noise": Field(64, "dimension of the generator's noise"),
    "gan.width": Field(
        16,
        "channels of the generator's last and the discriminator's first map, a multiple of 8",
    ),
    "gan.steps": Field(1000, "training steps of both networks"),
    "gan.learning_rate": Field(
        2e-4,
        "learning rate of Adam for both; of the `optimizer` fields only `clip_norm` applies",
    ),
    "gan.threshold": Field(
        0.5,
        "keep generated images that get less probability for every known class",
    ),
    "gan.images": Field(0, "generated images to keep; 0: the average number per known class"),
}
