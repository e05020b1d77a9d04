"""The page, the health, the counts and the description of the run that is served."""

from pathlib import Path
from typing import Any

import fastapi
from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

import jaxatr
from jaxatr.recognition.drift import Drift
from jaxatr.recognition.neighbours import NEAREST
from jaxatr.serving import drift as drifting
from jaxatr.serving import metrics, schemas
from jaxatr.serving.openapi import problems
from jaxatr.serving.routes.common import Served
from jaxatr.tasks.detection.predictor import Detector

router = APIRouter()


@router.get("/", include_in_schema=False)
async def page(console: Served) -> Response:
    """Returns the page."""
    return console.page.response()


@router.get("/api/health", responses={200: {"model": schemas.Health}, **problems()})
async def health(console: Served) -> Response:
    """Reports whether the server is ready."""
    reader = console.reader
    if not console.batcher.alive:
        return JSONResponse({"detail": "the compute thread has ended"}, 503)
    if reader.stuck:
        detail = f"every decoding thread has been at one image for {reader.stuck:.0f} s"
        return JSONResponse({"detail": detail}, 503, {"retry-after": "5"})
    return JSONResponse(
        {
            "status": "ready",
            "waiting": console.batcher.waiting,
            "decoding": reader.decoding,
            "decoding_seconds": round(reader.seconds, 1),
            "runtime": console.engine.runtime,
        }
    )


@router.get(
    "/metrics",
    response_class=fastapi.responses.PlainTextResponse,
    responses={200: {"description": "Metrics in Prometheus's format."}, **problems()},
)
async def counts(console: Served) -> Response:
    """Returns counts of requests, images and batches for Prometheus."""
    return Response(console.metrics.text(), media_type=metrics.CONTENT_TYPE)


@router.get("/api/run", responses={200: {"model": schemas.Run}, **problems()})
async def run(console: Served) -> Response:
    """Describes the run that is served."""
    engine, limits = console.engine, console.options.limits
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
            "detector": _described(console.scenes.detector),
            "labels": console.desk is not None,
            "note": engine.note,
            "version": jaxatr.__version__,
            "images": limits.images,
            "pixels": limits.pixels,
            "body": limits.body,
        }
    )


def _described(detector: Detector | None) -> dict[str, Any] | None:
    """Returns the fields of :class:`jaxatr.serving.schemas.Detector`."""
    if detector is None:
        return None
    return {
        "run": Path(detector.workdir).resolve().name,
        "threshold": detector.threshold,
        "dtype": str(detector.dtype),
        "channels": detector.channels,
    }


@router.get("/api/drift", responses={200: {"model": schemas.Drift}, **problems()})
async def drift(console: Served) -> Response:
    """Compares the last full window of served chips with those of the training."""
    watched, waiting = console.drift, console.drift.waiting
    last = watched.last or Drift(0, (), console.engine.reference.missing)
    found = last.to_json()
    if watched.last is None:
        found["sentence"] = (
            f"drift: not compared yet: {waiting} chip{'' if waiting == 1 else 's'} came, and "
            f"{drifting.WINDOW} of one source are compared at a time"
        ) + (f" ({last.missing})" if last.missing else "")
    return JSONResponse(
        {
            **found,
            "source": watched.source,
            "windows": watched.windows,
            "window": drifting.WINDOW,
            "waiting": waiting,
            "hours": watched.hours(),
        }
    )
