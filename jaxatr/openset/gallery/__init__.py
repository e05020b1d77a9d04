"""A gallery of training examples: its construction, search, and reduction.

Examples are stored in float16. :mod:`~jaxatr.openset.gallery.reranking` searches a large gallery in
two stages, :mod:`~jaxatr.openset.gallery.pieces` one that is split over processes.
"""

from jaxatr.openset.gallery.build import (
    LEAST,
    Gallery,
    Remote,
    build,
    directions,
    extended,
    in_double,
    is_gallery,
    numpy_of,
    of,
    unit,
    with_examples,
    without_examples,
)
from jaxatr.openset.gallery.reranking import Index
from jaxatr.openset.gallery.rounding import Rounded, at, products, products_at, rounded
from jaxatr.openset.gallery.search import (
    BLOCK,
    class_distances,
    cosines,
    dot,
    in_blocks,
    proximities,
    ready,
    two_nearest,
    unit_cosines,
)

__all__ = [
    "at",
    "BLOCK",
    "Gallery",
    "Index",
    "LEAST",
    "Remote",
    "Rounded",
    "build",
    "class_distances",
    "cosines",
    "directions",
    "dot",
    "extended",
    "in_blocks",
    "in_double",
    "is_gallery",
    "numpy_of",
    "of",
    "products",
    "products_at",
    "proximities",
    "ready",
    "rounded",
    "two_nearest",
    "unit",
    "unit_cosines",
    "with_examples",
    "without_examples",
]
