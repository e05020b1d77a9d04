"""An extension of Griffe that renders roles, formulas and examples in docstrings, for mkdocstrings.

Roles become links, formulas become MathML, which browsers show without a script, and examples of
doctest become code. Markdown has none of them.
"""

import re
from typing import Any

import griffe
from latex2mathml.converter import convert

_REFERENCE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(~?)([\w.]+)`")
_FORMULA = re.compile(r":math:`([^`]+)`")
_DISPLAYED = re.compile(r"^\.\. math::(.*(?:\n(?:[ \t]*\n)*[ \t]+\S.*)*)", re.MULTILINE)
_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Replaces roles (``:func:`load```), formulas (``:math:`\\alpha```) and examples (``>>> f()``).

    A name whose object is not on any page becomes code without a link.
    """

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of an object that was loaded."""
        if obj.docstring is None:
            return
        text = _EXAMPLE.sub("```pycon\n\\g<0>\n```", obj.docstring.value)
        text = _DISPLAYED.sub(_displayed, text)
        text = _FORMULA.sub(_inline, text)
        obj.docstring.value = _REFERENCE.sub(lambda found: _link(obj, found), text)


def _displayed(found: re.Match[str]) -> str:
    """Converts a displayed formula; a long one scrolls, so that the page fits a phone."""
    formula = convert(" ".join(found[1].split()), display="block")
    return f'<div style="overflow-x: auto">{formula}</div>'


def _inline(found: re.Match[str]) -> str:
    """Converts a formula in a sentence. Markdown would make a block of one that begins a line."""
    return f"<span>{convert(' '.join(found[1].split()))}</span>"


def _link(obj: griffe.Object, found: re.Match[str]) -> str:
    short, name = found.groups()
    shown = name.rpartition(".")[2] if short else name
    return f'<autoref optional identifier="{_path(obj, name)}"><code>{shown}</code></autoref>'


def _path(obj: griffe.Object, name: str) -> str:
    """Finds the full path of a name in an object's docstring."""
    first, dot, rest = name.partition(".")
    try:
        return f"{obj.resolve(first)}{dot}{rest}"
    except griffe.NameResolutionError:
        return name
