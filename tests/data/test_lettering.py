"""Texts in pictures: every character is drawn, or replaced by one that is."""

import pytest
from PIL import ImageFont

from jaxatr.data import lettering
from jaxatr.data.lettering import lettered


def drawn(character, font):
    return bytes(font.getmask(character))


def test_ascii_has_the_font_of_every_machine():
    text, font = lettered("BTR70 (known)")
    assert text == "BTR70 (known)" and font.getname() == ImageFont.load_default(13).getname()


@pytest.mark.parametrize("text", ["Sch\u00fctzenpanzer", "\u0422-72"])
def test_no_character_is_a_box(text, monkeypatch):
    shown, font = lettered(text)
    missing = drawn("\uffff", font)
    assert all(drawn(character, font) != missing for character in shown)
    monkeypatch.setattr(lettering, "_FURTHER", ("no such font.ttf",))
    shown, font = lettered(text)
    assert shown == {"S": "Schutzenpanzer", "\u0422": "?-72"}[text[0]]
    assert font.getname() == ImageFont.load_default(13).getname()
