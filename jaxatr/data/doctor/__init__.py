"""Checks of a data set before training.

A :class:`Subject` is a set of labelled images; one pass over them gathers ``facts`` about each.
From these, ``alike`` finds duplicates and near-duplicates, ``leaks`` measures how well the class
can be predicted without the target, and ``diagnosis`` lists the findings and remedies. ``labels``
ranks labels that may be wrong.
"""

from jaxatr.data.doctor.alike import Pairs
from jaxatr.data.doctor.diagnosis import ALIKE, Diagnosis, Finding, examine, relations
from jaxatr.data.doctor.labels import Suspects, suspects
from jaxatr.data.doctor.leaks import Leak
from jaxatr.data.doctor.subject import Subject, of_dataset, of_folder

__all__ = [
    "ALIKE",
    "Diagnosis",
    "Finding",
    "Leak",
    "Pairs",
    "Subject",
    "Suspects",
    "examine",
    "of_dataset",
    "of_folder",
    "relations",
    "suspects",
]
