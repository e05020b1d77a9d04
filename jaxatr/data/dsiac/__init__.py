"""The DSIAC ATR Algorithm Development Image Database: its files, and what of them can be used."""

from jaxatr.data.dsiac.agt import GroundTruth, Target, read_agt
from jaxatr.data.dsiac.arf import Arf, Footer, open_arf
from jaxatr.data.dsiac.bbox_met import Corners, read_corners
from jaxatr.data.dsiac.boxes import SOURCES, Box, find_box
from jaxatr.data.dsiac.chips import cut, image_dtype
from jaxatr.data.dsiac.clips import Clip, find_clips
from jaxatr.data.dsiac.names import BANDS, PAPER_CLASSES, RANGES_M, TARGETS
from jaxatr.data.dsiac.survey import Look, Survey, survey, turn_of

__all__ = [
    "BANDS",
    "PAPER_CLASSES",
    "RANGES_M",
    "SOURCES",
    "TARGETS",
    "Arf",
    "Box",
    "Clip",
    "Corners",
    "Footer",
    "GroundTruth",
    "Look",
    "Survey",
    "Target",
    "cut",
    "find_box",
    "find_clips",
    "image_dtype",
    "open_arf",
    "read_agt",
    "read_corners",
    "survey",
    "turn_of",
]
