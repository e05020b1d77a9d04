"""The help page: usage, summary, the command's flags and further text."""

import re
import types

import pytest
from absl import flags

from jaxatr.cli import convert, evaluate, explain, help_page, inputs, predict, prepare
from jaxatr.data import sources


@pytest.mark.parametrize("command", [convert, evaluate, explain, predict])
def test_a_page_says_everything_in_its_columns(flags_of, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    needed = ["--workdir=x", "--out=x"] if command is explain else ["--workdir=x"]
    flags_of(command, *needed)
    own = [flags.FLAGS[name] for name in flags.FLAGS]
    lines = help_page.page(command, own).splitlines()
    assert lines[0].startswith(f"usage: jaxatr {command.__name__.rpartition('.')[2]} ")
    assert command.__doc__.partition("\n")[0] in lines
    rows = lines[lines.index("flags:") + 1 :]
    shown = [flag for flag in own if flag.name not in inputs.FORMER]
    assert sum(row.startswith("  --") for row in rows) == len(shown)
    assert all(len(row) <= 80 for row in rows)


@pytest.fixture
def described():
    """Returns a function that formats a flag as on the help page."""

    def described(kind, *arguments, **options):
        values = flags.FlagValues()
        getattr(flags, f"DEFINE_{kind}")("one", *arguments, **options, flag_values=values)
        command = types.SimpleNamespace(__doc__="Does it.\n\njaxatr toy")
        page = help_page.page(command, [values["one"]])
        return " ".join(page.split("flags:\n")[1].split("\n\n")[0].split())

    return described


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        (("bool", True, "Goes on."), "--[no]one Goes on. Default: on."),
        (("bool", False, "Goes on."), "--[no]one Goes on."),
        (("integer", 0, "a seed"), "--one a seed. Default: 0."),
        (("string", None, "A file."), "--one A file."),
        (("string", "x", "A file; default: that."), "--one A file; default: that."),
        (("enum", "a", ["a", "b"], "Which."), "--one Which. One of a, b. Default: a."),
        (("multi_string", [], "Several."), "--one Several."),
    ],
)
def test_a_flag_names_its_values(described, definition, text):
    assert described(*definition) == text


def test_a_flag_that_must_be_given_says_so(described):
    assert described("string", None, "A folder.", required=True) == "--one A folder. Required."


def test_a_long_name_has_a_line_of_its_own():
    assert help_page.columns("a" * 30, "meaning", 10) == ["  " + "a" * 30, " " * 10 + "meaning"]


def test_help_of_preparing_has_every_option_of_every_source():
    listed = prepare.description([]).split("options of the data sets, for --option:\n")[1]
    for name in sources.names():
        own = re.split(r"^  (?! )", listed.split(f"  {name}\n")[1], flags=re.MULTILINE)[0]
        options = sources.find(name).options
        assert re.findall(r"^    (\w+)", own, re.MULTILINE) == [*options]
        assert all(" ".join(option.meaning.split()[:2]) in own for option in options.values())
