"""Predictions, nearest training chips and saliency maps of uploaded images."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from jaxatr.recognition.neighbours import NEAREST
from jaxatr.serving import schemas
from jaxatr.serving.console import failure, unless_gone
from jaxatr.serving.openapi import UPLOADED, problems
from jaxatr.serving.routes.common import Served, counted_upload, upload
from jaxatr.serving.routes.verdicts import Verdicts, verdicts
from jaxatr.tasks.neighbour import listed

router = APIRouter()


@counted_upload(router)(
    "/api/predict",
    responses={200: {"model": schemas.Predictions}, **UPLOADED},
)
async def predict(
    request: Request, console: Served, wanted: Annotated[Verdicts, Depends(verdicts)]
) -> Response:
    """Classifies each image: a known class, or "unknown"."""
    read = await console.read(request, predicted=True)
    return JSONResponse({"results": await wanted.of(request, console, read)})


@counted_upload(router)(
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
    read = await console.read(request, predicted=True)
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
