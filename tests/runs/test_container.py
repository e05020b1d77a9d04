"""The files of a container; its server gives the same predictions as predict."""

import concurrent.futures
import contextlib
import gzip
import http.client
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tifffile
from PIL import Image

from jaxatr import data
from jaxatr.cli import convert
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.runs import container

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def folder(trained_run, tmp_path_factory):
    from jaxatr.runs.export import export_run

    folder = tmp_path_factory.mktemp("container")
    export_run(trained_run, folder / "model.onnx", score="cbc")
    container.write_container(folder / "model.onnx")
    return folder


@pytest.fixture(scope="module")
def server():
    from jaxatr.runs.container import server

    yield server
    sys.modules.pop("jaxatr.runs.container.server")


@pytest.fixture
def asked(folder, server):
    """Returns a function that sends a request to a server of the file: status and answer."""
    running = server.make_server(server.Model(str(folder / "model.onnx")), "127.0.0.1", 0, "right")
    thread = threading.Thread(target=running.serve_forever)
    thread.start()

    def ask(method, path, body=None, token="right", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", running.server_port, timeout=20)
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, None if method == "HEAD" else json.loads(answer.read())

    ask.running = running
    yield ask
    running.shutdown()
    thread.join()
    running.server_close()


def test_the_dockerfile_copies_existing_files(folder):
    text = (folder / "Dockerfile").read_text()
    assert "{" not in text and 'COPY --chmod=444 ["server.py", "model.onnx", "./"]' in text
    assert 'CMD ["python", "server.py", "model.onnx"]' in text and "USER 10001" in text
    assert "HEALTHCHECK" in text and "EXPOSE 8000" in text
    assert "ORT_DISABLE_TELEMETRY=1" in text
    kept = (folder / ".dockerignore").read_text().splitlines()
    assert kept[1] == "*" and {line[1:] for line in kept[2:]} == {
        *("requirements.txt", "server.py", "decoder", "model.onnx")
    }
    modules = [f"decoder/{path.name}" for path in (folder / "decoder").glob("*.py")]
    for name in ("Dockerfile", "requirements.txt", "server.py", ".dockerignore", *modules):
        assert (folder / name).read_text().startswith(container.MARK)


def test_files_of_others_are_kept(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(ValueError, match="Dockerfile exists and was not written by an export"):
        container.write_container(tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["Dockerfile"]


def test_the_command_writes_it(trained_run, flags_of, tmp_path, capsys):
    arguments = ["export", f"--workdir={trained_run}", f"--out={tmp_path / 'a.onnx'}"]
    convert.main(flags_of(convert, *arguments, "--score=cbc", "--container"))
    assert str(tmp_path / "Dockerfile") in capsys.readouterr().out
    assert '"a.onnx"' in (tmp_path / "Dockerfile").read_text()


def test_it_answers_as_predict_does(trained_run, chips, asked):
    recogniser = Recogniser.load(trained_run, score="cbc")
    for path in sorted((chips / "test").glob("*/000.png")):
        status, found = asked("POST", "/api/predict", path.read_bytes())
        wanted = recogniser.predict(path)
        assert status == 200 and (found["label"], found["nearest"]) == (
            wanted.label,
            wanted.nearest,
        )
        assert found["score"] == pytest.approx(wanted.score, abs=1e-4)
        assert found["probabilities"] == pytest.approx(wanted.probabilities, abs=1e-4)


def test_colours_become_gray_as_in_the_package(trained_run, asked, server, folder):
    colours = np.random.default_rng(3).integers(0, 256, (24, 24, 3), np.uint8)
    colours[0, :3] = [(0, 0, 250), (250, 0, 0), (0, 250, 0)]  # 28.5, 74.75 and 146.75
    file = io.BytesIO()
    Image.fromarray(colours).save(file, "png")
    status, found = asked("POST", "/api/predict", file.getvalue())
    wanted = Recogniser.load(trained_run, score="cbc").predict(colours)
    assert status == 200 and found["score"] == pytest.approx(wanted.score, abs=1e-5)
    model = server.Model(str(folder / "model.onnx"))
    assert model._fitting(colours)[0, :3, 0].tolist() == [28, 75, 147]
    floats = np.float32([[[0.5, 1, 2]]])
    model._type, model._shape = "float32", (1, 1, 1)
    assert model._fitting(floats).item() == pytest.approx(0.9645)  # .1495 + .587 + .228


def test_the_server_refuses_unsuitable_requests(chips, asked, server, monkeypatch):
    assert asked("GET", "/api/health", token="") == (200, {"status": "ok"})
    assert asked("GET", "/api/model")[1]["decides"] == "cbc"
    assert asked("GET", "/api/model", token="wrong")[0] == 401
    image = next((chips / "test").glob("*/000.png")).read_bytes()
    assert asked("POST", "/api/predict", image, token="")[0] == 401
    status, said = asked("POST", "/api/predict", b"no image")
    assert status == 400 and said["error"].startswith(
        "the image: not a readable image, wanted one of PNG"
    )
    file = io.BytesIO()
    Image.fromarray(np.zeros((20, 20), np.uint8)).save(file, "png")
    assert "wanted 24 by 24" in asked("POST", "/api/predict", file.getvalue())[1]["error"]
    file = io.BytesIO()
    np.save(file, np.zeros((24, 24, 2), np.uint8))
    assert (
        "got an image of 2 bands, wanted 1"
        in asked("POST", "/api/predict", file.getvalue())[1]["error"]
    )
    assert asked("POST", "/else", image)[0] == asked("GET", "/else")[0] == 404
    assert asked("POST", "/api/predict", image, **{"Content-Length": "\u00b2"})[0] == 411
    packed = gzip.compress(image)
    status, said = asked("POST", "/api/predict", packed, **{"Content-Encoding": "gzip"})
    assert (status, said["error"]) == (415, "got a body in the coding gzip, wanted it as it is")
    assert asked("POST", "/api/predict", image, **{"Content-Encoding": "Identity"})[0] == 200
    monkeypatch.setattr(server, "MOST_BYTES", 10)
    assert asked("POST", "/api/predict", image)[0] == 413


def test_head_answers_as_get_without_the_body(asked):
    assert asked("HEAD", "/api/health", token="") == (200, None)
    assert asked("HEAD", "/api/model", token="")[0] == 401
    assert asked("HEAD", "/else")[0] == 404


def test_other_methods_are_refused_with_those_that_a_path_has(asked):
    assert asked("GET", "/api/health?since=1", token="") == (200, {"status": "ok"})
    for method, path, wanted in (
        ("POST", "/api/health", "GET, HEAD"),
        ("OPTIONS", "/api/model", "GET, HEAD"),
        ("GET", "/api/predict", "POST"),
        ("DELETE", "/api/predict", "POST"),
    ):
        refused = {"error": f"got {method}, wanted {wanted}"}
        assert asked(method, path) == (405, refused)
    assert asked("PUT", "/else")[0] == 404
    assert asked("OPTIONS", "/api/predict", token="")[0] == 401


UNENDED = b"POST /api/predict HTTP/1.1\r\nAuthorization: Bearer right\r\nContent-Length: 9\r\n\r\nx"


def opened(running, sent):
    connection = socket.create_connection(("127.0.0.1", running.server_port), timeout=10)
    connection.sendall(sent)
    return connection


@pytest.mark.parametrize(
    ("limit", "sent"),
    [
        ("HEAD_SECONDS", b"GET /api/health HTTP/1.1\r\nA: "),
        ("BODY_SECONDS", UNENDED),
    ],
)
def test_a_request_that_does_not_end_is_cut_off(asked, server, monkeypatch, limit, sent):
    monkeypatch.setattr(server, limit, 0.1)
    with opened(asked.running, sent) as slow:
        assert not slow.recv(100).startswith(b"HTTP/1.0 200")
    monkeypatch.undo()
    assert asked("GET", "/api/health")[0] == 200


def test_an_answer_that_is_not_read_is_cut_off(asked, server, monkeypatch):
    monkeypatch.setattr(server, "WRITE_SECONDS", 0.1)
    monkeypatch.setattr(server.Model, "__call__", lambda self, content: "x" * (1 << 25))
    threads = threading.active_count()
    head = b"POST /api/predict HTTP/1.1\r\nAuthorization: Bearer right\r\nContent-Length: 1"
    with opened(asked.running, head + b"\r\n\r\nx"):
        wait(lambda: threading.active_count() > threads)
        wait(lambda: threading.active_count() == threads)


def wait(true):
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_connections_are_bounded(asked, server):
    running, places = asked.running, server.MOST_CONNECTIONS
    with contextlib.ExitStack() as stack:
        for _ in range(places):
            stack.enter_context(opened(running, UNENDED))
        wait(lambda: not (running._places._value or running._without_head))
        with opened(running, b"") as more:
            assert more.recv(100).startswith(b"HTTP/1.0 503")
    wait(lambda: running._places._value == places)
    assert asked("GET", "/api/health")[0] == 200


def test_slow_heads_give_their_places_to_others(asked, server):
    running, places = asked.running, server.MOST_CONNECTIONS
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(opened(running, b"G")) for _ in range(places)]
        wait(lambda: running._places._value == 0)
        assert [asked("GET", "/api/health")[0] for _ in range(3)] == [200] * 3
        assert slow[0].recv(1) == b""  # the oldest was cut off
        slow[-1].sendall(b"ET /api/health HTTP/1.0\r\n\r\n")
        assert slow[-1].recv(100).startswith(b"HTTP/1.0 200")


def test_few_images_are_decoded_at_once(asked, server, monkeypatch):
    monkeypatch.setattr(server, "TURN_SECONDS", 0.1)
    free = threading.Event()
    monkeypatch.setattr(server.Model, "__call__", lambda self, content: free.wait(10))
    with concurrent.futures.ThreadPoolExecutor(server.MOST_AT_ONCE) as pool:
        first = [
            pool.submit(asked, "POST", "/api/predict", b"x") for _ in range(server.MOST_AT_ONCE)
        ]
        wait(lambda: asked.running.stuck)
        assert asked("POST", "/api/predict", b"x")[0] == 503
        assert asked("GET", "/api/health", token="") == (503, {"status": "stuck"})
        free.set()
        assert {one.result()[0] for one in first} == {200}
    assert asked("GET", "/api/health")[0] == 200


def test_heads_and_bodies_are_bounded(asked, server, monkeypatch):
    assert asked("GET", "/api/health", A="a" * 60_000)[0] == 200
    with opened(
        asked.running, b"GET / HTTP/1.1\r\n" + (b"A: " + b"a" * 6000 + b"\r\n") * 12
    ) as one:
        assert one.recv(100).startswith(b"HTTP/1.0 431")
    monkeypatch.setattr(server, "MOST_HELD", 2)
    assert asked("POST", "/api/predict", b"xxx")[0] == 503
    assert asked("POST", "/api/predict", b"xx")[0] == 400


def test_a_failure_of_the_model_is_an_answer_too(chips, asked, server, monkeypatch):
    def fail(self, image):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(server.Model, "_fitting", fail)
    status, said = asked("POST", "/api/predict", next(chips.rglob("*.png")).read_bytes())
    assert (status, said) == (500, {"error": "the model failed on this image"})


def test_json_has_no_infinity(server):
    values = np.float32([0.5, np.inf, np.nan])
    assert server._finite(values) == [server._finite(one) for one in values] == [0.5, None, None]
    assert type(server._finite(values[0])) is float and server._finite(values > 0) == [
        *(True, True, False)
    ]


@pytest.mark.parametrize("options", [{"batch": 2}, {"takes": "chips"}, {"layout": "NCHW"}])
def test_a_model_that_the_server_cannot_serve_gets_no_container(
    options, trained_run, server, tmp_path
):
    from jaxatr.runs.export import export_run

    export_run(trained_run, path := tmp_path / "model.onnx", score="none", **options)
    with pytest.raises(ValueError, match="model.onnx is written, but a container serves single"):
        container.write_container(path)
    assert [*tmp_path.iterdir()] == [path]
    with pytest.raises(ValueError, match="wanted a jaxatr export with takes='images'"):
        server.Model(str(path))


def files_of_every_kind():
    """Yields names and contents of files, readable and not."""
    noise = np.random.default_rng(0).integers(0, 255, (9, 7), np.uint8)
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK"):
        for kind in ("PNG", "TIFF", "GIF", "BMP", "JPEG", "WEBP", "JPEG2000"):
            file = io.BytesIO()
            try:
                Image.fromarray(noise).convert(mode).save(file, kind)
            except (OSError, ValueError):
                continue  # a mode that the format does not have
            yield f"{mode} as {kind}", file.getvalue()
            yield f"half of {mode} as {kind}", file.getvalue()[:-40]
    for photometric in ("minisblack", "miniswhite"):
        for dtype in ("u1", "i1", "u2", "i2", "u4", "f4", "f8", "c8"):
            file = io.BytesIO()
            values = (noise // 2).astype(dtype)
            tifffile.imwrite(file, values, photometric=photometric, compression="zlib")
            yield f"{photometric} {dtype}", file.getvalue()
            file = io.BytesIO()
            np.save(file, values)
            yield f"array of {dtype}", file.getvalue()
    file = io.BytesIO()
    Image.fromarray(np.uint16(noise) * 200).save(file, "PNG")
    yield "16 bits", file.getvalue()
    for count in (2, 4, 16, 17):
        several = np.repeat(noise[..., None], count, axis=2)
        for values in (several, np.uint16(several) * 200, np.float32(several)):
            for order, stored in (("contig", values), ("separate", np.moveaxis(values, 2, 0))):
                file = io.BytesIO()
                kind = {"photometric": "minisblack", "planarconfig": order}
                tifffile.imwrite(file, stored, metadata=None, **kind)
                yield f"{count} bands of {values.dtype}, {order}", file.getvalue()
            file = io.BytesIO()
            np.save(file, values)
            yield f"array of {count} bands of {values.dtype}", file.getvalue()
    yield "half of ENVI", b"ENVI\nlines = 2"
    yield "radar", b"NITF02.10"
    yield "nothing", b""
    yield "text", b"no image"


def test_it_reads_images_as_the_package_does(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    decoder = importlib.import_module("decoder")
    read = 0
    for name, content in files_of_every_kind():
        verdicts = []
        for decode in (decoder.decode, data.decoder.decode):
            try:
                verdicts.append(decode(content, name, most=100))
            except ValueError as error:
                verdicts.append(str(error))
        found, wanted = verdicts
        if isinstance(wanted, str):
            assert found == wanted
            continue
        read += 1
        assert found.dtype == wanted.dtype, name
        np.testing.assert_array_equal(found, wanted, err_msg=name)
    assert read > 40
    for name in [name for name in sys.modules if name.partition(".")[0] == "decoder"]:
        sys.modules.pop(name)


def test_the_server_needs_nothing_of_the_package(folder):
    for path in (folder / "server.py", *(folder / "decoder").glob("*.py")):
        text = path.read_text()
        assert "import jax" not in text and "from jax" not in text
    command = [sys.executable, "-c", "import server, sys; print('jaxatr' in sys.modules)"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize("token", ["right", "gehéim"])
def test_its_token_may_end_in_a_line_break_and_sigterm_waits_for_answers(chips, folder, token):
    image = next((chips / "test").glob("*/000.png")).read_bytes()
    environment = os.environ | {"PORT": "0", "JAXATR_TOKEN": f"{token}\n"}
    command = [sys.executable, "server.py", "model.onnx"]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[-1])
        begun, other = (http.client.HTTPConnection("127.0.0.1", port, timeout=20) for _ in "12")
        begun.putrequest("POST", "/api/predict")
        begun.putheader("Authorization", f"Bearer {token}".encode())
        begun.putheader("Content-Length", str(len(image)))
        begun.endheaders(image[:-1])
        other.request("GET", "/api/health")
        assert other.getresponse().status == 200  # so that the first connection has its thread
        process.send_signal(signal.SIGTERM)
        wait(lambda: refused(port))
        begun.send(image[-1:])
        answer = begun.getresponse()
        assert answer.status == 200 and "label" in json.loads(answer.read())
        assert process.wait(timeout=20) == 0


def refused(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0
