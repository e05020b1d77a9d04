"""Output without control characters."""

import io
import json

import pytest

from jaxatr.cli.terminal import Plain, one_line


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a\tb\nc é 中\n", "a\tb\nc é 中\n"),
        ("a\x1b[2Kb\x7f\x9b", "a\\u001b[2Kb\\u007f\\u009b"),
        ("evil\u202egnp.exe\u2066\u2028", "evil\\u202egnp.exe\\u2066\\u2028"),
        ("name\rerror: ", "name\\u000derror: "),
        ("\r 50%|", "\r 50%|"),  # a progress bar
        ("\x1b[A\x1b[A", "\x1b[A\x1b[A"),
        ("\udcff.png", "\\udcff.png"),  # a name that is not UTF-8
    ],
)
def test_a_name_cannot_control_the_terminal(text, written):
    stream = io.StringIO()
    assert Plain(stream).write(text) == len(text)
    assert stream.getvalue() == written


def test_json_stays_json():
    stream = io.StringIO()
    print(json.dumps({"path": "a\u202e\x9b\n"}, ensure_ascii=False), file=Plain(stream))
    assert json.loads(stream.getvalue()) == {"path": "a\u202e\x9b\n"}
    assert stream.getvalue().isascii()


def test_a_name_is_one_line():
    assert one_line("a\n\tb") == "a\\u000a\\u0009b"
