"""The routes of the API: a router for each resource."""

from jaxatr.serving.routes import enrolment, marks, predictions, state

ROUTERS = (state.router, predictions.router, enrolment.router, marks.router)

__all__ = ["ROUTERS"]
