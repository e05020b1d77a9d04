"""The DSIAC ATR Algorithm Development Image Database: readers of its files, and its data source.

Each example has ``range_m``, ``band``, ``time``, ``aspect_deg``, ``clip``, ``track`` (one target in
one turn of one clip), ``frame`` (as the files count, from 1), ``frame_box`` (``y0, x0, y1, x1`` in
the frame, not in the chip), ``box_source`` and ``target_range_m`` (as the ground truth has it; NaN
if it is missing). Before the middle of a clip one frame in 60 is left out, because neighbouring
frames are almost equal.

A clip whose header, subheaders and size contradict each other is damaged. Ground truth that breaks
its specification is not used, and counted: malformed or repeated values, targets whose block has no
end, second updates of a frame. Unknown names are ignored.

Where the descriptions of the formats differ or are silent, this is inferred: image type 3 is
unsigned (values below 32768 are the same); the colour map has 3072 or 768 bytes, whichever fits the
file; where the flags and the file's size disagree on the footers, the size decides; pixels count
from 0; targets' frames that begin at the clip's last number are counted on from the sensor's, and
are set back. An estimated box assumes a field of view of 3.4° × 2.6° if the file has none.
"""

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
