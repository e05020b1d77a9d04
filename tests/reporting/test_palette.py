"""The colours of classes and runs are distinguishable, also for colour-blind readers."""

import itertools
import re
from importlib import resources

import numpy as np
import pytest

# What dichromats see, in linear RGB (Machado, Oliveira and Fernandes 2009, severity 1).
VISION = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
# Linear RGB to the cone responses of Oklab, and their cube roots to Oklab (Ottosson 2020).
TO_CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
TO_LAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def linear(text):
    values = np.array([int(text[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def theme(number):
    """The page's colours by name, of the light theme (0) or the dark one (1)."""
    style = resources.files("jaxatr.reporting").joinpath("templates/style.css").read_text()
    block = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[number]
    return {name: linear(text) for name, text in re.findall(r"--(\w+): (#\w{6})", block)}


@pytest.mark.parametrize("number", [0, 1], ids=["light", "dark"])
def test_graphics_stand_out_from_the_card(number):
    """Contrast ratio of two colours (WCAG 2.1, 1.4.11)."""
    colours = theme(number)
    for place in range(8):
        light, dark = sorted(
            np.dot([0.2126, 0.7152, 0.0722], colours[name]) for name in (f"c{place}", "card")
        )[::-1]
        assert (light + 0.05) / (dark + 0.05) >= 3


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("number", [0, 1], ids=["light", "dark"])
def test_colours_differ_to_every_eye(number, vision):
    colours, seen = theme(number), []
    for place in range(8):
        cones = np.clip(np.dot(VISION[vision], colours[f"c{place}"]), 0, 1)
        seen.append(np.dot(TO_LAB, np.cbrt(np.dot(TO_CONES, cones))))
    apart = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in PAIRS}
    # A just noticeable difference is about 0.02; to normal sight blue and navy are 0.12 apart.
    assert min(apart.values()) >= (0.12 if vision == "normal" else 0.08)


PAIRS = list(itertools.combinations(range(8), 2))
