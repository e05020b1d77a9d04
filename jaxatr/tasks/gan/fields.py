"""The configuration fields of G-OpenMax's generator."""

from jaxatr.config import Field, Fields

FIELDS: Fields = {
    "gan.noise": Field(64, "components of its noise"),
    "gan.width": Field(
        16,
        "channels of the generator's last and of the discriminator's first map, a multiple of 8",
    ),
    "gan.steps": Field(1000, "steps of the generator, and as many of the discriminator"),
    "gan.learning_rate": Field(
        2e-4, "of Adam, for both; of `optimizer`, `clip_norm` alone counts here"
    ),
    "gan.threshold": Field(
        0.5,
        "a generated image is kept where the run's own network gives no known class this "
        "probability",
    ),
    "gan.images": Field(0, "how many are kept; 0: as many as a known class has on average"),
}
