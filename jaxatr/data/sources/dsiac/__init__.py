"""The DSIAC ATR Algorithm Development Image Database: readers of its files, and its data source."""

from jaxatr.data.sources.dsiac.agt import AgtTarget, GroundTruth, read_agt
from jaxatr.data.sources.dsiac.arf import Arf, Footer, open_arf
from jaxatr.data.sources.dsiac.bbox_met import Corners, read_corners
from jaxatr.data.sources.dsiac.boxes import SOURCES, Box, find_box
from jaxatr.data.sources.dsiac.chips import cut, image_dtype
from jaxatr.data.sources.dsiac.clips import Clip, find_clips
from jaxatr.data.sources.dsiac.names import BANDS, PAPER_CLASSES, RANGES_M, TARGETS
from jaxatr.data.sources.dsiac.source import PART
from jaxatr.data.sources.dsiac.survey import Look, Survey, survey, turn_of

__all__ = [
    "BANDS",
    "PAPER_CLASSES",
    "RANGES_M",
    "PART",
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
    "AgtTarget",
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
