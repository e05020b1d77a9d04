"""Targets in uploaded scenes: found by the detector or given as boxes, and decided about."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from jaxatr.serving import schemas
from jaxatr.serving.console import Console, unless_gone
from jaxatr.serving.intake import Read
from jaxatr.serving.openapi import UPLOADED
from jaxatr.serving.routes.common import Served, counted_upload, upload
from jaxatr.serving.routes.verdicts import Verdicts, verdicts
from jaxatr.serving.scenes import Cut, TooLong, boxes_of, picture_of
from jaxatr.typing import Float

router = APIRouter()

Files = Annotated[
    bool,
    Query(description="Also return the part of the scene that each chip is made from, as a file."),
]


@counted_upload(router)("/api/scenes/detect", responses={200: {"model": schemas.Scene}, **UPLOADED})
async def detect(
    request: Request,
    console: Served,
    wanted: Annotated[Verdicts, Depends(verdicts)],
    least: Annotated[
        float | None,
        Query(
            ge=0,
            le=1,
            description="Least detection score of a target; default: the detector's.",
        ),
    ] = None,
    files: Files = False,
) -> Response:
    """Finds the targets in a scene, and classifies each: a known class, or "unknown"."""
    scenes, most = console.scenes, console.options.limits.targets
    if scenes.detector is None:
        raise HTTPException(404, "this run is served without a detector: --detector=DIR")
    async with console.scene(request) as scene:
        try:
            found = await unless_gone(request, scenes.search(scene, least))
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        except TooLong as error:
            raise HTTPException(413, str(error)) from None
        count = len(found.scores)
        console.metrics.targets(count)
        # Boxes below the detector's own score, which a user asked to see, are not field data.
        own = (found.scores >= scenes.detector.threshold).tolist()
        answer = await _decided(
            request, console, wanted, scene, found.boxes[:most], files, own[:most]
        )
    for target, score in zip(answer["targets"], found.scores.tolist(), strict=False):
        target["detection_score"] = score
    return JSONResponse({**answer, "left_out": max(0, count - most)})


@upload(router)("/api/scenes/decide", responses={200: {"model": schemas.Scene}, **UPLOADED})
async def decide(
    request: Request,
    console: Served,
    wanted: Annotated[Verdicts, Depends(verdicts)],
    box: Annotated[
        list[str],
        Query(
            min_length=1,
            description="A target: x0,y0,x1,y1 in pixels of the scene; repeat it for others.",
        ),
    ],
    files: Files = False,
) -> Response:
    """Classifies the targets in given boxes of a scene: a known class, or "unknown"."""
    if len(box) > (most := console.options.limits.images):
        raise HTTPException(422, f"box: got {len(box)}, wanted at most {most}")
    async with console.scene(request) as scene:
        assert scene.chip is not None
        try:
            boxes = boxes_of(box, scene.chip.shape[:2])
        except ValueError as error:
            raise HTTPException(422, f"{scene.name}: {error}") from None
        answer = await _decided(request, console, wanted, scene, boxes, files, [False] * len(boxes))
    return JSONResponse(answer)


@upload(router)(
    "/api/scenes/view",
    response_class=Response,
    responses={
        **UPLOADED,
        200: {
            "content": {"image/png": {}},
            "description": "The scene in its own size, with 8 bits a channel.",
        },
    },
)
async def view(request: Request, console: Served) -> Response:
    """Returns a scene as a picture that browsers can show."""
    async with console.scene(request) as scene:
        assert scene.chip is not None
        picture = await asyncio.to_thread(picture_of, scene.chip)
    return Response(picture, media_type="image/png")


async def _decided(
    request: Request,
    console: Console,
    wanted: Verdicts,
    scene: Read,
    boxes: Float[np.ndarray, "n 4"],
    files: bool,
    watched: Sequence[bool],
) -> dict[str, Any]:
    """Returns the fields of :class:`jaxatr.serving.schemas.Scene`, without detection scores."""
    assert scene.chip is not None
    cuts = await asyncio.to_thread(console.scenes.cut, scene, boxes)
    results = await wanted.of(request, console, [cut.read for cut in cuts], watched)
    targets = [
        {"box": box, "detection_score": None, **result}
        for box, result in zip(boxes.tolist(), results, strict=True)
    ]
    if files:
        for target, cut in zip(targets, cuts, strict=True):
            target["file"] = _data_uri(cut)
    height, width = scene.chip.shape[:2]
    about = {"name": scene.name, "id": scene.id, "width": width, "height": height}
    return {**about, "targets": targets, "left_out": 0}


def _data_uri(cut: Cut) -> str | None:
    if not cut.file:
        return None
    kind = "image/png" if cut.file.startswith(b"\x89PNG") else "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(cut.file).decode()}"
