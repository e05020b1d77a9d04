"""Predictions, nearest training chips and saliency maps of uploaded images."""

import asyncio
import base64
import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from jaxatr import data
from jaxatr.recognition.neighbours import NEAREST, as_png
from jaxatr.recognition.recogniser import UNKNOWN
from jaxatr.serving import schemas
from jaxatr.serving.batcher import Busy
from jaxatr.serving.console import failure, unless_gone
from jaxatr.serving.intake import Read
from jaxatr.serving.openapi import UPLOADED, problems
from jaxatr.serving.routes.common import Served, upload
from jaxatr.tasks.neighbour import listed

router = APIRouter()


@upload(router)(
    "/api/predict",
    responses={200: {"model": schemas.Predictions}, **UPLOADED},
)
async def predict(
    request: Request,
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
) -> Response:
    """Classifies each image: a known class, or "unknown"."""
    console.check_score(score)
    if neighbours:
        console.check_neighbours()
    read = await console.read(request)
    scores = [score] if score else []
    if every_score:
        scores = [scale.name for scale in console.engine.scales]
    found = await console.answers(request, read, neighbours=neighbours > 0, scores=scores)
    shown = await asyncio.to_thread(_pictures, read, console.engine.intake) if pictures else {}
    results = []
    for one, answer in found:
        if answer is None:
            results.append(failure(one))
            continue
        if score is not None and score not in answer.verdicts:
            raise Busy("the run changed during the request", 1)
        default = next(iter(answer.verdicts))
        verdict = _at(answer.verdicts[score or default], threshold)
        result: dict[str, Any] = {"name": one.name, "id": one.id, "verdict": verdict}
        if every_score:
            result["by_score"] = answer.verdicts
        if neighbours:
            result["neighbours"] = listed(answer.neighbours[:neighbours])
        if pictures:
            result["picture"] = shown[one.id]
        results.append(result)
    return JSONResponse({"results": results})


@upload(router)(
    "/api/neighbours",
    responses={200: {"model": schemas.Neighbours}, **UPLOADED},
)
async def neighbours(
    request: Request,
    console: Served,
    count: Annotated[int, Query(ge=1, le=NEAREST, description="Number for each image.")] = 5,
) -> Response:
    """Finds the training chips that are nearest to each image, nearest first."""
    console.check_neighbours()
    read = await console.read(request)
    results: list[Mapping[str, Any]] = []
    for one, answer in await console.answers(request, read, neighbours=True):
        if answer is None:
            results.append(failure(one))
        else:
            near = listed(answer.neighbours[:count])
            results.append({"name": one.name, "id": one.id, "neighbours": near})
    return JSONResponse({"results": results})


@upload(router)(
    "/api/explain",
    responses={200: {"model": schemas.Explained}, **UPLOADED},
)
async def explain(request: Request, console: Served) -> Response:
    """Computes a saliency map: the pixels of one image that support its nearest class."""
    explainer = console.engine.explainer
    if explainer is None:
        raise HTTPException(404, "this run is served without saliency maps")
    read = await console.read(request)
    if len(read) > 1:
        raise HTTPException(422, f"images: got {len(read)}, wanted one")
    (one,) = read
    assert one.chip is not None
    label, saliency = await unless_gone(request, console.batcher.explain(one.chip))
    return JSONResponse(
        {
            "name": one.name,
            "id": one.id,
            "label": label,
            "method": explainer.method,
            "height": saliency.shape[0],
            "width": saliency.shape[1],
            "saliency": np.round(np.nan_to_num(saliency), 3).tolist(),
        }
    )


@router.get(
    "/api/examples/{id}",
    response_class=Response,
    responses={
        200: {"content": {"image/png": {}}, "description": "The chip, with 8 bits a channel."},
        **problems(404),
    },
)
async def example(id: int, console: Served) -> Response:
    """Returns the picture of a training chip."""
    examples = console.engine.examples
    picture = None
    if examples is not None:
        picture = await asyncio.to_thread(examples.picture, id)
    if picture is None:
        raise HTTPException(404, f"there is no training chip {id}")
    # Another run may be served at the same address later, with the same numbers of chips.
    headers = {"cache-control": "private, no-cache"}
    return Response(picture, media_type="image/png", headers=headers)


def _pictures(read: list[Read], intake: data.Intake) -> dict[str, str]:
    """Returns the usable chips as PNG data URIs, by the uploads' ids."""
    drawn = {
        one.id: as_png(data.thumbnail(intake.shown(one.chip)))
        for one in read
        if one.chip is not None
    }
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
