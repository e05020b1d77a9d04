"""Data sets stored on disk as array_record and read through grain as batches of NumPy arrays.

``catalogue`` opens or prepares a data set by name. The set comes from one of the ``sources``, each
of which follows the protocol in ``source``. On disk it consists of ``records`` and their ``index``,
in the folders of the ``cache``. A ``dataset`` has splits. ``selection`` chooses their examples (by
``splits`` into known and unknown classes, by ``hierarchies`` of classes, by ``tracks``), ``chip``
cuts them to size, ``pipeline`` and ``tuples`` batch them, and ``augment`` varies them on the
device. ``augmentations`` and ``mixing`` hold further variations, which are off by default.
"""

from jaxatr.data.added import added
from jaxatr.data.augment import augment
from jaxatr.data.balance import BALANCES, UNBALANCED, balanced_pass, class_weights
from jaxatr.data.bands import PLAIN, Bands, Choice, chosen, preview_of, read_folder, shown
from jaxatr.data.catalogue import find_dataset, open_dataset, prepare
from jaxatr.data.chip import Chip
from jaxatr.data.class_names import class_name
from jaxatr.data.combined_splits import (
    chips_and_images,
    concatenated,
    read_images,
    read_names,
    read_rounds,
)
from jaxatr.data.corrections import corrected
from jaxatr.data.dataset import SCENE_ARRAYS, Dataset, Split
from jaxatr.data.folds import Fold, check_divided, group_values, stratified_folds
from jaxatr.data.hierarchies import Hierarchy, coarse_of, hierarchy
from jaxatr.data.image_facts import FACTS, image_facts
from jaxatr.data.image_paths import (
    ImagePath,
    ImagePaths,
    describe_passed,
    image_paths,
    line_of,
    reason_of,
)
from jaxatr.data.images import (
    ImageError,
    MissingImageError,
    as_image,
    is_array_image,
    read_image,
)
from jaxatr.data.intake import Intake, normalize
from jaxatr.data.mixing import mix
from jaxatr.data.other_boxes import box_errors, other_boxes
from jaxatr.data.others import Others, check_others, read_others
from jaxatr.data.outliers import read_chips
from jaxatr.data.pipeline import (
    BatchIterator,
    EvalBatches,
    eval_batches,
    image_statistics,
    train_batches,
)
from jaxatr.data.row_tables import Cell, check_table, csv_text, parquet_bytes, write_table
from jaxatr.data.selection import holdout, select
from jaxatr.data.source import Source
from jaxatr.data.sources import with_flags as options_with_flags
from jaxatr.data.splits import KnownUnknown, hold_out_classes, known_unknown, listed
from jaxatr.data.thumbnails import contact_sheet, thumbnail
from jaxatr.data.tracks import Tracks, check_tracks, tracks_of
from jaxatr.data.truth import Truth
from jaxatr.data.tuples import class_batches, eval_tuple_batches, tuple_batches
from jaxatr.data.warp import moved

__all__ = [
    "BALANCES",
    "UNBALANCED",
    "balanced_pass",
    "class_weights",
    "added",
    "corrected",
    "FACTS",
    "PLAIN",
    "Bands",
    "BatchIterator",
    "Cell",
    "Chip",
    "Choice",
    "Dataset",
    "EvalBatches",
    "Fold",
    "Hierarchy",
    "ImageError",
    "MissingImageError",
    "ImagePath",
    "ImagePaths",
    "Intake",
    "KnownUnknown",
    "Others",
    "SCENE_ARRAYS",
    "Source",
    "Split",
    "Tracks",
    "Truth",
    "as_image",
    "augment",
    "box_errors",
    "check_divided",
    "check_others",
    "check_table",
    "check_tracks",
    "chips_and_images",
    "chosen",
    "class_name",
    "class_batches",
    "concatenated",
    "coarse_of",
    "contact_sheet",
    "csv_text",
    "describe_passed",
    "eval_batches",
    "eval_tuple_batches",
    "find_dataset",
    "group_values",
    "hierarchy",
    "hold_out_classes",
    "holdout",
    "image_facts",
    "image_paths",
    "image_statistics",
    "known_unknown",
    "is_array_image",
    "line_of",
    "listed",
    "mix",
    "moved",
    "normalize",
    "open_dataset",
    "options_with_flags",
    "other_boxes",
    "parquet_bytes",
    "prepare",
    "preview_of",
    "read_chips",
    "read_folder",
    "read_image",
    "read_images",
    "read_names",
    "read_rounds",
    "read_others",
    "reason_of",
    "select",
    "shown",
    "stratified_folds",
    "thumbnail",
    "tracks_of",
    "train_batches",
    "tuple_batches",
    "write_table",
]
