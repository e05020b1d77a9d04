"""The routes of the API: a router for each resource."""

from jaxatr.serving.routes import enrolment, labels, marks, predictions, scenes, state

ROUTERS = (
    *(state.router, predictions.router, scenes.router),
    *(enrolment.router, marks.router, labels.router),
)

__all__ = ["ROUTERS"]
