"""Draws the simulated vehicles at every range in both bands, with their size in sensor pixels.

python experiments/open_set_atr/contact_sheet.py [--aspect=55] [--crop=window]
"""

from pathlib import Path

import numpy as np
from absl import app, flags
from PIL import Image, ImageDraw, ImageFont

from jaxatr.data.sources import simulated

_OUT = flags.DEFINE_string("out", "docs/images/simulated.png", "the PNG to write")
_ASPECT = flags.DEFINE_float("aspect", 55.0, "degrees clockwise, 0 faces the sensor")
_CROP = flags.DEFINE_enum("crop", "box", ["box", "window"], "how chips are cut")
_SEED = flags.DEFINE_integer("seed", 0, "the data set's seed")
_RANGES = (1000, 2000, 3000, 4000, 5000)
_CELL, _GAP, _LEFT, _TOP = 96, 4, 104, 46


def _sheet(aspect: float, crop: str, seed: int) -> Image.Image:
    bands, vehicles = simulated.BANDS, simulated.VEHICLES
    views = [
        simulated.View(vehicle, aspect, range_m, band, (seed, vehicle, range_m, band))
        for vehicle in range(len(vehicles))
        for range_m in _RANGES
        for band in range(len(bands))
    ]
    rendered = simulated.render(views, crop=crop)
    chips = rendered["image"]
    shape = (len(vehicles), len(_RANGES), len(bands))
    images = chips.reshape(*shape, *chips.shape[1:3])
    pixels = rendered.get("sensor_pixels", np.zeros(len(views))).reshape(shape)
    step = _CELL + _GAP
    width = _LEFT + 2 * len(_RANGES) * step + 2 * _GAP
    sheet = Image.new("L", (width, _TOP + len(images) * step), 255)
    draw, font, small = (
        ImageDraw.Draw(sheet),
        ImageFont.load_default(15),
        ImageFont.load_default(11),
    )
    for (row, column, band), _ in np.ndenumerate(images[..., 0, 0]):
        left = _LEFT + (band * len(_RANGES) + column) * step + 2 * _GAP * band
        top = _TOP + row * step
        chip = Image.fromarray(images[row, column, band])
        sheet.paste(chip.resize((_CELL, _CELL), Image.Resampling.NEAREST), (left, top))
        if across := round(float(pixels[row, column, band])):
            draw.text((left + 4, top + _CELL - 15), f"{across} px", fill=255, font=small)
        if row == 0:
            draw.text((left + 22, 24), f"{_RANGES[column]} m", fill=0, font=font)
        if row == 0 and column == 0:
            draw.text((left, 3), bands[band], fill=0, font=font)
        if column == 0 and band == 0:
            draw.text((6, top + _CELL // 2 - 9), vehicles[row], fill=0, font=font)
    return sheet


def main(argv):
    del argv
    out = Path(_OUT.value)
    out.parent.mkdir(parents=True, exist_ok=True)
    _sheet(_ASPECT.value, _CROP.value, _SEED.value).save(out, optimize=True)


if __name__ == "__main__":
    app.run(main)
