"""A small trained run behind the console, in this process."""

import contextlib
import socket
import threading

import pytest
import uvicorn
from starlette.testclient import TestClient

from jaxatr.serving.app import build_app
from jaxatr.serving.connections import bounded
from jaxatr.serving.console import Console
from jaxatr.serving.options import Limits, Options
from jaxatr.serving.served_run import Wanted, load_engine

SIZES = (1, 4)


@pytest.fixture(scope="session")
def engine(trained_run):
    """The run's engine, compiled for batches of 1 and 4, with a second score."""
    loaded = load_engine(Wanted(trained_run, scores=("softmax",), examples=40))
    loaded.warm(SIZES)
    return loaded


@pytest.fixture(scope="session")
def retriever_engine(embedding_run):
    loaded = load_engine(Wanted(embedding_run))
    loaded.warm(SIZES)
    return loaded


@pytest.fixture
def make_console(tmp_path):
    """Builds consoles whose marks are saved in a folder of the test."""

    def make(engine, *, limits=None, detector=None, **options):
        options = {"batches": SIZES, "marks": str(tmp_path / "marks.jsonl"), **options}
        made = Options(limits=limits or Limits(), **options)
        return Console(engine, made, detector=detector)

    return make


@pytest.fixture(scope="session")
def client_of():
    """Opens a client of a running console, without a socket."""

    @contextlib.contextmanager
    def opened(console):
        with TestClient(build_app(console), base_url="http://localhost") as client:
            yield client

    return opened


@pytest.fixture(scope="session")
def listening():
    """Runs a console in a thread on a free port; yields the port."""
    return _listening


@contextlib.contextmanager
def _listening(console):
    config = uvicorn.Config(
        build_app(console),
        http=bounded(console.options.limits),
        ws="none",
        log_config=None,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
        thread.start()
        try:
            yield taken.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def client(engine, make_console, client_of):
    with client_of(make_console(engine)) as client:
        yield client


@pytest.fixture(scope="session")
def contents(chips):
    """The contents of the files of some test chips."""
    return [path.read_bytes() for path in sorted((chips / "test").rglob("*.png"))]


@pytest.fixture(scope="session")
def form():
    """Makes the files of a request."""

    def files(contents):
        return [("images", (f"{n}.png", content)) for n, content in enumerate(contents)]

    return files
