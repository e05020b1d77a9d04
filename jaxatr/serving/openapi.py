"""Parts of the API's OpenAPI description: request bodies, errors and authentication."""

from typing import Any

import fastapi

from jaxatr.serving import schemas

FORM = "multipart/form-data"
"""Content type of a form with images."""

RAW = ("image/*", "application/octet-stream")
"""Content types of a body that is one image file."""

BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            FORM: {
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
            **{kind: {"schema": {"type": "string", "format": "binary"}} for kind in RAW},
        },
    }
}
_PROBLEMS = {
    400: "The request cannot be read.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site.",
    404: "The run does not offer this.",
    409: "A class is already being enrolled.",
    408: "The body did not arrive in time.",
    413: "The request is too large.",
    415: "The body is neither a form nor an image, or is compressed.",
    421: "The Host header is not a known name of the server.",
    422: "A parameter is invalid, or no image of the request can be used.",
    503: "The server is busy; Retry-After gives the seconds to wait before trying again.",
}


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Describes the errors that any route may return, and those of the given status codes."""
    listed = sorted({400, 401, 421, 422, 503, *codes})
    responses: dict[int | str, dict[str, Any]] = {
        code: {"model": schemas.Problem, "description": _PROBLEMS[code]} for code in listed
    }
    responses[503]["headers"] = {"Retry-After": {"schema": {"type": "string"}}}
    return responses


UPLOADED = problems(403, 404, 408, 413, 415)
"""Errors of the routes that take images."""


def describe_token(app: fastapi.FastAPI, token: str) -> None:
    """Adds bearer authentication to an application's OpenAPI description, if there is a token."""
    if not token:
        return
    build = app.openapi

    def openapi() -> dict[str, Any]:
        description = build()
        description.setdefault("components", {})["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"}
        }
        description["security"] = [{"token": []}]
        description["paths"]["/api/health"]["get"]["security"] = []
        return description

    app.openapi = openapi
