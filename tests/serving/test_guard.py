"""Access control and limits: hosts, origins, tokens, sizes."""

import json

import pytest

from jaxatr.serving import server
from jaxatr.serving.guard import _is_known
from jaxatr.serving.options import Limits
from jaxatr.serving.page import Page

TOKEN = "a-token-of-the-tests"


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True),
        ("localhost:8000", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("10.1.2.3", True),
        ("console.example:8000", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("localhost:80@evil", False),
        ("localhost:80:90", False),
        ("localhost@evil.example", False),
        ("[::1]evil.example", False),
        ("[localhost]", False),
        ("localhost/", False),
    ],
)
def test_a_name_that_is_not_its_own_is_refused(host, known):
    """A site can point a name at this machine (DNS rebinding), but not an IP address."""
    assert _is_known(host, {"localhost", "console.example"}) == known


def test_the_host_is_checked_on_every_path(client):
    for path in ("/", "/api/run", "/api/health", "/metrics", "/openapi.json"):
        answer = client.get(path, headers={"host": "evil.example"})
        assert answer.status_code == 421 and "--allow_host" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["host", "authorization", "origin", "content-type"])
def test_a_header_that_decides_is_given_once(client, name):
    twice = [("host", "localhost"), (name, "localhost"), (name, "localhost")]
    answer = client.get("/api/run", headers=twice)
    assert answer.status_code == 400 and name in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/", "/api/health", "/api/run", "/metrics", "/api/marks.csv"])
def test_head_answers_as_get_without_the_body(client, path):
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code == 200 and head.content == b""
    assert head.headers["content-type"] == got.headers["content-type"]
    if path != "/metrics":  # which changes
        assert head.headers["content-length"] == got.headers["content-length"]


def test_head_changes_nothing(client):
    assert client.head("/api/predict").status_code == 405
    assert client.head("/nowhere").status_code == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "same-origin", "origin": "http://localhost"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"origin": "http://localhost"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:1"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_another_sites_form_is_refused(client, contents, form, headers, status):
    answer = client.post("/api/predict", files=form(contents[:1]), headers=headers)
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers
    if status == 403:
        assert client.delete(f"/api/marks?id={'0' * 64}", headers=headers).status_code == 403


def test_a_token_is_wanted(engine, make_console, client_of):
    with client_of(make_console(engine, token=TOKEN)) as client:
        for path in ("/", "/api/health", "/openapi.json"):
            assert client.get(path).status_code == 200
        for path in ("/api/run", "/metrics", "/api/marks", "/api/marks.csv", "/api/examples/1"):
            answer = client.get(path)
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
            for wrong in ("Bearer x", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer ü"):
                raw = {"authorization": wrong.encode()}
                assert client.get(path, headers=raw).status_code == 401
        right = {"authorization": f"Bearer {TOKEN}"}
        assert client.get("/api/run", headers=right).status_code == 200
        described = client.get("/openapi.json").json()
        assert described["security"] == [{"token": []}]
        assert client.get("/").text == Page("console").text  # which knows nothing of the run


def test_a_large_body_is_refused(engine, make_console, client_of):
    with client_of(make_console(engine, limits=Limits(body=1000))) as client:
        headers = {"content-type": "image/png"}
        told = client.post("/api/predict", content=b"x" * 1001, headers=headers)
        assert told.status_code == 413 and told.headers["connection"] == "close"
        pieces = (b"x" * 100 for _ in range(11))  # without a length
        assert client.post("/api/predict", content=pieces, headers=headers).status_code == 413
        pieces = (json.dumps({"marks": "x" * 100}).encode() for _ in range(11))
        typed = {"content-type": "application/json"}
        assert client.post("/api/marks", content=pieces, headers=typed).status_code == 413


def test_all_bodies_together_are_bounded(engine, make_console, client_of, contents):
    with client_of(make_console(engine, limits=Limits(held=1000))) as client:
        headers = {"content-type": "image/png"}
        for _ in range(5):  # what one has held is free again for the next
            assert (
                client.post("/api/predict", content=b"x" * 900, headers=headers).status_code == 422
            )
        full = client.post("/api/predict", content=b"x" * 1001, headers=headers)
        assert full.status_code == 503 and int(full.headers["retry-after"]) >= 1


def test_headers_that_keep_a_browser_from_harm(client):
    page, answer = client.get("/"), client.get("/api/run")
    for found in (page, answer, client.get("/nowhere")):
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in found.headers["content-security-policy"]
        assert "unsafe" not in found.headers["content-security-policy"]
    assert "script-src 'sha256-" in page.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"])
def test_a_path_reaches_no_file(client, path):
    for start in ("", "/api/examples"):
        assert client.get(start + path).status_code in (404, 422)


def test_tokens(tmp_path, monkeypatch):
    monkeypatch.delenv(server.VARIABLE, raising=False)
    assert server.token_for("127.0.0.1", None) == server.token_for("localhost", None) == ("", False)
    for host in ("0.0.0.0", "::", "10.0.0.1", "console.example"):
        token, drawn = server.token_for(host, None)
        assert drawn and len(token) >= 32 and token != server.token_for(host, None)[0]
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert server.token_for("::1", str(tmp_path / "token")) == (TOKEN, False)
    monkeypatch.setenv(server.VARIABLE, TOKEN[::-1])
    assert server.token_for("0.0.0.0", None) == (TOKEN[::-1], False)
    for bad in ("short", "", "with a space in it all", "ü" * 20):
        (tmp_path / "token").write_text(bad)
        with pytest.raises(ValueError, match="wanted at least 16"):
            server.token_for("127.0.0.1", str(tmp_path / "token"))


def test_files_of_tokens_by_windows_editors(tmp_path):
    (tmp_path / "token").write_bytes(f"{TOKEN}\r\n".encode("utf-8-sig"))
    assert server.token_for("::1", str(tmp_path / "token")) == (TOKEN, False)
    (tmp_path / "token").write_bytes(TOKEN.encode("utf-16"))
    with pytest.raises(ValueError, match=r"^--token_file=.*token: got .* of ASCII"):
        server.token_for("::1", str(tmp_path / "token"))
