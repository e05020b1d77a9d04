"""Request and response bodies of the API; their descriptions appear in its OpenAPI document."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Id = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, StringConstraints(max_length=200)]


class Unusable(BaseModel):
    """An image that cannot be used."""

    name: str = Field(description="File name, as sent.")
    id: Id = Field(description="SHA-256 of the file.")
    error: str = Field(description="The reason why it cannot be used.")


class Problem(BaseModel):
    """An error."""

    detail: str = Field(description="The reason, in one line.")
    results: list[Unusable] | None = Field(
        default=None, description="The reason for each image, if none can be used."
    )


class Verdict(BaseModel):
    """The decision about one image by one score."""

    label: str = Field(description='A known class, or "unknown".')
    nearest: str = Field(description="The most similar known class, even if it is rejected.")
    score: float | None = Field(description="Open-set score; higher means more likely known.")
    threshold: float | None = Field(
        description="Least score that is accepted; null accepts everything."
    )
    known_probability: float | None = Field(
        description="Probability that the image is of a known class, or null."
    )
    probability_is: str = Field(
        description='Origin of known_probability: "calibrated", "p-value", "score", or empty.'
    )
    p_value: float | None = Field(description="Share of known examples that score no higher.")
    guarantee: float | None = Field(
        description="Share of known images like the validation examples that the threshold is "
        "guaranteed to accept, on average; null without a guarantee."
    )
    probabilities: dict[str, float | None] = Field(
        description="Probability of each known class, given that the image is known."
    )
    decides: str = Field(description="Name of the score.")


class Near(BaseModel):
    """A training chip near an image."""

    label: str = Field(description="Class of the chip.")
    distance: float = Field(description="Distance to the image in the network's features.")
    id: int = Field(description="Number of the chip; its picture is at /api/examples/{id}.")
    path: str | None = Field(description="Path of its file, if the data set has files.")


class _Requested(BaseModel):
    """The fields of a prediction that are filled on request."""

    by_score: dict[str, Verdict] | None = Field(
        default=None, description="With every_score: the verdict of each score."
    )
    neighbours: list[Near] | None = Field(
        default=None, description="With neighbours: the nearest training chips."
    )
    picture: str | None = Field(
        default=None, description="With pictures: the chip as a PNG data URI."
    )


class Predicted(_Requested):
    """The prediction for one image."""

    name: str = Field(description="File name, as sent.")
    id: Id = Field(description="SHA-256 of the file.")
    verdict: Verdict


class Predictions(BaseModel):
    """The predictions for the images of a request, in order."""

    results: list[Predicted | Unusable]


class Target(_Requested):
    """A target in a scene, with the decision about it or the reason why there is none."""

    box: list[float] = Field(
        min_length=4, max_length=4, description="x0, y0, x1, y1 in pixels of the scene."
    )
    detection_score: float | None = Field(
        description="The detector's probability of a target; null for a box that was given."
    )
    name: str = Field(description="Name of the scene, and number of the target in it.")
    id: Id | Literal[""] = Field(description="SHA-256 of the chip's file; empty without one.")
    verdict: Verdict | None = None
    file: str | None = Field(
        default=None,
        description="With files: the part of the scene that the chip is made from, a data URI of "
        "a PNG or .npy file, which the routes for images take.",
    )
    error: str | None = Field(default=None, description="The reason why there is no verdict.")


class Scene(BaseModel):
    """The targets of a scene, by descending detection score, or in the order of the boxes."""

    name: str = Field(description="File name, as sent.")
    id: Id = Field(description="SHA-256 of the file.")
    width: int = Field(description="Width in pixels.")
    height: int = Field(description="Height in pixels.")
    targets: list[Target]
    left_out: int = Field(description="Number of targets beyond the limit, of lower scores.")


class Found(BaseModel):
    """The training chips nearest to one image."""

    name: str
    id: Id
    neighbours: list[Near]


class Neighbours(BaseModel):
    """The nearest training chips for each image of a request, in order."""

    results: list[Found | Unusable]


class Explained(BaseModel):
    """The saliency map of an image."""

    name: str
    id: Id
    label: str = Field(description="The explained class: that of the largest logit.")
    method: str
    height: int
    width: int
    saliency: list[list[float]] = Field(description="[height, width], in [0, 1].")


class Health(BaseModel):
    """Health of the server."""

    status: Literal["ready", "failed"]
    waiting: int = Field(description="Number of chips waiting for a batch.")
    decoding: int = Field(description="Number of images that are being decoded.")
    decoding_seconds: float = Field(description="Time of the image that takes longest so far.")
    runtime: str = Field(description="Engine that runs the network.")


class Scale(BaseModel):
    """A score to decide by."""

    name: str
    title: str
    unit: Literal["plain", "logit", "log", "distance"]
    threshold: float | None = Field(
        description="The run's; null if each class has its own, or everything is accepted."
    )


class Detector(BaseModel):
    """The detector that finds targets in scenes."""

    run: str = Field(description="Name of the run's folder.")
    threshold: float = Field(description="Least detection score of a target.")
    dtype: str = Field(description="Type of the scenes' pixels.")
    channels: int = Field(description="Number of the scenes' channels.")


class Run(BaseModel):
    """The run that is served."""

    run: str = Field(description="Name of the run's folder.")
    kind: Literal["recogniser", "retriever"]
    step: int
    runtime: str = Field(description="Engine that runs the network.")
    classes: list[str]
    chip: list[int] = Field(description="Height, width and channels of the network's input.")
    dtype: str = Field(description="Type of the images' pixels.")
    scores: list[Scale] = Field(description="The scores to decide by, the run's own first.")
    neighbours: int = Field(description="Largest number of nearest training chips; 0 for none.")
    no_neighbours: str = Field(
        description="The reason why there are no neighbours; empty if there are."
    )
    explains: str = Field(description="Method of the saliency maps; empty if there are none.")
    enrols: list[str] = Field(description="Scores that accept enrolled classes.")
    detector: Detector | None = Field(description="Finds targets in scenes, or null.")
    labels: bool = Field(description="Whether there are chips to label, at /label.")
    note: str = Field(description="A note for the user about the decision.")
    version: str
    images: int = Field(description="Largest number of images in a request.")
    pixels: int = Field(description="Largest number of pixels of an image.")
    body: int = Field(description="Largest number of bytes of a request.")


class Shift(BaseModel):
    """The comparison of one statistic of the served chips with that of the training."""

    name: str = Field(description="The score, or a fact of the images.")
    distance: float = Field(description="Kolmogorov-Smirnov distance, in [0, 1].")
    p_value: float = Field(description="Its p-value, corrected for the number of statistics.")
    higher: bool = Field(description="Whether the values are higher than in the training.")
    found: bool = Field(description="Whether this is a drift.")


class Hour(BaseModel):
    """Counts of a source in an hour."""

    hour: str = Field(description="Beginning of the hour, in UTC.")
    source: str = Field(description="The source; chips without one are 'unnamed'.")
    chips: int = Field(description="Number of chips.")
    unknown: int = Field(description="Number of unknown ones.")
    windows: int = Field(description="Number of windows that became full.")
    drifts: int = Field(description="Number of those with a drift.")


class Drift(BaseModel):
    """The comparison of the last full window of served chips with the training."""

    chips: int = Field(description="Number of compared chips; 0 before the first full window.")
    found: bool = Field(description="Whether any statistic has drifted.")
    sentence: str = Field(description="The result in words.")
    level: float = Field(description="Probability of a false alarm in a window.")
    statistics: list[Shift]
    source: str = Field(description="The source of that window; empty before the first one.")
    windows: int = Field(description="Number of full windows of all sources so far.")
    window: int = Field(description="Number of chips of a window.")
    waiting: int = Field(description="Number of chips that are in no full window.")
    hours: list[Hour] = Field(description="Counts of the last 48 hours, by source.")


class Mark(BaseModel):
    """A user's mark on a prediction."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: Id = Field(description="SHA-256 of the file.")
    name: Text = Field(description="File name.")
    wrong: bool = Field(default=False, description="Whether the prediction is wrong.")
    group: Text = Field(default="", description="Name of the group of the chip; may be empty.")
    label: Text = Field(description="The predicted label.")
    nearest: Text = Field(description="The most similar known class.")
    decides: Text = Field(description="The score that decided.")
    score: float | None = Field(default=None, allow_inf_nan=False)
    threshold: float | None = Field(default=None, allow_inf_nan=False)


class MarksIn(BaseModel):
    """Marks to save; a mark replaces an earlier one on the same image."""

    model_config = ConfigDict(extra="forbid", strict=True)

    marks: Annotated[list[Mark], Field(min_length=1, max_length=1000)]


class Marked(Mark):
    """A saved mark."""

    time: str = Field(description="Time of the mark, in UTC.")


class MarksOut(BaseModel):
    """The saved marks, oldest first."""

    marks: list[Marked]


class Enrolment(BaseModel):
    """The state of the last enrolment."""

    state: Literal["idle", "busy", "done", "failed"]
    name: str = Field(description="Name of the class.")
    detail: str = Field(description="A summary, or the reason of the failure.")


class Label(BaseModel):
    """A label that a user gives to a chip of the table."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: Annotated[str, StringConstraints(max_length=8192)] = Field(
        description="The chip's file, as /api/labels names it."
    )
    label: Text | None = Field(
        description="Its class; empty to leave the image out (labels to check); null to withdraw "
        "the label."
    )


class LabelChip(BaseModel):
    """A chip of the table."""

    file: str
    name: str = Field(description="Its path as the table has it.")
    why: str = Field(description="Why it is to be labelled.")
    verdict: str = Field(description="The run's decision, or the given label.")
    at: str = Field(description="Its place in the sprite, CSS background-position.")


class LeftOut(BaseModel):
    """A chip that cannot be shown."""

    name: str
    reason: str


class ToLabel(BaseModel):
    """Chips of the table, with the labels that they have."""

    title: str = Field(description="Name of the table.")
    classes: list[str]
    other: dict[str, str] = Field(description="The answer beside the classes.")
    chips: list[LabelChip]
    given: list[str] = Field(description="The label of each chip; empty for none.")
    key: str = Field(description="Differs for other chips.")
    sprite: dict[str, str] = Field(description="The picture of all chips.")
    left_out: list[LeftOut] = Field(description="Images that cannot be read.")
    start: int = Field(description="Rank of the first chip.")
    each: int = Field(description="Number of ranks in an answer.")
    total: int = Field(description="Number of chips in the table.")
    labelled: int = Field(description="Number of those that have a label.")


class Count(BaseModel):
    """A number of marks or labels."""

    count: int
