"""The HTTP API and the page as an ASGI application."""

import asyncio
import base64
import datetime
import math
from collections.abc import Awaitable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import fastapi
import numpy as np
from fastapi import Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

import jaxatr
from jaxatr import data
from jaxatr.resolve import nearest
from jaxatr.serving import metrics, schemas
from jaxatr.serving.batcher import Busy
from jaxatr.serving.console import Console, Unusable, failure
from jaxatr.serving.enrolment import IDLE, InProgress
from jaxatr.serving.guard import Guard
from jaxatr.serving.intake import Read
from jaxatr.serving.openapi import BODY, UPLOADED, describe_token, problems
from jaxatr.tasks.neighbour import listed
from jaxatr.tasks.open_set.examples import NEAREST, as_png
from jaxatr.tasks.open_set.predictor import UNKNOWN

Result = TypeVar("Result")


def build_app(console: Console) -> Guard:
    """Builds the application of a console, with its limits and access control.

    Args:
      console: the console to serve; its threads run as long as the application.
    """
    options, routes = console.options, build_routes(console)
    return Guard(
        routes,
        limits=options.limits,
        token=options.token,
        hosts={"localhost", *(name.lower() for name in options.hosts)},
        routes={getattr(route, "path", "") for route in routes.routes},
        metrics=console.metrics,
    )


def build_routes(console: Console) -> fastapi.FastAPI:
    """Builds the routes of a console and their error handlers, without limits or access control.

    Args:
      console: the console to serve.
    """
    limits = console.options.limits
    app = fastapi.FastAPI(
        title="jaxatr console",
        version=jaxatr.__version__,
        description="Open-set recognition of image chips: verdicts, neighbours, explanations.",
        docs_url=None,  # FastAPI's pages load scripts from another site
        redoc_url=None,
        lifespan=console.running,
    )
    describe_token(app, console.options.token)

    @app.exception_handler(Busy)
    async def _busy(request: Request, error: Exception) -> Response:
        del request
        assert isinstance(error, Busy)
        headers = {"retry-after": str(error.seconds)}
        return JSONResponse({"detail": str(error)}, 503, headers)

    @app.exception_handler(Unusable)
    async def _unusable(request: Request, error: Exception) -> Response:
        del request
        assert isinstance(error, Unusable)
        return JSONResponse({"detail": str(error), "results": error.results}, 422)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: Exception) -> Response:
        del request
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return JSONResponse({"detail": f"{where}: {first['msg']}"}, 422)

    only_known = [Depends(_only_known_parameters)]
    upload = partial(app.post, dependencies=only_known, openapi_extra=BODY)  # of images

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return console.page.response()

    @app.get("/api/health", responses={200: {"model": schemas.Health}, **problems()})
    async def health() -> Response:
        """Reports whether the server is ready."""
        if not console.batcher.alive:
            return JSONResponse({"detail": "the compute thread has ended"}, 503)
        return JSONResponse(
            {
                "status": "ready",
                "waiting": console.batcher.waiting,
                "runtime": console.engine.runtime,
            }
        )

    @app.get(
        "/metrics",
        response_class=fastapi.responses.PlainTextResponse,
        responses={200: {"description": "Metrics in Prometheus's format."}, **problems()},
    )
    async def counts() -> Response:
        """Returns counts of requests, images and batches for Prometheus."""
        return Response(console.metrics.text(), media_type=metrics.CONTENT_TYPE)

    @app.get("/api/run", responses={200: {"model": schemas.Run}, **problems()})
    async def run() -> Response:
        """Describes the run that is served."""
        engine = console.engine
        return JSONResponse(
            {
                "run": Path(engine.run).resolve().name,
                "kind": engine.kind,
                "step": engine.step,
                "runtime": engine.runtime,
                "classes": list(engine.classes),
                "chip": list(engine.intake.shape),
                "dtype": engine.intake.dtype,
                "scores": [scale._asdict() for scale in engine.scales],
                "neighbours": 0 if engine.examples is None else min(NEAREST, engine.examples.count),
                "no_neighbours": "" if engine.examples is not None else engine.missing,
                "explains": "" if engine.explainer is None else engine.explainer.method,
                "enrols": [] if console.enroller is None else list(engine.takers),
                "note": engine.note,
                "version": jaxatr.__version__,
                "images": limits.images,
                "pixels": limits.pixels,
                "body": limits.body,
            }
        )

    @upload(
        "/api/predict",
        responses={200: {"model": schemas.Predictions}, **UPLOADED},
    )
    async def predict(
        request: Request,
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
        work = console.answers(read, neighbours=neighbours > 0, scores=scores)
        shown = await asyncio.to_thread(_pictures, read) if pictures else {}
        results = []
        for one, answer in zip(read, await _unless_gone(request, work), strict=True):
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

    @upload(
        "/api/neighbours",
        responses={200: {"model": schemas.Neighbours}, **UPLOADED},
    )
    async def neighbours(
        request: Request,
        count: Annotated[int, Query(ge=1, le=NEAREST, description="Number for each image.")] = 5,
    ) -> Response:
        """Finds the training chips that are nearest to each image, nearest first."""
        console.check_neighbours()
        read = await console.read(request)
        work = console.answers(read, neighbours=True)
        results: list[Mapping[str, Any]] = []
        for one, answer in zip(read, await _unless_gone(request, work), strict=True):
            if answer is None:
                results.append(failure(one))
            else:
                near = listed(answer.neighbours[:count])
                results.append({"name": one.name, "id": one.id, "neighbours": near})
        return JSONResponse({"results": results})

    @upload(
        "/api/explain",
        responses={200: {"model": schemas.Explained}, **UPLOADED},
    )
    async def explain(request: Request) -> Response:
        """Computes a saliency map: the pixels of one image that support its nearest class."""
        explainer = console.engine.explainer
        if explainer is None:
            raise HTTPException(404, "this run is served without saliency maps")
        read = await console.read(request)
        if len(read) > 1:
            raise HTTPException(422, f"images: got {len(read)}, wanted one")
        (one,) = read
        assert one.chip is not None
        label, saliency = await _unless_gone(request, console.batcher.explain(one.chip))
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

    @app.get(
        "/api/examples/{id}",
        response_class=Response,
        responses={
            200: {"content": {"image/png": {}}, "description": "The chip, with 8 bits a channel."},
            **problems(404),
        },
    )
    async def example(id: int) -> Response:
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

    @upload(
        "/api/enrol",
        status_code=202,
        responses={202: {"model": schemas.Enrolment}, **UPLOADED, **problems(409)},
    )
    async def enrol(
        request: Request,
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
            console.enroller.check(name, score)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        read = await console.read(request)
        if broken := next((one for one in read if one.chip is None), None):
            raise HTTPException(422, f"{broken.name} cannot be used: {broken.error}")
        try:
            console.enroller.start(name.strip(), score, read)
        except InProgress as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse(console.enroller.state, 202)

    @app.get("/api/enrol", responses={200: {"model": schemas.Enrolment}, **problems()})
    async def enrolling() -> Response:
        """Reports the state of the last enrolment."""
        return JSONResponse(IDLE if console.enroller is None else console.enroller.state)

    @app.get("/api/marks", responses={200: {"model": schemas.MarksOut}, **problems()})
    async def marks() -> Response:
        """Lists the users' marks."""
        return JSONResponse({"marks": await console.with_marks(console.marks.all)})

    @app.post(
        "/api/marks",
        responses={200: {"model": schemas.Count}, **problems(403, 408, 413)},
    )
    async def mark(given: schemas.MarksIn) -> Response:
        """Saves marks, and returns their total number."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        kept = [{**one.model_dump(), "time": now} for one in given.marks]
        return JSONResponse({"count": await console.with_marks(console.marks.put, kept)})

    @app.delete(
        "/api/marks",
        responses={200: {"model": schemas.Count}, **problems(403)},
    )
    async def unmark(
        id: Annotated[list[schemas.Id], Query(min_length=1, max_length=100)],
    ) -> Response:
        """Deletes marks, and returns the number deleted."""
        return JSONResponse({"count": await console.with_marks(console.marks.remove, id)})

    @app.get(
        "/api/marks.csv",
        response_class=Response,
        responses={
            200: {"content": {"text/csv": {}}, "description": "The marks as a CSV table."},
            **problems(),
        },
    )
    async def table() -> Response:
        """Returns the marks as a CSV table."""
        rows = await console.with_marks(console.marks.all)
        text = data.csv_text(rows, columns=tuple(schemas.Marked.model_fields))
        headers = {"content-disposition": 'attachment; filename="marks.csv"'}
        return Response(text, media_type="text/csv", headers=headers)

    return app


async def _only_known_parameters(request: Request) -> None:
    """Checks that a request has only parameters that its route reads.

    Raises:
      HTTPException: it has another one, such as a misspelt one.
    """
    known = [field.alias for field in request.scope["route"].dependant.query_params]
    if other := next((name for name in request.query_params if name not in known), None):
        listed = f"; there are {', '.join(known)}" if known else ""
        raise HTTPException(
            422, f"there is no parameter {other!r}{nearest(other, known) or listed}"
        )


def _pictures(read: list[Read]) -> dict[str, str]:
    """Returns the usable chips as PNG data URIs, by the uploads' ids."""
    drawn = {one.id: as_png(data.thumbnail(one.chip)) for one in read if one.chip is not None}
    return {
        id: f"data:image/png;base64,{base64.b64encode(png).decode()}" for id, png in drawn.items()
    }


def _at(verdict: Mapping[str, Any], threshold: float | None) -> Mapping[str, Any]:
    """Returns a verdict at another threshold; None keeps the threshold."""
    if threshold is None:
        return verdict
    score = -math.inf if verdict["score"] is None else verdict["score"]
    label = verdict["nearest"] if score >= threshold else UNKNOWN
    return {**verdict, "threshold": threshold, "label": label}


async def _unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """Waits for a result, and cancels the work if the client disconnects.

    Raises:
      HTTPException: the client has disconnected.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise HTTPException(499, "the client has disconnected")
    finally:
        task.cancel()
        gone.cancel()
