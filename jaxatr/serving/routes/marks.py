"""The users' marks on predictions."""

import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from jaxatr import data
from jaxatr.serving import schemas
from jaxatr.serving.openapi import problems
from jaxatr.serving.routes.common import Served

router = APIRouter()


@router.get("/api/marks", responses={200: {"model": schemas.MarksOut}, **problems()})
async def marks(console: Served) -> Response:
    """Lists the users' marks."""
    return JSONResponse({"marks": await console.with_kept(console.marks.all)})


@router.post(
    "/api/marks",
    responses={200: {"model": schemas.Count}, **problems(403, 408, 413)},
)
async def mark(given: schemas.MarksIn, console: Served) -> Response:
    """Saves marks, and returns their total number."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    kept = [one.model_dump() | {"time": now} for one in given.marks]
    for row in kept:
        row.update((field, data.class_name(row[field])) for field in ("group", "label", "nearest"))
    return JSONResponse({"count": await console.with_kept(console.marks.put, kept)})


@router.delete(
    "/api/marks",
    responses={200: {"model": schemas.Count}, **problems(403)},
)
async def unmark(
    console: Served,
    id: Annotated[list[schemas.Id], Query(min_length=1, max_length=100)],
) -> Response:
    """Deletes marks, and returns the number deleted."""
    return JSONResponse({"count": await console.with_kept(console.marks.remove, id)})


@router.get(
    "/api/marks.csv",
    response_class=Response,
    responses={
        200: {"content": {"text/csv": {}}, "description": "The marks as a CSV table."},
        **problems(),
    },
)
async def table(console: Served) -> Response:
    """Returns the marks as a CSV table."""
    rows = await console.with_kept(console.marks.all)
    text = data.csv_text(rows, columns=tuple(schemas.Marked.model_fields))
    headers = {"content-disposition": 'attachment; filename="marks.csv"'}
    return Response(text, media_type="text/csv", headers=headers)
