"""The API and the page, as an application of ASGI."""

import asyncio
import base64
import contextlib
import datetime
import math
import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import fastapi
import numpy as np
from fastapi import Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

import jaxatr
from jaxatr import data
from jaxatr.serving import metrics, schemas
from jaxatr.serving.batcher import Batcher, Busy
from jaxatr.serving.engine import Answer, Engine, Wanted
from jaxatr.serving.enrolment import IDLE, Enroller, InProgress
from jaxatr.serving.examples import NEAREST, as_png
from jaxatr.serving.forms import FormError, files_of
from jaxatr.serving.guard import App, Guard
from jaxatr.serving.intake import Read, Reader, Upload
from jaxatr.serving.marks import FILE, Marks
from jaxatr.serving.options import Options
from jaxatr.serving.page import Page
from jaxatr.tasks.open_set.deciding import AUTO
from jaxatr.tasks.open_set.predictor import UNKNOWN

Result = TypeVar("Result")

_FORM = "multipart/form-data"
_RAW = ("image/*", "application/octet-stream")
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            _FORM: {
                "schema": {
                    "type": "object",
                    "required": ["images"],
                    "properties": {
                        "images": {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "format": "binary"},
                        }
                    },
                }
            },
            **{kind: {"schema": {"type": "string", "format": "binary"}} for kind in _RAW},
        },
    }
}
_PROBLEMS = {
    400: "The request cannot be read.",
    401: "A token is wanted.",
    403: "A page of another site asks.",
    404: "The run has no such thing.",
    409: "A class is being enrolled.",
    408: "The body did not arrive in time.",
    413: "The request is too large.",
    415: "The body is neither a form nor an image.",
    421: "The server is not known by this name.",
    422: "A value of the request, or every image of it, cannot be used.",
    503: "Too much is waiting; Retry-After says in how many seconds to come again.",
}


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Describes answers that every route may give, and further ones."""
    listed = sorted({400, 401, 421, 422, 503, *codes})
    found: dict[int | str, dict[str, Any]] = {
        code: {"model": schemas.Problem, "description": _PROBLEMS[code]} for code in listed
    }
    found[503]["headers"] = {"Retry-After": {"schema": {"type": "string"}}}
    return found


_UPLOADED = _problems(403, 404, 408, 413, 415)


class Console:
    """A run that is served.

    Attributes:
      options: how it is served.
      batcher: the thread that computes.
      metrics: the counts.
      routes: the API and the page, as an application without limits.
      app: the same with all its limits.
    """

    def __init__(self, engine: Engine, options: Options, wanted: Wanted | None = None):
        """Builds the application; its threads run as long as it does.

        Args:
          engine: warm for the batches.
          options: how it is served.
          wanted: what the engine was loaded by, to load it anew when a class is enrolled; None
            where none can be.

        Raises:
          ValueError: the file of marks is none.
          OSError: it cannot be read.
        """
        self.options, limits = options, options.limits
        self.batcher = Batcher(
            engine,
            options.batches,
            most=limits.waiting,
            seconds=limits.answer_seconds,
            seen=lambda size, count, seconds: self.metrics.batch(size, count, seconds),
        )
        self.metrics = metrics.Metrics(lambda: self.batcher.waiting)
        self.reader = Reader(engine.intake, most=limits.pixels)
        self.marks = Marks(Path(options.marks or os.path.join(engine.run, FILE)))
        self.page = Page()
        self.enroller = None
        if wanted is not None and engine.kind == "recogniser":
            self.enroller = Enroller(wanted, options.batches, self._replace)
        self.routes = _routes(self)
        self.app: App = Guard(
            self.routes,
            limits=limits,
            token=options.token,
            hosts={"localhost", *(name.lower() for name in options.hosts)},
            routes={getattr(route, "path", "") for route in self.routes.routes},
            metrics=self.metrics,
        )

    @property
    def engine(self) -> Engine:
        """The engine that answers now."""
        assert isinstance(self.batcher.engine, Engine)
        return self.batcher.engine

    def _replace(self, engine: Engine) -> None:
        self.batcher.engine = engine

    @contextlib.asynccontextmanager
    async def running(self, app: object = None) -> AsyncIterator[None]:
        """Runs the threads as long as the application runs."""
        del app
        self.batcher.start()
        try:
            yield
        finally:
            if self.enroller is not None:
                await asyncio.to_thread(self.enroller.finish)
            await asyncio.to_thread(self.batcher.stop)
            await asyncio.to_thread(self.reader.close)

    async def read(self, request: Request) -> list[Read]:
        """Reads the images of a request, as :meth:`uploaded` does."""
        return (await self.uploaded(request))[1]

    async def uploaded(self, request: Request) -> tuple[list[Upload], list[Read]]:
        """Returns the files of a request, and what was read of them.

        Raises:
          HTTPException: there is none, or the body is no form and no image.
        """
        kind = request.headers.get("content-type", "")
        plain = kind.partition(";")[0].strip().lower()
        is_form = plain == _FORM
        if not is_form and not plain.startswith("image/") and plain != _RAW[1]:
            raise HTTPException(415, f"got a body of {plain or 'no type'}, wanted a form, {_FORM}")
        body = await request.body()
        if is_form:
            try:
                uploads = files_of(body, kind, most=self.options.limits.images)
            except FormError as error:
                raise HTTPException(400, str(error)) from None
        else:
            uploads = [Upload("image", body)]
        if not uploads:
            raise HTTPException(422, "there is no file in the form")
        self.batcher.check(len(uploads))  # before they are decoded
        read = await self.reader.read(uploads)
        used = sum(one.chip is not None for one in read)
        self.metrics.images(used, len(read) - used)
        if not used:
            raise _Unusable(read)
        return uploads, read

    async def answers(self, read: list[Read], *, neighbours: bool) -> list[Answer | None]:
        """Answers what was read; None for what cannot be used."""
        chips = [one.chip for one in read if one.chip is not None]
        found = iter(await self.batcher.answer(chips, neighbours=neighbours))
        return [None if one.chip is None else next(found) for one in read]

    def check_score(self, score: str | None) -> None:
        """Refuses a score that the run does not offer.

        Raises:
          HTTPException: there is none of that name; those that there are are listed.
        """
        names = [scale.name for scale in self.engine.scales]
        if score is not None and score not in names:
            raise HTTPException(422, f"score: got {score!r}, wanted one of {', '.join(names)}")

    def check_neighbours(self) -> None:
        """Refuses a search where there is nothing to search.

        Raises:
          HTTPException: there is none.
        """
        if self.engine.examples is None:
            raise HTTPException(404, f"there are no neighbours: {self.engine.missing}")


class _Unusable(Exception):
    """A request of which no image can be used."""

    def __init__(self, read: list[Read]):
        more = f", nor can {len(read) - 1} others" if len(read) > 1 else ""
        super().__init__(f"{read[0].name} cannot be used{more}: {read[0].error}")
        self.results = [_error(one) for one in read]


def _error(one: Read) -> dict[str, Any]:
    return {"name": one.name, "id": one.id, "error": one.error}


async def _unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """Waits for work as long as the client does.

    Raises:
      HTTPException: the client has gone, and nobody reads this.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise HTTPException(499, "the client has gone")
    finally:
        task.cancel()
        gone.cancel()


def _routes(console: Console) -> fastapi.FastAPI:
    """Builds the routes, and the handlers of what goes wrong in them."""
    limits = console.options.limits
    app = fastapi.FastAPI(
        title="jaxatr console",
        version=jaxatr.__version__,
        description="Open-set recognition of image chips: verdicts, neighbours, explanations.",
        docs_url=None,  # they load their scripts from another site
        redoc_url=None,
        lifespan=console.running,
    )
    _describe_token(app, console.options.token)

    @app.exception_handler(Busy)
    async def _busy(request: Request, error: Exception) -> Response:
        del request
        assert isinstance(error, Busy)
        headers = {"retry-after": str(error.seconds)}
        return JSONResponse({"detail": str(error)}, 503, headers)

    @app.exception_handler(_Unusable)
    async def _unusable(request: Request, error: Exception) -> Response:
        del request
        assert isinstance(error, _Unusable)
        return JSONResponse({"detail": str(error), "results": error.results}, 422)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: Exception) -> Response:
        del request
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return JSONResponse({"detail": f"{where}: {first['msg']}"}, 422)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return console.page.response()

    @app.get("/api/health", responses={200: {"model": schemas.Health}, **_problems()})
    async def health() -> Response:
        """Says whether requests are answered."""
        alive = console.batcher.alive
        content = {
            "status": "ready" if alive else "failed",
            "waiting": console.batcher.waiting,
            "runtime": console.engine.runtime,
        }
        if alive:
            return JSONResponse(content)
        return JSONResponse({"detail": "the thread that computes has ended"}, 503)

    @app.get(
        "/metrics",
        response_class=fastapi.responses.PlainTextResponse,
        responses={200: {"description": "Counts, as Prometheus reads them."}, **_problems()},
    )
    async def counts() -> Response:
        """Counts requests, images and batches, for Prometheus."""
        return Response(console.metrics.text(), media_type=metrics.CONTENT_TYPE)

    @app.get("/api/run", responses={200: {"model": schemas.Run}, **_problems()})
    async def run() -> Response:
        """Describes the run that answers."""
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

    @app.post(
        "/api/predict",
        openapi_extra=_BODY,
        responses={200: {"model": schemas.Predictions}, **_UPLOADED},
    )
    async def predict(
        request: Request,
        score: Annotated[
            str | None, Query(description="Decide by this score; default: the run's.")
        ] = None,
        threshold: Annotated[
            float | None,
            Query(description="In the score's unit; default: the run's.", allow_inf_nan=False),
        ] = None,
        every_score: Annotated[bool, Query(description="Give the verdict by each score.")] = False,
        neighbours: Annotated[
            int, Query(ge=0, le=NEAREST, description="Name so many of the nearest training chips.")
        ] = 0,
        pictures: Annotated[
            bool, Query(description="Show each chip as the network sees it.")
        ] = False,
    ) -> Response:
        """Decides what is in each image: a known class, or "unknown"."""
        console.check_score(score)
        if neighbours:
            console.check_neighbours()
        read = await console.read(request)
        work = console.answers(read, neighbours=neighbours > 0)
        shown = await asyncio.to_thread(_pictures, read) if pictures else {}
        results = []
        for one, answer in zip(read, await _unless_gone(request, work), strict=True):
            if answer is None:
                results.append(_error(one))
                continue
            if score is not None and score not in answer.verdicts:
                raise Busy("the run has changed meanwhile", 1)
            own = next(iter(answer.verdicts))
            verdict = _at(answer.verdicts[score or own], threshold)
            result: dict[str, Any] = {"name": one.name, "id": one.id, "verdict": verdict}
            if every_score:
                result["by_score"] = answer.verdicts
            if neighbours:
                result["neighbours"] = answer.neighbours[:neighbours]
            if pictures:
                result["picture"] = shown[one.id]
            results.append(result)
        return JSONResponse({"results": results})

    @app.post(
        "/api/neighbours",
        openapi_extra=_BODY,
        responses={200: {"model": schemas.Neighbours}, **_UPLOADED},
    )
    async def neighbours(
        request: Request,
        count: Annotated[int, Query(ge=1, le=NEAREST, description="How many for each image.")] = 5,
    ) -> Response:
        """Names the training chips that are nearest to each image, the nearest first."""
        console.check_neighbours()
        read = await console.read(request)
        work = console.answers(read, neighbours=True)
        results: list[Mapping[str, Any]] = []
        for one, answer in zip(read, await _unless_gone(request, work), strict=True):
            if answer is None:
                results.append(_error(one))
            else:
                near = answer.neighbours[:count]
                results.append({"name": one.name, "id": one.id, "neighbours": near})
        return JSONResponse({"results": results})

    @app.post(
        "/api/explain",
        openapi_extra=_BODY,
        responses={200: {"model": schemas.Explained}, **_UPLOADED},
    )
    async def explain(request: Request) -> Response:
        """Says which pixels of one image speak for the class that it is most like."""
        explainer = console.engine.explainer
        if explainer is None:
            raise HTTPException(404, "there are no saliency maps of this run")
        read = await console.read(request)
        if len(read) > 1:
            raise HTTPException(422, f"images: got {len(read)}, wanted one to explain")
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
            200: {"content": {"image/png": {}}, "description": "The chip, in eight bits."},
            **_problems(404),
        },
    )
    async def example(id: int) -> Response:
        """Shows a training chip."""
        examples = console.engine.examples
        picture = None
        if examples is not None:
            picture = await asyncio.to_thread(examples.picture, id)
        if picture is None:
            raise HTTPException(404, f"there is no training chip {id}")
        headers = {"cache-control": "private, max-age=86400"}
        return Response(picture, media_type="image/png", headers=headers)

    @app.post(
        "/api/enrol",
        openapi_extra=_BODY,
        status_code=202,
        responses={202: {"model": schemas.Enrolment}, **_UPLOADED, **_problems(409)},
    )
    async def enrol(
        request: Request,
        name: Annotated[
            str, Query(min_length=1, max_length=60, pattern=r"\S", description="Of the class.")
        ],
        score: Annotated[
            str | None,
            Query(description="Decide by it from then on; default: the one that does so already."),
        ] = None,
    ) -> Response:
        """Adds the images as a class to the run, without a training; GET says when it is done."""
        if console.enroller is None:
            raise HTTPException(404, "no class can be enrolled in this run")
        takers = (AUTO, *console.engine.takers)
        if score is not None and score not in takers:
            raise HTTPException(422, f"score: got {score!r}, wanted one of {', '.join(takers)}")
        if name.strip() == UNKNOWN or not name.isprintable():
            raise HTTPException(422, f"name: got {name!r}, wanted the name of a class")
        uploads, read = await console.uploaded(request)
        if broken := next((one for one in read if one.chip is None), None):
            raise HTTPException(422, f"{broken.name} cannot be used: {broken.error}")
        try:
            console.enroller.start(name.strip(), score, uploads)
        except InProgress as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse(console.enroller.state, 202)

    @app.get("/api/enrol", responses={200: {"model": schemas.Enrolment}, **_problems()})
    async def enrolling() -> Response:
        """Says what became of the last enrolment."""
        return JSONResponse(IDLE if console.enroller is None else console.enroller.state)

    @app.get("/api/marks", responses={200: {"model": schemas.MarksOut}, **_problems()})
    async def marks() -> Response:
        """Lists the marks that people made."""
        return JSONResponse({"marks": console.marks.all()})

    @app.post(
        "/api/marks",
        responses={200: {"model": schemas.Count}, **_problems(403, 408, 413)},
    )
    async def mark(given: schemas.MarksIn) -> Response:
        """Keeps marks, and says how many there are now."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        kept = [{**one.model_dump(), "time": now} for one in given.marks]
        try:
            count = await asyncio.to_thread(console.marks.put, kept)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        except OSError as error:
            raise HTTPException(503, f"nothing is kept: {error.strerror}") from None
        return JSONResponse({"count": count})

    @app.delete(
        "/api/marks",
        responses={200: {"model": schemas.Count}, **_problems(403)},
    )
    async def unmark(
        id: Annotated[list[schemas.Id], Query(min_length=1, max_length=100)],
    ) -> Response:
        """Forgets marks, and says how many there were."""
        return JSONResponse({"count": await asyncio.to_thread(console.marks.remove, id)})

    @app.get(
        "/api/marks.csv",
        response_class=Response,
        responses={
            200: {"content": {"text/csv": {}}, "description": "The marks as a table."},
            **_problems(),
        },
    )
    async def table() -> Response:
        """Writes the marks as a table."""
        text = data.csv_text(console.marks.all(), columns=tuple(schemas.Marked.model_fields))
        headers = {"content-disposition": 'attachment; filename="marks.csv"'}
        return Response(text, media_type="text/csv", headers=headers)

    return app


def _pictures(read: list[Read]) -> dict[str, str]:
    """Draws the chips that were read, by the uploads' ids."""
    drawn = {one.id: as_png(data.thumbnail(one.chip)) for one in read if one.chip is not None}
    return {
        id: f"data:image/png;base64,{base64.b64encode(png).decode()}" for id, png in drawn.items()
    }


def _at(verdict: Mapping[str, Any], threshold: float | None) -> Mapping[str, Any]:
    """Returns a verdict at another threshold; None for its own."""
    if threshold is None:
        return verdict
    score = -math.inf if verdict["score"] is None else verdict["score"]
    label = verdict["nearest"] if score >= threshold else UNKNOWN
    return {**verdict, "threshold": threshold, "label": label}


def _describe_token(app: fastapi.FastAPI, token: str) -> None:
    """Writes the token into the OpenAPI, where one is wanted."""
    if not token:
        return
    build = app.openapi

    def openapi() -> dict[str, Any]:
        found = build()
        found.setdefault("components", {})["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"}
        }
        found["security"] = [{"token": []}]
        found["paths"]["/api/health"]["get"]["security"] = []
        return found

    app.openapi = openapi
