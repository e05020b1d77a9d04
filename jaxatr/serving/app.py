"""The HTTP API and the page as an ASGI application."""

import fastapi
from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

import jaxatr
from jaxatr.serving.batcher import Busy
from jaxatr.serving.console import Console, Unusable
from jaxatr.serving.guard import Guard
from jaxatr.serving.openapi import describe_token
from jaxatr.serving.routes import ROUTERS
from jaxatr.serving.routes.common import only_known_parameters


def build_app(console: Console) -> Guard:
    """Builds the application of a console, with its limits and access control.

    Args:
      console: the console to serve; its threads run as long as the application.
    """
    options = console.options
    routes = (route for router in ROUTERS for route in router.routes)
    return Guard(
        build_routes(console),
        limits=options.limits,
        token=options.token,
        hosts={"localhost", *(name.lower() for name in options.hosts)},
        routes={"/openapi.json", *(one.path for one in routes if isinstance(one, APIRoute))},
        metrics=console.metrics,
    )


def build_routes(console: Console) -> fastapi.FastAPI:
    """Builds the routes of a console and their error handlers, without limits or access control."""
    app = fastapi.FastAPI(
        title="jaxatr console",
        version=jaxatr.__version__,
        description="Open-set recognition of image chips: verdicts, neighbours, explanations.",
        docs_url=None,  # FastAPI's pages load scripts from another site
        redoc_url=None,
        lifespan=console.running,
        exception_handlers={
            Busy: _busy,
            Unusable: _unusable,
            RequestValidationError: _invalid,
            Exception: _failed,
        },
    )
    app.state.console = console
    describe_token(app, console.options.token)
    for router in ROUTERS:
        app.include_router(router, dependencies=[Depends(only_known_parameters)])
    return app


async def _busy(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, Busy)
    return JSONResponse({"detail": str(error)}, 503, {"retry-after": str(error.seconds)})


async def _unusable(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, Unusable)
    return JSONResponse({"detail": str(error), "results": error.results}, 422)


async def _invalid(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "body"
    return JSONResponse({"detail": f"{where}: {first['msg']}"}, 422)


async def _failed(request: Request, error: Exception) -> Response:
    del request, error  # which the server logs
    return JSONResponse({"detail": "internal error: see the server's log"}, 500)
