"""The enrolment of a class from uploaded images, and its state."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from jaxatr import data
from jaxatr.serving import schemas
from jaxatr.serving.enrolment import IDLE, InProgress
from jaxatr.serving.openapi import UPLOADED, problems
from jaxatr.serving.routes.common import Served, upload

router = APIRouter()


@upload(router)(
    "/api/enrol",
    status_code=202,
    responses={202: {"model": schemas.Enrolment}, **UPLOADED, **problems(409)},
)
async def enrol(
    request: Request,
    console: Served,
    name: Annotated[
        str,
        Query(min_length=1, max_length=60, pattern=r"\S", description="Name of the class."),
    ],
    score: Annotated[
        str | None,
        Query(description="The score that decides from then on; default: the present one."),
    ] = None,
) -> Response:
    """Adds the images to the run as a class, without training; GET reports the progress."""
    if console.enroller is None:
        raise HTTPException(404, "classes cannot be enrolled in this run")
    try:
        console.enroller.check(name := data.class_name(name), score)
    except ValueError as error:
        raise HTTPException(422, str(error)) from None
    read = await console.read(request)
    if broken := next((one for one in read if one.chip is None), None):
        raise HTTPException(422, f"{broken.name} cannot be used: {broken.error}")
    try:
        console.enroller.start(name, score, read)
    except InProgress as error:
        raise HTTPException(409, str(error)) from None
    except FileNotFoundError as error:
        raise HTTPException(503, str(error)) from None
    return JSONResponse(console.enroller.state, 202)


@router.get("/api/enrol", responses={200: {"model": schemas.Enrolment}, **problems()})
async def enrolling(console: Served) -> Response:
    """Reports the state of the last enrolment."""
    return JSONResponse(IDLE if console.enroller is None else console.enroller.state)
