"""Parts that several routes share: the console, the declaration of uploads, and their checks."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.dependencies.models import Dependant
from starlette.exceptions import HTTPException

from jaxatr.resolve import nearest
from jaxatr.serving.console import Console
from jaxatr.serving.guard import PROMPT
from jaxatr.serving.openapi import BODY


async def _served(request: Request) -> Console:
    return request.app.state.console


Served = Annotated[Console, Depends(_served)]
"""The console of a request."""


async def only_known_parameters(request: Request) -> None:
    """Checks that a request has only parameters that its route reads.

    Pages may have any, and so may requests about the server's health, for which monitors and load
    balancers add a parameter to avoid caches.

    Raises:
      HTTPException: it has another one, such as a misspelt one.
    """
    route = request.scope["route"]
    if not request.query_params or not route.include_in_schema or route.path in PROMPT:
        return
    known = list(_parameters(route.dependant))
    if other := next((name for name in request.query_params if name not in known), None):
        listed = f"; there are {', '.join(known)}" if known else ""
        raise HTTPException(
            422, f"there is no parameter {other!r}{nearest(other, known) or listed}"
        )


def _parameters(dependant: Dependant) -> Iterator[str]:
    """Yields the names of the query parameters of a route and of what it depends on."""
    yield from (field.alias for field in dependant.query_params)
    for below in dependant.dependencies:
        yield from _parameters(below)


async def _counted(
    source: Annotated[
        str,
        Query(
            max_length=100,
            pattern=r"^[^\x00-\x1f\x7f]*$",
            description="Where the images come from, such as a sensor, to count them under it.",
        ),
    ] = "",
) -> None:
    """Checks the source, which the console reads itself."""
    del source


def upload(router: APIRouter) -> partial:
    """Returns the decorator of a router's routes that take images."""
    return partial(router.post, openapi_extra=BODY)


def counted_upload(router: APIRouter) -> partial:
    """Returns the decorator of a router's routes whose images count as seen in the field."""
    return partial(router.post, dependencies=[Depends(_counted)], openapi_extra=BODY)
