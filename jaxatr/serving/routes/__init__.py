"""The routes of the API: a router for each resource."""

from jaxatr.serving.routes import enrolment, marks, predictions, scenes, state

ROUTERS = (state.router, predictions.router, scenes.router, enrolment.router, marks.router)

__all__ = ["ROUTERS"]
