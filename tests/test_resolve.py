"""Resolving dotted paths."""

import math

import pytest

from jaxatr.resolve import resolve


def test_resolves_both_spellings_and_nested_names():
    assert resolve("math:pi") is math.pi
    assert resolve("math.pi") is math.pi
    assert resolve("collections:OrderedDict.fromkeys")("a") == {"a": None}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("math", "does not name an object"),
        (".math:sqrt", "does not name an object"),
        ("math:sqr", "did you mean 'sqrt'"),
        ("no_such_module_here:x", "no module 'no_such_module_here'"),
        ("os.no_such:x", "no module 'os.no_such'"),
    ],
)
def test_errors_name_the_part_that_is_wrong(path, message):
    with pytest.raises(ValueError, match=message):
        resolve(path)


def test_a_missing_import_inside_the_module_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "wants_more.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        resolve("wants_more:x")
