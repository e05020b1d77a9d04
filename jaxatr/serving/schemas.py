"""The answers of the API, and what it is sent, as its OpenAPI describes them."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Id = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, StringConstraints(max_length=200)]


class Unusable(BaseModel):
    """An image that could not be used."""

    name: str = Field(description="Of the file, as it was sent.")
    id: Id = Field(description="SHA-256 of the file.")
    error: str = Field(description="Why it cannot be used.")


class Problem(BaseModel):
    """A request that was not answered."""

    detail: str = Field(description="The reason, in one line.")
    results: list[Unusable] | None = Field(
        default=None, description="Where no image can be used: the reason for each."
    )


class Verdict(BaseModel):
    """A decision about one image by one score."""

    label: str = Field(description='A known class, or "unknown".')
    nearest: str = Field(description="The known class that it is most like, accepted or not.")
    score: float | None = Field(description="How known it is: higher is more known.")
    threshold: float | None = Field(
        description="The score from which it is accepted; null accepts everything."
    )
    known_probability: float | None = Field(description="The same as a probability, or null.")
    probability_is: str = Field(
        description='How that comes about: "calibrated", "p-value", "score", or empty.'
    )
    p_value: float | None = Field(description="Share of known examples that look no more usual.")
    probabilities: dict[str, float | None] = Field(
        description="Known class to its probability, if the image is known."
    )
    decides: str = Field(description="Name of the score.")


class Near(BaseModel):
    """A training chip that is near an image."""

    label: str = Field(description="Its class.")
    distance: float = Field(description="To the image, in the network's features.")
    id: int = Field(description="Its number; its picture is at /api/examples/{id}.")
    path: str | None = Field(description="Of its file, where the data set has files.")


class Predicted(BaseModel):
    """The answer to one image."""

    name: str = Field(description="Of the file, as it was sent.")
    id: Id = Field(description="SHA-256 of the file.")
    verdict: Verdict
    by_score: dict[str, Verdict] | None = Field(
        default=None, description="With every_score: the verdict by each."
    )
    neighbours: list[Near] | None = Field(
        default=None, description="With neighbours: the nearest training chips."
    )
    picture: str | None = Field(
        default=None, description="With pictures: the chip as a PNG, in a data URI."
    )


class Predictions(BaseModel):
    """The answers to the images of a request, in their order."""

    results: list[Predicted | Unusable]


class Found(BaseModel):
    """The training chips that are nearest to one image."""

    name: str
    id: Id
    neighbours: list[Near]


class Neighbours(BaseModel):
    """The nearest training chips of each image of a request, in their order."""

    results: list[Found | Unusable]


class Explained(BaseModel):
    """The pixels of an image that speak for a class."""

    name: str
    id: Id
    label: str = Field(description="The class that is explained: that of the largest logit.")
    method: str
    height: int
    width: int
    saliency: list[list[float]] = Field(description="[height, width], in [0, 1].")


class Health(BaseModel):
    """Whether requests are answered."""

    status: Literal["ready", "failed"]
    waiting: int = Field(description="Chips that wait for a batch.")
    runtime: str = Field(description="Engine that runs the network.")


class Scale(BaseModel):
    """A score to decide by."""

    name: str
    title: str
    unit: Literal["plain", "logit", "log", "distance"]
    threshold: float | None = Field(
        description="The run's own; null where each class has one, or everything is accepted."
    )


class Run(BaseModel):
    """The run that answers."""

    run: str = Field(description="Name of its folder.")
    kind: Literal["recogniser", "retriever"]
    step: int
    runtime: str = Field(description="Engine that runs the network.")
    classes: list[str]
    chip: list[int] = Field(description="Height, width and channels of what the network sees.")
    dtype: str = Field(description="Of the images that it takes.")
    scores: list[Scale] = Field(description="To decide by, the run's own first.")
    neighbours: int = Field(description="Training chips that are named at most; 0 for none.")
    no_neighbours: str = Field(description="Why there are none; empty where there are.")
    explains: str = Field(description="Method of the saliency maps; empty where there are none.")
    enrols: list[str] = Field(description="Scores by which a class can be enrolled.")
    note: str = Field(description="What a user should know of the decision.")
    version: str
    images: int = Field(description="In a request, at most.")
    pixels: int = Field(description="Of an image, at most.")
    body: int = Field(description="Bytes of a request, at most.")


class Mark(BaseModel):
    """What a person says of an answer."""

    model_config = ConfigDict(extra="forbid")

    id: Id = Field(description="SHA-256 of the file.")
    name: Text = Field(description="Of the file.")
    wrong: bool = Field(default=False, description="Whether the answer is wrong.")
    group: Text = Field(default="", description="Of the chips that belong together; or empty.")
    label: Text = Field(description="The answer.")
    nearest: Text = Field(description="The known class that it is most like.")
    decides: Text = Field(description="The score that decided.")
    score: float | None = Field(default=None, allow_inf_nan=False)
    threshold: float | None = Field(default=None, allow_inf_nan=False)


class MarksIn(BaseModel):
    """Marks to keep, each in the place of an earlier one on the same image."""

    model_config = ConfigDict(extra="forbid")

    marks: Annotated[list[Mark], Field(min_length=1, max_length=1000)]


class Marked(Mark):
    """A mark that is kept."""

    time: str = Field(description="When it was made, UTC.")


class MarksOut(BaseModel):
    """The marks that are kept, the oldest first."""

    marks: list[Marked]


class Enrolment(BaseModel):
    """What becomes of the last enrolment."""

    state: Literal["idle", "busy", "done", "failed"]
    name: str = Field(description="Of the class.")
    detail: str = Field(description="What was done, or why it was not.")


class Count(BaseModel):
    """How many there are, or were."""

    count: int
