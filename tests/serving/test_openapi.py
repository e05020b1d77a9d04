"""The responses match the OpenAPI: schemathesis sends valid and invalid requests."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.specs.openapi.checks import positive_data_acceptance

from jaxatr.serving.app import build_routes
from jaxatr.serving.console import Console
from jaxatr.serving.options import Options

RELAXED = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "derandomize": True,
    "database": None,
}


@pytest.fixture(scope="module")
def console(engine, make_bright, tmp_path_factory):
    marks = str(tmp_path_factory.mktemp("marks") / "marks.jsonl")
    return Console(engine, Options(batches=(1, 4), marks=marks), detector=make_bright())


@pytest.fixture(scope="module")
def described(console, listening):
    with listening(console) as port:
        yield schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")


def ask(described, mode, count):
    """Sends a number of requests to every route."""
    asked = [one.ok() for one in described.get_all_operations() if ask_one(one.ok(), mode, count)]
    assert len(asked) >= 6


def ask_one(operation, mode, count):
    """Sends requests to a route; False if no invalid request can be generated."""
    # OpenAPI cannot express which images a run takes.
    uploads = operation.method == "post" and operation.path not in ("/api/marks", "/api/labels")
    excluded = [positive_data_acceptance] if uploads else []

    @given(operation.as_strategy(generation_mode=mode))
    @settings(max_examples=count, **RELAXED)
    def answers_are_as_described(case):
        case.call_and_validate(excluded_checks=excluded)

    try:
        answers_are_as_described()
    except Unsatisfiable:
        assert mode is schemathesis.GenerationMode.NEGATIVE and not operation.body
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("mode", schemathesis.GenerationMode)
def test_answers_are_as_described(described, mode):
    ask(described, mode, 5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", schemathesis.GenerationMode)
def test_every_answer_is_as_described(described, mode):
    ask(described, mode, 60)


def test_a_real_image_is_answered_as_described(described, chips):
    content = next((chips / "test" / "ring").iterdir()).read_bytes()
    for path, query in (
        ("/api/predict", {"neighbours": 2, "every_score": "true", "pictures": "true"}),
        ("/api/neighbours", {"count": 3}),
        ("/api/explain", {}),
    ):
        operation = described[path]["POST"]
        case = operation.Case(query=query, body=content, media_type="application/octet-stream")
        response = case.call()
        assert response.status_code == 200, response.text
        case.validate_response(response)


def test_every_route_is_described(console):
    found = build_routes(console).openapi()
    assert set(found["paths"]) == {
        "/api/health",
        "/api/run",
        "/api/predict",
        "/api/neighbours",
        "/api/explain",
        "/api/scenes/detect",
        "/api/scenes/decide",
        "/api/scenes/view",
        "/api/drift",
        "/api/enrol",
        "/api/examples/{id}",
        "/api/marks",
        "/api/marks.csv",
        "/api/labels",
        "/api/labels.csv",
        "/metrics",
    }
    for path in found["paths"].values():
        for operation in path.values():
            assert operation["summary"] and operation["description"].endswith(".")
