"""Parsing the files of complete and broken forms."""

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxatr.serving.forms import FormError, files_of, shown_name
from jaxatr.serving.intake import Upload

KIND = "multipart/form-data; boundary=cut"


def part(content, disposition=b'form-data; name="images"; filename="a.png"'):
    return b"--cut\r\nContent-Disposition: " + disposition + b"\r\n\r\n" + content + b"\r\n"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(blacklist_categories=["C", "Z"]), min_size=1, max_size=20),
            st.one_of(st.binary(max_size=200), st.sampled_from([b"\r\n--cut", b"--", b"\r\n\r\n"])),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_a_clients_files_arrive(files):
    request = httpx2.Request("POST", "http://a/", files=[("images", one) for one in files])
    found = files_of(request.read(), request.headers["content-type"], most=6)
    assert [file.content for file in found] == [content for _, content in files]
    # Browsers write a quote as %22 and no line breaks; nothing tells them from the same text.
    read = [name.replace("%22", '"').replace("%0D", "").replace("%0A", "") for name, _ in files]
    assert [file.name for file in found] == read


def test_what_is_around_the_parts_is_left_out():
    body = part(b"image") + b"--cut--\r\n"
    assert files_of(b"a preamble\r\n" + body + b"an epilogue", KIND, most=3) == [
        Upload("a.png", b"image")
    ]
    quoted = 'multipart/form-data; charset=utf-8; boundary="cut"'
    assert files_of(body, quoted, most=3)[0].content == b"image"


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (part(b"x") + b"--cut--", "multipart/form-data", "has no boundary"),
        (b"", KIND, "no part with its boundary"),
        (b"nonsense", KIND, "no part with its boundary"),
        (part(b"x"), KIND, "is incomplete"),
        (part(b"x") + part(b"y")[:-20], KIND, "is incomplete"),
        (part(b"x") * 4 + b"--cut--", KIND, "more than 3 parts"),
        (b"--cut\r\n\r\nx\r\n--cut--", KIND, "no Content-Disposition"),
        (b"--cut\r\nA: b\r\n\r\nx\r\n--cut--", KIND, "no Content-Disposition"),
        (b"--cut\r\nno end of the head\r\n--cut--", KIND, "no head"),
        (b"--cut\r\nA: " + b"b" * 5000 + b"\r\n\r\nx\r\n--cut--", KIND, "too long"),
        (part(b"2", b'form-data; name="threshold"') + part(b"x"), KIND, "'threshold' is no file"),
        (b"--cutmore\r\n\r\nx\r\n--cut--", KIND, "no head"),
    ],
)
def test_a_broken_form_is_reported(body, kind, message):
    with pytest.raises(FormError, match=message):
        files_of(body, kind, most=3)


@pytest.mark.parametrize("content", [b"\r\n--cu", b"\r", b"\r\n\r\n", b"--cut", b"cut--"])
def test_a_body_that_looks_like_its_boundary_is_read_at_once(content):
    body = part(content * 400_000) + b"--cut--"
    if b"\n--cut" in body[60:-12]:
        pytest.skip("it is the boundary")
    assert files_of(body, KIND, most=3)[0].content == content * 400_000


def test_names_are_fit_to_be_shown():
    assert shown_name("a\x00\n\u202eb.png") == "ab.png"
    assert shown_name("") == "image" and len(shown_name("x" * 999)) == 255


def test_an_encoded_file_name_is_read():
    """RFC 5987's form; RFC 7578 discourages it, but a file must not be dropped silently."""
    body = (
        part(b"x", b"form-data; name=\"images\"; filename*=UTF-8''%e2%82%ac.png") + b"--cut--\r\n"
    )
    assert files_of(body, KIND, most=2) == [Upload("€.png", b"x")]
