"""Chips to label, or labels to check, and the labels that users give."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from jaxatr.serving import schemas
from jaxatr.serving.labelling import Desk
from jaxatr.serving.openapi import problems
from jaxatr.serving.routes.common import Served

router = APIRouter()

_NONE = "there is no table to label: start with --label=TABLE"
_WHAT = "the table of labels"


def _desk(console: Served) -> Desk:
    if console.desk is None:
        raise HTTPException(404, _NONE)
    return console.desk


@router.get("/label", include_in_schema=False)
async def page(console: Served) -> Response:
    """Returns the page, which is empty until it has asked for the chips."""
    if console.label_page is None:
        raise HTTPException(404, _NONE)
    return console.label_page.response()


@router.get("/api/labels", responses={200: {"model": schemas.ToLabel}, **problems(404)})
async def labels(
    console: Served,
    start: Annotated[
        int | None,
        Query(ge=1, description="Rank of the first chip; default: that of an open one."),
    ] = None,
) -> Response:
    """Returns up to 100 chips of the table, with pictures and the labels that they have."""
    desk = _desk(console)
    if start is not None and start > desk.count:
        raise HTTPException(422, f"start: got {start}, wanted at most {desk.count}")
    found = await console.with_kept(desk.block, start, console.engine.classes, what=_WHAT)
    return JSONResponse(found)


@router.post(
    "/api/labels", responses={200: {"model": schemas.Count}, **problems(403, 404, 408, 413)}
)
async def label(given: schemas.Label, console: Served) -> Response:
    """Saves the label of a chip, and returns the number of chips of the table that have one."""
    desk = _desk(console)
    count = await console.with_kept(desk.give, given.path, given.label, what=_WHAT)
    return JSONResponse({"count": count})


@router.get(
    "/api/labels.csv",
    response_class=Response,
    responses={
        200: {"content": {"text/csv": {}}, "description": "The labels as a CSV table."},
        **problems(404),
    },
)
async def table(console: Served) -> Response:
    """Returns the labels as a CSV table, which a training reads."""
    file = _desk(console).labels
    text = await asyncio.to_thread(file.path.read_bytes) if file.path.is_file() else b""
    headers = {"content-disposition": 'attachment; filename="labels.csv"'}
    return Response(text or b"path,label,time\n", media_type="text/csv", headers=headers)
