"""The verdicts about chips, and the parameters that say what they contain."""

import asyncio
import base64
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import Query, Request

from jaxatr import data
from jaxatr.recognition.neighbours import NEAREST, as_png
from jaxatr.recognition.prediction import UNKNOWN
from jaxatr.serving.batcher import Busy
from jaxatr.serving.console import Console, failure
from jaxatr.serving.intake import Read
from jaxatr.serving.routes.common import Served
from jaxatr.tasks.neighbour import listed


class Verdicts(NamedTuple):
    """The requested content of the answer about a chip; see :func:`verdicts`."""

    score: str | None
    threshold: float | None
    every_score: bool
    neighbours: int
    pictures: bool

    async def of(
        self,
        request: Request,
        console: Console,
        read: list[Read],
        watched: Sequence[bool] | None = None,
    ) -> list[dict[str, Any]]:
        """Returns the fields of :class:`jaxatr.serving.schemas.Predicted` for each chip.

        Args:
          request: the request.
          console: its console.
          read: the chips; one that cannot be used gets the reason.
          watched: which chips count for the drift; None for all.

        Raises:
          Busy: too many chips are waiting, or the run has changed.
        """
        scores = [self.score] if self.score else []
        if self.every_score:
            scores = [scale.name for scale in console.engine.scales]
        found = await console.answers(
            request, read, neighbours=self.neighbours > 0, scores=scores, watched=watched
        )
        shown: Mapping[str, str] = {}
        if self.pictures:
            shown = await asyncio.to_thread(_pictures, read, console.engine.intake)
        results = []
        for one, answer in found:
            if answer is None:
                results.append(failure(one))
                continue
            if self.score is not None and self.score not in answer.verdicts:
                raise Busy("the run changed during the request", 1)
            default = next(iter(answer.verdicts))
            verdict = _at(answer.verdicts[self.score or default], self.threshold)
            result: dict[str, Any] = {"name": one.name, "id": one.id, "verdict": verdict}
            if self.every_score:
                result["by_score"] = answer.verdicts
            if self.neighbours:
                result["neighbours"] = listed(answer.neighbours[: self.neighbours])
            if self.pictures:
                result["picture"] = shown[one.id]
            results.append(result)
        return results


async def verdicts(
    console: Served,
    score: Annotated[
        str | None, Query(description="The score that decides; default: the run's.")
    ] = None,
    threshold: Annotated[
        float | None,
        Query(
            description="Accept scores from this value; default: the run's threshold.",
            allow_inf_nan=False,
        ),
    ] = None,
    every_score: Annotated[
        bool, Query(description="Also return the verdict of every score.")
    ] = False,
    neighbours: Annotated[
        int, Query(ge=0, le=NEAREST, description="Number of nearest training chips to return.")
    ] = 0,
    pictures: Annotated[
        bool, Query(description="Also return each chip as the network sees it.")
    ] = False,
) -> Verdicts:
    """Reads and checks the parameters of a request."""
    console.check_score(score)
    if neighbours:
        console.check_neighbours()
    return Verdicts(score, threshold, every_score, neighbours, pictures)


def _pictures(read: list[Read], intake: data.Intake) -> dict[str, str]:
    """Returns the usable chips as PNG data URIs, by the uploads' ids."""
    chips = {one.id: one.chip for one in read if one.chip is not None}
    drawn = {id: as_png(data.thumbnail(intake.shown(chip))) for id, chip in chips.items()}
    return {
        id: f"data:image/png;base64,{base64.b64encode(png).decode()}" for id, png in drawn.items()
    }


def _at(verdict: Mapping[str, Any], threshold: float | None) -> Mapping[str, Any]:
    """Returns a verdict at another threshold; None keeps the threshold."""
    if threshold is None:
        return verdict
    score = -math.inf if verdict["score"] is None else verdict["score"]
    label = verdict["nearest"] if score >= threshold else UNKNOWN
    return {**verdict, "threshold": threshold, "guarantee": None, "label": label}
