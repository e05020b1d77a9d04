"""A check of a data set before anything is trained on it.

A :class:`Subject` is a set of labelled images; ``facts`` about each come from one reading of it.
From these, ``alike`` finds equal and nearly equal images, ``leaks`` how far the class is known
without its target, and ``diagnosis`` says what is to be mended.
"""

from jaxatr.data.doctor.alike import Pairs
from jaxatr.data.doctor.diagnosis import ALIKE, Diagnosis, Finding, examine, relations
from jaxatr.data.doctor.leaks import Leak
from jaxatr.data.doctor.subject import Subject, of_dataset, of_folder

__all__ = [
    "ALIKE",
    "Diagnosis",
    "Finding",
    "Leak",
    "Pairs",
    "Subject",
    "examine",
    "of_dataset",
    "of_folder",
    "relations",
]
